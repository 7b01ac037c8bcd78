/* What a step of an asynchronous schedule takes once its pipeline is full. Devices come to repeat what they do, some only after many
 * steps, and not from minibatch to minibatch: those that wait for one another come in spurts. So the schedule is played for longer
 * than it is shown (STEADY_TIMES), and as many updates of a device count as make one round of what repeats. */
#include <math.h>
#include "simulate.h"

static const double NEAR = 1e-6; /* times that differ by less of their sum are one */

/* Whether the last `many` of the times between n ends repeat each other every `cycle`. */
static bool repeats(const double *end, int n, int cycle, int many)
{
	const double near = NEAR * (end[n - 1] - end[n - 1 - many]);

	for (int i = n - 1; i > n - 1 - many + cycle; i--)
		if (fabs(end[i] - end[i - 1] - (end[i - cycle] - end[i - cycle - 1])) > near)
			return false;
	return true;
}

/* Seconds of a step from update to update of a device, before the drain, when the last updates of Pipe-SGD, and those of what is
 * in flight, come at once; of the second half where nothing repeats. end: room for all; 0: too few are shown. */
static double between_updates(const Sim *out, int rank, int stage, double *end)
{
	const Schedule *s = out->model->s;
	int n = 0;

	for (int i = 0; i < out->nspan; i++)
		if (out->span[i].rank == rank && out->span[i].kind == ACT_UPDATE)
			end[n++] = out->span[i].end;
	const double share = (double)n / out->steps;
	n -= s->late + (s->round ? 0 : s->depth[stage] - 1);
	if (n < 2)
		return 0;
	for (int c = 1; 2 * c < n; c++)
		if (repeats(end, n, c, 2 * c > n / 2 ? 2 * c : n / 2))
			return (end[n - 1] - end[n - 1 - c]) / c * share;
	const int from = (n - 1) / 2;
	return (end[n - 1] - end[from]) / (n - 1 - from) * share;
}

/* The slowest device says: those before it run ahead until their slots are full. */
static double slowest(Arena *a, const Sim *out)
{
	const Schedule *s = out->model->s;
	double *end = NEWN(a, double, out->nspan + 1), most = 0;

	for (int t = 0; t < s->nstage; t++)
		for (int k = 0; k < s->replicas[t]; k++)
			most = fmax(most, between_updates(out, s->device[t][k], t, end));
	return most;
}

bool sim_steady(Arena *a, Sim *out, Diag *d)
{
	const Schedule *s = out->model->s;
	SimModel m = *out->model;
	Sim more = { .each = 0 };

	out->steps = s->async && s->per_step > 0 ? s->nmicro / s->per_step : 1;
	out->each = out->step / out->steps;
	if (out->steps < 2)
		return true;
	if (!m.longer) {
		Arena *own = arena_new();
		m.s = schedule_longer(own, s, STEADY_TIMES);
		m.longer = true;
		const bool ok = simulate(own, &m, &more, d);
		arena_free(own);
		out->each = more.each;
		return ok;
	}
	const double most = slowest(a, out);
	out->each = most > 0 ? most : out->each;
	return true;
}
