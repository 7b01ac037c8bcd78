/* Gradients that are added to their sum by the node that makes them: y = op(a) op(b) + y (Gemm, MatMul {into_sum}), rows added to a table
 * (GatherGrad {into_sum}), where y is the sum over the microbatches of a step. They need no memory of their own and no second pass over the
 * sum, which a stage of many weights and small microbatches feels. */
#include "ir/analysis.h"
#include "ir/op.h"
#include "memory.h"

/* Whether microbatches' gradients of s may be added so: nobody looks at one of them, nor wants a certain order. */
static bool may_add(const PassCx *cx, const Module *m, const Stage *s)
{
	const Training *t = cx->train;

	return t && !target_cuda(t) && !t->loop.reproducible && !t->target.apart && !s->server && !sums_each(s) &&
	       m->microbatches > s->replicas;
}

static bool node_adds(const Node *n)
{
	return product_adds(n) || (n->op == OP_GatherGrad && n->out[0]->type.dtype == DT_f32);
}

bool summed_where_made(const PassCx *cx, const Module *m, const Stage *s, const Node *n, Value *root)
{
	const Value *v = n->in[0];

	while (v != root && v->nuses == 1 && ((optab[v->def->op]->flags & OP_VIEW) || v->def->op == OP_GatherAdd))
		v = v->def->in[0];
	const bool may = v == root && v->nuses == 1 && v->kind == VAL_NODE && node_adds(v->def) && may_add(cx, m, s);
	if (root->kind == VAL_NODE && op_attr(root->def->op, "into_sum") &&
		may != (attr_int(root->def, "into_sum") != 0))
		attr_set_int(root->def, "into_sum", may);
	return may;
}
