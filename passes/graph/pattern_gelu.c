/* Gelu and GeluTanh as exports before opset 20 spell them out:
 *     0.5 x (1 + erf(x / sqrt 2))        0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
 * Exporters put the factors in any order, so what erf or tanh is taken of, and what multiplies 1 + erf or 1 + tanh, are
 * compared as polynomials in x: sums, products, powers and quotients by constants. */
#include "patterns.h"

enum { DEGREE = 3, DEPTH = 8, FACTORS = 3, CANDIDATES = 3 * FACTORS };

typedef struct Poly {
	double c[DEGREE + 1];
} Poly;

static bool times(Poly *r, const Poly *a, const Poly *b)
{
	Poly y = { 0 };

	for (int i = 0; i <= DEGREE; i++)
		for (int k = 0; k <= DEGREE; k++) {
			const double c = a->c[i] * b->c[k];
			if (c != 0 && i + k > DEGREE)
				return false;
			if (i + k <= DEGREE)
				y.c[i + k] += c;
		}
	*r = y;
	return true;
}

static Poly plus(const Poly *a, const Poly *b, double sign)
{
	Poly y;

	for (int i = 0; i <= DEGREE; i++)
		y.c[i] = a->c[i] + sign * b->c[i];
	return y;
}

/* v as a polynomial in x; joins the nodes on the way. */
static bool poly(Match *p, const Value *v, const Value *x, int depth, Poly *r)
{
	const Node *n;
	Poly a, b;
	double e;

	*r = (Poly){ 0 };
	if (v == x) {
		r->c[1] = 1;
		return true;
	}
	if (match_scalar(v, &r->c[0]))
		return true;
	if (depth == 0 || v->kind != VAL_NODE || !(n = match_def(p, v, v->def->op)) || n->nin != 2 ||
		!poly(p, n->in[0], x, depth - 1, &a))
		return false;
	if (n->op == OP_Div) {
		if (!match_scalar(n->in[1], &e))
			return false;
		b = (Poly){ { 1 / e } };
		return times(r, &a, &b);
	}
	if (n->op == OP_Pow) {
		if (!match_scalar(n->in[1], &e))
			return false;
		*r = a;
		return e == 2 ? times(r, &a, &a) : e == 3 && times(&b, &a, &a) && times(r, &a, &b);
	}
	if (!poly(p, n->in[1], x, depth - 1, &b))
		return false;
	if (n->op == OP_Mul)
		return times(r, &a, &b);
	*r = plus(&a, &b, n->op == OP_Sub ? -1 : 1);
	return n->op == OP_Add || n->op == OP_Sub;
}

static bool same(const Poly *a, const Poly *b)
{
	for (int i = 0; i <= DEGREE; i++)
		if (!match_near(a->c[i], b->c[i]))
			return false;
	return true;
}

/* The next factor of v: its only reader is a product, or a quotient by a constant. */
static Node *factor(Match *p, const Value *v)
{
	Node *n = match_user(p, v, OP_Mul);

	if (!n && (n = match_user(p, v, OP_Div)) && n->in[0] != v)
		return NULL;
	return n;
}

/* From 1 + erf or 1 + tanh on: the value that is 0.5 x times it. NULL: there is none. */
static Value *half_x(Match *p, Value *v, const Value *x)
{
	static const Poly want = { { 0, 0.5 } };
	Poly all = { { 1 } }, f;
	double c;

	for (int i = 0; i < FACTORS; i++) {
		const Node *n = factor(p, v);
		if (!n)
			return NULL;
		if (n->op == OP_Div) {
			if (!match_scalar(n->in[1], &c))
				return NULL;
			f = (Poly){ { 1 / c } };
		} else if (!poly(p, match_other(n, v), x, DEPTH, &f)) {
			return NULL;
		}
		v = n->out[0];
		if (!times(&all, &all, &f))
			return NULL;
		if (same(&all, &want))
			return v;
	}
	return NULL;
}

/* What may be x: what 1 + erf is multiplied by, and the factors of that. */
static int candidates(Match *p, const Value *v, Value **x)
{
	const int before = p->n;
	int k = 0;

	for (int i = 0; i < FACTORS; i++) {
		const Node *n = factor(p, v);
		if (!n)
			break;
		Value *o = match_other(n, v);
		if (o && o->kind != VAL_CONST) {
			x[k++] = o;
			if (o->kind == VAL_NODE && o->def->nin == 2 && o->def->in[0] && o->def->in[1]) {
				x[k++] = o->def->in[0];
				x[k++] = o->def->in[1];
			}
		}
		v = n->out[0];
	}
	p->n = before;
	return k;
}

Node *pattern_gelu(Match *p, Node *n)
{
	static const Poly erf_of = { { 0, 0.70710678118654752 } };
	static const Poly tanh_of = { { 0, 0.79788456080286536, 0, 0.79788456080286536 * 0.044715 } };
	Value *x[CANDIDATES];
	Poly of;

	if ((n->op != OP_Erf && n->op != OP_Tanh) || !match_def(p, n->out[0], n->op))
		return NULL;
	const Node *one = match_user(p, n->out[0], OP_Add);
	if (!one || !match_is(match_other(one, n->out[0]), 1))
		return NULL;
	const int base = p->n, nx = candidates(p, one->out[0], x);
	for (int i = 0; i < nx; i++) {
		p->n = base;
		if (x[i]->kind == VAL_CONST || !poly(p, n->in[0], x[i], DEPTH, &of) ||
			!same(&of, n->op == OP_Erf ? &erf_of : &tanh_of))
			continue;
		Value *last = half_x(p, one->out[0], x[i]);
		if (!last || !type_eq(&last->type, &x[i]->type) || !match_closed(p, last))
			continue;
		Builder b = match_builder(p, last);
		return match_finish(
			p, last, build(&b, n->op == OP_Erf ? OP_Gelu : OP_GeluTanh, NULL, 1, &x[i], last->name));
	}
	return NULL;
}
