/* --schedule auto: the schedule whose step the simulator finds shortest, among those that compute what one device would
 * (1f1b, dapple, gpipe, zb-h1 on the plan that was found; interleaved and zbv on their own best plan, where no plan was
 * asked for), and that fit into memory by the planning model. A later one must be faster by a hundredth. */
#include <math.h>
#include <string.h>
#include "plansearch.h"
#include "passes/schedule/sched.h"

/* Bytes of the fullest device beside its limit, with the depths of the schedule. */
static double fullness(const PlanModel *p, const Trial *t, const SimModel *x)
{
	Arena *a = arena_new();
	TrialStage *s = trial_stages(a, p, t);
	double *need = NEWN(a, double, x->s->ndevice), most = 0;

	for (int i = 0; i < t->n; i++) {
		s[i].inflight = x->s->inflight[i];
		for (int r = 0; r < t->replicas[i]; r++)
			need[x->s->device[i][r]] += stage_memory(p, &s[i], (t->micro + t->replicas[i] - 1) / t->replicas[i]);
	}
	for (int r = 0; r < x->s->ndevice; r++) {
		const double limit = (double)p->c->device[x->device[r]].memory;
		most = limit > 0 ? fmax(most, need[r] / limit) : most;
	}
	arena_free(a);
	return most;
}

/* Seconds per microbatch of the plan under that schedule; INFINITY where there is none, or no room for it. */
static double played(PlanModel *p, const Trial *t, const char *name, double *step)
{
	Arena *a = arena_new();
	Diag silent = { .out = stderr, .errors = 1, .scratch = a };
	Sim sim;

	p->schedule = name;
	const SimModel *x = trial_sim(a, p, t);
	*step = INFINITY;
	if (!strncmp(x->s->name, name, strlen(name)) && fullness(p, t, x) <= 1 && simulate(a, x, &sim, &silent))
		*step = sim.step;
	arena_free(a);
	return *step / (double)t->micro;
}

const Trial *choose_schedule(PlanSearch *s, Segments *g, PlanModel *p, const Trial *base, bool asked)
{
	static const char *const name[] = { "1f1b", "dapple", "gpipe", "zb-h1", "interleaved:2", "interleaved:3", "interleaved:4",
		"zbv" };
	const Trial *best = base;
	double least = INFINITY, step;

	g->m->schedule_name = name[0];
	for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
		p->schedule = name[i];
		const Trial *t = schedule_chunks(name[i]) == 1 ? base : asked ? NULL : chunked_plan(s, g, name[i], true);
		const double score = t ? played(p, t, name[i], &step) : INFINITY;
		if (g->cx->explain && t)
			buf_printf(g->cx->explain, isfinite(score) ? "schedule %s: step %.4g ms\n" : "schedule %s: does not fit\n", name[i],
				1e3 * step);
		if (score < 0.99 * least) {
			least = score;
			best = t;
			g->m->schedule_name = name[i];
		}
	}
	p->schedule = g->m->schedule_name;
	if (best != base)
		return best;
	Trial *own = trial_new(s->a, base->n, base->ndevice, base->by);
	memcpy(own->end, base->end, sizeof *base->end * (size_t)base->n);
	memcpy(own->replicas, base->replicas, sizeof *base->replicas * (size_t)base->n);
	memcpy(own->device, base->device, sizeof *base->device * (size_t)base->ndevice);
	own->micro = base->micro;
	trial_judge(p, own);
	trial_play(p, own);
	return own;
}
