/* One meaning per op from here on. Every ONNX operator has a row: most go over as they are, attributes by name; the
 * others are written in canonical ops: constant operands become attributes, old opsets the newest meaning. */
#include <float.h>
#include <math.h>
#include <string.h>
#include "onnx_file.h"

/* ---- building ---- */

static bool refuse(Import *im, const char *what)
{
	return diag_error(im->d, im->b.loc, 302, "%s", what);
}

/* Replaces n's outputs by constants where all it reads is constant. */
static void fold(Import *im, Node *n, Value **out)
{
	const OpDef *d = optab[n->op];
	Tensor in[MAXIN] = { 0 }, res[MAXIN] = { 0 };
	bool types_only = n->op == OP_Shape || n->op == OP_Size;

	for (int i = 0; i < n->nout; i++)
		out[i] = n->out[i];
	if (!d->eval || im->b.failed || n->nin > MAXIN || n->nout > MAXIN)
		return;
	for (int i = 0; i < n->nin; i++) {
		const Value *v = n->in[i];

		if (!v)
			continue;
		if (!types_only && (v->kind != VAL_CONST || !v->data))
			return;
		in[i] = (Tensor){ v->type, (void *)(uintptr_t)v->data };
	}
	for (int i = 0; i < n->nout; i++)
		if (n->out[i] && type_bytes(&n->out[i]->type) > (int64_t)1 << 30)
			return;
	if (!d->eval(n, in, res, im->a))
		return;
	for (int i = 0; i < n->nout; i++)
		if (n->out[i])
			out[i] = module_const(im->m, n->out[i]->name, n->out[i]->type, res[i].data);
	node_remove(n);
}

static void *attr_of(Import *im, OpKind op)
{
	char *p = arena_alloc(im->a, optab[op]->attrsize ? optab[op]->attrsize : 1);

	for (const AttrDef *x = optab[op]->attrs; x && x->name; x++)
		if (x->kind == A_INT)
			*(int64_t *)(p + x->offset) = (int64_t)x->def;
		else if (x->kind == A_FLOAT)
			*(double *)(p + x->offset) = x->def;
		else if (x->kind == A_STR)
			*(const char **)(p + x->offset) = x->sdef;
	return p;
}

static void *slot(OpKind op, void *attr, const char *name)
{
	const AttrDef *x = op_attr(op, name);

	if (!x)
		bug("%s has no attribute %s", optab[op]->name, name);
	return (char *)attr + x->offset;
}

static void put_int(OpKind op, void *attr, const char *name, int64_t v)    { *(int64_t *)slot(op, attr, name) = v; }
static void put_float(OpKind op, void *attr, const char *name, double v)   { *(double *)slot(op, attr, name) = v; }
static void put_str(OpKind op, void *attr, const char *name, const char *v){ *(const char **)slot(op, attr, name) = v; }
static void put_ints(OpKind op, void *attr, const char *name, Ints v)      { *(Ints *)slot(op, attr, name) = v; }

static void *attrs_by_name(Import *im, const OnnxNode *n, OpKind op)
{
	void *attr = attr_of(im, op);

	for (const AttrDef *x = optab[op]->attrs; x && x->name; x++) {
		const OnnxAttr *o = onnx_attr(n, x->name);
		Ints v;

		if (!o)
			continue;
		if (x->kind == A_INT)
			put_int(op, attr, x->name, o->i);
		else if (x->kind == A_FLOAT)
			put_float(op, attr, x->name, o->type == ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT ? (double)o->i : (double)o->f);
		else if (x->kind == A_STR)
			put_str(op, attr, x->name, onnx_str(im->a, n, x->name, NULL));
		else if (x->kind == A_INTS && onnx_ints(im->a, n, x->name, &v))
			put_ints(op, attr, x->name, v);
	}
	return attr;
}

/* A node with these operands; gives its outputs, folded where possible. */
static void emit(Import *im, OpKind op, const void *attr, int nin, Value *const *in, const char *name, Value **out)
{
	fold(im, build(&im->b, op, attr, nin, in, name), out);
}

static Value *emit1(Import *im, OpKind op, const void *attr, Value *x, Value *y, const char *name)
{
	Value *in[2] = { x, y }, *out[MAXIN];

	emit(im, op, attr, y ? 2 : 1, in, name, out);
	return out[0];
}

static const char *out_name(const OnnxNode *n)
{
	return n->n_output && *n->output[0] ? n->output[0] : n->op_type;
}

static bool emit_bind(Import *im, const OnnxNode *n, OpKind op, const void *attr, int nin, Value *const *in)
{
	Value *out[MAXIN] = { 0 };
	Node *x;

	if (nin > 4096)
		return refuse(im, "more than 4096 operands");
	x = build(&im->b, op, attr, nin, in, out_name(n));
	if (im->b.failed)
		return false;
	int nout = x->nout;
	fold(im, x, out);
	for (int i = 0; i < nout && i < (int)n->n_output; i++) {
		if (!out[i])
			continue;
		if (i && *n->output[i] && out[i]->kind == VAL_NODE)
			value_rename(im->b.g, out[i], n->output[i]);
		onnx_bind(im, n, (size_t)i, out[i]);
	}
	return true;
}

static Value **operands(Import *im, const OnnxNode *n, int *count)
{
	Value **in = NEWN(im->a, Value *, n->n_input);

	for (size_t i = 0; i < n->n_input; i++)
		in[i] = onnx_in(im, n, i);
	*count = (int)n->n_input;
	while (*count && !in[*count - 1])
		--*count;
	return in;
}

static bool need(Import *im, const OnnxNode *n, size_t k)
{
	for (size_t i = 0; i < k; i++)
		if (!onnx_in(im, n, i))
			return diag_error(im->d, im->b.loc, 302, "operand %zu is missing", i);
	return true;
}

static Value *scalar(Import *im, DType t, double x)
{
	return const_scalar(im->m, t, x);
}

/* ---- as it is ---- */

static bool same(Import *im, const OnnxNode *n)
{
	OpKind op = op_find(n->op_type);
	int nin;
	Value **in = operands(im, n, &nin);

	if (optab[op]->maxin >= 0 && nin > optab[op]->maxin)
		return diag_error(im->d, im->b.loc, 302, "%d operands, the most is %d", nin, optab[op]->maxin);
	if (nin < optab[op]->minin)
		return diag_error(im->d, im->b.loc, 302, "%d operands, the least is %d", nin, optab[op]->minin);
	return emit_bind(im, n, op, attrs_by_name(im, n, op), nin, in);
}

/* Before opset 7 the second operand of arithmetic is placed by attributes broadcast and axis. */
static bool arithmetic(Import *im, const OnnxNode *n)
{
	if (!need(im, n, 2))
		return false;
	Value *in[2] = { onnx_in(im, n, 0), onnx_in(im, n, 1) };
	OpKind op = op_find(n->op_type);
	if (im->opset < 7 && onnx_attr(n, "axis")) {
		int64_t axis = onnx_int(n, "axis", 0);
		Type t = in[1]->type;
		int rank = in[0]->type.rank;

		axis += axis < 0 ? rank : 0;
		for (int i = t.rank; axis + t.rank < rank && i < rank - axis && t.rank < MAXRANK; i++)
			t.dim[t.rank++] = 1;
		void *at = attr_of(im, OP_Reshape);
		put_ints(OP_Reshape, at, "shape", (Ints){ t.rank, arena_dup(im->a, t.dim, sizeof t.dim) });
		in[1] = emit1(im, OP_Reshape, at, in[1], NULL, NULL);
	}
	return emit_bind(im, n, op, attrs_by_name(im, n, op), 2, in);
}

static bool identity(Import *im, const OnnxNode *n)
{
	if (!need(im, n, 1))
		return false;
	onnx_bind(im, n, 0, onnx_in(im, n, 0));
	return true;
}

/* ---- constants ---- */

static Value *constant(Import *im, Tensor t, const char *name)
{
	if (im->o->f64 && t.type.dtype == DT_f32) {
		int64_t k = type_numel(&t.type);
		double *p = NEWN(im->a, double, k);

		for (int64_t i = 0; i < k; i++)
			p[i] = ((const float *)t.data)[i];
		t.type.dtype = DT_f64;
		t.data = p;
	}
	return module_const(im->m, name, t.type, t.data);
}

static bool constant_node(Import *im, const OnnxNode *n)
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
		t = (Tensor){ type_make(DT_f32, 1, (int64_t[]){ (int64_t)x->n_floats }), arena_dup(im->a, x->floats, 4 * x->n_floats) };
	} else {
		return refuse(im, "Constant without a tensor value");
	}
	onnx_bind(im, n, 0, constant(im, t, out_name(n)));
	return true;
}

static bool constant_of_shape(Import *im, const OnnxNode *n)
{
	const OnnxAttr *x = onnx_attr(n, "value");
	void *at = attr_of(im, OP_ConstantOfShape);
	Ints shape;

	if (!need(im, n, 1))
		return false;
	if (!onnx_const_ints(im, n, 0, &shape))
		return refuse(im, "the shape is not constant");
	if (im->shapes && !rebind_dims(im, n, &shape))
		return false;
	put_ints(OP_ConstantOfShape, at, "shape", shape);
	put_int(OP_ConstantOfShape, at, "dtype", dtype_onnx(im->o->f64 ? DT_f64 : DT_f32));
	if (x && x->t) {
		Tensor t;

		if (!onnx_tensor(im->a, im->path, x->t, false, &t, im->b.loc, im->d))
			return false;
		if (type_numel(&t.type) != 1)
			return refuse(im, "value must have one element");
		int64_t bits = 0;
		memcpy(&bits, t.data, (size_t)dtype_bytes(t.type.dtype));
		int shift = 64 - 8 * dtype_bytes(t.type.dtype);
		double f = t.type.dtype == DT_f32 ? (double)*(float *)t.data : t.type.dtype == DT_f64 ? *(double *)t.data :
			dtype_signed(t.type.dtype) ? (double)((int64_t)((uint64_t)bits << shift) >> shift) : (double)bits;
		if (t.type.dtype == DT_f16 || t.type.dtype == DT_bf16)
			return refuse(im, "value of 16-bit float is not supported");
		put_float(OP_ConstantOfShape, at, "value", f);
		put_int(OP_ConstantOfShape, at, "dtype",
			dtype_onnx(im->o->f64 && t.type.dtype == DT_f32 ? DT_f64 : t.type.dtype));
	}
	return emit_bind(im, n, OP_ConstantOfShape, at, 0, NULL);
}

/* ---- shapes ---- */

static Value *reshape_to(Import *im, Value *x, int rank, const int64_t *dim, const char *name)
{
	void *at = attr_of(im, OP_Reshape);

	put_ints(OP_Reshape, at, "shape", (Ints){ rank, arena_dup(im->a, dim, sizeof *dim * (size_t)rank) });
	put_int(OP_Reshape, at, "allowzero", 1);
	return emit1(im, OP_Reshape, at, x, NULL, name);
}

static bool reshape(Import *im, const OnnxNode *n)
{
	Ints shape;
	void *at = attrs_by_name(im, n, OP_Reshape);
	Value *x = onnx_in(im, n, 0);

	if (!need(im, n, 1))
		return false;
	if (!(onnx_in(im, n, 1) ? onnx_const_ints(im, n, 1, &shape) : onnx_ints(im->a, n, "shape", &shape)))
		return refuse(im, "the new shape is not constant: bind every symbolic axis with --dim");
	if (im->shapes && !rebind_reshape(im, n, &x->type, &shape))
		return false;
	put_ints(OP_Reshape, at, "shape", shape);
	return emit_bind(im, n, OP_Reshape, at, 1, &x);
}

static bool flatten(Import *im, const OnnxNode *n)
{
	if (!need(im, n, 1))
		return false;
	Value *x = onnx_in(im, n, 0);
	int64_t axis = onnx_int(n, "axis", 1), dim[2] = { 1, 1 };
	axis += axis < 0 ? x->type.rank : 0;
	if (axis < 0 || axis > x->type.rank)
		return diag_error(im->d, im->b.loc, 302, "axis %lld of a tensor of rank %d", (long long)axis, x->type.rank);
	for (int i = 0; i < x->type.rank; i++)
		dim[i >= axis] *= x->type.dim[i];
	onnx_bind(im, n, 0, reshape_to(im, x, 2, dim, out_name(n)));
	return true;
}

/* axes from operand 1 (opset 13) or the attribute; *given says whether there were any. */
static bool axes_of(Import *im, const OnnxNode *n, size_t operand, Ints *axes, bool *given)
{
	*given = onnx_ints(im->a, n, "axes", axes) || onnx_in(im, n, operand);
	if (onnx_in(im, n, operand) && !onnx_const_ints(im, n, operand, axes))
		return refuse(im, "axes are not constant");
	return true;
}

static bool squeeze(Import *im, const OnnxNode *n)
{
	Ints axes;
	bool given, drop[MAXRANK] = { 0 };
	int64_t dim[MAXRANK];
	int rank = 0;

	if (!need(im, n, 1) || !axes_of(im, n, 1, &axes, &given))
		return false;
	Value *x = onnx_in(im, n, 0);
	for (int i = 0; i < axes.n; i++) {
		int64_t ax = axes.v[i] + (axes.v[i] < 0 ? x->type.rank : 0);

		if (ax < 0 || ax >= x->type.rank || x->type.dim[ax] != 1)
			return diag_error(im->d, im->b.loc, 302, "axis %lld of %s is not a dimension of 1", (long long)axes.v[i],
				str_type(im->d->scratch, &x->type));
		drop[ax] = true;
	}
	for (int i = 0; i < x->type.rank; i++)
		if (given ? !drop[i] : x->type.dim[i] != 1)
			dim[rank++] = x->type.dim[i];
	onnx_bind(im, n, 0, reshape_to(im, x, rank, dim, out_name(n)));
	return true;
}

static bool unsqueeze(Import *im, const OnnxNode *n)
{
	Ints axes;
	bool given, one[MAXRANK] = { 0 };
	int64_t dim[MAXRANK];

	if (!need(im, n, 1) || !axes_of(im, n, 1, &axes, &given))
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
	onnx_bind(im, n, 0, reshape_to(im, x, rank, dim, out_name(n)));
	return true;
}

static bool expand(Import *im, const OnnxNode *n)
{
	Ints shape;
	void *at = attr_of(im, OP_Expand);
	Value *x = onnx_in(im, n, 0);

	if (!need(im, n, 2))
		return false;
	if (!onnx_const_ints(im, n, 1, &shape))
		return refuse(im, "the new shape is not constant: bind every symbolic axis with --dim");
	if (im->shapes && !rebind_dims(im, n, &shape))
		return false;
	put_ints(OP_Expand, at, "shape", shape);
	return emit_bind(im, n, OP_Expand, at, 1, &x);
}

static bool tile(Import *im, const OnnxNode *n)
{
	Ints repeats;
	void *at = attr_of(im, OP_Tile);
	Value *x = onnx_in(im, n, 0);

	if (!need(im, n, 2))
		return false;
	if (!onnx_const_ints(im, n, 1, &repeats))
		return refuse(im, "repeats are not constant");
	put_ints(OP_Tile, at, "repeats", repeats);
	return emit_bind(im, n, OP_Tile, at, 1, &x);
}

static bool slice(Import *im, const OnnxNode *n)
{
	static const char *const name[] = { "starts", "ends", "axes", "steps" };
	void *at = attr_of(im, OP_Slice);
	Value *x = onnx_in(im, n, 0);

	if (!need(im, n, 1))
		return false;
	for (size_t i = 0; i < 4; i++) {
		Ints v;

		if (!onnx_ints(im->a, n, name[i], &v) && !onnx_const_ints(im, n, i + 1, &v))
			return diag_error(im->d, im->b.loc, 302, "%s are not constant", name[i]);
		put_ints(OP_Slice, at, name[i], v);
	}
	return emit_bind(im, n, OP_Slice, at, 1, &x);
}

static bool split(Import *im, const OnnxNode *n)
{
	void *at = attr_of(im, OP_Split);
	Value *x = onnx_in(im, n, 0);
	Ints sizes;

	if (!need(im, n, 1))
		return false;
	int64_t axis = onnx_int(n, "axis", 0);
	int64_t ax = axis + (axis < 0 ? x->type.rank : 0), k = (int64_t)n->n_output;
	if (ax < 0 || ax >= x->type.rank)
		return diag_error(im->d, im->b.loc, 302, "axis %lld of %s", (long long)axis, str_type(im->d->scratch, &x->type));
	if (!onnx_ints(im->a, n, "split", &sizes)) {
		if (!onnx_const_ints(im, n, 1, &sizes))
			return refuse(im, "split sizes are not constant");
		if (!sizes.n) {     /* equal parts, the last one smaller */
			int64_t *v = NEWN(im->a, int64_t, k), part = (x->type.dim[ax] + k - 1) / k, left = x->type.dim[ax];

			for (int64_t i = 0; i < k; i++, left -= v[i - 1])
				v[i] = left < part ? left : part;
			sizes = (Ints){ (int)k, v };
		}
	}
	put_int(OP_Split, at, "axis", ax);
	put_ints(OP_Split, at, "split", sizes);
	return emit_bind(im, n, OP_Split, at, 1, &x);
}

static bool pad(Import *im, const OnnxNode *n)
{
	void *at = attr_of(im, OP_Pad);
	Value *x = onnx_in(im, n, 0), *value = im->opset >= 11 ? onnx_in(im, n, 2) : NULL;
	Ints pads, axes;
	double v = onnx_float(n, "value", 0);

	if (!need(im, n, 1))
		return false;
	if (!onnx_ints(im->a, n, "pads", &pads) && !onnx_ints(im->a, n, "paddings", &pads) && !onnx_const_ints(im, n, 1, &pads))
		return refuse(im, "pads are not constant");
	if (value) {
		if (value->kind != VAL_CONST || !value->data || type_numel(&value->type) != 1)
			return refuse(im, "the padding value is not a constant scalar");
		v = value->type.dtype == DT_f32 ? (double)*(const float *)value->data : value->type.dtype == DT_f64 ?
			*(const double *)value->data : value->type.dtype == DT_i64 ? (double)*(const int64_t *)value->data :
			value->type.dtype == DT_i32 ? (double)*(const int32_t *)value->data : 0;
	}
	if (!onnx_const_ints(im, n, 3, &axes))
		return refuse(im, "axes are not constant");
	if (axes.n) {
		int rank = x->type.rank;
		int64_t *full = NEWN(im->a, int64_t, 2 * rank);

		for (int i = 0; i < axes.n; i++) {
			int64_t ax = axes.v[i] + (axes.v[i] < 0 ? rank : 0);

			if (ax < 0 || ax >= rank || pads.n != 2 * axes.n)
				return refuse(im, "pads and axes do not fit");
			full[ax] = pads.v[i];
			full[rank + ax] = pads.v[axes.n + i];
		}
		pads = (Ints){ 2 * rank, full };
	}
	put_ints(OP_Pad, at, "pads", pads);
	put_float(OP_Pad, at, "value", v);
	put_str(OP_Pad, at, "mode", onnx_str(im->a, n, "mode", "constant"));
	return emit_bind(im, n, OP_Pad, at, 1, &x);
}

static bool trilu(Import *im, const OnnxNode *n)
{
	void *at = attrs_by_name(im, n, OP_Trilu);
	Value *x = onnx_in(im, n, 0);
	Ints k;

	if (!need(im, n, 1))
		return false;
	if (!onnx_const_ints(im, n, 1, &k))
		return refuse(im, "k is not constant");
	put_int(OP_Trilu, at, "k", k.n ? k.v[0] : 0);
	return emit_bind(im, n, OP_Trilu, at, 1, &x);
}

/* ---- reductions: those that have no op of their own are written with others ---- */

static Value *reduce_by(Import *im, const OnnxNode *n, OpKind op, Value *x, bool *ok)
{
	void *at = attr_of(im, op);
	Ints axes;
	bool given;

	*ok = axes_of(im, n, 1, &axes, &given);
	put_ints(op, at, "axes", axes);
	put_int(op, at, "keepdims", onnx_int(n, "keepdims", 1));
	put_int(op, at, "noop_with_empty_axes", onnx_int(n, "noop_with_empty_axes", 0));
	return *ok ? emit1(im, op, at, x, NULL, NULL) : x;
}

static bool reduce(Import *im, const OnnxNode *n)
{
	const char *kind = n->op_type + strlen("Reduce");
	bool ok;

	if (!need(im, n, 1))
		return false;
	Value *x = onnx_in(im, n, 0), *y;
	OpKind op = op_find(n->op_type);
	if (op) {
		y = reduce_by(im, n, op, x, &ok);
	} else if (strcmp(kind, "LogSumExp") == 0) {
		void *at = attr_of(im, OP_ReduceMax);
		Ints axes;
		bool given;

		if (!axes_of(im, n, 1, &axes, &given))
			return false;
		put_ints(OP_ReduceMax, at, "axes", axes);
		put_int(OP_ReduceMax, at, "noop_with_empty_axes", onnx_int(n, "noop_with_empty_axes", 0));
		Value *top = emit1(im, OP_ReduceMax, at, x, NULL, NULL);
		Value *e = emit1(im, OP_Exp, NULL, emit1(im, OP_Sub, NULL, x, top, NULL), NULL, NULL);
		y = emit1(im, OP_Log, NULL, reduce_by(im, n, OP_ReduceSum, e, &ok), NULL, NULL);
		if (ok && y->type.rank != top->type.rank)
			top = reshape_to(im, top, y->type.rank, y->type.dim, NULL);
		y = emit1(im, OP_Add, NULL, y, top, NULL);
	} else {
		Value *f = strcmp(kind, "L1") == 0 ? emit1(im, OP_Abs, NULL, x, NULL, NULL) :
			strcmp(kind, "SumSquare") == 0 ? emit1(im, OP_Mul, NULL, x, x, NULL) : x;

		y = reduce_by(im, n, OP_ReduceSum, f, &ok);
		if (strcmp(kind, "LogSum") == 0)
			y = emit1(im, OP_Log, NULL, y, NULL, NULL);
	}
	onnx_bind(im, n, 0, y);
	return ok;
}

static bool mean(Import *im, const OnnxNode *n)
{
	int nin;
	Value **in = operands(im, n, &nin), *out[MAXIN];

	if (!nin)
		return need(im, n, 1);
	emit(im, OP_Sum, NULL, nin, in, NULL, out);
	onnx_bind(im, n, 0, emit1(im, OP_Mul, NULL, out[0], scalar(im, in[0]->type.dtype, 1.0 / nin), out_name(n)));
	return true;
}

/* ---- products, convolution, pooling ---- */

static bool gemm(Import *im, const OnnxNode *n)
{
	double alpha = onnx_float(n, "alpha", 1), beta = onnx_float(n, "beta", 1);
	int nin;
	Value **in = operands(im, n, &nin);

	if (!need(im, n, 2))
		return false;
	DType t = in[0]->type.dtype;
	if (nin > 2 && beta != 1)
		in[2] = emit1(im, OP_Mul, NULL, in[2], scalar(im, t, beta), NULL);
	if (alpha != 1)
		in[0] = emit1(im, OP_Mul, NULL, in[0], scalar(im, t, alpha), NULL);
	return emit_bind(im, n, OP_Gemm, attrs_by_name(im, n, OP_Gemm), nin > 3 ? 3 : nin, in);
}

/* Fills kernel_shape, strides, dilations, pads for all spatial axes; resolves auto_pad. */
static bool window(Import *im, const OnnxNode *n, OpKind op, void *at, const Type *x, const int64_t *kernel)
{
	int nd = x->rank - 2;
	Ints k, s, p, l;
	const char *mode = onnx_str(im->a, n, "auto_pad", "NOTSET");
	int64_t *stride = NEWN(im->a, int64_t, nd), *dil = NEWN(im->a, int64_t, nd), *pads = NEWN(im->a, int64_t, 2 * nd),
		*size = NEWN(im->a, int64_t, nd);

	if (nd < 1)
		return diag_error(im->d, im->b.loc, 302, "%s has no spatial axes", str_type(im->d->scratch, x));
	onnx_ints(im->a, n, "kernel_shape", &k);
	onnx_ints(im->a, n, "strides", &s);
	onnx_ints(im->a, n, "dilations", &l);
	onnx_ints(im->a, n, "pads", &p);
	if ((k.n && k.n != nd) || (s.n && s.n != nd) || (l.n && l.n != nd) || (p.n && p.n != 2 * nd) || (!k.n && !kernel))
		return diag_error(im->d, im->b.loc, 302, "%d spatial axes, but kernel_shape has %d entries, strides %d, dilations %d, "
			"pads %d", nd, k.n, s.n, l.n, p.n);
	for (int i = 0; i < nd; i++) {
		size[i] = k.n ? k.v[i] : kernel[i];
		stride[i] = s.n ? s.v[i] : 1;
		dil[i] = l.n ? l.v[i] : 1;
		if (size[i] < 1 || stride[i] < 1 || dil[i] < 1 || size[i] > 1 << 20 || stride[i] > 1 << 20 || dil[i] > 1 << 20)
			return diag_error(im->d, im->b.loc, 302, "kernel %lld, stride %lld, dilation %lld: each must be at least 1",
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
	put_ints(op, at, "kernel_shape", (Ints){ nd, size });
	put_ints(op, at, "strides", (Ints){ nd, stride });
	put_ints(op, at, "dilations", (Ints){ nd, dil });
	put_ints(op, at, "pads", (Ints){ 2 * nd, pads });
	return true;
}

static bool conv(Import *im, const OnnxNode *n)
{
	void *at = attrs_by_name(im, n, OP_Conv);
	int nin;
	Value **in = operands(im, n, &nin);

	if (!need(im, n, 2))
		return false;
	if (in[1]->type.rank != in[0]->type.rank)
		return diag_error(im->d, im->b.loc, 302, "X is %s, W is %s: ranks differ",
			str_type(im->d->scratch, &in[0]->type), str_type(im->d->scratch, &in[1]->type));
	if (!window(im, n, OP_Conv, at, &in[0]->type, in[1]->type.dim + 2))
		return false;
	return emit_bind(im, n, OP_Conv, at, nin > 3 ? 3 : nin, in);
}

static bool pool(Import *im, const OnnxNode *n)
{
	OpKind op = op_find(n->op_type);
	void *at = attrs_by_name(im, n, op);
	Value *x = onnx_in(im, n, 0);

	if (!need(im, n, 1) || !window(im, n, op, at, &x->type, NULL))
		return false;
	if (op == OP_MaxPool && n->n_output > 1 && *n->output[1])
		return refuse(im, "the Indices output of MaxPool is not supported");
	Value *out[MAXIN];
	emit(im, op, at, 1, &x, out_name(n), out);
	onnx_bind(im, n, 0, out[0]);
	return true;
}

static bool global_max_pool(Import *im, const OnnxNode *n)
{
	if (!need(im, n, 1))
		return false;
	Value *x = onnx_in(im, n, 0);
	void *at = attr_of(im, OP_ReduceMax);
	int64_t axes[MAXRANK];
	for (int i = 2; i < x->type.rank; i++)
		axes[i - 2] = i;
	put_ints(OP_ReduceMax, at, "axes", (Ints){ x->type.rank - 2, arena_dup(im->a, axes, sizeof axes) });
	onnx_bind(im, n, 0, emit1(im, OP_ReduceMax, at, x, NULL, out_name(n)));
	return true;
}

/* ---- normalisation ---- */

static Value *per_channel(Import *im, Value *v, int rank)
{
	int64_t dim[MAXRANK];

	for (int i = 0; i < rank - 1; i++)
		dim[i] = i ? 1 : v->type.dim[0];
	return reshape_to(im, v, rank - 1, dim, NULL);
}

/* y = (x - mean) / sqrt(var + eps) * scale + bias, as one finds it in inference exports */
static bool bn_inference(Import *im, const OnnxNode *n, double eps)
{
	Value *x = onnx_in(im, n, 0), *p[4];
	int rank = x->type.rank;

	for (size_t i = 0; i < 4; i++) {
		p[i] = onnx_in(im, n, i + 1);
		if (rank < 2 || p[i]->type.rank != 1 || p[i]->type.dim[0] != x->type.dim[1])
			return diag_error(im->d, im->b.loc, 303, "X is %s, operand %zu is %s: it must have one value per channel",
				str_type(im->d->scratch, &x->type), i + 1, str_type(im->d->scratch, &p[i]->type));
	}
	Value *sd = emit1(im, OP_Sqrt, NULL, emit1(im, OP_Add, NULL, p[3], scalar(im, p[3]->type.dtype, eps), NULL), NULL, NULL);
	Value *k = emit1(im, OP_Div, NULL, p[0], sd, NULL);
	Value *y = emit1(im, OP_Sub, NULL, x, per_channel(im, p[2], rank), NULL);
	y = emit1(im, OP_Mul, NULL, y, per_channel(im, k, rank), NULL);
	onnx_bind(im, n, 0, emit1(im, OP_Add, NULL, y, per_channel(im, p[1], rank), out_name(n)));
	return true;
}

/* running = running * momentum + batch * (1 - momentum): once per microbatch, in order, in the update phase. */
static void running(Import *im, Value *param, Value *batch, double momentum)
{
	Builder b = im->b;
	Value *rows;
	void *at = attr_of(im, OP_RunningStat);

	b.phase = PHASE_UPDATE;
	rows = mk(&b, OP_Stack, NULL, arena_printf(im->a, "%s.rows", param->name), 1, batch);
	put_float(OP_RunningStat, at, "momentum", momentum);
	build(&b, OP_RunningStat, at, 2, (Value *[]){ param, rows }, NULL);
}

static bool batch_norm(Import *im, const OnnxNode *n)
{
	bool training = im->opset >= 14 ? onnx_int(n, "training_mode", 0) != 0 : im->opset < 7 ? !onnx_int(n, "is_test", 0) :
		n->n_output > 1;
	double momentum = onnx_float(n, "momentum", 0.9F), eps = onnx_float(n, "epsilon", 1e-5F);

	if (!need(im, n, 5))
		return false;
	if (!training && !im->o->keep_eval && !im->o->frozen_bn) {
		diag_error(im->d, im->b.loc, 208, "BatchNormalization with fixed statistics: this is an inference export");
		diag_note(im->d, im->b.loc, "export with training=torch.onnx.TrainingMode.TRAINING and do_constant_folding=False, "
			"or train with batchnorm: frozen");
		return false;
	}
	if (!training || (im->opset < 7 && im->o->keep_eval))
		return bn_inference(im, n, eps);
	void *at = attr_of(im, OP_BatchNorm);
	Value *in[3] = { onnx_in(im, n, 0), onnx_in(im, n, 1), onnx_in(im, n, 2) }, *out[MAXIN];
	put_float(OP_BatchNorm, at, "epsilon", eps);
	emit(im, OP_BatchNorm, at, 3, in, out_name(n), out);
	onnx_bind(im, n, 0, out[0]);
	for (size_t i = 0; i < 2; i++) {
		Value *old = onnx_in(im, n, 3 + i), *batch = out[1 + i];

		if (!batch)
			continue;
		if (old->kind == VAL_PARAM && !im->o->keep_eval)
			running(im, old, batch, momentum);
		if (1 + i < n->n_output && *n->output[1 + i]) {
			Value *a = emit1(im, OP_Mul, NULL, old, scalar(im, old->type.dtype, momentum), NULL);
			Value *b = emit1(im, OP_Mul, NULL, batch, scalar(im, old->type.dtype, 1 - momentum), NULL);

			onnx_bind(im, n, 1 + i, emit1(im, OP_Add, NULL, a, b, n->output[1 + i]));
		}
	}
	return true;
}

/* Before opset 13 the operand is seen as a matrix cut at axis (default 1). */
static bool softmax(Import *im, const OnnxNode *n)
{
	OpKind op = op_find(n->op_type);
	void *at = attr_of(im, op);

	if (!need(im, n, 1))
		return false;
	Value *x = onnx_in(im, n, 0), *y = x;
	if (im->opset >= 13) {
		put_int(op, at, "axis", onnx_int(n, "axis", -1));
		return emit_bind(im, n, op, at, 1, &x);
	}
	int64_t axis = onnx_int(n, "axis", 1), dim[2] = { 1, 1 };
	axis += axis < 0 ? x->type.rank : 0;
	if (axis < 0 || axis > x->type.rank)
		return diag_error(im->d, im->b.loc, 302, "axis %lld of rank %d", (long long)axis, x->type.rank);
	for (int i = 0; i < x->type.rank; i++)
		dim[i >= axis] *= x->type.dim[i];
	put_int(op, at, "axis", 1);
	y = emit1(im, op, at, reshape_to(im, x, 2, dim, NULL), NULL, NULL);
	onnx_bind(im, n, 0, reshape_to(im, y, x->type.rank, x->type.dim, out_name(n)));
	return true;
}

static bool loss(Import *im, const OnnxNode *n)
{
	OpKind op = op_find(n->op_type);
	void *at = attrs_by_name(im, n, op);
	int nin;
	Value **in = operands(im, n, &nin);

	if (!need(im, n, 2))
		return false;
	put_int(op, at, "has_ignore", onnx_attr(n, "ignore_index") != NULL);
	return emit_bind(im, n, op, at, nin, in);
}

static bool dropout(Import *im, const OnnxNode *n)
{
	double ratio = onnx_float(n, "ratio", 0.5);
	Value *r = im->opset >= 12 ? onnx_in(im, n, 1) : NULL, *mode = im->opset >= 12 ? onnx_in(im, n, 2) : NULL;
	bool training = im->opset >= 12 ? false : !im->o->keep_eval;

	if (!need(im, n, 1))
		return false;
	if ((r && (r->kind != VAL_CONST || !r->data)) || (mode && (mode->kind != VAL_CONST || !mode->data)))
		return refuse(im, "ratio and training_mode must be constant");
	if (r)
		ratio = r->type.dtype == DT_f64 ? *(const double *)r->data : r->type.dtype == DT_f32 ? (double)*(const float *)r->data : 0.5;
	if (mode)
		training = *(const uint8_t *)mode->data != 0;
	Value *x = onnx_in(im, n, 0);
	if (!training || ratio == 0) {
		onnx_bind(im, n, 0, x);
		if (n->n_output > 1 && *n->output[1]) {
			void *at = attr_of(im, OP_ConstantOfShape);
			Value *out[MAXIN];

			put_ints(OP_ConstantOfShape, at, "shape", (Ints){ x->type.rank, arena_dup(im->a, x->type.dim, sizeof x->type.dim) });
			put_float(OP_ConstantOfShape, at, "value", 1);
			put_int(OP_ConstantOfShape, at, "dtype", dtype_onnx(DT_bool));
			emit(im, OP_ConstantOfShape, at, 0, NULL, n->output[1], out);
			onnx_bind(im, n, 1, out[0]);
		}
		return true;
	}
	if (!(ratio >= 0 && ratio < 1))
		return diag_error(im->d, im->b.loc, 302, "ratio %g is outside [0, 1)", ratio);
	void *at = attr_of(im, OP_Dropout);
	put_float(OP_Dropout, at, "ratio", ratio);
	put_int(OP_Dropout, at, "id", im->b.loc.node + 1);
	return emit_bind(im, n, OP_Dropout, at, 1, &x);
}

static bool clip(Import *im, const OnnxNode *n)
{
	if (!need(im, n, 1))
		return false;
	Value *x = onnx_in(im, n, 0), *lo = onnx_in(im, n, 1), *hi = onnx_in(im, n, 2);
	DType t = x->type.dtype;
	if (im->opset < 11) {
		double a = onnx_float(n, "min", -FLT_MAX), b = onnx_float(n, "max", FLT_MAX);

		lo = a > -FLT_MAX ? scalar(im, t, a) : NULL;
		hi = b < FLT_MAX ? scalar(im, t, b) : NULL;
	}
	if (lo)
		x = emit1(im, OP_Max, NULL, x, lo, hi ? NULL : out_name(n));
	if (hi)
		x = emit1(im, OP_Min, NULL, x, hi, out_name(n));
	onnx_bind(im, n, 0, x);
	return true;
}

static bool cast(Import *im, const OnnxNode *n)
{
	void *at = attrs_by_name(im, n, OP_Cast);
	Value *x = onnx_in(im, n, 0);

	if (!need(im, n, 1))
		return false;
	if (im->o->f64 && onnx_int(n, "to", 0) == dtype_onnx(DT_f32))
		put_int(OP_Cast, at, "to", dtype_onnx(DT_f64));
	return emit_bind(im, n, OP_Cast, at, 1, &x);
}

/* ---- the table ---- */

static const struct row { const char *name; bool (*run)(Import *, const OnnxNode *); } table[] = {
	{ "Constant", constant_node }, { "ConstantOfShape", constant_of_shape }, { "Identity", identity },
	{ "Reshape", reshape }, { "Flatten", flatten }, { "Squeeze", squeeze }, { "Unsqueeze", unsqueeze },
	{ "Expand", expand }, { "Tile", tile }, { "Slice", slice }, { "Split", split }, { "Pad", pad }, { "Trilu", trilu },
	{ "ReduceSum", reduce }, { "ReduceMean", reduce }, { "ReduceMax", reduce }, { "ReduceMin", reduce },
	{ "ReduceProd", reduce }, { "ReduceL1", reduce }, { "ReduceL2", reduce }, { "ReduceLogSum", reduce },
	{ "ReduceLogSumExp", reduce }, { "ReduceSumSquare", reduce }, { "Mean", mean },
	{ "Gemm", gemm }, { "Conv", conv }, { "MaxPool", pool }, { "AveragePool", pool }, { "GlobalMaxPool", global_max_pool },
	{ "BatchNormalization", batch_norm }, { "Softmax", softmax }, { "LogSoftmax", softmax },
	{ "SoftmaxCrossEntropyLoss", loss }, { "NegativeLogLikelihoodLoss", loss }, { "Dropout", dropout },
	{ "Clip", clip }, { "Cast", cast },
	{ "Add", arithmetic }, { "Sub", arithmetic }, { "Mul", arithmetic }, { "Div", arithmetic }, { "Pow", arithmetic },
	{ "And", arithmetic }, { "Or", arithmetic }, { "Xor", arithmetic }, { "Equal", arithmetic }, { "Less", arithmetic },
	{ "Greater", arithmetic },
	{ "Relu", same }, { "Sigmoid", same }, { "Tanh", same }, { "Erf", same }, { "Exp", same }, { "Log", same },
	{ "Sqrt", same }, { "Neg", same }, { "Abs", same }, { "Sign", same }, { "Reciprocal", same }, { "Sin", same },
	{ "Cos", same }, { "Floor", same }, { "Ceil", same }, { "Round", same }, { "Not", same }, { "Max", same },
	{ "Min", same }, { "Mod", same }, { "Sum", same }, { "LessOrEqual", same }, { "GreaterOrEqual", same },
	{ "Where", same }, { "Transpose", same }, { "Concat", same }, { "Gather", same }, { "Shape", same }, { "Size", same },
	{ "Range", same }, { "MatMul", same }, { "GlobalAveragePool", same }, { "LayerNormalization", same },
};

static const struct row *find(const char *op, const char *domain)
{
	if (*domain && strcmp(domain, "ai.onnx"))
		return NULL;
	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		if (strcmp(table[i].name, op) == 0)
			return &table[i];
	return NULL;
}

bool canon_supported(const char *op, const char *domain)
{
	return find(op, domain) != NULL;
}

bool canon_node(Import *im, const OnnxNode *n)
{
	return find(n->op_type, n->domain ? n->domain : "")->run(im, n);
}
