/* --schedule auto: the schedule whose step the simulator finds shortest, among the candidates of schedules.def (those of one
 * stage per device on the plan that was found; those of several on their own best plan, where no plan was asked for), and
 * that fit into memory by the planning model. A later one must be faster by a hundredth. */
#include <math.h>
#include "ir/base/human.h"
#include "plan_search.h"
#include "passes/schedule/sched.h"
#include "passes/schedule/placement.h"

/* What a schedule comes to: seconds per microbatch; INFINITY where there is no plan, or no room for it. */
typedef struct Come {
	const Trial *t;
	double score;
} Come;

typedef struct Choice {
	PlanSearch *s;
	PlanModel *p;
	const Trial *base;
	bool asked;
	Come best;
	double scale; /* of memory, whatever the schedule */
	Buf *explain;
	ScheduleSpec chosen;
} Choice;

/* The model is asked for this schedule. */
static void ask_for(PlanModel *p, ScheduleSpec spec, double scale)
{
	p->schedule = p->played = spec;
	p->memory_scale = scale * trial_corrected(p, spec).memory;
}

static void come(const PlanModel *p, Come *x, const Trial *t)
{
	const double score = t && t->over <= 1 ? t->score * trial_corrected(p, p->schedule).time : INFINITY;

	if (score < x->score)
		*x = (Come){ t, score };
}

/* The base plan under the schedule of p; NULL: there is none. */
static const Trial *same_plan(const Choice *c, Diag *d)
{
	Trial *t = trial_copy(c->s->a, c->base);

	if (!trial_possible(c->p, t, d))
		return NULL;
	trial_judge(c->p, t);
	trial_play(c->p, t);
	return t;
}

/* Was the search for the base plan little work, so that every schedule can have its own? */
static bool is_small(const Choice *c) { return c->s->work < c->s->budget; }

/* The best of a search, or of a first look, under the schedule of p. */
static const Trial *own_plan(const Choice *c, Diag *d)
{
	PlanSearch own;

	search_start(&own, c->s->a, c->p);
	own.no_exhaustive = c->s->no_exhaustive;
	if (!is_small(c))
		search_lightly(&own);
	return plan_search(&own, PLANNER_AUTO, DP_MEASURED, d) && trial_possible(c->p, own.best, d) ? own.best : NULL;
}

/* The same plan under the schedule; and where no plan was asked for the best that it has of equal replicas, if stages share devices or
 * backwards come in parts, for which other plans are best than for 1F1B. Of one stage per device the best of a search of its own too:
 * where backwards come in parts, where that is little work, or nothing fits so far. */
static void try_schedule(Choice *c, ScheduleSpec spec)
{
	const bool own = schedule_chunks(spec) == 1;
	Diag silent = { .out = stderr, .errors = 1, .scratch = c->s->a };
	Come x = { own ? c->base : NULL, INFINITY };
	NoPlan why;

	ask_for(c->p, spec, c->scale);
	if (own)
		come(c->p, &x, same_plan(c, &silent));
	if (!c->asked && own && spec.kind != SCHEDULE_PLAIN &&
		(schedule_splits(spec) || is_small(c) || !isfinite(c->best.score)))
		come(c->p, &x, own_plan(c, &silent));
	if (!c->asked && (!own || schedule_splits(spec)))
		come(c->p, &x, equal_plan(c->s, spec, fmin(x.score, 0.99 * c->best.score), &why, &silent));
	if (c->explain && x.t)
		buf_printf(c->explain, isfinite(x.score) ? "schedule %s: step %s\n" : "schedule %s: does not fit\n",
			schedule_str(c->s->a, spec), time_text(c->s->a, x.t->step));
	else if (c->explain && !c->asked)
		buf_printf(c->explain, "schedule %s: no plan is faster\n", schedule_str(c->s->a, spec));
	if (x.score < 0.99 * c->best.score) {
		c->best = x;
		c->chosen = spec;
	}
}

const Trial *choose_schedule(
	PlanSearch *s, PlanModel *p, const Trial *base, bool asked, Buf *explain, ScheduleSpec *chosen)
{
	Choice c = { s, p, base, asked, { base, INFINITY }, p->memory_scale / trial_corrected(p, p->schedule).memory,
		explain, { .kind = SCHEDULE_PLAIN } };

	for (ScheduleKind k = SCHEDULE_PLAIN; k < SCHEDULES; k++)
		for (int n = schedule_table[k].first; n && n <= schedule_table[k].last; n++)
			try_schedule(
				&c, (ScheduleSpec){ .kind = k, .n = schedule_table[k].param == PARAM_COUNT ? n : 0 });
	*chosen = c.chosen;
	ask_for(p, c.chosen, c.scale);
	if (c.best.t != base)
		return c.best.t;
	Trial *best = trial_copy(s->a, base);
	trial_judge(p, best);
	trial_play(p, best);
	return best;
}
