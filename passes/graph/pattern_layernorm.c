/* LayerNormalization as exports before opset 17 spell it out:
 *     m = ReduceMean(x)    d = x - m    v = ReduceMean(d ^ 2)    y = d / sqrt(v + epsilon) [* scale [+ bias]]
 * over the trailing axes. The square is Pow 2 or d * d, the subtraction may stand there twice, and the quotient is
 * Div by Sqrt, a product with Reciprocal or 1 / sqrt, or a Pow of +-0.5. RMSNormalization is the same with d = x and
 * no bias. TensorFlow takes the mean off last:
 *     a = scale / sqrt(v + epsilon)    y = x a + (bias - m a) */
#include <string.h>
#include "patterns.h"

typedef struct Norm {
	bool rms; /* no mean is taken off */
	Value *x, *scale, *bias;
	int axis; /* first of the trailing axes */
	double epsilon;
} Norm;

/* r reduces trailing axes of its operand and keeps them as 1; the first of them, else -1. */
static int trailing(const Node *r)
{
	const Ints axes = attr_ints(r, "axes");
	const int rank = r->in[0]->type.rank;
	bool gone[MAXRANK] = { 0 };
	int first = rank;

	if (!attr_int(r, "keepdims"))
		return -1;
	for (int i = 0; i < axes.n; i++)
		gone[axes.v[i] < 0 ? axes.v[i] + rank : axes.v[i]] = true;
	while (first > 0 && gone[first - 1])
		first--;
	for (int i = 0; i < first; i++)
		if (gone[i])
			return -1;
	return first < rank ? first : -1;
}

/* v = x - ReduceMean(x), or x itself; any x or the one that is known. */
static bool centred(Match *p, Value *v, Norm *t)
{
	Value *x = v;

	if (!t->rms) {
		const Node *sub = match_def(p, v, OP_Sub);
		const Node *mean = sub ? match_def(p, sub->in[1], OP_ReduceMean) : NULL;
		if (!mean || mean->in[0] != sub->in[0] || trailing(mean) != t->axis)
			return false;
		x = sub->in[0];
	}
	if (t->x && t->x != x)
		return false;
	t->x = x;
	return true;
}

static bool square(Match *p, const Value *v, Norm *t)
{
	const Node *n;

	if ((n = match_def(p, v, OP_Pow)))
		return match_is(n->in[1], 2) && centred(p, n->in[0], t);
	if ((n = match_def(p, v, OP_Mul)))
		return centred(p, n->in[0], t) && centred(p, n->in[1], t);
	return false;
}

/* v = variance + epsilon */
static bool variance(Match *p, const Value *v, Norm *t)
{
	const Node *add = match_def(p, v, OP_Add);
	const int k = add && match_scalar(add->in[0], &t->epsilon);
	const Node *mean = add ? match_def(p, add->in[k], OP_ReduceMean) : NULL;

	if (!mean || !match_scalar(add->in[1 - k], &t->epsilon) || !(t->epsilon >= 0))
		return false;
	t->axis = trailing(mean);
	return t->axis >= 0 && square(p, mean->in[0], t);
}

static bool power(Match *p, const Value *v, double e, Norm *t)
{
	const Node *n = match_def(p, v, OP_Pow);

	return n && match_is(n->in[1], e) && variance(p, n->in[0], t);
}

/* v = sqrt(variance + epsilon) */
static bool deviation(Match *p, const Value *v, Norm *t)
{
	const Node *n = match_def(p, v, OP_Sqrt);

	return n ? variance(p, n->in[0], t) : power(p, v, 0.5, t);
}

/* v = 1 / sqrt(variance + epsilon) */
static bool inverse(Match *p, const Value *v, Norm *t)
{
	const Node *n;

	if ((n = match_def(p, v, OP_Reciprocal)))
		return deviation(p, n->in[0], t);
	if ((n = match_def(p, v, OP_Div)))
		return match_is(n->in[0], 1) && deviation(p, n->in[1], t);
	return power(p, v, -0.5, t);
}

static bool normalised(Match *p, const Node *n, bool rms, Norm *t)
{
	const int before = p->n;

	for (int k = 0; k < 2; k++) {
		*t = (Norm){ .rms = rms };
		p->n = before;
		if (n->op == OP_Mul ? inverse(p, n->in[1 - k], t) && centred(p, n->in[k], t)
				    : k == 0 && deviation(p, n->in[1], t) && centred(p, n->in[0], t))
			return true;
	}
	p->n = before;
	return false;
}

/* o has the shape of the normalised axes. */
static bool is_row(const Value *o, const Norm *t)
{
	const Type row = type_make(o->type.dtype, t->x->type.rank - t->axis, t->x->type.dim + t->axis);

	return shape_eq(&o->type, &row) && o->type.layout == LAYOUT_PLAIN;
}

/* a = scale / sqrt(variance + epsilon) */
static bool scaled(Match *p, const Value *a, Norm *t)
{
	const Node *n = match_def(p, a, OP_Div);

	if (n) {
		*t = (Norm){ .scale = n->in[0] };
		return deviation(p, n->in[1], t) && is_row(t->scale, t);
	}
	n = match_def(p, a, OP_Mul);
	const int before = p->n;
	for (int k = 0; n && k < 2; k++) {
		*t = (Norm){ .scale = n->in[k] };
		p->n = before;
		if (inverse(p, n->in[1 - k], t))
			return is_row(t->scale, t);
	}
	return false;
}

/* n = x a + (bias - m a) */
static bool folded(Match *p, const Node *n, Norm *t)
{
	const int before = p->n;

	for (int k = 0; k < 4; k++) {
		p->n = before;
		const Node *mul = match_def(p, n->in[k & 1], OP_Mul), *sub = match_def(p, n->in[1 - (k & 1)], OP_Sub);
		const Node *off = mul && sub ? match_def(p, sub->in[1], OP_Mul) : NULL;
		const Value *x = off ? mul->in[k >> 1] : NULL, *a = off ? mul->in[1 - (k >> 1)] : NULL;
		const Node *mean = off ? match_def(p, match_other(off, a), OP_ReduceMean) : NULL;
		if (!mean || mean->in[0] != x || !scaled(p, a, t) || t->x != x || trailing(mean) != t->axis)
			continue;
		t->bias = sub->in[0];
		return is_row(t->bias, t);
	}
	return false;
}

/* The other operand of the only reader of v, an `op`, when its shape is that of the normalised axes and of `like`. */
static Value *along(Match *p, const Norm *t, Value **v, OpKind op, const Value *like)
{
	const int before = p->n;
	Node *n = match_user(p, *v, op);
	Value *o = n ? match_other(n, *v) : NULL;

	if (!o || !is_row(o, t) || (like && !shape_eq(&like->type, &o->type))) {
		p->n = before;
		return NULL;
	}
	*v = n->out[0];
	return o;
}

Node *pattern_layernorm(Match *p, Node *n)
{
	Norm t;
	Value *last = n->out[0];

	if ((n->op != OP_Div && n->op != OP_Mul && n->op != OP_Add) || !match_def(p, last, n->op) ||
		!(n->op == OP_Add ? folded(p, n, &t) : normalised(p, n, false, &t) || normalised(p, n, true, &t)) ||
		(t.x->type.dtype != DT_f32 && t.x->type.dtype != DT_f64) || !type_eq(&t.x->type, &last->type))
		return NULL;
	if (n->op != OP_Add) {
		t.scale = along(p, &t, &last, OP_Mul, NULL);
		t.bias = t.scale && !t.rms ? along(p, &t, &last, OP_Add, t.scale) : NULL;
	}
	if (!match_closed(p, last))
		return NULL;
	const OpKind op = t.rms ? OP_RMSNormalization : OP_LayerNormalization;
	Builder b = match_builder(p, last);
	Value *in[3] = { t.x, t.scale, t.bias };
	void *at = attr_new(p->m->arena, op);
	*(int64_t *)match_field(op, at, "axis") = t.axis - t.x->type.rank;
	*(double *)match_field(op, at, "epsilon") = t.epsilon;
	return match_finish(p, last, build(&b, op, at, t.bias ? 3 : t.scale ? 2 : 1, in, last->name));
}
