/* Canonical form of normalisations and of pooling by a norm: most are LayerNormalization without a scale over rows that
 * a Reshape makes, then products and sums with one value per channel. */
#include "canon.h"

/* ---- scale and bias ---- */

static Value *reduce(Import *im, OpKind op, Value *x, Ints axes)
{
	void *at = canon_attr_of(im, op);

	canon_put_ints(op, at, "axes", (Ints){ axes.n, arena_dup(im->a, axes.v, sizeof *axes.v * (size_t)axes.n) });
	canon_put_int(op, at, "noop_with_empty_axes", 1);
	return canon_emit1(im, op, at, x, NULL, NULL);
}

/* One value per group or channel, seen so that it broadcasts along axis 1 of a tensor of this rank. NULL after a
 * diagnostic. */
static Value *along_channels(Import *im, Value *v, const char *what, int64_t count, int rank)
{
	int64_t dim[MAXRANK] = { count };

	if (v->type.rank != 1 || v->type.dim[0] != count) {
		diag_error(im->d, im->b.loc, 304, "%s is %s, %lld values are needed", what,
			str_type(im->d->scratch, &v->type), (long long)count);
		return NULL;
	}
	for (int i = 1; i < rank - 1; i++)
		dim[i] = 1;
	return canon_reshape_to(im, v, rank - 1, dim, NULL);
}

bool canon_all_of(const Value *v, double x)
{
	bool all = v->kind == VAL_CONST && v->data && dtype_float(v->type.dtype);

	for (int64_t i = 0; all && i < type_numel(&v->type); i++)
		all = v->type.dtype == DT_f32 ? (double)((const float *)v->data)[i] == x
		                              : v->type.dtype == DT_f64 && ((const double *)v->data)[i] == x;
	return all;
}

/* y * scale + bias along axis 1 of y, operands 1 and 2 of n; exporters put ones and zeros there. NULL after a
 * diagnostic. */
static Value *scale_channels(Import *im, const OnnxNode *n, Value *y)
{
	Value *scale = along_channels(im, onnx_in(im, n, 1), "scale", y->type.dim[1], y->type.rank);
	Value *bias = scale ? along_channels(im, onnx_in(im, n, 2), "bias", y->type.dim[1], y->type.rank) : NULL;

	if (!bias)
		return NULL;
	y = canon_all_of(scale, 1) ? y : canon_binary(im, OP_Mul, y, scale);
	return canon_all_of(bias, 0) ? y : canon_binary(im, OP_Add, y, bias);
}

/* ---- LayerNormalization and RMSNormalization ---- */

/* Outputs 1 and 2 of n, for whoever reads them: the mean and the reciprocal deviation of each row. */
static void statistics(Import *im, const OnnxNode *n, Value *x, int axis)
{
	int64_t axes[MAXRANK];
	int k = 0;

	if (n->n_output < 2 || im->b.failed)
		return;
	for (int i = axis; i < x->type.rank; i++)
		axes[k++] = i;
	Value *mean = reduce(im, OP_ReduceMean, x, (Ints){ k, axes }), *d = canon_binary(im, OP_Sub, x, mean);
	onnx_bind(im, n, 1, mean);
	d = reduce(im, OP_ReduceMean, canon_binary(im, OP_Mul, d, d), (Ints){ k, axes });
	d = canon_binary(im, OP_Add, d, canon_scalar(im, x->type.dtype, onnx_float(n, "epsilon", 1e-5F)));
	onnx_bind(im, n, 2,
		canon_emit1(im, OP_Reciprocal, NULL, canon_emit1(im, OP_Sqrt, NULL, d, NULL, NULL), NULL, NULL));
}

/* The op takes a scale of the normalised shape and a bias like it; what broadcasts is a product or a sum behind it. */
bool canon_layer_norm(Import *im, const OnnxNode *n)
{
	const OpKind op = op_find(n->op_type);
	const bool layer = op == OP_LayerNormalization;
	void *at = canon_attrs_by_name(im, n, op);
	Value *out[MAXIN] = { 0 };
	int64_t axis = onnx_int(n, "axis", -1), rows = 1;

	if (!canon_need(im, n, 2))
		return false;
	Value *in[3] = { onnx_in(im, n, 0), onnx_in(im, n, 1), layer ? onnx_in(im, n, 2) : NULL };
	const Type *x = &in[0]->type;
	axis += axis < 0 ? x->rank : 0;
	for (int i = 0; i < axis && i < x->rank; i++)
		rows *= x->dim[i];
	const bool whole = axis >= 0 && axis < x->rank && rows > 0 &&
	                   type_numel(&in[1]->type) == type_numel(x) / rows && in[1]->type.rank <= x->rank - axis;
	if (whole && (!in[2] || shape_eq(&in[1]->type, &in[2]->type))) {
		canon_emit(im, op, at, in[2] ? 3 : 2, in, canon_out_name(n), out);
		onnx_bind(im, n, 0, out[0]);
		if (layer)
			statistics(im, n, in[0], (int)axis);
		return true;
	}
	for (int i = 1; i < 3; i++) {
		Type t;

		if (in[i] && (!shape_broadcast(x, &in[i]->type, &t) || !shape_eq(x, &t)))
			return diag_error(im->d, im->b.loc, 304, "%s is %s: it does not broadcast to X, which is %s",
				i == 1 ? "scale" : "bias", str_type(im->d->scratch, &in[i]->type),
				str_type(im->d->scratch, x));
	}
	canon_emit(im, op, at, 1, in, NULL, out);
	if (im->b.failed)
		return false;
	out[0] = canon_binary(im, OP_Mul, out[0], in[1]);
	if (in[2])
		out[0] = canon_binary(im, OP_Add, out[0], in[2]);
	onnx_bind(im, n, 0, out[0]);
	if (layer)
		statistics(im, n, in[0], (int)axis);
	return true;
}

/* x seen as [N, groups, rest], each row brought to mean 0 and variance 1. */
static Value *normal_groups(Import *im, const OnnxNode *n, Value *x, int64_t groups)
{
	const int64_t dim[3] = { x->type.dim[0], groups,
		x->type.dim[0] && groups ? type_numel(&x->type) / x->type.dim[0] / groups : 0 };
	void *at = canon_attr_of(im, OP_LayerNormalization);
	Value *out[MAXIN] = { 0 };

	x = canon_reshape_to(im, x, 3, dim, NULL);
	canon_put_float(OP_LayerNormalization, at, "epsilon", onnx_float(n, "epsilon", 1e-5F));
	canon_emit(im, OP_LayerNormalization, at, 1, &x, NULL, out);
	return out[0];
}

static bool need_channels(Import *im, const Type *x)
{
	if (x->rank >= 2 && dtype_float(x->dtype))
		return true;
	return diag_error(im->d, im->b.loc, 304, "X is %s: floats with a batch and a channel axis are needed",
		str_type(im->d->scratch, x));
}

bool canon_instance_norm(Import *im, const OnnxNode *n)
{
	if (!canon_need(im, n, 3))
		return false;
	Value *x = onnx_in(im, n, 0), *y;
	if (!need_channels(im, &x->type))
		return false;
	y = normal_groups(im, n, x, x->type.dim[1]);
	y = scale_channels(im, n, canon_reshape_to(im, y, x->type.rank, x->type.dim, NULL));
	if (y)
		onnx_bind(im, n, 0, y);
	return y != NULL;
}

/* Opset 18 has a scale and a bias per group, 21 per channel. */
bool canon_group_norm(Import *im, const OnnxNode *n)
{
	const int64_t groups = onnx_int(n, "num_groups", 0);

	if (!canon_need(im, n, 3))
		return false;
	Value *x = onnx_in(im, n, 0), *y;
	if (!need_channels(im, &x->type))
		return false;
	if (groups < 1 || x->type.dim[1] % groups)
		return diag_error(im->d, im->b.loc, 304, "num_groups is %lld, X is %s: it must divide the channels",
			(long long)groups, str_type(im->d->scratch, &x->type));
	y = normal_groups(im, n, x, groups);
	if (im->opset < 21 && !(y = scale_channels(im, n, y)))
		return false;
	y = canon_reshape_to(im, y, x->type.rank, x->type.dim, NULL);
	if (im->opset >= 21 && !(y = scale_channels(im, n, y)))
		return false;
	onnx_bind(im, n, 0, y);
	return true;
}

bool canon_lrn(Import *im, const OnnxNode *n)
{
	if (!canon_need(im, n, 1))
		return false;
	Value *x = onnx_in(im, n, 0), *out[MAXIN] = { 0 };
	if (!onnx_attr(n, "size"))
		return canon_refuse(im, "size is missing");
	canon_emit(im, OP_LRN, canon_attrs_by_name(im, n, OP_LRN), 1, &x, canon_out_name(n), out);
	onnx_bind(im, n, 0, out[0]);
	return true;
}

/* ---- norms over axes ---- */

/* (x - mean) / sqrt(var); a small number under the root stands for the 1e-9 that ONNX adds to the deviation. */
bool canon_mvn(Import *im, const OnnxNode *n)
{
	static const int64_t usual[] = { 0, 2, 3 };
	Ints axes;

	if (!canon_need(im, n, 1))
		return false;
	Value *x = onnx_in(im, n, 0), *v;
	if (!onnx_ints(im->a, n, "axes", &axes))
		axes = (Ints){ 3, usual };
	x = canon_binary(im, OP_Sub, x, reduce(im, OP_ReduceMean, x, axes));
	v = reduce(im, OP_ReduceMean, canon_binary(im, OP_Mul, x, x), axes);
	v = canon_binary(im, OP_Add, v, canon_scalar(im, x->type.dtype, 1e-18));
	onnx_bind(im, n, 0, canon_binary(im, OP_Div, x, canon_emit1(im, OP_Sqrt, NULL, v, NULL, NULL)));
	return true;
}

bool canon_lp_norm(Import *im, const OnnxNode *n)
{
	const int64_t p = onnx_int(n, "p", 2), axis = onnx_int(n, "axis", -1);

	if (!canon_need(im, n, 1))
		return false;
	if (p != 1 && p != 2)
		return diag_error(im->d, im->b.loc, 302, "p is %lld; LpNormalization takes 1 and 2", (long long)p);
	Value *x = onnx_in(im, n, 0), *norm;
	norm = p == 2 ? reduce(im, OP_ReduceL2, x, (Ints){ 1, &axis })
	              : reduce(im, OP_ReduceSum, canon_emit1(im, OP_Abs, NULL, x, NULL, NULL), (Ints){ 1, &axis });
	norm = canon_binary(im, OP_Max, norm, canon_scalar(im, x->type.dtype, 1e-30)); /* zeros stay zeros */
	onnx_bind(im, n, 0, canon_binary(im, OP_Div, x, norm));
	return true;
}

/* ---- pooling by a norm: the p-th root of a sum of p-th powers ---- */

static bool exponent(Import *im, const OnnxNode *n, int64_t *p)
{
	*p = onnx_int(n, "p", 2);
	if (*p >= 1 && *p <= 1024)
		return true;
	return diag_error(im->d, im->b.loc, 302, "p is %lld; it must be in 1..1024", (long long)*p);
}

static Value *power(Import *im, Value *x, int64_t p)
{
	if (p == 2)
		return canon_binary(im, OP_Mul, x, x);
	x = canon_emit1(im, OP_Abs, NULL, x, NULL, NULL);
	return p == 1 ? x : canon_binary(im, OP_Pow, x, canon_scalar(im, x->type.dtype, (double)p));
}

/* Where all of a window is 0 the gradient is 0, not a division by it. */
static Value *root(Import *im, Value *x, int64_t p)
{
	if (p == 1)
		return x;
	x = canon_binary(im, OP_Max, x, canon_scalar(im, x->type.dtype, 1e-37));
	return p == 2 ? canon_emit1(im, OP_Sqrt, NULL, x, NULL, NULL)
	              : canon_binary(im, OP_Pow, x, canon_scalar(im, x->type.dtype, 1 / (double)p));
}

/* Sums are averages times the window's size: padding counts, and ceil_mode becomes more of it. */
bool canon_lp_pool(Import *im, const OnnxNode *n)
{
	void *at = canon_attr_of(im, OP_AveragePool);
	double count = 1;
	int64_t p;

	if (!canon_need(im, n, 1) || !exponent(im, n, &p))
		return false;
	Value *x = onnx_in(im, n, 0), *y;
	if (!need_channels(im, &x->type) || !canon_window(im, n, OP_AveragePool, at, &x->type, NULL))
		return false;
	const struct Window {
		Ints kernel, strides, dilations, pads;
	} w = { canon_get_ints(OP_AveragePool, at, "kernel_shape"), canon_get_ints(OP_AveragePool, at, "strides"),
		canon_get_ints(OP_AveragePool, at, "dilations"), canon_get_ints(OP_AveragePool, at, "pads") };
	const int nd = w.kernel.n;
	int64_t *pads = arena_dup(im->a, w.pads.v, sizeof *pads * (size_t)w.pads.n);
	for (int i = 0; i < nd; i++) {
		if (pads[i] < 0 || pads[i] > 1 << 20 || pads[nd + i] < 0 || pads[nd + i] > 1 << 20)
			return diag_error(im->d, im->b.loc, 302,
				"pads of spatial axis %d are %lld and %lld; they must lie in "
				"0..1048576",
				i, (long long)pads[i], (long long)pads[nd + i]);
		const int64_t room =
			x->type.dim[2 + i] + pads[i] + pads[nd + i] - (w.kernel.v[i] - 1) * w.dilations.v[i] - 1;

		if (onnx_int(n, "ceil_mode", 0) && room > 0 && room % w.strides.v[i] &&
			(room / w.strides.v[i] + 1) * w.strides.v[i] <
				x->type.dim[2 + i] + pads[i]) /* it begins inside */
			pads[nd + i] += w.strides.v[i] - room % w.strides.v[i];
		count *= (double)w.kernel.v[i];
	}
	canon_put_ints(OP_AveragePool, at, "pads", (Ints){ 2 * nd, pads });
	canon_put_int(OP_AveragePool, at, "count_include_pad", 1);
	y = canon_emit1(im, OP_AveragePool, at, power(im, x, p), NULL, NULL);
	y = canon_binary(im, OP_Mul, y, canon_scalar(im, x->type.dtype, count));
	onnx_bind(im, n, 0, root(im, y, p));
	return true;
}

bool canon_global_lp_pool(Import *im, const OnnxNode *n)
{
	int64_t axes[MAXRANK], p;
	int k = 0;

	if (!canon_need(im, n, 1) || !exponent(im, n, &p))
		return false;
	Value *x = onnx_in(im, n, 0);
	if (!need_channels(im, &x->type))
		return false;
	for (int i = 2; i < x->type.rank; i++)
		axes[k++] = i;
	onnx_bind(im, n, 0, root(im, reduce(im, OP_ReduceSum, power(im, x, p), (Ints){ k, axes }), p));
	return true;
}
