/* LRN as PyTorch exports it:
 *     m = AveragePool(Pad(x x))    y = x / (alpha m + bias)^beta
 * where Reshapes make the channels a spatial axis (x [N, C, ..] seen as [N, 1, C, ..]) and back. The window is
 * ONNX's, so an even size, which PyTorch puts one channel further to the front, is left alone. */
#include <string.h>
#include "patterns.h"

typedef struct Lrn {
	const Value *x;
	double alpha, bias, beta;
	int64_t size, lo, hi; /* window; zeros before the first channel and behind the last */
	Type seen;            /* the square as it goes into the pool, without the zeros */
	int axis;             /* its axis of channels */
} Lrn;

static const Value *behind_reshapes(Match *p, const Value *v)
{
	const Node *n;

	while ((n = match_def(p, v, OP_Reshape)))
		v = n->in[0];
	return v;
}

static int64_t at(Ints v, int i, int64_t otherwise) { return i < v.n ? v.v[i] : otherwise; }

/* The pool's one window axis becomes t->axis; its own padding must count. */
static bool pool(const Node *n, Lrn *t)
{
	const int rank = n->in[0]->type.rank, nd = rank - 2;
	const Ints kernel = attr_ints(n, "kernel_shape"), pads = attr_ints(n, "pads");

	if (attr_int(n, "ceil_mode"))
		return false;
	for (int i = 0; i < nd; i++) {
		const bool padded = at(pads, i, 0) || at(pads, nd + i, 0);
		if (at(attr_ints(n, "strides"), i, 1) != 1 || (padded && !attr_int(n, "count_include_pad")))
			return false;
		if (kernel.v[i] == 1 && !padded)
			continue;
		if (t->axis || at(attr_ints(n, "dilations"), i, 1) != 1)
			return false;
		t->axis = 2 + i;
		t->size = kernel.v[i];
		t->lo = at(pads, i, 0);
		t->hi = at(pads, nd + i, 0);
	}
	return t->axis != 0;
}

/* Zeros round the axis of channels only. */
static bool pad(const Node *n, Lrn *t)
{
	const int rank = n->in[0]->type.rank;
	const Ints pads = attr_ints(n, "pads");

	if (strcmp(attr_str(n, "mode"), "constant") != 0 || attr_float(n, "value") != 0)
		return false;
	for (int i = 0; i < rank; i++)
		if (i != t->axis ? pads.v[i] || pads.v[rank + i] : pads.v[i] < 0 || pads.v[rank + i] < 0)
			return false;
	t->lo += pads.v[t->axis];
	t->hi += pads.v[rank + t->axis];
	return true;
}

/* v = mean of x x over neighbouring channels */
static bool mean(Match *p, const Value *v, Lrn *t)
{
	const Node *n = match_def(p, behind_reshapes(p, v), OP_AveragePool);

	if (!n || !pool(n, t))
		return false;
	for (v = n->in[0]; (n = match_def(p, v, OP_Pad)); v = n->in[0])
		if (!pad(n, t))
			return false;
	t->seen = v->type;
	v = behind_reshapes(p, v);
	if ((n = match_def(p, v, OP_Mul)))
		return n->in[0] == t->x && n->in[1] == t->x;
	return (n = match_def(p, v, OP_Pow)) && n->in[0] == t->x && match_is(n->in[1], 2);
}

/* The channels of x are where the pool's window goes, and the window is LRN's. */
static bool channels(const Lrn *t)
{
	const Type *x = &t->x->type;
	Type before = t->seen;

	if (x->rank < 2 || t->seen.dim[t->axis] != x->dim[1])
		return false;
	before.rank = t->axis;
	return type_numel(&before) == x->dim[0] && type_numel(&t->seen) == type_numel(x) &&
	       t->lo == (t->size - 1) / 2 && t->hi == t->size / 2;
}

/* v = alpha m + bias */
static bool sum(Match *p, const Value *v, Lrn *t)
{
	const Node *add = match_def(p, v, OP_Add);
	const int k = add && match_scalar(add->in[0], &t->bias);
	const Node *mul = add ? match_def(p, add->in[k], OP_Mul) : NULL;

	if (!mul || !match_scalar(add->in[1 - k], &t->bias))
		return false;
	const int j = match_scalar(mul->in[0], &t->alpha);
	return match_scalar(mul->in[1 - j], &t->alpha) && mean(p, mul->in[j], t) && channels(t);
}

/* v = (alpha m + bias) ^ (sign beta) */
static bool power(Match *p, const Value *v, int sign, Lrn *t)
{
	const Node *n = match_def(p, v, OP_Pow);

	if (!n || !match_scalar(n->in[1], &t->beta) || !sum(p, n->in[0], t))
		return false;
	t->beta *= sign;
	return true;
}

Node *pattern_lrn(Match *p, Node *n)
{
	Value *last = n->out[0], *x = NULL;
	const int base = p->n;
	Lrn t;

	if (n->op != OP_Div && n->op != OP_Mul)
		return NULL;
	for (int k = 0; k < (n->op == OP_Div ? 1 : 2) && !x; k++) {
		p->n = base;
		t = (Lrn){ .x = n->in[k] };
		if (match_def(p, last, n->op) && power(p, n->in[1 - k], n->op == OP_Div ? 1 : -1, &t))
			x = n->in[k];
	}
	if (!x || !type_eq(&x->type, &last->type) || !match_closed(p, last))
		return NULL;
	Builder b = match_builder(p, last);
	void *attr = attr_new(p->m->arena, OP_LRN);
	*(int64_t *)match_field(OP_LRN, attr, "size") = t.size;
	*(double *)match_field(OP_LRN, attr, "alpha") = t.alpha;
	*(double *)match_field(OP_LRN, attr, "beta") = t.beta;
	*(double *)match_field(OP_LRN, attr, "bias") = t.bias;
	return match_finish(p, last, build(&b, OP_LRN, attr, 1, &x, last->name));
}
