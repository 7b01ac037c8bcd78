/* --schedule auto: the schedule whose step the simulator finds shortest, among the candidates of schedules.def (those of one
 * stage per device on the plan that was found; those of several on their own best plan, where no plan was asked for), and
 * that fit into memory by the planning model. A later one must be faster by a hundredth. */
#include <math.h>
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
	PlanModel *p;
	const Trial *base, *best;
	bool asked;
	double least;
	Buf *explain;
	ScheduleSpec chosen;
} Choice;

/* What a schedule comes to. */
typedef struct Come {
	const Trial *t;
	double score, step;
} Come;

static void come(const Choice *c, Come *x, const Trial *t)
{
	double step;
	const double score = t ? played(c->p, t, &step) : INFINITY;

	if (score < x->score)
		*x = (Come){ t, score, step };
}

/* The best of a first look under the schedule of p. */
static const Trial *first_look(const Choice *c, Diag *d)
{
	PlanSearch own;

	search_start(&own, c->s->a, c->p);
	search_lightly(&own);
	return plan_search(&own, PLANNER_AUTO, DP_MEASURED, d) ? own.best : NULL;
}

/* The same plan under the schedule; and where no plan was asked for the best that it has of equal replicas, if stages share devices or
 * backwards come in parts, for which other plans are best than for 1F1B. */
static void try_schedule(Choice *c, ScheduleSpec spec)
{
	const bool own = schedule_chunks(spec) == 1;
	Diag silent = { .out = stderr, .errors = 1, .scratch = c->s->a };
	Come x = { own ? c->base : NULL, INFINITY, INFINITY };
	NoPlan why;

	c->p->schedule = c->p->played = spec;
	come(c, &x, x.t);
	if (!c->asked && own && schedule_splits(spec))
		come(c, &x, first_look(c, &silent));
	if (!c->asked && (!own || schedule_splits(spec)))
		come(c, &x, equal_plan(c->s, spec, fmin(x.score, 0.99 * c->least), &why, &silent));
	if (c->explain && x.t)
		buf_printf(c->explain, isfinite(x.score) ? "schedule %s: step %s\n" : "schedule %s: does not fit\n",
			schedule_str(c->s->a, spec), time_text(c->s->a, x.step));
	else if (c->explain && !c->asked)
		buf_printf(c->explain, "schedule %s: no plan is faster\n", schedule_str(c->s->a, spec));
	if (x.score < 0.99 * c->least) {
		c->least = x.score;
		c->best = x.t;
		c->chosen = spec;
	}
}

const Trial *choose_schedule(
	PlanSearch *s, PlanModel *p, const Trial *base, bool asked, Buf *explain, ScheduleSpec *chosen)
{
	Choice c = { s, p, base, base, asked, INFINITY, explain, { .kind = SCHEDULE_PLAIN } };

	for (ScheduleKind k = SCHEDULE_PLAIN; k < SCHEDULES; k++)
		for (int n = schedule_table[k].first; n && n <= schedule_table[k].last; n++)
			try_schedule(
				&c, (ScheduleSpec){ .kind = k, .n = schedule_table[k].param == PARAM_COUNT ? n : 0 });
	*chosen = c.chosen;
	p->schedule = p->played = c.chosen;
	if (c.best != base)
		return c.best;
	Trial *own = trial_copy(s->a, base);
	trial_judge(p, own);
	trial_play(p, own);
	return own;
}
