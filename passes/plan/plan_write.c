/* The plan that was chosen, written down (ir/plan.h): stages of all nodes, what is known of each stage, where its step
 * goes, and what came next. */
#include <math.h>
#include <string.h>
#include "plan_search.h"
#include "ir/analysis.h"
#include "passes/schedule/placement.h"
#include "passes/schedule/schedule.h"

static bool used_in(const Value *param, int stage)
{
	for (int i = 0; i < param->nuses; i++)
		if (param->uses[i].node->phase != PHASE_UPDATE && param->uses[i].node->stage == stage)
			return true;
	return false;
}

static void describe(const Segments *p, Plan *plan)
{
	for (Node *n = p->m->graph->first; n; n = n->next) {
		PlanStage *s = &plan->stage[n->stage];
		if (n->phase == PHASE_UPDATE) {
			s->update += n->time;
			continue;
		}
		*(n->phase == PHASE_FWD ? &s->fwd : &s->bwd) += n->time;
		if (n->phase != PHASE_FWD)
			continue;
		s->nodes++;
		if (optab[n->op]->flags & OP_HEAVY) {
			s->last = node_label(n);
			s->first = s->first ? s->first : s->last;
		}
		for (int o = 0; o < n->nout; o++)
			for (int t = n->stage + 1; n->out[o] && t < plan->nstage; t++)
				if (used_in(n->out[o], t))
					s->out_bytes += value_bytes(n->out[o]);
	}
}

static double alone(const PlanModel *p, int64_t micro)
{
	double each = 0, update = 0;

	for (int i = 0; i < p->nlayer; i++) {
		each += p->fwd[0][i] + p->bwd[0][i];
		update += p->update[0][i];
	}
	return (double)micro * each + update;
}

/* Layer i waits for the forwards, or backwards, of others: the latest of them ends there. */
static double behind(const PlanModel *p, int i, bool back, const double *end)
{
	double latest = 0;

	for (int t = 0; t < p->ntensor; t++) {
		const PlanTensor *x = &p->tensor[t];
		for (int k = 0; k < x->nto; k++) {
			if (!back && x->kind != PLAN_BACKWARD && x->to[k] == i && x->from < i)
				latest = fmax(latest, end[x->from]);
			if (back && x->kind == PLAN_BOTH && x->to[k] == i && x->from < i)
				latest = fmax(latest, end[x->from]);
			if (back && x->kind == PLAN_BACKWARD && x->from == i && x->to[k] < i)
				latest = fmax(latest, end[x->to[k]]);
		}
	}
	return latest;
}

/* Seconds of the longest chain of forwards up to a layer, its backward, and the backwards that wait for that. */
static double longest_chain(const PlanModel *p)
{
	Arena *a = arena_new();
	double *fwd = NEWN(a, double, p->nlayer), *bwd = NEWN(a, double, p->nlayer), longest = 0;
	const double part = schedule_splits(p->schedule) ? 0.5 : 1; /* nobody waits for what is for weights */

	for (int i = 0; i < p->nlayer; i++) {
		double f = INFINITY, b = INFINITY;
		for (int c = 0; c < p->nclass; c++) {
			f = fmin(f, p->fwd[c][i]);
			b = fmin(b, part * p->bwd[c][i]);
		}
		fwd[i] = f + behind(p, i, false, fwd);
		bwd[i] = b + behind(p, i, true, bwd);
		longest = fmax(longest, fwd[i] + bwd[i]);
	}
	arena_free(a);
	return longest;
}

double plan_least(const PlanModel *p, int64_t micro)
{
	double rate = 0; /* microbatches per second, of all devices */

	for (int d = 0; d < p->c->ndevice; d++) {
		const int c = p->class_of[d];
		double each = 0;
		for (int i = 0; i < p->nlayer; i++)
			each += p->fwd[c][i] + p->bwd[c][i];
		rate += each > 0 ? 1 / each : 0;
	}
	const double work = rate > 0 ? (double)micro / rate : 0;
	return schedule_is_async(p->schedule) ? work : fmax(work, longest_chain(p));
}

/* A segment's name; of several of one name NAME#2 is the second. */
const char *until_name(const Segments *g, int at)
{
	int same = 1;

	for (int i = 0; i < at; i++)
		same += !strcmp(g->seg[i].name, g->seg[at].name);
	return same > 1 ? arena_printf(g->cx->scratch, "%s#%d", g->seg[at].name, same) : g->seg[at].name;
}

/* As until_name calls them. */
static void list_places(const Segments *g, Plan *plan)
{
	int *same = NEWN(g->cx->scratch, int, g->n);
	Map seen;

	map_init(&seen, g->cx->scratch, true);
	plan->place = NEWN(g->m->arena, const char *, g->n);
	plan->nplace = g->n;
	for (int i = 0; i < g->n; i++) {
		int *first = map_get(&seen, g->seg[i].name);
		if (!first)
			map_put(&seen, g->seg[i].name, first = &same[i]);
		plan->place[i] = ++*first > 1 ? arena_printf(g->m->arena, "%s#%d", g->seg[i].name, *first)
		                              : arena_str(g->m->arena, g->seg[i].name);
	}
}

static bool write_stages(Segments *g, const PlanModel *p, const Trial *t, bool forced)
{
	Arena *a = g->m->arena;
	int *cut = NEWN(g->cx->scratch, int, t->n);
	Placement at;

	if (!plan_place(a, schedule_asked(g->m, g->cx), t->n, t->replicas, &at, g->cx->d))
		return false;

	for (int s = 1; s < t->n; s++)
		cut[s] = t->end[s - 1] + 1;
	segments_assign(g, cut, t->n);
	if (!g->cx->plan)
		g->cx->plan = NEW(a, Plan);
	Plan *plan = g->cx->plan;
	*plan = (Plan){ .nstage = t->n,
		.stage = NEWN(a, PlanStage, t->n),
		.ndevice = at.ndevice,
		.rank = at.rank,
		.step_time = t->step,
		.forced = forced,
		.by = t->by,
		.order = (int)g->order };
	plan->device = NEWN(a, int, at.ndevice);
	for (int s = 0, i = 0; s < t->n; s++) {
		plan->stage[s].replicas = t->replicas[s];
		for (int r = 0; r < t->replicas[s]; r++)
			plan->device[at.rank[s] + r] = t->device[i++];
	}
	plan->microbatches = g->m->microbatches = one_per_step(g->cx->train) ? 1 : t->micro;
	g->m->step_time = plan->step_time *= (double)plan->microbatches / (double)t->micro;
	for (Node *k = g->m->graph->first; k; k = k->next) /* a Stack has a row per microbatch of the step */
		if (k->op == OP_Stack)
			optab[OP_Stack]->shape(k, g->cx->d);
	list_places(g, plan);
	for (int s = 0; s + 1 < t->n; s++)
		plan->stage[s].until = arena_str(a, until_name(g, t->end[s]));
	plan->one_time = alone(p, plan->microbatches);
	describe(g, plan);
	return true;
}

/* ---- what came next ---- */

static PlanTerms terms_of(const Trial *t, double micro)
{
	const double f = micro / (double)t->micro;

	return (PlanTerms){ f * t->work, f * t->sum, f * t->update, f * t->wait };
}

/* Long plans that differ only in the order of their replicas count as one. */
static bool same_replicas(const Trial *x, const Trial *y)
{
	int left = 0;

	if (x->n != y->n || x->ndevice != y->ndevice ||
		!memcmp(x->replicas, y->replicas, sizeof *x->replicas * (size_t)x->n))
		return x->n == y->n && x->ndevice == y->ndevice;
	for (int i = 0; i < x->n; i++) { /* as many stages of so many replicas */
		left = 0;
		for (int k = 0; k < x->n; k++)
			left += (x->replicas[k] == x->replicas[i]) - (y->replicas[k] == x->replicas[i]);
		if (left)
			return false;
	}
	return x->n > 6;
}

/* The best plan of every notation that was played, but for the chosen one; then data parallelism and the straight
 * pipeline over all devices where they are further behind. */
static void list_others(Arena *a, Plan *plan, const PlanSearch *s, const Trial *best)
{
	enum { MOST = 5 };
	const Trial *other[MOST + 2];
	int n = 0;

	for (int round = 0; round < MOST + 2; round++) {
		const Trial *next = NULL;
		for (int i = 0; i < s->n; i++) {
			const Trial *t = s->trial[i];
			const bool wide = t->ndevice == s->p->c->ndevice && (t->n == 1 || t->n == t->ndevice);
			bool known = !isfinite(t->score) || (round >= MOST && !wide) || same_replicas(t, best);
			for (int k = 0; k < n && !known; k++)
				known = same_replicas(t, other[k]);
			if (!known && trial_better(t, next))
				next = t;
		}
		if (next)
			other[n++] = next;
	}
	plan->other = NEWN(a, PlanOther, n);
	for (int i = 0; i < n; i++)
		plan->other[plan->nother++] =
			(PlanOther){ trial_str(a, other[i]), other[i]->by, other[i]->score * (double)plan->microbatches,
				terms_of(other[i], (double)plan->microbatches), other[i]->over };
}

static bool same_cuts(const Trial *x, const Trial *y)
{
	return x->n == y->n && !memcmp(x->replicas, y->replicas, sizeof *x->replicas * (size_t)x->n) &&
	       !memcmp(x->end, y->end, sizeof *x->end * (size_t)x->n);
}

/* The plans that lack least, each of its own cuts and replicas; of each notation some, since estimates stray. */
static void list_lean(Segments *g, Plan *plan, const PlanSearch *s)
{
	enum { MOST = 24, EACH = 6 };
	const Trial *lean[MOST];
	int n = 0;

	for (int round = 0; round < MOST; round++) {
		const Trial *next = NULL;
		for (int i = 0; i < s->n; i++) {
			const Trial *t = s->trial[i];
			int each = 0;
			bool known = false;
			if (next && !(t->over < next->over * (1 - 1e-9)) && !trial_better(t, next))
				continue;
			for (int k = 0; k < n && !known; k++) {
				each += same_replicas(t, lean[k]);
				known = same_cuts(t, lean[k]) || each == EACH;
			}
			next = known ? next : t;
		}
		if (!next)
			break;
		lean[n++] = next;
	}
	plan->lean = NEWN(g->m->arena, GivenPlan, n);
	for (plan->nlean = 0; plan->nlean < n; plan->nlean++) {
		const Trial *t = lean[plan->nlean];
		GivenPlan *x = &plan->lean[plan->nlean];
		*x = (GivenPlan){ .n = t->n,
			.until = NEWN(g->m->arena, const char *, t->n),
			.line = NEWN(g->m->arena, int, t->n),
			.col = NEWN(g->m->arena, int, t->n),
			.replicas = arena_dup(g->m->arena, t->replicas, sizeof *t->replicas * (size_t)t->n),
			.ndevice = t->ndevice,
			.device = arena_dup(g->m->arena, t->device, sizeof *t->device * (size_t)t->ndevice),
			.micro = t->micro,
			.by = t->by,
			.order = (int)g->order };
		for (int i = 0; i + 1 < t->n; i++)
			x->until[i] = arena_str(g->m->arena, until_name(g, t->end[i]));
	}
}

static void write_reasons(Segments *g, const PlanSearch *s, const Trial *t)
{
	Arena *a = g->m->arena;
	Plan *plan = g->cx->plan;

	plan->terms = terms_of(t, (double)plan->microbatches);
	plan->slow_stage = t->slow_stage;
	plan->tried = s->n;
	plan->played = s->played;
	plan->least = plan_least(s->p, plan->microbatches);
	plan->peak = t->peak;
	plan->peak_rank = t->peak_rank;
	plan->over = t->over;
	plan->recompute = s->p->recompute != PLAN_KEEP;
	list_others(a, plan, s, t);
	if (t->over > 1)
		list_lean(g, plan, s);
}

bool plan_write(Segments *g, const PlanSearch *s, const Trial *t, bool forced)
{
	if (!write_stages(g, s->p, t, forced))
		return false;
	write_reasons(g, s, t);
	return true;
}
