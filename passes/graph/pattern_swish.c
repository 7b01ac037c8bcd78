/* Activations that are a gate times what the gate is taken of:
 *     x sigmoid(x), x sigmoid(c x)                Swish (SiLU)
 *     x tanh(softplus(x))                         Mish
 *     x hardsigmoid(x), x min(max(x + 3, 0), 6) / 6   HardSwish
 * In parts they would keep x, the gate and what lies between for the backward; as one op they keep x. */
#include "patterns.h"

/* The product of v and x, which is all that reads v. */
static Value *times_x(Match *p, const Value *v, const Value *x)
{
	const Node *n = match_user(p, v, OP_Mul);

	return n && match_other(n, v) == x && type_eq(&n->out[0]->type, &x->type) ? n->out[0] : NULL;
}

/* v over 6, which is all that reads v. */
static Value *sixth(Match *p, Value *v)
{
	const Node *n = match_user(p, v, OP_Div);

	if (n)
		return n->in[0] == v && match_is(n->in[1], 6) ? n->out[0] : NULL;
	n = match_user(p, v, OP_Mul);
	return n && match_is(match_other(n, v), 1.0 / 6) ? n->out[0] : NULL;
}

/* The operand of n that is no scalar constant; *c is the other, which is one. */
static Value *beside_scalar(const Node *n, double *c)
{
	for (int i = 0; n && i < 2; i++)
		if (match_scalar(n->in[i], c) && n->in[1 - i]->kind != VAL_CONST)
			return n->in[1 - i];
	return NULL;
}

static Node *put_op(Match *p, OpKind op, Value *x, Value *alpha, Value *last)
{
	if (!match_closed(p, last))
		return NULL;
	Builder b = match_builder(p, last);
	return match_finish(p, last, build(&b, op, NULL, alpha ? 2 : 1, (Value *[]){ x, alpha }, last->name));
}

static Node *swish(Match *p, Node *n)
{
	Value *u = n->in[0], *last = times_x(p, n->out[0], u);
	double c = 1;

	if (last)
		return put_op(p, OP_Swish, u, const_scalar(p->m, u->type.dtype, 1), last);
	u = beside_scalar(match_def(p, u, OP_Mul), &c);
	last = u ? times_x(p, n->out[0], u) : NULL;
	return last ? put_op(p, OP_Swish, u, const_scalar(p->m, u->type.dtype, c), last) : NULL;
}

static Node *mish(Match *p, Node *n)
{
	const Node *s = match_def(p, n->in[0], OP_Softplus);
	Value *last = s ? times_x(p, n->out[0], s->in[0]) : NULL;

	return last ? put_op(p, OP_Mish, s->in[0], NULL, last) : NULL;
}

static Node *hard_swish(Match *p, Node *n)
{
	Value *x = n->in[0], *last;
	double c;

	if (n->op == OP_HardSigmoid) {
		if (!match_is(n->in[1], 1.0 / 6) || !match_is(n->in[2], 0.5))
			return NULL;
		last = times_x(p, n->out[0], x);
		return last ? put_op(p, OP_HardSwish, x, NULL, last) : NULL;
	}
	x = beside_scalar(match_def(p, x, OP_Add), &c);
	if (!x || !match_near(c, 3) || !match_is(n->in[1], 0) || !match_is(n->in[2], 6))
		return NULL;
	const int base = p->n;
	last = times_x(p, n->out[0], x);
	last = last ? sixth(p, last) : NULL;
	if (!last) {
		p->n = base;
		last = sixth(p, n->out[0]);
		last = last ? times_x(p, last, x) : NULL;
	}
	return last ? put_op(p, OP_HardSwish, x, NULL, last) : NULL;
}

Node *pattern_swish(Match *p, Node *n)
{
	if (n->nout != 1 || !match_def(p, n->out[0], n->op))
		return NULL;
	switch (n->op) {
	case OP_Sigmoid: return swish(p, n);
	case OP_Tanh: return mish(p, n);
	case OP_HardSigmoid:
	case OP_Clip: return hard_swish(p, n);
	default: return NULL;
	}
}
