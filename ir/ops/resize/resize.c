/* Resizing along one axis by tables of constants, and its gradient, which is the transposed map:
 *     %y = ResizeAxis(%x, %at[, %w]) {axis}              y[j] = sum over k of w[j, k] x[at[j, k]]
 *     %dx = ResizeAxisGrad(%dy, %at[, %w]) {axis, dim}   dim: of x along the axis
 * at and w are [elements of y along the axis, K]; without w all weights are 1, and x may be of any type. Interpolation over several axes is one
 * such op for each. Kernels see [OUTER, IN or OUT, INNER] in the order in which x lies in memory. */
#include "../common/common.h"

struct resize {
	int64_t axis, dim;
};

static bool is_grad(const Node *n) { return n->op == OP_ResizeAxisGrad; }

static int axis_of(const Node *n)
{
	const int64_t axis = ((const struct resize *)n->attr)->axis;

	return (int)(axis < 0 ? axis + n->in[0]->type.rank : axis);
}

/* The tables are of one shape, and every index lies in [0, dim). */
static bool check_tables(const Node *n, int64_t out, int64_t dim, Diag *d)
{
	const Value *at = n->in[1], *w = n->nin > 2 ? n->in[2] : NULL;
	const Tensor t = const_tensor(at);

	if (at->kind != VAL_CONST || at->type.dtype != DT_i32 || at->type.rank != 2 || at->type.dim[0] != out)
		return diag_error(d, n->loc, 304, "%s: %s is %s; a constant i32[%lld,K] is needed", optab[n->op]->name,
			at->name, str_type(d->scratch, &at->type), (long long)out);
	if (w && (w->kind != VAL_CONST || w->type.dtype != n->in[0]->type.dtype || !shape_eq(&w->type, &at->type)))
		return diag_error(d, n->loc, 304, "%s: %s is %s; a constant like %s, which is %s, is needed",
			optab[n->op]->name, w->name, str_type(d->scratch, &w->type), at->name,
			str_shape(d->scratch, &at->type));
	for (int64_t i = 0; t.data && i < type_numel(&at->type); i++)
		if (elem_i(&t, i) < 0 || elem_i(&t, i) >= dim)
			return diag_error(d, n->loc, 306, "%s: index %lld of %s is outside of [0, %lld)",
				optab[n->op]->name, (long long)elem_i(&t, i), at->name, (long long)dim);
	return true;
}

static bool shape(Node *n, Diag *d)
{
	const struct resize *at = n->attr;
	Type t = n->in[0]->type;
	int axis;

	if (!dtype_float(t.dtype) && (n->nin > 2 || is_grad(n)))
		return diag_error(d, n->loc, 302, "%s with weights takes floats, %s is %s", optab[n->op]->name,
			n->in[0]->name, str_type(d->scratch, &t));
	if (!norm_axis(n, d, "axis", at->axis, t.rank, &axis))
		return false;
	if (is_grad(n) && (at->dim < 1 || at->dim > EXTENT_MOST))
		return diag_error(d, n->loc, 305, "%s: dim is %lld, outside of 1..%d", optab[n->op]->name,
			(long long)at->dim, EXTENT_MOST);
	if (!check_tables(n, is_grad(n) ? t.dim[axis] : n->in[1]->type.dim[0], is_grad(n) ? at->dim : t.dim[axis], d))
		return false;
	t.rows = 0;
	t.dim[axis] = is_grad(n) ? at->dim : n->in[1]->type.dim[0];
	set_out(n, 0, t);
	return true;
}

static void grad(Builder *b, const Node *n, Value *const *dy, Value **dx)
{
	const struct resize at = { axis_of(n), is_grad(n) ? 0 : n->in[0]->type.dim[axis_of(n)] };
	Value *in[3] = { dy[0], n->in[1], n->nin > 2 ? n->in[2] : NULL };

	dx[0] = build(b, is_grad(n) ? OP_ResizeAxis : OP_ResizeAxisGrad, &at, n->nin, in, NULL)->out[0];
}

/* The place of axis i among the axes as they lie in memory, outermost first. */
static int place(const Type *t, int i)
{
	return t->layout == LAYOUT_PLAIN || i == 0 ? i : i == 1 ? t->rank - 1 : i - 1;
}

static void holes(const Node *n, Holes *h)
{
	const Type *x = &n->in[0]->type, *y = &n->out[0]->type, *table = &n->in[1]->type;
	const int axis = axis_of(n), weights = n->nin > 2 && n->in[2];
	int64_t outer = 1, inner = 1;

	for (int i = 0; i < x->rank; i++) {
		outer *= place(x, i) < place(x, axis) ? x->dim[i] : 1;
		inner *= place(x, i) > place(x, axis) ? x->dim[i] : 1;
	}
	hole_text(h, "T", "%s", dtype_c(x->dtype));
	hole_int(h, "BACK", is_grad(n));
	hole_int(h, "WEIGHTS", weights);
	hole_int(h, "OUTER", outer);
	hole_int(h, "IN", is_grad(n) ? y->dim[axis] : x->dim[axis]);
	hole_int(h, "OUT", table->dim[0]);
	hole_int(h, "K", table->dim[1]);
	hole_int(h, "INNER", inner);
	hole_int(h, "BLOCK", inner > 256 ? 256 : inner > 0 ? inner : 1);
	hole_int(h, "PAR", type_numel(x) + type_numel(y) >= 32768);
	hole_text(h, "CALL", weights ? "$k($=, $0, $1, $2);" : "$k($=, $0, $1);");
	hole_name(h, "resize%s_%s_axis%d_to_%lld%s", is_grad(n) ? "_grad" : "", dims_name(h->arena, x), axis,
		(long long)y->dim[axis], dtype_suffix(x->dtype));
}

static Cost cost(const Node *n)
{
	const Type *dense = is_grad(n) ? &n->in[0]->type : &n->out[0]->type;

	return cost_bytes(n, 2.0 * (double)n->in[1]->type.dim[1] * (double)type_numel(dense));
}

static const AttrDef attrs[] = { AT_INT(struct resize, axis, 0), AT_END };
static const AttrDef grad_attrs[] = { AT_INT(struct resize, axis, 0), AT_INT(struct resize, dim, 0), AT_END };

#define COMMON \
	.minin = 2, .maxin = 3, .nout = 1, .flags = OP_PURE | OP_NHWC, .attrsize = sizeof(struct resize), \
	.shape = shape, .grad = grad, .dgrad = { DENSE, NOGRAD, NOGRAD }, .cost = cost, .holes = holes, \
	.cpu = { .file = "resize.cpu.c" }, .cuda = { .file = "resize.cuda.cu" }

const OpDef op_ResizeAxis = { .name = "ResizeAxis", .attrs = attrs, COMMON };

const OpDef op_ResizeAxisGrad = { .name = "ResizeAxisGrad", .attrs = grad_attrs, COMMON };
