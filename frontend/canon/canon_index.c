/* Canonical form of what reads and writes through indices, and of blocks moved between channels and space. What an op
 * needs to know for its shape (k, depth, a condition) must be constant. */
#include <string.h>
#include "canon.h"

/* ---- graphs exported at a fixed batch ---- */

static bool batch_fault(Import *im, const char *operand, int64_t was, int64_t is)
{
	return rebind_refuse(im,
		arena_printf(im->a,
			"%s was exported at batch %lld: it cannot be told what it is where an axis of %lld becomes one of %lld",
			operand, (long long)im->from, (long long)was, (long long)is));
}

/* A constant whose elements along axis `a` are alike, with `dim` of them; another one is refused. */
static bool stretch(Import *im, const OnnxNode *n, Value **x, size_t operand, int a, int64_t dim)
{
	const int64_t was = (*x)->type.dim[a];
	Type t = (*x)->type;
	void *at = canon_attr_of(im, OP_Expand);

	t.dim[a] = dim < 2 ? was + 1 : dim;
	Value *one = rebind_constant(im, *x, &(Ints){ t.rank, t.dim });
	if (one == *x)
		return batch_fault(im, n->input[operand], was, dim);
	t.dim[a] = dim;
	canon_put_ints(OP_Expand, at, "shape", (Ints){ t.rank, arena_dup(im->a, t.dim, sizeof t.dim) });
	*x = canon_emit1(im, OP_Expand, at, one, NULL, NULL);
	return !im->b.failed;
}

/* Operands data, indices and updates match along all axes but `axis`, so one that grew or shrank with the batch takes
 * constants with it. The shape rule would take more data than indices as it stands. */
static bool follow_batch(Import *im, const OnnxNode *n, Value **in, int k, int64_t axis)
{
	const Type *old[3];
	const int rank = in[0]->type.rank;

	axis += axis < 0 ? rank : 0;
	for (int i = 0; i < k; i++) {
		old[i] = im->shapes ? map_get(im->shapes, n->input[i]) : NULL;
		if (!old[i] || old[i]->rank != rank || in[i]->type.rank != rank)
			return true;
	}
	for (int a = 0; a < rank; a++)
		for (int i = a == axis; i < k; i++) {
			const int64_t was = old[i]->dim[a], is = in[i]->type.dim[a];

			for (int j = a == axis; was != is && j < k; j++)
				if (old[j]->dim[a] == was && in[j]->type.dim[a] == was &&
					!stretch(im, n, &in[j], (size_t)j, a, is))
					return false;
		}
	return true;
}

bool canon_gather_elements(Import *im, const OnnxNode *n)
{
	Value *in[2] = { onnx_in(im, n, 0), onnx_in(im, n, 1) };

	return canon_need(im, n, 2) && follow_batch(im, n, in, 2, onnx_int(n, "axis", 0)) &&
	       canon_emit_bind(im, n, OP_GatherElements, canon_attrs_by_name(im, n, OP_GatherElements), 2, in);
}

/* ---- operators ---- */

/* ScatterElements, its old name Scatter, ScatterND. */
bool canon_scatter(Import *im, const OnnxNode *n)
{
	const OpKind op = strcmp(n->op_type, "ScatterND") ? OP_ScatterElements : OP_ScatterND;
	Value *in[3] = { onnx_in(im, n, 0), onnx_in(im, n, 1), onnx_in(im, n, 2) };

	if (!canon_need(im, n, 3))
		return false;
	if (in[0]->type.rank && !in[2]->type.rank &&
		(op == OP_ScatterElements || in[1]->type.rank != 1 || in[0]->type.rank != in[1]->type.dim[0]))
		return diag_error(im->d, im->b.loc, 304, "%s: updates %s are a scalar, indices %s are %s", n->op_type,
			in[2]->name, in[1]->name, str_type(im->d->scratch, &in[1]->type));
	if (op == OP_ScatterElements && !follow_batch(im, n, in, 3, onnx_int(n, "axis", 0)))
		return false;
	return canon_emit_bind(im, n, op, canon_attrs_by_name(im, n, op), 3, in);
}

/* Operand i as one constant integer; `what` names it in the message. */
static bool const_int(Import *im, const OnnxNode *n, size_t i, const char *what, int64_t *out)
{
	Ints v = { 0 };

	if (!onnx_in(im, n, i) || !onnx_const_ints(im, n, i, &v))
		return diag_error(im->d, im->b.loc, 302, "%s is not constant", what);
	if (v.n != 1)
		return diag_error(im->d, im->b.loc, 302, "%s has %d elements, one is needed", what, v.n);
	*out = v.v[0];
	return true;
}

bool canon_top_k(Import *im, const OnnxNode *n)
{
	void *at = canon_attrs_by_name(im, n, OP_TopK);
	Value *x = onnx_in(im, n, 0);
	int64_t k;

	if (!canon_need(im, n, 1))
		return false;
	if (im->opset >= 10) {
		if (!const_int(im, n, 1, "k", &k))
			return false;
		canon_put_int(OP_TopK, at, "k", k);
	}
	return canon_emit_bind(im, n, OP_TopK, at, 1, &x);
}

bool canon_cumsum(Import *im, const OnnxNode *n)
{
	void *at = canon_attrs_by_name(im, n, OP_CumSum);
	Value *x = onnx_in(im, n, 0);
	int64_t axis;

	if (!canon_need(im, n, 2) || !const_int(im, n, 1, "axis", &axis))
		return false;
	canon_put_int(OP_CumSum, at, "axis", axis);
	return canon_emit_bind(im, n, OP_CumSum, at, 1, &x);
}

/* depth may come as a float. */
bool canon_one_hot(Import *im, const OnnxNode *n)
{
	void *at = canon_attrs_by_name(im, n, OP_OneHot);
	Value *in[2] = { onnx_in(im, n, 0), onnx_in(im, n, 2) }, *depth = onnx_in(im, n, 1);

	if (!canon_need(im, n, 3))
		return false;
	if (depth->kind != VAL_CONST || !depth->data || type_numel(&depth->type) != 1)
		return canon_refuse(im, "depth is not constant");
	depth = canon_cast_to(im, depth, DT_i64);
	if (im->b.failed || !depth->data)
		return false;
	canon_put_int(OP_OneHot, at, "depth", *(const int64_t *)depth->data);
	return canon_emit_bind(im, n, OP_OneHot, at, 2, in);
}

/* ---- what becomes a constant, or a Gather by one ---- */

/* Element i of a constant is not zero. */
static bool nonzero(const Value *v, int64_t i)
{
	const int size = dtype_bytes(v->type.dtype);
	const char *p = (const char *)v->data + i * size;

	if (v->type.dtype == DT_f32)
		return *(const float *)(const void *)p != 0;
	if (v->type.dtype == DT_f64)
		return *(const double *)(const void *)p != 0;
	for (int k = 0; k < size; k++)
		if (p[k] && !(dtype_float(v->type.dtype) && k == size - 1 && p[k] == (char)0x80))
			return true;
	return false;
}

/* A selection by values, which a program of fixed shapes cannot hold; what to do in its place. */
static bool selects(Import *im, const char *what)
{
	canon_refuse(im, what);
	diag_note(im->d, im->b.loc,
		"in the model, keep all elements and hide those that do not count: a loss of each times the mask, summed and "
		"divided by the sum of the mask, in place of x[mask]; labels of the loss's ignore_index; no attention_mask "
		"where no sample is padded");
	return false;
}

bool canon_nonzero(Import *im, const OnnxNode *n)
{
	const Value *x = onnx_in(im, n, 0);
	int64_t count = 0, k = 0;

	if (!canon_need(im, n, 1))
		return false;
	if (x->kind != VAL_CONST || !x->data)
		return selects(im, "NonZero of a value that is not constant: its shape depends on the values");
	const int rank = x->type.rank ? x->type.rank : 1;
	for (int64_t i = 0; i < type_numel(&x->type); i++)
		count += nonzero(x, i);
	int64_t *v = NEWN(im->a, int64_t, rank *count + 1);
	for (int64_t i = 0; i < type_numel(&x->type); i++) {
		if (!nonzero(x, i))
			continue;
		int64_t rest = i;
		for (int d = x->type.rank - 1; d >= 0; rest /= x->type.dim[d--])
			v[d * count + k] = rest % x->type.dim[d];
		k++;
	}
	onnx_bind(
		im, n, 0, module_const(im->m, canon_out_name(n), type_make(DT_i64, 2, (int64_t[]){ rank, count }), v));
	return true;
}

bool canon_compress(Import *im, const OnnxNode *n)
{
	Value *x = onnx_in(im, n, 0), *take = onnx_in(im, n, 1);
	void *at = canon_attr_of(im, OP_Gather);
	int64_t axis = onnx_int(n, "axis", 0), count = 0;

	if (!canon_need(im, n, 2))
		return false;
	if (take->kind != VAL_CONST || !take->data || take->type.dtype != DT_bool || take->type.rank != 1)
		return selects(im, "the condition is not constant: the shape depends on the values");
	const Type *old = im->shapes ? map_get(im->shapes, n->input[0]) : NULL;
	if (old && !shape_eq(old, &x->type) && (!onnx_attr(n, "axis") || axis + (axis < 0 ? old->rank : 0) == 0))
		return batch_fault(im, n->input[1], old->dim[0], x->type.dim[0]);
	if (!onnx_attr(n, "axis"))
		x = canon_reshape_to(im, x, 1, (int64_t[]){ type_numel(&x->type) }, NULL);
	const int64_t ax = axis + (axis < 0 ? x->type.rank : 0), len = type_numel(&take->type);
	if (ax < 0 || ax >= x->type.rank)
		return diag_error(
			im->d, im->b.loc, 302, "axis %lld of %s", (long long)axis, str_type(im->d->scratch, &x->type));
	if (len > x->type.dim[ax])
		return diag_error(im->d, im->b.loc, 302, "the condition has %lld elements, axis %lld of %s has %lld",
			(long long)len, (long long)ax, x->name, (long long)x->type.dim[ax]);
	int64_t *ids = NEWN(im->a, int64_t, len + 1);
	for (int64_t i = 0; i < len; i++)
		if (((const uint8_t *)take->data)[i])
			ids[count++] = i;
	canon_put_int(OP_Gather, at, "axis", ax);
	Value *in[2] = { x, module_const(im->m, NULL, type_make(DT_i64, 1, &count), ids) };
	return canon_emit_bind(im, n, OP_Gather, at, 2, in);
}

/* A matrix of ones along diagonal k, as a constant. */
bool canon_eye_like(Import *im, const OnnxNode *n)
{
	const Value *x = onnx_in(im, n, 0);

	if (!canon_need(im, n, 1))
		return false;
	Type t = x->type;
	if (t.rank != 2)
		return diag_error(
			im->d, im->b.loc, 302, "%s is %s, rank 2 is needed", x->name, str_type(im->d->scratch, &t));
	if (onnx_attr(n, "dtype")) {
		const int64_t number = onnx_int(n, "dtype", 0);
		t.dtype = number < 0 || number > INT32_MAX ? DT_NONE : dtype_from_onnx((int)number);
		t.dtype = onnx_dtype(im, t.dtype);
	}
	if (t.dtype == DT_NONE)
		return diag_error(im->d, im->b.loc, 302, "dtype %lld is no element type for EyeLike",
			(long long)onnx_int(n, "dtype", dtype_onnx(t.dtype)));
	if (type_bytes(&t) > (int64_t)1 << 30)
		return diag_error(im->d, im->b.loc, 305, "EyeLike of %s is larger than 1 GiB",
			str_type(im->d->scratch, &x->type));
	const int64_t k = onnx_int(n, "k", 0), size = dtype_bytes(t.dtype);
	char *data = arena_alloc(im->a, (size_t)type_bytes(&t) + 1);
	for (int64_t i = 0; i < t.dim[0]; i++) {
		char *p = data + (i * t.dim[1] + i + (k > -t.dim[0] && k < t.dim[1] ? k : 0)) * size;

		if (k <= -t.dim[0] || k >= t.dim[1] || i + k < 0 || i + k >= t.dim[1])
			continue;
		if (t.dtype == DT_f32)
			*(float *)(void *)p = 1;
		else if (t.dtype == DT_f64)
			*(double *)(void *)p = 1;
		else
			p[0] = 1; /* little endian, as all of the IR's constants are */
	}
	t.rows = 0;
	t.layout = LAYOUT_PLAIN;
	onnx_bind(im, n, 0, module_const(im->m, canon_out_name(n), t, data));
	return true;
}

/* ---- DepthToSpace, SpaceToDepth: the channels or the space split up, axes exchanged, joined again ---- */

static bool exchange(Import *im, const OnnxNode *n, const int64_t *split, const int64_t *perm, const int64_t *dim)
{
	void *at = canon_attr_of(im, OP_Transpose);
	Value *x = canon_reshape_to(im, onnx_in(im, n, 0), 6, split, NULL);

	canon_put_ints(OP_Transpose, at, "perm", (Ints){ 6, arena_dup(im->a, perm, 6 * sizeof *perm) });
	x = canon_emit1(im, OP_Transpose, at, x, NULL, NULL);
	onnx_bind(im, n, 0, canon_reshape_to(im, x, 4, dim, canon_out_name(n)));
	return !im->b.failed;
}

bool canon_depth_to_space(Import *im, const OnnxNode *n)
{
	const bool to_depth = !strcmp(n->op_type, "SpaceToDepth");
	const int64_t b = onnx_int(n, "blocksize", 0);
	const char *mode = onnx_str(im->a, n, "mode", "DCR");

	if (!canon_need(im, n, 1))
		return false;
	const Type *x = &onnx_in(im, n, 0)->type;
	const int64_t *d = x->dim;
	if (x->rank != 4)
		return diag_error(im->d, im->b.loc, 302, "%s is %s, rank 4 is needed", onnx_in(im, n, 0)->name,
			str_type(im->d->scratch, x));
	if (b < 1 || b > 1 << 20 || (to_depth ? d[2] % b || d[3] % b : d[1] % (b * b) != 0))
		return diag_error(im->d, im->b.loc, 302, "blocksize %lld does not divide %s", (long long)b,
			str_type(im->d->scratch, x));
	if (strcmp(mode, "DCR") && strcmp(mode, "CRD"))
		return diag_error(im->d, im->b.loc, 302, "mode '%s' is neither DCR nor CRD", mode);
	if (to_depth)
		return exchange(im, n, (int64_t[]){ d[0], d[1], d[2] / b, b, d[3] / b, b },
			(int64_t[]){ 0, 3, 5, 1, 2, 4 }, (int64_t[]){ d[0], d[1] * b * b, d[2] / b, d[3] / b });
	const int64_t c = d[1] / (b * b), out[4] = { d[0], c, d[2] * b, d[3] * b };
	if (!strcmp(mode, "DCR"))
		return exchange(im, n, (int64_t[]){ d[0], b, b, c, d[2], d[3] }, (int64_t[]){ 0, 3, 4, 1, 5, 2 }, out);
	return exchange(im, n, (int64_t[]){ d[0], c, b, b, d[2], d[3] }, (int64_t[]){ 0, 1, 4, 2, 5, 3 }, out);
}
