/* --schedule auto: the schedule whose step the simulator finds shortest, among the candidates of schedules.def (those of one
 * stage per device on the plan that was found; those of several on their own best plan, where no plan was asked for), and
 * that fit into memory by the planning model. A later one must be faster by a hundredth. */
#include <math.h>
#include <string.h>
#include "ir/base/human.h"
#include "plan_search.h"
#include "passes/schedule/sched.h"
#include "passes/schedule/placement.h"

/* Bytes of the fullest device beside its limit, with the depths of the schedule. */
static double fullness(const PlanModel *p, const Trial *t, const SimModel *x)
{
	Arena *a = arena_new();
	TrialStage *s = trial_stages(a, p, t);
	double *need = NEWN(a, double, x->s->ndevice), most = 0;

	for (int i = 0; i < t->n; i++) {
		s[i].inflight = x->s->inflight[i];
		for (int r = 0; r < t->replicas[i]; r++)
			need[x->s->device[i][r]] += stage_memory(p, &s[i], trial_share(p, t, i));
	}
	for (int r = 0; r < x->s->ndevice; r++) {
		const double limit = (double)p->c->device[x->device[r]].memory;
		most = limit > 0 ? fmax(most, need[r] / limit) : most;
	}
	arena_free(a);
	return most;
}

/* Seconds per microbatch of the plan under that schedule; INFINITY where there is none, or no room for it. */
static double played(PlanModel *p, const Trial *t, double *step)
{
	Arena *a = arena_new();
	Diag silent = { .out = stderr, .errors = 1, .scratch = a };
	Sim sim;

	const SimModel *x = trial_sim(a, p, t);
	*step = INFINITY;
	if (x->s->kind == p->schedule.kind && fullness(p, t, x) <= 1 && simulate(a, x, &sim, &silent))
		*step = sim.step;
	arena_free(a);
	return *step / (double)t->micro;
}

typedef struct Choice {
	PlanSearch *s;
	Segments *g;
	PlanModel *p;
	const Trial *base, *best;
	bool asked;
	double least;
} Choice;

static void try_schedule(Choice *c, ScheduleSpec spec)
{
	const Module *m = c->g->m;
	double step;

	c->p->schedule = c->p->played = spec;
	const Trial *t = schedule_chunks(spec) == 1 ? c->base : c->asked ? NULL : chunked_plan(c->s, c->g, spec, true);
	const double score = t ? played(c->p, t, &step) : INFINITY;
	if (c->g->cx->explain && t)
		buf_printf(c->g->cx->explain,
			isfinite(score) ? "schedule %s: step %s\n" : "schedule %s: does not fit\n",
			schedule_str(m->arena, spec), time_text(m->arena, step));
	if (score < 0.99 * c->least) {
		c->least = score;
		c->best = t;
		c->g->m->chosen = spec;
	}
}

const Trial *choose_schedule(PlanSearch *s, Segments *g, PlanModel *p, const Trial *base, bool asked)
{
	Choice c = { s, g, p, base, base, asked, INFINITY };

	g->m->chosen = (ScheduleSpec){ .kind = SCHEDULE_PLAIN };
	for (ScheduleKind k = SCHEDULE_PLAIN; k < SCHEDULES; k++)
		for (int n = schedule_table[k].first; n && n <= schedule_table[k].last; n++)
			try_schedule(
				&c, (ScheduleSpec){ .kind = k, .n = schedule_table[k].param == PARAM_COUNT ? n : 0 });
	p->schedule = p->played = g->m->chosen;
	if (c.best != base)
		return c.best;
	Trial *own = trial_new(s->a, base->n, base->ndevice, base->by);
	memcpy(own->end, base->end, sizeof *base->end * (size_t)base->n);
	memcpy(own->replicas, base->replicas, sizeof *base->replicas * (size_t)base->n);
	memcpy(own->device, base->device, sizeof *base->device * (size_t)base->ndevice);
	own->micro = base->micro;
	trial_judge(p, own);
	trial_play(p, own);
	return own;
}
