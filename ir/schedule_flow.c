/* The turns of an asynchronous schedule (Turn), played as the program plays them: lists of actions from the start of a flow to
 * its drain. */
#include <string.h>
#include "schedule.h"

typedef struct Flow {
	Arena *a;
	Schedule *s;
	int every, steps;       /* of a rank; of what is shown */
	int rank, stage, grain; /* grain: its microbatches of a step, or of a round */
	int made;               /* updates */
	int *met;               /* by microbatch */
} Flow;

/* The version that the forward of a microbatch reads; step: its own. */
static int version_of(const Flow *f, int step)
{
	const Schedule *s = f->s;
	const int late = step / f->every - (s->depth[0] - 1);

	switch (s->rule) {
	case VERSION_VERTICAL: return f->stage == 0 ? f->made : late > 0 ? late : 0;
	case VERSION_PREVIOUS: return step > 0 ? step - 1 : 0;
	default: return f->made;
	}
}

static void play(Flow *f, const Turn *t, int now)
{
	Schedule *s = f->s;
	const int stage = f->stage, step = now - t->lag, mb = step * s->per_step + t->mb;

	const int place = s->round ? now / f->every % s->round[stage] : 0;

	if (step < 0 || step >= f->steps || (t->once && now >= f->every) || place < t->from || place > t->to)
		return;
	const int k = t->kind < ACT_SYNC ? step / f->every * f->grain + t->nth : 0;
	Action a = { .kind = t->kind,
		.stage = stage,
		.mb = mb,
		.slot = t->kind == ACT_RECV_F ? 0 : k % s->inflight[stage],
		.entry = k % s->entries[stage] };
	if (t->kind == ACT_F)
		a.version = f->met[mb] = version_of(f, step);
	if (t->kind == ACT_B)
		a.version = s->rule == VERSION_NEWEST ? f->made : f->met[mb];
	if (t->kind == ACT_UPDATE)
		a.version = ++f->made;
	schedule_push(f->a, s, f->rank, a);
}

static void play_device(Arena *a, Schedule *s, int stage, int replica, int steps)
{
	const int rank = s->device[stage][replica], every = s->robin ? s->replicas[stage] : 1;
	Flow f = { .a = a,
		.s = s,
		.every = every,
		.steps = steps,
		.rank = rank,
		.stage = stage,
		.grain = s->robin,
		.met = NEWN(a, int, s->nmicro) };

	for (int g = 0; g < s->per_step && !s->robin; g++)
		f.grain += s->replica_of[stage][g] == replica;
	for (int now = s->robin ? replica : 0; now < steps + s->lag + every; now += every)
		for (int i = 0; i < s->dev[rank].nturn; i++)
			play(&f, &s->dev[rank].turn[i], now);
}

void schedule_flow(Arena *a, Schedule *s, int steps)
{
	s->nmicro = steps * s->per_step;
	for (int t = 0; t < s->nstage; t++) {
		int *of = NEWN(a, int, s->nmicro);

		for (int g = 0; g < s->nmicro; g++)
			of[g] = s->robin ? g % s->replicas[t] : s->replica_of[t][g % s->per_step];
		s->replica_of[t] = of;
	}
	for (int t = 0; t < s->nstage; t++)
		for (int k = 0; k < s->replicas[t]; k++)
			play_device(a, s, t, k, steps);
}

Schedule *schedule_longer(Arena *a, const Schedule *was, int times)
{
	Schedule *s = NEW(a, Schedule);

	*s = *was;
	s->replica_of = arena_dup(a, was->replica_of, sizeof *was->replica_of * (size_t)was->nstage);
	s->dev = arena_dup(a, was->dev, sizeof *was->dev * (size_t)was->ndevice);
	for (int r = 0; r < s->ndevice; r++)
		s->dev[r].n = s->dev[r].cap = 0;
	schedule_flow(a, s, times * (was->nmicro / was->per_step));
	return s;
}
