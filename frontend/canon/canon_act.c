/* Canonical form of activations and other elementwise operators that have no op of the same name: attributes become
 * scalar operands, and what is a short chain of cheap ops is written as that chain (fuse makes one loop of it). */
#include <float.h>
#include <math.h>
#include <string.h>
#include "canon.h"

/* ---- building ---- */

static Value *un(Import *im, OpKind op, Value *x) { return canon_emit1(im, op, NULL, x, NULL, NULL); }

/* c, a scalar of x's type */
static Value *like(Import *im, const Value *x, double c) { return canon_scalar(im, x->type.dtype, c); }

static Value *tri(Import *im, OpKind op, Value *x, Value *y, Value *z)
{
	Value *in[3] = { x, y, z }, *out[MAXIN];

	canon_emit(im, op, NULL, 3, in, NULL, out);
	return out[0];
}

static Value *pick(Import *im, Value *cond, Value *yes, Value *no) { return tri(im, OP_Where, cond, yes, no); }

/* y is output 0 of n and is called so. */
static bool result(Import *im, const OnnxNode *n, Value *y)
{
	if (im->b.failed)
		return false;
	if (y->kind == VAL_NODE && n->n_output && *n->output[0] && y != onnx_in(im, n, 0))
		value_rename(im->b.g, y, n->output[0]);
	onnx_bind(im, n, 0, y);
	return true;
}

/* The only operand, which must be of floats. NULL after a diagnostic. */
static Value *floats(Import *im, const OnnxNode *n)
{
	if (!canon_need(im, n, 1))
		return NULL;
	Value *x = onnx_in(im, n, 0);
	if (n->n_input > 1) {
		diag_error(im->d, im->b.loc, 302, "%zu operands, the most is 1", n->n_input);
		return NULL;
	}
	if (!dtype_float(x->type.dtype)) {
		diag_error(im->d, im->b.loc, 302, "%s takes floats, %s is %s", n->op_type, x->name,
			str_type(im->d->scratch, &x->type));
		return NULL;
	}
	return x;
}

/* ---- one bend at zero ---- */

bool canon_leaky_relu(Import *im, const OnnxNode *n)
{
	Value *x = floats(im, n);

	return x && result(im, n, canon_binary(im, OP_PRelu, x, like(im, x, onnx_float(n, "alpha", 0.01F))));
}

/* Before opset 7 the slope is a vector with a value per channel (axis 1), or one for all. */
bool canon_prelu(Import *im, const OnnxNode *n)
{
	Type sum;

	if (!canon_need(im, n, 2))
		return false;
	Value *x = onnx_in(im, n, 0), *slope = onnx_in(im, n, 1);
	if (im->opset < 7 && slope->type.rank == 1 && slope->type.dim[0] != 1 && x->type.rank > 1) {
		int64_t dim[MAXRANK];

		for (int i = 0; i < x->type.rank - 1; i++)
			dim[i] = i ? 1 : slope->type.dim[0];
		slope = canon_reshape_to(im, slope, x->type.rank - 1, dim, NULL);
	}
	if (!shape_broadcast(&x->type, &slope->type, &sum) || !shape_eq(&sum, &x->type))
		return diag_error(im->d, im->b.loc, 304,
			"PRelu: the slope must broadcast to X: X is %s, the slope is %s",
			str_shape(im->d->scratch, &x->type), str_shape(im->d->scratch, &slope->type));
	if (!dtype_float(x->type.dtype) && !dtype_signed(x->type.dtype) && x->type.dtype != DT_bool)
		return result(im, n, x); /* never below zero */
	return result(im, n, canon_binary(im, OP_PRelu, x, slope));
}

bool canon_elu(Import *im, const OnnxNode *n)
{
	Value *x = floats(im, n);

	return x && result(im, n, canon_binary(im, OP_Elu, x, like(im, x, onnx_float(n, "alpha", 1))));
}

bool canon_selu(Import *im, const OnnxNode *n)
{
	Value *x = floats(im, n);

	if (!x)
		return false;
	Value *alpha = like(im, x, onnx_float(n, "alpha", 1.67326319217681884765625));
	return result(
		im, n, tri(im, OP_Selu, x, alpha, like(im, x, onnx_float(n, "gamma", 1.05070102214813232421875))));
}

/* max(0, x) + min(0, alpha (exp(x / alpha) - 1)) */
bool canon_celu(Import *im, const OnnxNode *n)
{
	const double alpha = onnx_float(n, "alpha", 1);
	Value *x = floats(im, n);

	if (!x)
		return false;
	if (!(fabs(alpha) >= FLT_MIN && fabs(alpha) <= FLT_MAX))
		return diag_error(
			im->d, im->b.loc, 302, "Celu: alpha is %g, it divides and must be finite and not 0", alpha);
	return result(im, n, canon_binary(im, OP_Celu, x, like(im, x, alpha)));
}

bool canon_thresholded_relu(Import *im, const OnnxNode *n)
{
	Value *x = floats(im, n);

	if (!x)
		return false;
	Value *above = canon_binary(im, OP_Greater, x, like(im, x, onnx_float(n, "alpha", 1)));
	return result(im, n, pick(im, above, x, like(im, x, 0)));
}

/* x < -lambd: x + bias; x > lambd: x - bias; else 0. Integers are computed with as f64 and cut. */
bool canon_shrink(Import *im, const OnnxNode *n)
{
	const double lambd = onnx_float(n, "lambd", 0.5), bias = onnx_float(n, "bias", 0);

	if (!canon_need(im, n, 1))
		return false;
	Value *x0 = onnx_in(im, n, 0);
	if (x0->type.dtype == DT_bool)
		return diag_error(im->d, im->b.loc, 302, "Shrink takes numbers, %s is %s", x0->name,
			str_type(im->d->scratch, &x0->type));
	Value *x = dtype_float(x0->type.dtype) ? x0 : canon_cast_to(im, x0, DT_f64);
	Value *by = like(im, x, bias), *above = canon_binary(im, OP_Greater, x, like(im, x, lambd));
	Value *y = pick(im, above, canon_binary(im, OP_Sub, x, by), like(im, x, 0));
	y = pick(im, canon_binary(im, OP_Less, x, like(im, x, -lambd)), canon_binary(im, OP_Add, x, by), y);
	return result(im, n, canon_cast_to(im, y, x0->type.dtype));
}

/* ---- sigmoids ---- */

bool canon_hard_sigmoid(Import *im, const OnnxNode *n)
{
	Value *x = floats(im, n);

	if (!x)
		return false;
	Value *alpha = like(im, x, onnx_float(n, "alpha", 0.2F));
	return result(im, n, tri(im, OP_HardSigmoid, x, alpha, like(im, x, onnx_float(n, "beta", 0.5))));
}

bool canon_swish(Import *im, const OnnxNode *n)
{
	Value *x = floats(im, n);

	return x && result(im, n, canon_binary(im, OP_Swish, x, like(im, x, onnx_float(n, "alpha", 1))));
}

bool canon_gelu(Import *im, const OnnxNode *n)
{
	const char *how = onnx_str(im->a, n, "approximate", "none");
	const bool exact = strcmp(how, "none") == 0;
	Value *x = floats(im, n);

	if (!x)
		return false;
	if (!exact && strcmp(how, "tanh"))
		return diag_error(im->d, im->b.loc, 302, "Gelu: approximate is '%s', it must be none or tanh", how);
	return result(im, n, un(im, exact ? OP_Gelu : OP_GeluTanh, x));
}

/* One where x is largest along axis (the first such place), else 0. Before opset 13 as Softmax was: a matrix cut at
 * axis. Each place has a rank, the first the highest; the winner is the highest rank among the largest. */
bool canon_hardmax(Import *im, const OnnxNode *n)
{
	Value *x = floats(im, n), *x0 = x;

	if (!x)
		return false;
	const int rank = x->type.rank;
	const bool matrix = im->opset < 13;
	int64_t axis = onnx_int(n, "axis", matrix ? 1 : -1), dim[MAXRANK] = { 1, 1 };
	if (axis < -rank || axis >= rank + matrix)
		return diag_error(im->d, im->b.loc, 302, "Hardmax: axis %lld is outside [%d, %d), X has rank %d",
			(long long)axis, -rank, rank + matrix, rank);
	axis += axis < 0 ? rank : 0;
	if (matrix) {
		for (int i = 0; i < rank; i++)
			dim[i >= axis] *= x->type.dim[i];
		x = canon_reshape_to(im, x, 2, dim, NULL);
		axis = 1;
	}
	const int64_t size = x->type.dim[axis];
	if (size > 1 << 24)
		return diag_error(
			im->d, im->b.loc, 302, "Hardmax over %lld elements, the most is %d", (long long)size, 1 << 24);

	Type t = { .dtype = DT_i64, .rank = x->type.rank };
	int64_t *place = NEWN(im->a, int64_t, size);
	for (int i = 0; i < t.rank; i++)
		t.dim[i] = i == axis ? size : 1;
	for (int64_t i = 0; i < size; i++)
		place[i] = size - i;
	void *at = canon_attr_of(im, OP_ReduceMax);
	canon_put_ints(OP_ReduceMax, at, "axes", (Ints){ 1, arena_dup(im->a, &axis, sizeof axis) });
	Value *top = canon_emit1(im, OP_ReduceMax, at, x, NULL, NULL);
	Value *places = module_const(im->m, "place", t, place);
	Value *rated = pick(im, canon_binary(im, OP_Equal, x, top), places, canon_scalar(im, DT_i64, 0));
	Value *best = canon_emit1(im, OP_ReduceMax, at, rated, NULL, NULL);
	Value *y = canon_cast_to(im, canon_binary(im, OP_Equal, rated, best), x->type.dtype);
	return result(im, n, matrix ? canon_reshape_to(im, y, rank, x0->type.dim, NULL) : y);
}

/* ---- tests, bits, types ---- */

bool canon_is_inf(Import *im, const OnnxNode *n)
{
	const bool up = onnx_int(n, "detect_positive", 1) != 0, down = onnx_int(n, "detect_negative", 1) != 0;
	Value *x = floats(im, n);

	if (!x)
		return false;
	if (!up && !down)
		return result(im, n, canon_binary(im, OP_Less, x, x)); /* never */
	if (up && down)
		return result(im, n, canon_binary(im, OP_Equal, un(im, OP_Abs, x), like(im, x, HUGE_VAL)));
	return result(im, n, canon_binary(im, OP_Equal, x, like(im, x, up ? HUGE_VAL : -HUGE_VAL)));
}

bool canon_bit_shift(Import *im, const OnnxNode *n)
{
	const char *way = onnx_str(im->a, n, "direction", "");
	const bool left = strcmp(way, "LEFT") == 0;

	if (!canon_need(im, n, 2))
		return false;
	if (!left && strcmp(way, "RIGHT"))
		return diag_error(im->d, im->b.loc, 302, "BitShift: direction is '%s', it must be LEFT or RIGHT", way);
	return result(
		im, n, canon_binary(im, left ? OP_ShiftLeft : OP_ShiftRight, onnx_in(im, n, 0), onnx_in(im, n, 1)));
}

bool canon_cast_like(Import *im, const OnnxNode *n)
{
	if (!canon_need(im, n, 2))
		return false;
	return result(im, n, canon_cast_to(im, onnx_in(im, n, 0), onnx_in(im, n, 1)->type.dtype));
}

/* Abs and Sign, of numbers without a sign too. */
bool canon_sign(Import *im, const OnnxNode *n)
{
	const OpKind op = op_find(n->op_type);

	if (!canon_need(im, n, 1))
		return false;
	Value *x = onnx_in(im, n, 0);
	const DType t = x->type.dtype;
	if (dtype_float(t) || dtype_signed(t) || t == DT_bool)
		return canon_emit_bind(im, n, op, NULL, 1, &x);
	return result(im, n, op == OP_Abs ? x : canon_binary(im, OP_Min, x, like(im, x, 1)));
}

/* Max, Min of many: by pairs, so that no expression repeats itself. */
bool canon_extreme(Import *im, const OnnxNode *n)
{
	OpKind op = op_find(n->op_type);
	int nin;
	Value **in = canon_operands(im, n, &nin);

	if (!canon_need(im, n, n->n_input ? n->n_input : 1))
		return false;
	while (nin > 3) {
		int k = 0;

		for (int i = 0; i < nin; i += 2)
			in[k++] = i + 1 < nin ? canon_binary(im, op, in[i], in[i + 1]) : in[i];
		nin = k;
	}
	return canon_emit_bind(im, n, op, NULL, nin, in);
}

/* Where(x == 0, c, sin(u) / u), PyTorch's sinc: what is divided by is 1 where c is taken, since the gradient of a quotient that nobody
 * sees is 0 / 0 there otherwise. PyTorch's sinc has a gradient of its own, without that. */
bool canon_where(Import *im, const OnnxNode *n)
{
	int nin;
	Value **in = canon_operands(im, n, &nin);

	if (nin > 3)
		return diag_error(im->d, im->b.loc, 302, "%d operands, the most is 3", nin);
	if (!canon_need(im, n, 3))
		return false;
	const Node *zero = in[0]->def, *quotient = in[2]->def;

	if (zero && zero->op == OP_Equal && quotient && quotient->op == OP_Div) {
		const Node *sine = quotient->in[0]->def;
		Value *u = quotient->in[1];

		if (sine && sine->op == OP_Sin && sine->in[0] == u && shape_eq(&u->type, &in[0]->type))
			in[2] = canon_binary(im, OP_Div, quotient->in[0], pick(im, in[0], like(im, u, 1), u));
	}
	return canon_emit_bind(im, n, OP_Where, canon_attrs_by_name(im, n, OP_Where), nin, in);
}
