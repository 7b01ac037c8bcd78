/* Gradients that are added to their sum by the node that makes them: y = op(a) op(b) + y (Gemm, MatMul, Product {into_sum}), rows added to a
 * table (GatherGrad {into_sum}), where y is the sum over the microbatches of a step. They need no memory of their own and no second pass over the
 * sum, which a stage of many weights and small microbatches feels. */
#include "ir/analysis.h"
#include "ir/op.h"
#include "memory.h"

bool summed_where_made(const PassCx *cx, const Module *m, const Stage *s, const Node *n, Value *root)
{
	const bool may = sums_where_made(cx->train) && !s->server && !sums_each(s) && m->microbatches > s->replicas &&
	                 added_where_made(n) == root;

	if (root->kind == VAL_NODE && !root->index && op_attr(root->def->op, "into_sum") &&
		may != (attr_int(root->def, "into_sum") != 0))
		attr_set_int(root->def, "into_sum", may);
	return may;
}
