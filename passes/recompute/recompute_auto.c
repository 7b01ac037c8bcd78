/* What `--recompute auto` keeps and what a planner may know of it.
 *
 * Values are forgotten one after another: each time the one whose bytes cost the fewest seconds, given what was forgotten
 * before. A value whose node runs again anyway costs nothing. memplan then tells, for a prefix of that order, what the
 * device needs; the shortest prefix that fits is taken (by bisection; where nothing fits, the one that needs least). What
 * is measured has not been through fuse, which only takes temporaries away. */
#include <float.h>
#include "recompute.h"
#include "ir/analysis.h"
#include "passes/memory/memory.h"
#include "passes/schedule/placement.h"
#include "passes/split/split.h"

/* ---- the order ---- */

/* Seconds of running n again beyond what runs again already; visits nodes once per round. */
static double more_time(const Again *x, const Node *n, int round)
{
	AgainNode *a = n->aux;
	double t = n->time;

	if (a->need || a->where == -round)
		return 0;
	a->where = -round;
	for (int i = 0; i < n->nin; i++)
		if (n->in[i] && n->in[i]->kind == VAL_NODE && !again_has(x, n->in[i]))
			t += more_time(x, n->in[i]->def, round);
	return t;
}

/* Values that may be forgotten, in the order in which that should be done. */
static int order(Again *x, Value ***list)
{
	const int n = (int)x->kept.n;
	Value **v = *list = NEWN(x->cx->scratch, Value *, n);
	int k = 0, round = 1;

	again_need(x);
	for (;;) {
		double best = DBL_MAX;
		int at = -1;
		for (int i = 0; i < n; i++) {
			Value *c = x->kept.slot[i].val;
			if (!c || again_free(x->s, c))
				continue;
			const double cost = more_time(x, c->def, ++round) / (double)(value_bytes(c) + 1);
			if (cost < best) {
				best = cost;
				at = i;
			}
		}
		if (at < 0)
			return k;
		v[k++] = x->kept.slot[at].val;
		x->kept.slot[at].val = NULL;
		again_need(x);
	}
}

/* ---- the choice ---- */

static void keep_all_but(Again *x, Value *const *v, int n, int all)
{
	for (int i = 0; i < all; i++)
		map_put(&x->kept, v[i], i < n ? NULL : v[i]);
}

/* defer comes behind this pass: what its W reads of its B will be in the slots too; temporaries of the two parts may be
 * packed a little worse, so a 64th is left. */
static int64_t device_bytes(Again *x)
{
	int64_t bytes = memplan_device(x->m, x->cx, x->s);

	if (!schedule_splits(schedule_asked(x->m, x->cx)))
		return bytes;
	for (int t = 0; t < x->m->nstage; t++)
		if (x->m->stage[t]->rank == x->s->rank)
			bytes += deferred_bytes(x->m->stage[t]) * x->m->stage[t]->inflight;
	return bytes + bytes / 64;
}

static int64_t try_first(Again *x, Value *const *v, int n, int all)
{
	keep_all_but(x, v, n, all);
	again_apply(x);
	const int64_t bytes = device_bytes(x);
	again_undo(x);
	return bytes;
}

int64_t again_choose(Again *x, int64_t limit)
{
	enum { LOOKS = 16 }; /* places that are looked at where nothing fits in between */
	Value **v;
	const int64_t whole = device_bytes(x);
	int n, least = 0, low = 0;

	if (whole <= limit)
		return whole;
	n = order(x, &v);
	int64_t bytes = whole;
	int high = n;
	for (int i = 1; i <= LOOKS && bytes > limit; i++) {
		const int k = (int)((int64_t)n * i / LOOKS);
		const int64_t b = try_first(x, v, k, n);
		if (b < bytes) {
			bytes = b;
			least = k;
		}
		if (b > limit)
			low = k;
	}
	for (high = least; bytes <= limit && high - low > 1;) {
		const int mid = low + (high - low) / 2;
		const int64_t b = try_first(x, v, mid, n);
		if (b <= limit) {
			bytes = b;
			high = least = mid;
		} else {
			low = mid;
		}
	}
	keep_all_but(x, v, least, n);
	return bytes;
}

/* ---- for planners ---- */

/* A forward value of the stage that its backward reads, and no view. */
static bool is_kept(const Value *v, int stage)
{
	for (int i = 0; i < v->nuses; i++) {
		const Node *u = v->uses[i].node;
		if (u->stage == stage && u->phase == PHASE_BWD)
			return true;
		if (u->phase == PHASE_FWD && v->uses[i].index == 0 && (optab[u->op]->flags & OP_VIEW) &&
			is_kept(u->out[0], stage))
			return true;
	}
	return false;
}

static bool crosses(const Value *v, int stage)
{
	for (int i = 0; i < v->nuses; i++)
		if (v->uses[i].node->stage != stage && v->uses[i].node->phase == PHASE_FWD)
			return true;
	return false;
}

static bool read_in(const Value *v, int stage)
{
	for (int i = 0; i < v->nuses; i++)
		if (v->uses[i].node->stage == stage && v->uses[i].node->phase != PHASE_UPDATE)
			return true;
	return false;
}

RecomputeEstimate recompute_estimate(const Module *m, int stage)
{
	RecomputeEstimate e = { 0 };
	const Graph *g = m->graph;

	for (int i = 0; i < g->nin; i++)
		if (is_kept(g->in[i], stage))
			e.kept += value_bytes(g->in[i]);
	e.kept_again = e.kept;
	for (const Node *n = g->first; n; n = n->next) {
		if (n->phase != PHASE_FWD || (optab[n->op]->flags & OP_VIEW))
			continue;
		for (int o = 0; o < n->nout; o++) {
			const Value *v = n->out[o];
			if (!v)
				continue;
			const bool received = n->stage != stage && read_in(v, stage);
			const bool mine = n->stage == stage && is_kept(v, stage);
			if (received || (mine && crosses(v, stage)))
				e.kept_again += value_bytes(v);
			else if (mine)
				e.again += value_bytes(v);
			if (received || mine)
				e.kept += value_bytes(v);
		}
		if (n->stage == stage)
			e.time += n->time;
	}
	return e;
}
