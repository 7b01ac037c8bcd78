/* packed: for GPUs. Queries, keys and values that one product makes side by side are read where they lie, and their gradients are
 * written so:
 *     %q, %k, %v = Split(%x)                        %y, %lse, %rest = Attention(%x, %x, %x) {packed=1}
 *     %y, %lse, %rest = Attention(%q, %k, %v)
 *     %dq, %dk, %dv = AttentionGrad(..)             %dx = AttentionGrad(..) {packed=1}
 *     %dx = Concat(%dq, %dk, %dv)
 * Behind split, recompute and defer: where a plan cuts between them, or the backward makes %q anew, they stay. */
#include "ir/analysis.h"
#include "products.h"

enum { PARTS = 3 };

/* The attention that reads the parts of s, each as what it is; NULL: something else reads them too, but the attention's own
 * gradient, which *gradient gets, where there is one. */
static Node *read_by_attention(const Node *s, Node **gradient)
{
	Node *attention = NULL;

	*gradient = NULL;
	for (int i = 0; i < PARTS; i++)
		for (int u = 0; u < s->out[i]->nuses; u++) {
			const Use *use = &s->out[i]->uses[u];
			Node **of = use->node->op == OP_Attention ? &attention : gradient;
			if ((use->node->op != OP_Attention && use->node->op != OP_AttentionGrad) ||
				use->index != i + (use->node->op == OP_AttentionGrad) || (*of && *of != use->node))
				return NULL;
			*of = use->node;
		}
	for (int i = 0; i < PARTS && attention; i++)
		if (attention->in[i] != s->out[i] || (*gradient && (*gradient)->in[1 + i] != s->out[i]) ||
			value_is_output(s->out[i]))
			return NULL;
	return attention;
}

/* What puts the three gradients side by side as `s` took the operands apart. */
static Node *joined(const Node *gradient, int64_t axis)
{
	Node *c = gradient->out[0]->nuses == 1 ? gradient->out[0]->uses[0].node : NULL;

	if (!c || c->op != OP_Concat || c->nin != PARTS || c->graph != gradient->graph)
		return NULL;
	const int64_t at = attr_int(c, "axis");
	for (int i = 0; i < PARTS; i++)
		if (!gradient->out[i] || gradient->out[i]->nuses != 1 || c->in[i] != gradient->out[i] ||
			value_is_output(gradient->out[i]))
			return NULL;
	return (at < 0 ? at + gradient->out[0]->type.rank : at) == axis ? c : NULL;
}

static Node *in_place(Products *p, Node *n, Node *before, Value *x)
{
	Builder b = prod_at(p, n);
	const int first = n->op == OP_AttentionGrad;
	Value **in = NEWN(p->cx->scratch, Value *, n->nin);

	b.before = before;
	for (int i = 0; i < n->nin; i++)
		in[i] = i >= first && i < first + PARTS ? x : n->in[i];
	attr_set_int(n, "packed", 1);
	Node *made = build(&b, n->op, n->attr, n->nin, in, NULL);
	made->fwd = n->fwd;
	made->time = n->time;
	return made;
}

void prod_packed(Products *p, Node *s)
{
	Value *x = s->in[0];
	Node *gradient, *attention = s->nout == PARTS ? read_by_attention(s, &gradient) : NULL;
	const int64_t axis = attr_int(s, "axis") < 0 ? attr_int(s, "axis") + x->type.rank : attr_int(s, "axis");

	if (!attention || attention->graph != s->graph || attr_int(attention, "heads") == 0 || axis != x->type.rank - 1)
		return;
	for (int i = 1; i < PARTS; i++)
		if (!shape_eq(&s->out[0]->type, &s->out[i]->type))
			return;
	Node *c = gradient ? joined(gradient, axis) : NULL;
	if (gradient && (!c || gradient->graph == s->graph))
		return;
	Node *made = in_place(p, attention, attention, x);
	for (int i = 0; i < attention->nout; i++)
		value_replace(attention->out[i], made->out[i]);
	if (gradient) {
		Node *back = in_place(p, gradient, c, x);
		back->fwd = made;
		prod_becomes(p, c->out[0], back->out[0]); /* the Concat goes, and what only served it */
	}
	node_drop(attention); /* and with it the Split */
	for (int i = 0; i < attention->nout; i++)
		prod_named(made->out[i], attention->out[i]->name);
}
