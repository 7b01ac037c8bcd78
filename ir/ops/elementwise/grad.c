/* Gradients of the elementwise ops, as graphs. Each operand's part is summed over the axes it was broadcast along. */
#include <math.h>
#include "ew.h"

#define G(name) void name(Builder *b, const Node *n, Value *const *dy, Value **dx)
#define BIN(op, x, y) mk_binary(b, OP_##op, x, y)
#define UN(op, x) mk_unary(b, OP_##op, x)
#define K(x) mk_scalar(b, n->out[0]->type.dtype, x)
#define TO(i, g) (dx[i] = reduce_to(b, g, &n->in[i]->type))

static bool is_float(const Value *v) { return dtype_float(v->type.dtype); }

G(g_relu) { dx[0] = BIN(ReluGrad, dy[0], n->out[0]); }
G(g_sigmoid) { dx[0] = BIN(SigmoidGrad, dy[0], n->out[0]); }
G(g_tanh) { dx[0] = BIN(TanhGrad, dy[0], n->out[0]); }
G(g_exp) { dx[0] = BIN(Mul, dy[0], n->out[0]); }
G(g_log) { dx[0] = BIN(Div, dy[0], n->in[0]); }
G(g_sqrt) { dx[0] = BIN(Div, BIN(Mul, dy[0], K(0.5)), n->out[0]); }
G(g_neg)
{
	dx[0] = UN(Neg, dy[0]);
	(void)n;
}
G(g_abs) { dx[0] = BIN(Mul, dy[0], UN(Sign, n->in[0])); }
G(g_zero) { dx[0] = BIN(Mul, dy[0], K(0)); } /* piecewise constant */
G(g_recip) { dx[0] = UN(Neg, BIN(Mul, dy[0], BIN(Mul, n->out[0], n->out[0]))); }
G(g_sin) { dx[0] = BIN(Mul, dy[0], UN(Cos, n->in[0])); }
G(g_cos) { dx[0] = UN(Neg, BIN(Mul, dy[0], UN(Sin, n->in[0]))); }
G(g_cast)
{
	if (is_float(n->in[0]) && is_float(n->out[0]))
		dx[0] = mk_cast(b, dy[0], n->in[0]->type.dtype);
}

/* d erf(x) = 2 / sqrt(pi) exp(-x^2) */
G(g_erf)
{
	Value *x = n->in[0];
	Value *e = UN(Exp, UN(Neg, BIN(Mul, x, x)));

	dx[0] = BIN(Mul, BIN(Mul, dy[0], K(2 / sqrt(acos(-1)))), e);
}

G(g_add)
{
	TO(0, dy[0]);
	TO(1, dy[0]);
}
G(g_sub)
{
	TO(0, dy[0]);
	TO(1, UN(Neg, reduce_to(b, dy[0], &n->in[1]->type)));
}
G(g_mul)
{
	TO(0, BIN(Mul, dy[0], n->in[1]));
	TO(1, BIN(Mul, dy[0], n->in[0]));
}

/* y = a / b: db = -dy y / b */
G(g_div)
{
	Value *da = BIN(Div, dy[0], n->in[1]);

	TO(0, da);
	TO(1, UN(Neg, BIN(Mul, da, n->out[0])));
}

/* y = x^e: dx = dy e x^(e - 1), de = dy y log x. A constant exponent makes the first a cheap kernel (pow_pattern). */
G(g_pow)
{
	Value *x = n->in[0], *e = n->in[1];
	const Tensor c = const_tensor(e);
	Value *em1;

	if (c.data && type_numel(&e->type) == 1) {
		const double k = elem_f(&c, 0);
		if (k == 0) { /* else 0 * x^-1 */
			TO(0, BIN(Mul, dy[0], K(0)));
			return;
		}
		em1 = mk_scalar(b, x->type.dtype, k - 1);
		TO(0, BIN(Mul, BIN(Mul, dy[0], BIN(Pow, x, em1)), mk_scalar(b, x->type.dtype, k)));
		return;
	}
	e = mk_cast(b, e, x->type.dtype);
	em1 = BIN(Sub, e, K(1));
	TO(0, BIN(Mul, dy[0], BIN(Mul, e, BIN(Pow, x, em1))));
	if (is_float(n->in[1])) {
		Value *g = BIN(Mul, dy[0], BIN(Mul, n->out[0], UN(Log, x)));
		dx[1] = reduce_to(b, mk_cast(b, g, n->in[1]->type.dtype), &n->in[1]->type);
	}
}

/* Max, Min: to the operand that is the result, shared among equals, as in torch.maximum. One number is a bound of
 * PyTorch's clamp: what is at it does not pass. */
G(g_max)
{
	const OpKind wins = n->op == OP_Max ? OP_Greater : OP_Less;
	Value **hits = NEWN(b->m->arena, Value *, n->nin), *count = NULL;

	if (n->nin == 1) {
		dx[0] = dy[0];
		return;
	}
	for (int i = 0; n->nin == 2 && i < 2; i++)
		if (n->in[1 - i]->kind == VAL_CONST && type_numel(&n->in[1 - i]->type) == 1) {
			Value *c = mk_binary(b, wins, n->in[i], n->in[1 - i]);
			TO(i, mk(b, OP_Where, NULL, NULL, 3, c, dy[0], K(0)));
			return;
		}
	for (int i = 0; i < n->nin; i++) {
		hits[i] = mk_cast(b, BIN(Equal, n->in[i], n->out[0]), dy[0]->type.dtype);
		count = count ? BIN(Add, count, hits[i]) : hits[i];
	}
	Value *share = BIN(Div, dy[0], count);
	for (int i = 0; i < n->nin; i++)
		TO(i, BIN(Mul, share, hits[i]));
}

/* fmod(a, b) = a - b trunc(a / b) */
G(g_mod)
{
	Value *q = BIN(Div, BIN(Sub, n->in[0], n->out[0]), n->in[1]);

	TO(0, dy[0]);
	TO(1, UN(Neg, BIN(Mul, dy[0], q)));
}

G(g_sum)
{
	for (int i = 0; i < n->nin; i++)
		TO(i, dy[0]);
}

G(g_where)
{
	Value *zero = K(0);

	TO(1, mk(b, OP_Where, NULL, NULL, 3, n->in[0], dy[0], zero));
	TO(2, mk(b, OP_Where, NULL, NULL, 3, n->in[0], zero, dy[0]));
}

/* ---- activations ---- */

/* A constant that is all above zero: then y has the sign of x, and x may be forgotten. */
static bool positive(const Value *v)
{
	const Tensor t = const_tensor(v);

	for (int64_t i = 0; t.data && i < type_numel(&v->type); i++)
		if (!(elem_f(&t, i) > 0))
			return false;
	return t.data != NULL;
}

G(g_prelu)
{
	Value *x = n->in[0], *slope = n->in[1];

	TO(0, mk(b, OP_PReluGrad, NULL, NULL, 3, dy[0], positive(slope) ? n->out[0] : x, slope));
	TO(1, BIN(Mul, dy[0], BIN(Min, x, K(0))));
}

/* dy k up to zero, dy above, as PyTorch has it at a bend */
static Value *bent(Builder *b, Value *dy, Value *x, Value *k) { return mk(b, OP_PReluGrad, NULL, NULL, 3, dy, x, k); }

/* Below zero dy/dx = alpha e^x = y + alpha. */
G(g_elu)
{
	Value *x = n->in[0], *alpha = n->in[1];

	if (positive(alpha))
		TO(0, mk(b, OP_EluGrad, NULL, NULL, 3, dy[0], n->out[0], alpha));
	else
		TO(0, bent(b, dy[0], x, BIN(Mul, alpha, UN(Exp, BIN(Min, x, K(0))))));
}

/* gamma times an Elu */
G(g_selu)
{
	Value *x = n->in[0], *y = n->out[0], *alpha = n->in[1], *gamma = n->in[2];

	if (positive(alpha) && positive(gamma)) {
		Value *below = BIN(Add, y, BIN(Mul, alpha, gamma));
		TO(0, BIN(Mul, dy[0], mk(b, OP_Where, NULL, NULL, 3, BIN(LessOrEqual, y, K(0)), below, gamma)));
	} else {
		TO(0, bent(b, BIN(Mul, dy[0], gamma), x, BIN(Mul, alpha, UN(Exp, BIN(Min, x, K(0))))));
	}
}

/* Below zero dy/dx = e^(x / alpha) = y / alpha + 1. */
G(g_celu)
{
	Value *x = n->in[0], *alpha = n->in[1];

	if (positive(alpha))
		TO(0, mk(b, OP_EluGrad, NULL, NULL, 3, dy[0], BIN(Div, n->out[0], alpha), K(1)));
	else
		TO(0, bent(b, dy[0], x, UN(Exp, BIN(Div, BIN(Min, x, K(0)), alpha))));
}

/* y = x s, s = sigmoid(alpha x): dx = dy (s + x alpha s (1 - s)). s is computed again, so that only x is kept. */
G(g_swish)
{
	Value *x = n->in[0], *u = BIN(Mul, x, n->in[1]), *s = UN(Sigmoid, u);

	TO(0, BIN(Add, BIN(Mul, dy[0], s), BIN(SigmoidGrad, BIN(Mul, dy[0], u), s)));
}

G(g_hsigm) { TO(0, mk(b, OP_HardSigmoidGrad, NULL, NULL, 3, dy[0], n->out[0], n->in[1])); }
G(g_hswish) { dx[0] = BIN(HardSwishGrad, dy[0], n->in[0]); }

/* dy / (1 + |x|)^2 */
G(g_softsign)
{
	Value *d = BIN(Add, UN(Abs, n->in[0]), K(1));

	dx[0] = BIN(Div, dy[0], BIN(Mul, d, d));
}

/* What is at a bound does not pass, as in PyTorch's clamp, hardtanh and relu6; what does not goes to the bound that
 * is the result. */
G(g_clip)
{
	Value *x = n->in[0], *lo = n->in[1], *hi = n->in[2], *zero = K(0);
	Value *above = BIN(GreaterOrEqual, x, hi), *crossed = BIN(Greater, lo, hi);
	Value *to_hi = BIN(Or, above, crossed), *to_lo = BIN(LessOrEqual, x, lo);
	Value *rest = mk(b, OP_Where, NULL, NULL, 3, to_hi, zero, dy[0]);

	TO(0, mk(b, OP_Where, NULL, NULL, 3, to_lo, zero, rest));
	TO(1, mk(b, OP_Where, NULL, NULL, 3, to_lo, rest, zero));
	TO(2, mk(b, OP_Where, NULL, NULL, 3, to_hi, dy[0], zero));
}

G(g_softplus) { dx[0] = BIN(Mul, dy[0], UN(Sigmoid, n->in[0])); }
G(g_gelu) { dx[0] = BIN(GeluGrad, dy[0], n->in[0]); }

/* y = x s(u), s the sigmoid, u = x (k + m x^2): dx = dy s (1 + x u' (1 - s)) */
G(g_gelu_tanh) { dx[0] = BIN(GeluTanhGrad, dy[0], n->in[0]); }

/* y = x t, t = tanh(softplus(x)): dx = dy (t + x (1 - t^2) sigmoid(x)) */
G(g_mish)
{
	Value *x = n->in[0], *t = UN(Tanh, UN(Softplus, x));

	dx[0] = BIN(Add, BIN(Mul, dy[0], t), BIN(TanhGrad, BIN(Mul, BIN(Mul, dy[0], x), UN(Sigmoid, x)), t));
}

/* ---- trigonometry ---- */

G(g_tan) { dx[0] = BIN(Mul, dy[0], BIN(Add, BIN(Mul, n->out[0], n->out[0]), K(1))); }
G(g_sinh) { dx[0] = BIN(Mul, dy[0], UN(Cosh, n->in[0])); }
G(g_cosh) { dx[0] = BIN(Mul, dy[0], UN(Sinh, n->in[0])); }
G(g_atan) { dx[0] = BIN(Div, dy[0], BIN(Add, BIN(Mul, n->in[0], n->in[0]), K(1))); }
G(g_asinh) { dx[0] = BIN(Div, dy[0], UN(Sqrt, BIN(Add, BIN(Mul, n->in[0], n->in[0]), K(1)))); }

/* (1 - x) (1 + x): near 1 nothing cancels, as it would in 1 - x^2. */
static Value *one_less_square(Builder *b, const Node *n)
{
	return BIN(Mul, BIN(Sub, K(1), n->in[0]), BIN(Add, n->in[0], K(1)));
}

G(g_asin)
{
	Value *g = BIN(Div, dy[0], UN(Sqrt, one_less_square(b, n)));

	dx[0] = n->op == OP_Acos ? UN(Neg, g) : g;
}

G(g_acosh) { dx[0] = BIN(Div, dy[0], UN(Sqrt, UN(Neg, one_less_square(b, n)))); }
G(g_atanh) { dx[0] = BIN(Div, dy[0], one_less_square(b, n)); }
