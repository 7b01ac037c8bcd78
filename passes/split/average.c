/* average: gradients are means over the samples of all workers unless the user wants sums over workers (Parallax's options
 * average_dense and average_sparse, PX-06): each worker's mean, added. What an update divides by is then smaller by the number
 * of workers, the replicas of its stage:
 *
 *     @w <- SGD(@w, %g.w, %n)     ->     %n.sum = Div(%n, replicas);  @w <- SGD(@w, %g.w, %n.sum)
 *
 * It stands behind clipping, which limits the norm of the mean, and goes where the update goes: servers.c and opau.c carry it.
 * Reads Param.rows, Stage.replicas; writes update graphs. */
#include "passes/common/plan.h"

static bool is_update(const Node *n)
{
	return optab[n->op]->flags & OP_UPDATE && n->op != OP_SquareSum && n->nin >= 3 &&
	       n->in[0]->param->kind == PARAM_WEIGHT;
}

static void add_workers(Module *m, Stage *s, const Training *t)
{
	for (Node *n = s->update->first; n; n = n->next) {
		if (!is_update(n) || !(n->in[0]->param->rows ? t->comm.sum_sparse : t->comm.sum_dense))
			continue;
		Value *by = n->in[n->nin - 1];
		Builder b = {
			.m = m, .g = s->update, .before = n, .loc = n->loc, .phase = PHASE_UPDATE, .stage = s->id
		};
		Node *div = NULL;
		for (int i = 0; i < by->nuses; i++) /* one for all updates behind it */
			div = by->uses[i].node->op == OP_Div && by->uses[i].index == 0 ? by->uses[i].node : div;
		if (!div)
			div = build(&b, OP_Div, NULL, 2, (Value *[]){ by, mk_scalar(&b, by->type.dtype, s->replicas) },
				"n.sum");
		node_set_input(n, n->nin - 1, div->out[0]);
	}
}

bool pass_average(Module *m, PassCx *cx)
{
	if (!cx->train || !(cx->train->comm.sum_dense || cx->train->comm.sum_sparse))
		return true;
	for (int i = 1; i < m->nstage; i++)
		if (m->stage[i]->replicas != m->stage[0]->replicas)
			return diag_error(cx->d, NOLOC, 520,
				"--average-%s 0 adds the means of workers: stages with different numbers of them, %d and "
				"%d, would train at different rates",
				cx->train->comm.sum_dense ? "dense" : "sparse", m->stage[0]->replicas,
				m->stage[i]->replicas);
	for (int i = 0; i < m->nstage; i++)
		if (m->stage[i]->replicas > 1)
			add_workers(m, m->stage[i], cx->train);
	return true;
}
