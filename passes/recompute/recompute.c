/* recompute: what a backward reads of its forward is computed again there instead of being kept (DAPPLE section 2.2;
 * Chen et al., "Training deep nets with sublinear memory cost").
 *
 * How is told in passes/memory/again.c.
 *
 *     none    everything is kept
 *     stage   nothing is kept but what lies in the slot anyway
 *     auto    as much is kept as the devices' memory allows (recompute_auto.c)
 *
 * Reads the stages; changes backward graphs, drops forward nodes that only a backward wanted; writes Stage.keep and the
 * times of the plan. Kernels and operands of a copy are those of the forward, so results are the same to the bit. */
#include <string.h>
#include "ir/base/human.h"
#include "recompute.h"
#include "ir/analysis.h"
#include "passes/memory/memory.h"
#include "passes/schedule/schedule.h"

/* Forward nodes that only a backward wanted. */
static void drop_dead(Graph *g)
{
	for (Node *n = g->last, *prev; n; n = prev) {
		bool dead = (optab[n->op]->flags & OP_PURE) && n->nout;
		prev = n->prev;
		for (int i = 0; i < n->nout; i++)
			dead &= !n->out[i] || value_dead(n->out[i]);
		if (dead)
			node_remove(n);
	}
}

/* Gives the seconds per microbatch that it added. */
static double recompute_stage(Module *m, Stage *s, PassCx *cx, bool choose)
{
	Again x;
	const int64_t limit = choose ? memory_of(s, cx->cluster) : 0;

	if (choose && !limit)
		return 0;
	again_begin(&x, m, s, cx);
	if (choose)
		again_choose(&x, limit);
	else
		again_forget_all(&x);
	const double time = again_need(&x);
	again_apply(&x);
	again_end(&x);
	drop_dead(s->forward);
	list_kept(m, s);
	if (cx->explain)
		buf_printf(cx->explain, "  stage %d: %d nodes are computed again, %s per microbatch\n", s->id, x.ncopy,
			time_short(cx->scratch, time));
	return time;
}

/* The slowest stage was what a step depended on. */
static void add_time(Module *m, Plan *plan, const double *more)
{
	double was = 0, is = 0;

	for (int t = 0; t < plan->nstage; t++) {
		PlanStage *p = &plan->stage[t];
		const double each = (p->fwd + p->bwd) / p->replicas, now = each + more[t] / p->replicas;
		was = each > was ? each : was;
		is = now > is ? now : is;
		p->bwd += more[t];
	}
	if (was > 0 && !plan->recompute)
		m->step_time = plan->step_time *= is / was;
}

bool pass_recompute(Module *m, PassCx *cx)
{
	const Recompute how = cx->train ? cx->train->plan.recompute : RECOMPUTE_NONE;
	const char *word = setting_word(SET_OF_Recompute, (int)how);
	const bool choose = how == RECOMPUTE_AUTO;
	double *more = NEWN(cx->scratch, double, m->nstage);

	if (how == RECOMPUTE_NONE)
		return true;
	if (schedule_row(cx->train->plan.schedule)->flow & FLOW_VERSIONS && cx->train->plan.stash == STASH_NONE &&
		!cx->train->plan.vertical_sync)
		return diag_error(cx->d, NOLOC, 520,
			"--recompute %s with --stash none: what is computed again would be made of newer "
			"weights than what was sent on; keep the weights of the forward (--stash on) or its values",
			word);
	if (choose && !(schedule_module(m, cx, false) && pass_library(m, cx)))
		return false;
	if (cx->explain)
		buf_printf(cx->explain, "recompute %s\n", word);
	for (int t = 0; t < m->nstage; t++)
		more[t] = recompute_stage(m, m->stage[t], cx, choose);
	if (cx->plan && cx->plan->nstage == m->nstage)
		add_time(m, cx->plan, more);
	return true;
}
