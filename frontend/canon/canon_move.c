/* Canonical form of constants, shapes and data movement. */
#include <string.h>
#include "canon.h"

/* ---- constants ---- */

static Value *constant(Import *im, Tensor t, const char *name)
{
	t = onnx_widen(im, t);
	return module_const(im->m, name, t.type, t.data);
}

bool canon_constant_node(Import *im, const OnnxNode *n)
{
	const OnnxAttr *x = onnx_attr(n, "value");
	Tensor t;
	Ints v;

	if (x && x->t) {
		if (!onnx_tensor(im->a, im->path, x->t, false, &t, im->b.loc, im->d))
			return false;
	} else if ((x = onnx_attr(n, "value_float"))) {
		t = (Tensor){ type_scalar(DT_f32), arena_dup(im->a, &x->f, sizeof x->f) };
	} else if ((x = onnx_attr(n, "value_int"))) {
		t = (Tensor){ type_scalar(DT_i64), arena_dup(im->a, &x->i, sizeof x->i) };
	} else if (onnx_ints(im->a, n, "value_ints", &v)) {
		t = (Tensor){ type_make(DT_i64, 1, (int64_t[]){ v.n }), (void *)(uintptr_t)v.v };
	} else if ((x = onnx_attr(n, "value_floats"))) {
		t = (Tensor){ type_make(DT_f32, 1, (int64_t[]){ (int64_t)x->n_floats }),
			arena_dup(im->a, x->floats, 4 * x->n_floats) };
	} else {
		return canon_refuse(im, "Constant without a tensor value");
	}
	onnx_bind(im, n, 0, constant(im, t, canon_out_name(n)));
	return true;
}

bool canon_constant_of_shape(Import *im, const OnnxNode *n)
{
	const OnnxAttr *x = onnx_attr(n, "value");
	void *at = canon_attr_of(im, OP_ConstantOfShape);
	Ints shape;

	if (!canon_need(im, n, 1))
		return false;
	if (!onnx_const_ints(im, n, 0, &shape))
		return canon_refuse(im, "the shape is not constant");
	canon_put_ints(OP_ConstantOfShape, at, "shape", shape);
	canon_put_int(OP_ConstantOfShape, at, "dtype", dtype_onnx(im->o->f64 ? DT_f64 : DT_f32));
	if (x && x->t) {
		Tensor t;

		if (!onnx_tensor(im->a, im->path, x->t, false, &t, im->b.loc, im->d))
			return false;
		if (type_numel(&t.type) != 1)
			return canon_refuse(im, "value must have one element");
		t = onnx_widen(im, t);
		int64_t bits = 0;
		memcpy(&bits, t.data, (size_t)dtype_bytes(t.type.dtype));
		int shift = 64 - 8 * dtype_bytes(t.type.dtype);
		double f = t.type.dtype == DT_f32       ? (double)*(float *)t.data
		           : t.type.dtype == DT_f64     ? *(double *)t.data
		           : dtype_signed(t.type.dtype) ? (double)((int64_t)((uint64_t)bits << shift) >> shift)
		                                        : (double)bits;
		canon_put_float(OP_ConstantOfShape, at, "value", f);
		canon_put_int(OP_ConstantOfShape, at, "dtype", dtype_onnx(t.type.dtype));
	}
	return canon_emit_bind(im, n, OP_ConstantOfShape, at, 0, NULL);
}

/* ---- shapes ---- */

Value *canon_reshape_to(Import *im, Value *x, int rank, const int64_t *dim, const char *name)
{
	void *at = canon_attr_of(im, OP_Reshape);

	canon_put_ints(OP_Reshape, at, "shape", (Ints){ rank, arena_dup(im->a, dim, sizeof *dim * (size_t)rank) });
	canon_put_int(OP_Reshape, at, "allowzero", 1);
	return canon_emit1(im, OP_Reshape, at, x, NULL, name);
}

bool canon_reshape(Import *im, const OnnxNode *n)
{
	Ints shape;
	void *at = canon_attrs_by_name(im, n, OP_Reshape);
	Value *x = onnx_in(im, n, 0);

	if (!canon_need(im, n, 1))
		return false;
	if (!(onnx_in(im, n, 1) ? onnx_const_ints(im, n, 1, &shape) : onnx_ints(im->a, n, "shape", &shape)))
		return canon_refuse(im, "the new shape is not constant: bind every symbolic axis with --dim");
	if (im->shapes && !rebind_reshape(im, n, &x->type, &shape))
		return false;
	canon_put_ints(OP_Reshape, at, "shape", shape);
	return canon_emit_bind(im, n, OP_Reshape, at, 1, &x);
}

bool canon_flatten(Import *im, const OnnxNode *n)
{
	if (!canon_need(im, n, 1))
		return false;
	Value *x = onnx_in(im, n, 0);
	int64_t axis = onnx_int(n, "axis", 1), dim[2] = { 1, 1 };
	axis += axis < 0 ? x->type.rank : 0;
	if (axis < 0 || axis > x->type.rank)
		return diag_error(
			im->d, im->b.loc, 302, "axis %lld of a tensor of rank %d", (long long)axis, x->type.rank);
	for (int i = 0; i < x->type.rank; i++)
		dim[i >= axis] *= x->type.dim[i];
	onnx_bind(im, n, 0, canon_reshape_to(im, x, 2, dim, canon_out_name(n)));
	return true;
}

/* axes from operand 1 (opset 13) or the attribute; *given says whether there were any. */
bool canon_axes_of(Import *im, const OnnxNode *n, size_t operand, Ints *axes, bool *given)
{
	*given = onnx_ints(im->a, n, "axes", axes) || onnx_in(im, n, operand);
	if (onnx_in(im, n, operand) && !onnx_const_ints(im, n, operand, axes))
		return canon_refuse(im, "axes are not constant");
	return true;
}

bool canon_squeeze(Import *im, const OnnxNode *n)
{
	Ints axes;
	bool given, drop[MAXRANK] = { 0 };
	int64_t dim[MAXRANK];
	int rank = 0;

	if (!canon_need(im, n, 1) || !canon_axes_of(im, n, 1, &axes, &given))
		return false;
	Value *x = onnx_in(im, n, 0);
	for (int i = 0; i < axes.n; i++) {
		int64_t ax = axes.v[i] + (axes.v[i] < 0 ? x->type.rank : 0);

		if (ax < 0 || ax >= x->type.rank || x->type.dim[ax] != 1)
			return diag_error(im->d, im->b.loc, 302, "axis %lld of %s is not a dimension of 1",
				(long long)axes.v[i], str_type(im->d->scratch, &x->type));
		drop[ax] = true;
	}
	for (int i = 0; i < x->type.rank; i++)
		if (given ? !drop[i] : x->type.dim[i] != 1)
			dim[rank++] = x->type.dim[i];
	onnx_bind(im, n, 0, canon_reshape_to(im, x, rank, dim, canon_out_name(n)));
	return true;
}

bool canon_unsqueeze(Import *im, const OnnxNode *n)
{
	Ints axes;
	bool given, one[MAXRANK] = { 0 };
	int64_t dim[MAXRANK];

	if (!canon_need(im, n, 1) || !canon_axes_of(im, n, 1, &axes, &given))
		return false;
	Value *x = onnx_in(im, n, 0);
	int rank = x->type.rank + axes.n;
	if (rank > MAXRANK)
		return diag_error(im->d, im->b.loc, 302, "the result has rank %d, the most is %d", rank, MAXRANK);
	for (int i = 0; i < axes.n; i++) {
		int64_t ax = axes.v[i] + (axes.v[i] < 0 ? rank : 0);

		if (ax < 0 || ax >= rank || one[ax])
			return diag_error(im->d, im->b.loc, 302, "axis %lld of rank %d", (long long)axes.v[i], rank);
		one[ax] = true;
	}
	for (int i = 0, k = 0; i < rank; i++)
		dim[i] = one[i] ? 1 : x->type.dim[k++];
	onnx_bind(im, n, 0, canon_reshape_to(im, x, rank, dim, canon_out_name(n)));
	return true;
}

bool canon_expand(Import *im, const OnnxNode *n)
{
	Ints shape;
	void *at = canon_attr_of(im, OP_Expand);
	Value *x = onnx_in(im, n, 0);

	if (!canon_need(im, n, 2))
		return false;
	if (!onnx_const_ints(im, n, 1, &shape))
		return canon_refuse(im, "the new shape is not constant: bind every symbolic axis with --dim");
	if (im->shapes && !rebind_dims(im, n, x, &shape))
		return false;
	if (im->shapes)
		x = rebind_constant(im, x, &shape);
	canon_put_ints(OP_Expand, at, "shape", shape);
	return canon_emit_bind(im, n, OP_Expand, at, 1, &x);
}

bool canon_tile(Import *im, const OnnxNode *n)
{
	Ints repeats;
	void *at = canon_attr_of(im, OP_Tile);
	Value *x = onnx_in(im, n, 0);

	if (!canon_need(im, n, 2))
		return false;
	if (!onnx_const_ints(im, n, 1, &repeats))
		return canon_refuse(im, "repeats are not constant");
	if (im->shapes && !rebind_repeats(im, n, x, &repeats))
		return false;
	canon_put_ints(OP_Tile, at, "repeats", repeats);
	return canon_emit_bind(im, n, OP_Tile, at, 1, &x);
}

bool canon_slice(Import *im, const OnnxNode *n)
{
	static const char *const name[] = { "starts", "ends", "axes", "steps" };
	void *at = canon_attr_of(im, OP_Slice);
	Value *x = onnx_in(im, n, 0);
	Ints v[4];

	if (!canon_need(im, n, 1))
		return false;
	for (size_t i = 0; i < 4; i++)
		if (!onnx_ints(im->a, n, name[i], &v[i]) && !onnx_const_ints(im, n, i + 1, &v[i]))
			return diag_error(im->d, im->b.loc, 302, "%s are not constant", name[i]);
	if (im->shapes && !rebind_slice(im, n, &x->type, &v[0], &v[1], &v[2], &v[3]))
		return false;
	for (size_t i = 0; i < 4; i++)
		canon_put_ints(OP_Slice, at, name[i], v[i]);
	return canon_emit_bind(im, n, OP_Slice, at, 1, &x);
}

bool canon_split(Import *im, const OnnxNode *n)
{
	void *at = canon_attr_of(im, OP_Split);
	Value *x = onnx_in(im, n, 0);
	Ints sizes;

	if (!canon_need(im, n, 1))
		return false;
	int64_t axis = onnx_int(n, "axis", 0);
	int64_t ax = axis + (axis < 0 ? x->type.rank : 0), k = (int64_t)n->n_output;
	if (ax < 0 || ax >= x->type.rank)
		return diag_error(
			im->d, im->b.loc, 302, "axis %lld of %s", (long long)axis, str_type(im->d->scratch, &x->type));
	if (!onnx_ints(im->a, n, "split", &sizes)) {
		if (!onnx_const_ints(im, n, 1, &sizes))
			return canon_refuse(im, "split sizes are not constant");
		if (!sizes.n) { /* equal parts, the last one smaller */
			int64_t *v = NEWN(im->a, int64_t, k), part = (x->type.dim[ax] + k - 1) / k,
				left = x->type.dim[ax];

			for (int64_t i = 0; i < k; i++, left -= v[i - 1])
				v[i] = left < part ? left : part;
			sizes = (Ints){ (int)k, v };
		}
	}
	canon_put_int(OP_Split, at, "axis", ax);
	canon_put_ints(OP_Split, at, "split", sizes);
	return canon_emit_bind(im, n, OP_Split, at, 1, &x);
}

/* Mode wrap: the axis goes round, its end lies before it and its beginning behind (padding_mode='circular'). */
static bool pad_round(Import *im, const OnnxNode *n, Value *x, const Ints *pads)
{
	const int rank = x->type.rank;

	if (pads->n != 2 * rank)
		return canon_refuse(im, "two pads per axis are wanted");
	for (int i = 0; i < rank; i++) {
		const int64_t lo = pads->v[i], hi = pads->v[rank + i], dim = x->type.dim[i];

		if (lo < 0 || hi < 0 || lo > dim || hi > dim)
			return canon_refuse(im, "mode wrap pads an axis by more than it has, or crops it");
		Value *y = lo ? canon_join(im, canon_slice_axis(im, x, i, dim - lo, dim, 1), x, i, NULL) : x;
		x = hi ? canon_join(im, y, canon_slice_axis(im, x, i, 0, hi, 1), i, NULL) : y;
	}
	return canon_emit_bind(im, n, OP_Identity, NULL, 1, &x);
}

bool canon_pad(Import *im, const OnnxNode *n)
{
	void *at = canon_attr_of(im, OP_Pad);
	const char *mode = onnx_str(im->a, n, "mode", "constant");
	Value *x = onnx_in(im, n, 0), *value = im->opset >= 11 ? onnx_in(im, n, 2) : NULL;
	Ints pads, axes;
	double v = onnx_float(n, "value", 0);

	if (!canon_need(im, n, 1))
		return false;
	if (!onnx_ints(im->a, n, "pads", &pads) && !onnx_ints(im->a, n, "paddings", &pads) &&
		!onnx_const_ints(im, n, 1, &pads))
		return canon_refuse(im, "pads are not constant");
	if (value) {
		if (value->kind != VAL_CONST || !value->data || type_numel(&value->type) != 1)
			return canon_refuse(im, "the padding value is not a constant scalar");
		v = value->type.dtype == DT_f32   ? (double)*(const float *)value->data
		    : value->type.dtype == DT_f64 ? *(const double *)value->data
		    : value->type.dtype == DT_i64 ? (double)*(const int64_t *)value->data
		    : value->type.dtype == DT_i32 ? (double)*(const int32_t *)value->data
		                                  : 0;
	}
	if (!onnx_const_ints(im, n, 3, &axes))
		return canon_refuse(im, "axes are not constant");
	if (axes.n) {
		int rank = x->type.rank;
		int64_t *full = NEWN(im->a, int64_t, 2 * rank);

		for (int i = 0; i < axes.n; i++) {
			int64_t ax = axes.v[i] + (axes.v[i] < 0 ? rank : 0);

			if (ax < 0 || ax >= rank || pads.n != 2 * axes.n)
				return canon_refuse(im, "pads and axes do not fit");
			full[ax] = pads.v[i];
			full[rank + ax] = pads.v[axes.n + i];
		}
		pads = (Ints){ 2 * rank, full };
	}
	if (!strcmp(mode, "wrap"))
		return pad_round(im, n, x, &pads);
	canon_put_ints(OP_Pad, at, "pads", pads);
	canon_put_float(OP_Pad, at, "value", v);
	canon_put_str(OP_Pad, at, "mode", mode);
	return canon_emit_bind(im, n, OP_Pad, at, 1, &x);
}

bool canon_trilu(Import *im, const OnnxNode *n)
{
	void *at = canon_attrs_by_name(im, n, OP_Trilu);
	Value *x = onnx_in(im, n, 0);
	Ints k;

	if (!canon_need(im, n, 1))
		return false;
	if (!onnx_const_ints(im, n, 1, &k))
		return canon_refuse(im, "k is not constant");
	canon_put_int(OP_Trilu, at, "k", k.n ? k.v[0] : 0);
	return canon_emit_bind(im, n, OP_Trilu, at, 1, &x);
}
