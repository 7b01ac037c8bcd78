/* Canonical form of reductions, products, convolution, pooling, normalisation, and losses. */
#include <float.h>
#include <math.h>
#include <string.h>
#include "canon.h"
#include "frontend/onnx/contract.h"
#include "frontend/onnx/torch.h"

/* ---- reductions: those that have no op of their own are written with others ---- */

static Value *reduce_by(Import *im, const OnnxNode *n, OpKind op, Value *x, bool *ok)
{
	void *at = canon_attr_of(im, op);
	Ints axes;
	bool given;

	*ok = canon_axes_of(im, n, 1, &axes, &given);
	canon_put_ints(op, at, "axes", axes);
	canon_put_int(op, at, "keepdims", onnx_int(n, "keepdims", 1));
	canon_put_int(op, at, "noop_with_empty_axes", onnx_int(n, "noop_with_empty_axes", 0));
	return *ok ? canon_emit1(im, op, at, x, NULL, NULL) : x;
}

/* The largest or least of no elements (opset 20): the other end of the type's range. */
static Value *of_none(Import *im, OpKind op, const Type *x, const Ints *axes, bool keep)
{
	const bool max = op == OP_ReduceMax, is_signed = dtype_signed(x->dtype);
	const int bits = 8 * dtype_bytes(x->dtype);
	const double top = dtype_float(x->dtype) ? (double)INFINITY : ldexp(1, bits - is_signed) - 1;
	void *at = canon_attr_of(im, OP_ConstantOfShape);
	int64_t *dim = NEWN(im->a, int64_t, MAXRANK);
	int rank = 0;

	for (int i = 0; i < x->rank; i++) {
		bool gone = axes->n == 0;

		for (int k = 0; k < axes->n; k++)
			gone |= axes->v[k] == i || axes->v[k] == i - x->rank;
		if (!gone || keep)
			dim[rank++] = gone ? 1 : x->dim[i];
	}
	canon_put_ints(OP_ConstantOfShape, at, "shape", (Ints){ rank, dim });
	canon_put_int(OP_ConstantOfShape, at, "dtype", dtype_onnx(x->dtype));
	canon_put_float(OP_ConstantOfShape, at, "value",
		!max                    ? top
		: dtype_float(x->dtype) ? -top
		: is_signed             ? -top - 1
					: 0);
	Value *out[MAXIN];
	canon_emit(im, OP_ConstantOfShape, at, 0, NULL, NULL, out);
	return out[0];
}

/* Max and Min of bools (opset 20) are those of bytes. */
static bool extreme(Import *im, const OnnxNode *n, OpKind op)
{
	Value *x = onnx_in(im, n, 0), *y;
	const bool bools = x->type.dtype == DT_bool;
	Ints axes;
	bool given, ok = true;

	if (!canon_axes_of(im, n, 1, &axes, &given))
		return false;
	if (bools)
		x = canon_cast_to(im, x, DT_u8);
	if (type_numel(&x->type) == 0 && !(given && axes.n == 0))
		y = of_none(im, op, &x->type, &axes, onnx_int(n, "keepdims", 1) != 0);
	else
		y = reduce_by(im, n, op, x, &ok);
	if (ok && bools)
		y = canon_cast_to(im, y, DT_bool);
	onnx_bind(im, n, 0, y);
	return ok;
}

bool canon_reduce(Import *im, const OnnxNode *n)
{
	const char *kind = n->op_type + strlen("Reduce");
	bool ok;

	if (!canon_need(im, n, 1))
		return false;
	Value *x = onnx_in(im, n, 0), *y;
	OpKind op = op_find(n->op_type);
	if (op == OP_ReduceMax || op == OP_ReduceMin)
		return extreme(im, n, op);
	if (op) {
		y = reduce_by(im, n, op, x, &ok);
	} else if (strcmp(kind, "LogSumExp") == 0 &&
		   type_numel(&x->type) == 0) { /* log 0, and no largest to begin from */
		y = canon_emit1(im, OP_Log, NULL, reduce_by(im, n, OP_ReduceSum, x, &ok), NULL, NULL);
	} else if (strcmp(kind, "LogSumExp") == 0) {
		void *at = canon_attr_of(im, OP_ReduceMax);
		Ints axes;
		bool given;

		if (!canon_axes_of(im, n, 1, &axes, &given))
			return false;
		canon_put_ints(OP_ReduceMax, at, "axes", axes);
		canon_put_int(OP_ReduceMax, at, "noop_with_empty_axes", onnx_int(n, "noop_with_empty_axes", 0));
		Value *top = canon_emit1(im, OP_ReduceMax, at, x, NULL, NULL);
		Value *e = canon_emit1(im, OP_Exp, NULL, canon_emit1(im, OP_Sub, NULL, x, top, NULL), NULL, NULL);
		y = canon_emit1(im, OP_Log, NULL, reduce_by(im, n, OP_ReduceSum, e, &ok), NULL, NULL);
		if (ok && y->type.rank != top->type.rank)
			top = canon_reshape_to(im, top, y->type.rank, y->type.dim, NULL);
		y = canon_emit1(im, OP_Add, NULL, y, top, NULL);
	} else {
		Value *f = strcmp(kind, "L1") == 0          ? canon_emit1(im, OP_Abs, NULL, x, NULL, NULL)
		           : strcmp(kind, "SumSquare") == 0 ? canon_emit1(im, OP_Mul, NULL, x, x, NULL)
		                                            : x;

		y = reduce_by(im, n, OP_ReduceSum, f, &ok);
		if (strcmp(kind, "LogSum") == 0)
			y = canon_emit1(im, OP_Log, NULL, y, NULL, NULL);
	}
	onnx_bind(im, n, 0, y);
	return ok;
}

bool canon_mean(Import *im, const OnnxNode *n)
{
	int nin;
	Value **in = canon_operands(im, n, &nin), *out[MAXIN];

	if (!canon_need(im, n, nin ? (size_t)nin : 1))
		return false;
	canon_emit(im, OP_Sum, NULL, nin, in, NULL, out);
	if (im->b.failed)
		return false;
	onnx_bind(im, n, 0,
		canon_emit1(
			im, OP_Mul, NULL, out[0], canon_scalar(im, in[0]->type.dtype, 1.0 / nin), canon_out_name(n)));
	return true;
}

/* ---- products, convolution, pooling ---- */

bool canon_gemm(Import *im, const OnnxNode *n)
{
	double alpha = onnx_float(n, "alpha", 1), beta = onnx_float(n, "beta", 1);
	int nin;
	Value **in = canon_operands(im, n, &nin);

	if (!canon_need(im, n, 2))
		return false;
	DType t = in[0]->type.dtype;
	if (nin > 2 && beta != 1)
		in[2] = canon_emit1(im, OP_Mul, NULL, in[2], canon_scalar(im, t, beta), NULL);
	if (alpha != 1)
		in[0] = canon_emit1(im, OP_Mul, NULL, in[0], canon_scalar(im, t, alpha), NULL);
	return canon_emit_bind(im, n, OP_Gemm, canon_attrs_by_name(im, n, OP_Gemm), nin > 3 ? 3 : nin, in);
}

bool canon_window(Import *im, const OnnxNode *n, OpKind op, void *at, const Type *x, const int64_t *kernel)
{
	int nd = x->rank - 2;
	Ints k, s, p, l;
	const char *mode = onnx_str(im->a, n, "auto_pad", "NOTSET");
	int64_t *stride = NEWN(im->a, int64_t, nd), *dil = NEWN(im->a, int64_t, nd),
		*pads = NEWN(im->a, int64_t, 2 * nd), *size = NEWN(im->a, int64_t, nd);

	if (nd < 1)
		return diag_error(im->d, im->b.loc, 302, "%s has no spatial axes", str_type(im->d->scratch, x));
	if (strcmp(mode, "NOTSET") && strcmp(mode, "VALID") && strcmp(mode, "SAME_UPPER") && strcmp(mode, "SAME_LOWER"))
		return diag_error(
			im->d, im->b.loc, 302, "auto_pad '%s' is not NOTSET, VALID, SAME_UPPER or SAME_LOWER", mode);
	onnx_ints(im->a, n, "kernel_shape", &k);
	onnx_ints(im->a, n, "strides", &s);
	onnx_ints(im->a, n, "dilations", &l);
	onnx_ints(im->a, n, "pads", &p);
	if ((k.n && k.n != nd) || (s.n && s.n != nd) || (l.n && l.n != nd) || (p.n && p.n != 2 * nd) ||
		(!k.n && !kernel))
		return diag_error(im->d, im->b.loc, 302,
			"%d spatial axes, but kernel_shape has %d entries, strides %d, dilations %d, "
			"pads %d",
			nd, k.n, s.n, l.n, p.n);
	for (int i = 0; i < nd; i++) {
		size[i] = k.n ? k.v[i] : kernel[i];
		stride[i] = s.n ? s.v[i] : 1;
		dil[i] = l.n ? l.v[i] : 1;
		if (size[i] < 1 || stride[i] < 1 || dil[i] < 1 || size[i] > 1 << 20 || stride[i] > 1 << 20 ||
			dil[i] > 1 << 20)
			return diag_error(im->d, im->b.loc, 302,
				"kernel %lld, stride %lld, dilation %lld: each must lie in 1..1048576",
				(long long)size[i], (long long)stride[i], (long long)dil[i]);
		if (strncmp(mode, "SAME", 4) == 0) {
			int64_t in = x->dim[2 + i], out = (in + stride[i] - 1) / stride[i];
			int64_t all = (out - 1) * stride[i] + (size[i] - 1) * dil[i] + 1 - in;

			all = all > 0 ? all : 0;
			pads[i] = strcmp(mode, "SAME_LOWER") == 0 ? all - all / 2 : all / 2;
			pads[nd + i] = all - pads[i];
		} else if (p.n && strcmp(mode, "VALID")) {
			pads[i] = p.v[i];
			pads[nd + i] = p.v[nd + i];
		}
	}
	canon_put_ints(op, at, "kernel_shape", (Ints){ nd, size });
	canon_put_ints(op, at, "strides", (Ints){ nd, stride });
	canon_put_ints(op, at, "dilations", (Ints){ nd, dil });
	canon_put_ints(op, at, "pads", (Ints){ 2 * nd, pads });
	return true;
}

bool canon_conv(Import *im, const OnnxNode *n)
{
	void *at = canon_attrs_by_name(im, n, OP_Conv);
	int nin;
	Value **in = canon_operands(im, n, &nin);

	if (!canon_need(im, n, 2))
		return false;
	if (in[1]->type.rank != in[0]->type.rank)
		return diag_error(im->d, im->b.loc, 302, "X is %s, W is %s: ranks differ",
			str_type(im->d->scratch, &in[0]->type), str_type(im->d->scratch, &in[1]->type));
	if (!canon_window(im, n, OP_Conv, at, &in[0]->type, in[1]->type.dim + 2))
		return false;
	if (nin > 2 && in[2] &&
		canon_all_of(in[2], 0)) /* PyTorch's exporter gives those of Conv3d a shape of their own */
		nin = 2;
	return canon_emit_bind(im, n, OP_Conv, at, nin > 3 ? 3 : nin, in);
}

bool canon_pool(Import *im, const OnnxNode *n)
{
	OpKind op = op_find(n->op_type);
	void *at = canon_attrs_by_name(im, n, op);
	Value *x = onnx_in(im, n, 0);

	if (!canon_need(im, n, 1) || !canon_window(im, n, op, at, &x->type, NULL))
		return false;
	const DType t = x->type.dtype;
	Value *out[MAXIN] = { 0 };
	if (op == OP_MaxPool && (t == DT_i8 || t == DT_u8)) /* bytes are exact in f32 */
		x = canon_cast_to(im, x, DT_f32);
	canon_emit(im, op, at, 1, &x, canon_out_name(n), out);
	onnx_bind(im, n, 0, t == x->type.dtype ? out[0] : canon_cast_to(im, out[0], t));
	if (op == OP_MaxPool && n->n_output > 1 && *n->output[1] && !im->b.failed)
		return canon_max_pool_indices(im, n, at, &x->type, out[1]);
	return true;
}

bool canon_global_max_pool(Import *im, const OnnxNode *n)
{
	if (!canon_need(im, n, 1))
		return false;
	Value *x = onnx_in(im, n, 0);
	void *at = canon_attr_of(im, OP_ReduceMax);
	int64_t axes[MAXRANK];
	for (int i = 2; i < x->type.rank; i++)
		axes[i - 2] = i;
	canon_put_ints(OP_ReduceMax, at, "axes", (Ints){ x->type.rank - 2, arena_dup(im->a, axes, sizeof axes) });
	onnx_bind(im, n, 0, canon_emit1(im, OP_ReduceMax, at, x, NULL, canon_out_name(n)));
	return true;
}

/* ---- normalisation ---- */

static Value *per_channel(Import *im, Value *v, int rank)
{
	int64_t dim[MAXRANK];

	for (int i = 0; i < rank - 1; i++)
		dim[i] = i ? 1 : v->type.dim[0];
	return canon_reshape_to(im, v, rank - 1, dim, NULL);
}

/* y = (x - mean) / sqrt(var + eps) * scale + bias, as one finds it in inference exports */
static bool bn_inference(Import *im, const OnnxNode *n, double eps)
{
	Value *x = onnx_in(im, n, 0), *p[4];
	int rank = x->type.rank;

	for (size_t i = 0; i < 4; i++) {
		p[i] = onnx_in(im, n, i + 1);
		if (rank < 2 || p[i]->type.rank != 1 || p[i]->type.dim[0] != x->type.dim[1])
			return diag_error(im->d, im->b.loc, 303,
				"X is %s, operand %zu is %s: it must have one value per channel",
				str_type(im->d->scratch, &x->type), i + 1, str_type(im->d->scratch, &p[i]->type));
	}
	Value *sd = canon_emit1(im, OP_Sqrt, NULL,
		canon_emit1(im, OP_Add, NULL, p[3], canon_scalar(im, p[3]->type.dtype, eps), NULL), NULL, NULL);
	Value *k = canon_emit1(im, OP_Div, NULL, p[0], sd, NULL);
	Value *y = canon_emit1(im, OP_Sub, NULL, x, per_channel(im, p[2], rank), NULL);
	y = canon_emit1(im, OP_Mul, NULL, y, per_channel(im, k, rank), NULL);
	onnx_bind(im, n, 0, canon_emit1(im, OP_Add, NULL, y, per_channel(im, p[1], rank), canon_out_name(n)));
	return true;
}

/* running = running * momentum + batch * (1 - momentum): once per microbatch, in order, in the update phase. */
static void running(Import *im, Value *param, Value *batch, double momentum)
{
	Builder b = im->b;
	Value *rows;
	void *at = canon_attr_of(im, OP_RunningStat);

	b.phase = PHASE_UPDATE;
	rows = mk(&b, OP_Stack, NULL, arena_printf(im->a, "%s.rows", param->name), 1, batch);
	canon_put_float(OP_RunningStat, at, "momentum", momentum);
	build(&b, OP_RunningStat, at, 2, (Value *[]){ param, rows }, NULL);
}

bool canon_batch_norm(Import *im, const OnnxNode *n)
{
	bool training = im->opset >= 14 ? onnx_int(n, "training_mode", 0) != 0
	                : im->opset < 7 ? !onnx_int(n, "is_test", 0)
	                                : n->n_output > 1;
	training = training || torch_bn_training(im->a, n);
	double momentum = onnx_float(n, "momentum", 0.9F), eps = onnx_float(n, "epsilon", 1e-5F);
	const char *mode = contract_mode(im->a, im->contract, n);

	if (!canon_need(im, n, 5))
		return false;
	if (mode && training != (strcmp(mode, "train") == 0))
		return diag_error(im->d, im->b.loc, 214,
			"the contract (pdcc.modes) says that the module of '%s' is in mode %s; the node is in mode "
			"%s",
			n->input[3], mode, training ? "train" : "eval");
	bool computed = onnx_in(im, n, 3)->kind == VAL_NODE &&
	                onnx_in(im, n, 4)->kind == VAL_NODE; /* of the batch, beside it */
	if (!training && !computed && !mode && !im->o->keep_eval && !im->o->frozen_bn) {
		diag_error(
			im->d, im->b.loc, 208, "BatchNormalization with fixed statistics: this is an inference export");
		diag_note(im->d, im->b.loc, "export with %s, or train with batchnorm: frozen",
			im->torch ? "model.train() and "
				    "optimize=False"
				  : "training=torch.onnx.TrainingMode.TRAINING and do_constant_folding=False");
		return false;
	}
	if (!training || (im->opset < 7 && im->o->keep_eval))
		return bn_inference(im, n, eps);
	void *at = canon_attr_of(im, OP_BatchNorm);
	Value *in[3] = { onnx_in(im, n, 0), onnx_in(im, n, 1), onnx_in(im, n, 2) }, *out[MAXIN];
	canon_put_float(OP_BatchNorm, at, "epsilon", eps);
	canon_emit(im, OP_BatchNorm, at, 3, in, canon_out_name(n), out);
	onnx_bind(im, n, 0, out[0]);
	for (size_t i = 0; i < 2; i++) {
		Value *old = onnx_in(im, n, 3 + i), *batch = out[1 + i];

		if (!batch)
			continue;
		if (old->kind == VAL_PARAM && !im->o->keep_eval)
			running(im, old, batch, momentum);
		if (1 + i < n->n_output && *n->output[1 + i]) {
			Value *a =
				canon_emit1(im, OP_Mul, NULL, old, canon_scalar(im, old->type.dtype, momentum), NULL);
			Value *b = canon_emit1(
				im, OP_Mul, NULL, batch, canon_scalar(im, old->type.dtype, 1 - momentum), NULL);

			onnx_bind(im, n, 1 + i, canon_emit1(im, OP_Add, NULL, a, b, n->output[1 + i]));
		}
	}
	return true;
}

/* Before opset 13 the operand is seen as a matrix cut at axis (default 1). */
bool canon_softmax(Import *im, const OnnxNode *n)
{
	OpKind op = op_find(n->op_type);
	void *at = canon_attr_of(im, op);

	if (!canon_need(im, n, 1))
		return false;
	Value *x = onnx_in(im, n, 0), *y = x;
	if (im->opset >= 13) {
		canon_put_int(op, at, "axis", onnx_int(n, "axis", -1));
		return canon_emit_bind(im, n, op, at, 1, &x);
	}
	int64_t axis = onnx_int(n, "axis", 1), dim[2] = { 1, 1 };
	axis += axis < 0 ? x->type.rank : 0;
	if (axis < 0 || axis > x->type.rank)
		return diag_error(im->d, im->b.loc, 302, "axis %lld of rank %d", (long long)axis, x->type.rank);
	for (int i = 0; i < x->type.rank; i++)
		dim[i >= axis] *= x->type.dim[i];
	canon_put_int(op, at, "axis", 1);
	y = canon_emit1(im, op, at, canon_reshape_to(im, x, 2, dim, NULL), NULL, NULL);
	onnx_bind(im, n, 0, canon_reshape_to(im, y, x->type.rank, x->type.dim, canon_out_name(n)));
	return true;
}

bool canon_loss(Import *im, const OnnxNode *n)
{
	OpKind op = op_find(n->op_type);
	void *at = canon_attrs_by_name(im, n, op);
	int nin;
	Value **in = canon_operands(im, n, &nin);

	if (!canon_need(im, n, 2))
		return false;
	if (onnx_int(n, "ignore_index", 0) == INT64_MIN)
		return canon_refuse(im, "ignore_index is -2^63, which stands for none");
	canon_put_int(op, at, "has_ignore", onnx_attr(n, "ignore_index") != NULL);
	return canon_emit_bind(im, n, op, at, nin, in);
}

bool canon_clip(Import *im, const OnnxNode *n)
{
	if (!canon_need(im, n, 1))
		return false;
	Value *x = onnx_in(im, n, 0), *lo = onnx_in(im, n, 1), *hi = onnx_in(im, n, 2);
	DType t = x->type.dtype;
	if (im->opset < 11) {
		double a = onnx_float(n, "min", -FLT_MAX), b = onnx_float(n, "max", FLT_MAX);

		lo = a > -FLT_MAX ? canon_scalar(im, t, a) : NULL;
		hi = b < FLT_MAX ? canon_scalar(im, t, b) : NULL;
	}
	if (lo && hi && dtype_float(t))
		return canon_emit_bind(im, n, OP_Clip, NULL, 3, (Value *[]){ x, lo, hi });
	if (lo)
		x = canon_emit1(im, OP_Max, NULL, x, lo, hi ? NULL : canon_out_name(n));
	if (hi)
		x = canon_emit1(im, OP_Min, NULL, x, hi, canon_out_name(n));
	onnx_bind(im, n, 0, x);
	return true;
}

bool canon_cast(Import *im, const OnnxNode *n)
{
	void *at = canon_attrs_by_name(im, n, OP_Cast);
	Value *x = onnx_in(im, n, 0);

	if (!canon_need(im, n, 1))
		return false;
	const int64_t to = onnx_int(n, "to", 0);
	const DType t = to < 0 || to > INT32_MAX ? DT_NONE : dtype_from_onnx((int)to);
	if (t != DT_NONE)
		canon_put_int(OP_Cast, at, "to", dtype_onnx(onnx_dtype(im, t)));
	if (t != DT_NONE && onnx_dtype(im, t) == x->type.dtype) {
		onnx_bind(im, n, 0, x);
		return true;
	}
	return canon_emit_bind(im, n, OP_Cast, at, 1, &x);
}
