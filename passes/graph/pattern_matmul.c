/* A matrix of weights that is transposed before it is multiplied:
 *     MatMul(x, Transpose(w))        MatMul(Transpose(w), x)        and the same of Gemm
 * The product reads w itself, transposed: as two nodes the transpose would be kept until the backward, and its gradient
 * made apart from w's (a tied output layer: twice the vocabulary's embeddings). */
#include "patterns.h"

/* The parameter that v is the transpose of; NULL: it is none. */
static Value *turned(const Value *v)
{
	const Node *n = v->kind == VAL_NODE && v->def->op == OP_Transpose ? v->def : NULL;
	Value *w = n ? n->in[0] : NULL;

	if (!w || w->kind != VAL_PARAM || w->type.rank != 2)
		return NULL;
	return attr_ints(n, "perm").n == 0 || attr_ints(n, "perm").v[0] == 1 ? w : NULL;
}

Node *pattern_matmul(Match *p, Node *n)
{
	static const char *const flag[] = { "transA", "transB" };

	Node *changed = NULL;

	(void)p;
	if (n->op != OP_MatMul && n->op != OP_Gemm)
		return NULL;
	for (int i = 0; i < 2; i++) {
		const Value *v = n->in[i];
		Value *w = turned(v);
		if (!w || n->in[1 - i]->type.rank < 2)
			continue;
		node_set_input(n, i, w);
		attr_set_int(n, flag[i], !attr_int(n, flag[i]));
		if (value_dead(v))
			node_remove(v->def);
		changed = n;
	}
	return changed;
}
