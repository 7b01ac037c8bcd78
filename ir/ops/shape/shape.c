/* Shape, Size, ConstantOfShape, Range and Trilu. All but Trilu fold away at import: they depend on types and constants
 * only, so they have no kernel. */
#include <math.h>
#include "../common/common.h"

/* ---- Shape (axes start..end), Size ---- */

struct shape_attr {
	int64_t start, end;
};

static int64_t bound(int64_t v, int rank)
{
	v = v < 0 ? v + rank : v;
	return v < 0 ? 0 : v > rank ? rank : v;
}

static bool shape_shape(Node *n, Diag *d)
{
	const struct shape_attr *at = n->attr;

	if (!same_dtype(n, 0, d))
		return false;
	const int rank = n->in[0]->type.rank;
	const int64_t k = bound(at->end, rank) - bound(at->start, rank), len = k > 0 ? k : 0;
	set_out(n, 0, type_make(DT_i64, 1, &len));
	return true;
}

static bool shape_eval(const Node *n, const Tensor *in, Tensor *out, Arena *a)
{
	const struct shape_attr *at = n->attr;

	tensor_alloc(&out[0], &n->out[0]->type, a);
	for (int64_t i = 0; i < out[0].type.dim[0]; i++)
		elem_set_i(&out[0], i, in[0].type.dim[bound(at->start, in[0].type.rank) + i]);
	return true;
}

static const AttrDef shape_attrs[] = { AT_INT(struct shape_attr, start, 0), AT_INT(struct shape_attr, end, INT32_MAX),
	AT_END };

const OpDef op_Shape = {
	.name = "Shape",
	.minin = 1,
	.maxin = 1,
	.nout = 1,
	.flags = OP_PURE,
	.attrs = shape_attrs,
	.attrsize = sizeof(struct shape_attr),
	.shape = shape_shape,
	.eval = shape_eval,
};

static bool size_shape(Node *n, Diag *d)
{
	if (!same_dtype(n, 0, d))
		return false;
	set_out(n, 0, type_scalar(DT_i64));
	return true;
}

static bool size_eval(const Node *n, const Tensor *in, Tensor *out, Arena *a)
{
	tensor_alloc(&out[0], &n->out[0]->type, a);
	elem_set_i(&out[0], 0, type_numel(&in[0].type));
	return true;
}

static const AttrDef no_attrs[] = { AT_END };

const OpDef op_Size = {
	.name = "Size",
	.minin = 1,
	.maxin = 1,
	.nout = 1,
	.flags = OP_PURE,
	.attrs = no_attrs,
	.shape = size_shape,
	.eval = size_eval,
};

/* ---- ConstantOfShape: value everywhere; dtype is ONNX's number ---- */

struct filled {
	Ints shape;
	double value;
	int64_t dtype;
};

static bool filled_shape(Node *n, Diag *d)
{
	const struct filled *at = n->attr;
	const DType t = dtype_from_onnx((int)at->dtype);

	if (t == DT_NONE)
		return diag_error(
			d, n->loc, 302, "ConstantOfShape: element type %lld is not known", (long long)at->dtype);
	if (at->shape.n > MAXRANK)
		return diag_error(d, n->loc, 305, "ConstantOfShape: rank %d is above %d", at->shape.n, MAXRANK);
	for (int i = 0; i < at->shape.n; i++)
		if (at->shape.v[i] < 0)
			return diag_error(
				d, n->loc, 305, "ConstantOfShape: dimension %d is %lld", i, (long long)at->shape.v[i]);
	set_out(n, 0, type_make(t, at->shape.n, at->shape.v));
	return true;
}

static bool filled_eval(const Node *n, const Tensor *in, Tensor *out, Arena *a)
{
	const struct filled *at = n->attr;

	(void)in;
	tensor_alloc(&out[0], &n->out[0]->type, a);
	for (int64_t i = 0; at->value != 0 && i < type_numel(&out[0].type); i++)
		elem_set_f(&out[0], i, at->value);
	return true;
}

static const AttrDef filled_attrs[] = { AT_INTS(struct filled, shape), AT_FLOAT(struct filled, value, 0),
	AT_INT(struct filled, dtype, 1), AT_END };

const OpDef op_ConstantOfShape = {
	.name = "ConstantOfShape",
	.minin = 0,
	.maxin = 0,
	.nout = 1,
	.flags = OP_PURE,
	.attrs = filled_attrs,
	.attrsize = sizeof(struct filled),
	.shape = filled_shape,
	.eval = filled_eval,
};

/* ---- Range(start, limit, delta), all constant scalars ---- */

static bool range_shape(Node *n, Diag *d)
{
	double v[3];

	if (n->nin != 3 || !same_dtype(n, 0, d))
		return false;
	for (int i = 0; i < 3; i++) {
		const Tensor t = const_tensor(n->in[i]);
		if (!t.data || type_numel(&t.type) != 1)
			return diag_error(d, n->loc, 307,
				"Range: %s is no constant scalar, so the result has no fixed size", n->in[i]->name);
		v[i] = elem_f(&t, 0);
	}
	if (v[2] == 0)
		return diag_error(d, n->loc, 307, "Range: delta is 0");
	const double k = ceil((v[1] - v[0]) / v[2]);
	if (!(k < 0x1p31))
		return diag_error(d, n->loc, 307, "Range: from %g to %g by %g is too long", v[0], v[1], v[2]);
	const int64_t len = k > 0 ? (int64_t)k : 0;
	set_out(n, 0, type_make(n->in[0]->type.dtype, 1, &len));
	return true;
}

static bool range_eval(const Node *n, const Tensor *in, Tensor *out, Arena *a)
{
	tensor_alloc(&out[0], &n->out[0]->type, a);
	for (int64_t i = 0; i < out[0].type.dim[0]; i++)
		if (dtype_float(out[0].type.dtype))
			elem_set_f(&out[0], i, elem_f(&in[0], 0) + (double)i * elem_f(&in[2], 0));
		else
			elem_set_i(&out[0], i, elem_i(&in[0], 0) + i * elem_i(&in[2], 0));
	return true;
}

const OpDef op_Range = {
	.name = "Range",
	.minin = 3,
	.maxin = 3,
	.nout = 1,
	.flags = OP_PURE,
	.attrs = no_attrs,
	.shape = range_shape,
	.eval = range_eval,
};

/* ---- Trilu: upper (lower) triangle of the last two axes, moved by k diagonals; zeros elsewhere ---- */

struct trilu {
	int64_t upper, k;
};

static bool trilu_shape(Node *n, Diag *d)
{
	if (!same_dtype(n, 0, d))
		return false;
	Type t = n->in[0]->type;
	if (t.rank < 2)
		return diag_error(
			d, n->loc, 305, "Trilu: %s is %s, rank 2 is needed", n->in[0]->name, str_type(d->scratch, &t));
	t.rows = 0;
	set_out(n, 0, t);
	return true;
}

static void trilu_grad(Builder *b, const Node *n, Value *const *dy, Value **dx)
{
	dx[0] = mk(b, OP_Trilu, n->attr, NULL, 1, dy[0]);
}

/* k, held where it still moves the diagonal. */
static int64_t diagonal(const Node *n)
{
	const int64_t k = ((const struct trilu *)n->attr)->k;
	const Type *t = &n->out[0]->type;
	const int64_t cols = t->dim[t->rank - 1], rows = t->dim[t->rank - 2];

	return k < -rows ? -rows : k > cols ? cols : k;
}

/* Not finished with nest_finish: the condition needs row and column as loops of their own. */
static void trilu_holes(const Node *n, Holes *h)
{
	const struct trilu *at = n->attr;
	const Type *t = &n->out[0]->type;
	const char *c = dtype_c(t->dtype);
	const int64_t cols = t->dim[t->rank - 1], rows = t->dim[t->rank - 2];
	const int64_t k = diagonal(n), dim[3] = { rows && cols ? type_numel(t) / rows / cols : 0, rows, cols };
	const int64_t stride[3] = { rows * cols, cols, 1 };
	Nest s;

	nest_begin(&s, node_arena(n), 3, dim);
	nest_add(&s, "y", 0, stride);
	nest_add(&s, "a", 0, stride);
	nest_holes(&s, h);
	hole_text(h, "PARAMS", "%s *y, const %s *a", c, c);
	hole_text(h, "CALL", "$k($=, $0);");
	hole_text(h, "BODY", "%s = i - j %s %lld ? %s : 0;", nest_ref(h->arena, &s, 0),
		at->upper ? ">=" : "<=", (long long)k, nest_ref(h->arena, &s, 1));
	hole_name(h, "tri%s_%s_k%s%lld%s", at->upper ? "u" : "l", dims_name(h->arena, t), k < 0 ? "m" : "",
		(long long)(k < 0 ? -k : k), dtype_suffix(t->dtype));
}

static bool trilu_eval(const Node *n, const Tensor *in, Tensor *out, Arena *a)
{
	const struct trilu *at = n->attr;
	const Type *t = &n->out[0]->type;
	const int64_t cols = t->dim[t->rank - 1], rows = t->dim[t->rank - 2], k = diagonal(n);

	tensor_alloc(&out[0], t, a);
	for (int64_t i = 0; i < type_numel(t); i++) {
		const int64_t off = i % cols - i / cols % rows;
		if (!(at->upper ? off >= k : off <= k))
			continue;
		if (dtype_float(t->dtype))
			elem_set_f(&out[0], i, elem_f(&in[0], i));
		else
			elem_set_i(&out[0], i, elem_i(&in[0], i));
	}
	return true;
}

static const AttrDef trilu_attrs[] = { AT_INT(struct trilu, upper, 1), AT_INT(struct trilu, k, 0), AT_END };

const OpDef op_Trilu = {
	.name = "Trilu",
	.minin = 1,
	.maxin = 1,
	.nout = 1,
	.flags = OP_PURE | OP_INPLACE,
	.attrs = trilu_attrs,
	.attrsize = sizeof(struct trilu),
	.shape = trilu_shape,
	.grad = trilu_grad,
	.dgrad = { DENSE },
	.holes = trilu_holes,
	.eval = trilu_eval,
	.cpu = { .file = "nest.cpu.c" },
	.ref = { .file = "nest.cpu.c" },
	.cuda = { .file = "nest.cuda.cu" },
};
