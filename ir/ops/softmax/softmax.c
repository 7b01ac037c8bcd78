/* Softmax and LogSoftmax along one axis, and their gradients from the results:
 *     Softmax      dx = y (dy - sum(dy y))          LogSoftmax   dx = dy - exp(y) sum(dy)
 * Kernels see [OUTER, C, INNER]. */
#include "../common/common.h"

struct softmax {
	int64_t axis;
};

static bool shape(Node *n, Diag *d)
{
	const struct softmax *at = n->attr;
	const Type *x = &n->in[n->nin - 1]->type;
	Type y = *x;
	int axis;

	if (!same_dtype(n, 0, d) || !norm_axis(n, d, "axis", at->axis, x->rank, &axis))
		return false;
	if (!dtype_float(x->dtype))
		return diag_error(d, n->loc, 302, "%s takes floats, %s is %s", optab[n->op]->name, n->in[0]->name,
			str_type(d->scratch, x));
	if (!shape_eq(&n->in[0]->type, x))
		return diag_error(d, n->loc, 304, "%s: %s is %s, %s is %s", optab[n->op]->name, n->in[0]->name,
			str_type(d->scratch, &n->in[0]->type), n->in[1]->name, str_type(d->scratch, x));
	y.rows = 0;
	y.layout = LAYOUT_PLAIN;
	set_out(n, 0, y);
	return true;
}

static void grad(Builder *b, const Node *n, Value *const *dy, Value **dx)
{
	const OpKind op = n->op == OP_Softmax ? OP_SoftmaxGrad : OP_LogSoftmaxGrad;

	dx[0] = mk(b, op, n->attr, NULL, 2, dy[0], n->out[0]);
}

static void holes(const Node *n, Holes *h)
{
	const struct softmax *at = n->attr;
	const Type *x = &n->out[0]->type;
	const bool back = n->op == OP_SoftmaxGrad || n->op == OP_LogSoftmaxGrad;
	const bool logs = n->op == OP_LogSoftmax || n->op == OP_LogSoftmaxGrad;
	const int axis = (int)(at->axis < 0 ? at->axis + x->rank : at->axis);
	int64_t outer = 1, inner = 1;

	for (int i = 0; i < x->rank; i++) {
		if (i < axis)
			outer *= x->dim[i];
		if (i > axis)
			inner *= x->dim[i];
	}
	hole_text(h, "T", "%s", dtype_c(x->dtype));
	hole_int(h, "OUTER", outer);
	hole_int(h, "C", x->dim[axis]);
	hole_int(h, "INNER", inner);
	hole_int(h, "LOGS", logs);
	hole_int(h, "VECTORS",
		x->dtype == DT_f32 && inner == 1 && x->dim[axis] % 4 == 0 && x->dim[axis] >= 32 &&
			x->dim[axis] <= 8192);
	hole_int(h, "PAR", type_numel(x) >= 16384);
	hole_name(h, "%ssoftmax%s_%lldx%lldx%lld%s", logs ? "log_" : "", back ? "_grad" : "", (long long)outer,
		(long long)x->dim[axis], (long long)inner, dtype_suffix(x->dtype));
}

static Cost cost(const Node *n) { return cost_bytes(n, 12.0 * (double)type_numel(&n->out[0]->type)); }

static const AttrDef attrs[] = { AT_INT(struct softmax, axis, -1), AT_END };

static bool along_others(const Node *n, bool out, int at, ShardWay *w)
{
	const struct softmax *a = n->attr;
	const Shard s = out ? w->out[at] : w->in[at];

	return s.axis != (a->axis < 0 ? a->axis + n->in[0]->type.rank : a->axis) && shard_same_shapes(n, out, at, w);
}

#define FORWARD(op) \
	const OpDef op_##op = { .name = #op, \
		.minin = 1, \
		.maxin = 1, \
		.nout = 1, \
		.flags = OP_PURE | OP_INPLACE, \
		.attrs = attrs, \
		.attrsize = sizeof(struct softmax), \
		.shape = shape, \
		.shard = along_others, \
		.grad = grad, \
		.dgrad = { DENSE }, \
		.cost = cost, \
		.holes = holes, \
		.cpu = { .file = "softmax.cpu.c", .call = "$k($=, $0);" }, \
		.cuda = { .file = "softmax.cuda.cu", .call = "$k($=, $0);" } }
#define BACKWARD(op) \
	const OpDef op_##op = { .name = #op, \
		.minin = 2, \
		.maxin = 2, \
		.nout = 1, \
		.flags = OP_PURE | OP_INPLACE, \
		.attrs = attrs, \
		.attrsize = sizeof(struct softmax), \
		.shape = shape, \
		.shard = along_others, \
		.cost = cost, \
		.holes = holes, \
		.cpu = { .file = "softmax_grad.cpu.c", .call = "$k($=, $0, $1);" }, \
		.cuda = { .file = "softmax_grad.cuda.cu", .call = "$k($=, $0, $1);" } }

FORWARD(Softmax);
FORWARD(LogSoftmax);
BACKWARD(SoftmaxGrad);
BACKWARD(LogSoftmaxGrad);
