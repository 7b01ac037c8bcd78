/* OneHot: a new axis of `depth`, values[1] where the index says, values[0] elsewhere (everywhere, when it is outside of
 * [-depth, depth)). ReverseSequence: the first lens[b] steps of every batch entry in reverse order. */
#include <math.h>
#include <string.h>
#include "index.h"

/* ---- OneHot ---- */

struct onehot {
	int64_t axis, depth;
};

static bool onehot_shape(Node *n, Diag *d)
{
	const struct onehot *at = n->attr;
	int axis;

	if (!need_operands(n, d))
		return false;
	const Type *ids = &n->in[0]->type, *values = &n->in[1]->type;
	if (ids->dtype == DT_bool || ids->dtype == DT_f16 || ids->dtype == DT_bf16)
		return diag_error(d, n->loc, 302, "OneHot does not count with %s, which is %s", n->in[0]->name,
			str_type(d->scratch, ids));
	if (type_numel(values) != 2)
		return diag_error(d, n->loc, 304, "OneHot: %s is %s, two values are needed", n->in[1]->name,
			str_type(d->scratch, values));
	if (ids->rank + 1 > MAXRANK)
		return diag_error(d, n->loc, 305, "OneHot: rank of the result %d is above %d", ids->rank + 1, MAXRANK);
	if (!norm_axis(n, d, "axis", at->axis, ids->rank + 1, &axis))
		return false;
	Type t = type_scalar(values->dtype);
	int64_t dim[MAXRANK];
	for (int i = 0; i <= ids->rank; i++)
		dim[i] = i == axis ? at->depth : ids->dim[i < axis ? i : i - 1];
	if (!need_type(n, d, "the result", (Ints){ ids->rank + 1, dim }, values->dtype, &t))
		return false;
	set_out(n, 0, t);
	return true;
}

static void onehot_holes(const Node *n, Holes *h)
{
	const struct onehot *at = n->attr;
	const Type *ids = &n->in[0]->type, *y = &n->out[0]->type;
	const Blocks s = blocks_of(y, axis_from(at->axis, y->rank));

	hole_text(h, "T", "%s", dtype_c(y->dtype));
	hole_text(h, "TI", "%s", dtype_c(ids->dtype));
	hole_int(h, "OUTER", s.outer);
	hole_int(h, "DEPTH", s.dim);
	hole_int(h, "INNER", s.inner);
	hole_int(h, "FLOAT", dtype_float(ids->dtype));
	hole_int(h, "SIGNED", dtype_signed(ids->dtype) || dtype_float(ids->dtype));
	hole_int(h, "PAR", type_numel(y) >= 32768);
	hole_name(h, "one_hot_%lldx%lldx%lld%s_of_%s", (long long)s.outer, (long long)s.dim, (long long)s.inner,
		dtype_suffix(y->dtype), dtype_name(ids->dtype));
}

static bool onehot_eval(const Node *n, const Tensor *in, Tensor *out, Arena *a)
{
	const struct onehot *at = n->attr;
	const Type *y = &n->out[0]->type;
	const Blocks s = blocks_of(y, axis_from(at->axis, y->rank));
	const int size = dtype_bytes(y->dtype);

	tensor_alloc(&out[0], y, a);
	for (int64_t i = 0; i < type_numel(y); i++) {
		const int64_t from = i / s.inner / s.dim * s.inner + i % s.inner, place = i / s.inner % s.dim;
		const double r = elem_f(&in[0], from);
		const bool hot = r >= -(double)s.dim && r < (double)s.dim && place == (int64_t)r + (r < 0 ? s.dim : 0);
		memcpy((char *)out[0].data + i * size, (const char *)in[1].data + (hot ? size : 0), (size_t)size);
	}
	return true;
}

static const AttrDef onehot_attrs[] = { AT_INT(struct onehot, axis, -1), AT_INT(struct onehot, depth, 1), AT_END };

const OpDef op_OneHot = {
	.name = "OneHot",
	.minin = 2,
	.maxin = 2,
	.nout = 1,
	.flags = OP_PURE,
	.attrs = onehot_attrs,
	.attrsize = sizeof(struct onehot),
	.shape = onehot_shape,
	.cost = move_cost,
	.holes = onehot_holes,
	.eval = onehot_eval,
	.cpu = { .file = "onehot.cpu.c", .call = "$k($=, $0, $1);" },
	.ref = { .file = "onehot.cpu.c", .call = "$k($=, $0, $1);" },
	.cuda = { .file = "onehot.cuda.cu", .call = "$k($=, $0, $1);" },
};

/* ---- ReverseSequence ---- */

struct reverse {
	int64_t batch_axis, time_axis;
};

static bool reverse_shape(Node *n, Diag *d)
{
	const struct reverse *at = n->attr;

	if (!need_operands(n, d) || !index_dtype(n, 1, d))
		return false;
	Type t = n->in[0]->type;
	const Type *lens = &n->in[1]->type;
	if (t.rank < 2)
		return diag_error(d, n->loc, 305, "ReverseSequence: %s is %s, rank 2 is needed", n->in[0]->name,
			str_type(d->scratch, &t));
	if (at->batch_axis < 0 || at->batch_axis > 1 || at->time_axis != 1 - at->batch_axis)
		return diag_error(d, n->loc, 303,
			"ReverseSequence: batch_axis is %lld, time_axis %lld; they must be 0 and 1",
			(long long)at->batch_axis, (long long)at->time_axis);
	if (lens->rank != 1 || lens->dim[0] != t.dim[at->batch_axis])
		return diag_error(d, n->loc, 304, "ReverseSequence: lengths %s are %s, %s is %s", n->in[1]->name,
			str_type(d->scratch, lens), n->in[0]->name, str_type(d->scratch, &t));
	t.rows = 0;
	t.layout = LAYOUT_PLAIN;
	set_out(n, 0, t);
	return true;
}

static void reverse_grad(Builder *b, const Node *n, Value *const *dy, Value **dx)
{
	dx[0] = mk(b, OP_ReverseSequence, n->attr, NULL, 2, dy[0], n->in[1]);
}

static void reverse_holes(const Node *n, Holes *h)
{
	const struct reverse *at = n->attr;
	const Type *x = &n->in[0]->type;
	const int64_t inner = dims_product(x, 2, x->rank);

	hole_text(h, "T", "%s", dtype_c(x->dtype));
	hole_text(h, "TI", "%s", dtype_c(n->in[1]->type.dtype));
	hole_int(h, "TIME", x->dim[at->time_axis]);
	hole_int(h, "BATCH", x->dim[at->batch_axis]);
	hole_int(h, "INNER", inner);
	hole_int(h, "TIME_FIRST", at->time_axis == 0);
	hole_int(h, "PAR", type_numel(x) >= 32768);
	hole_name(h, "reverse_%lldx%lldx%lld_%s%s%s", (long long)x->dim[0], (long long)x->dim[1], (long long)inner,
		at->time_axis ? "bt" : "tb", n->in[1]->type.dtype == DT_i32 ? "_i32" : "", dtype_suffix(x->dtype));
}

static bool reverse_eval(const Node *n, const Tensor *in, Tensor *out, Arena *a)
{
	const struct reverse *at = n->attr;
	const Type *x = &in[0].type;
	const int64_t time = x->dim[at->time_axis], batch = x->dim[at->batch_axis];
	const int64_t size = dims_product(x, 2, x->rank) * dtype_bytes(x->dtype);

	tensor_alloc(&out[0], x, a);
	for (int64_t b = 0; size && b < batch; b++)
		for (int64_t t = 0; t < time; t++) {
			const int64_t len = elem_i(&in[1], b) < time ? elem_i(&in[1], b) : time,
				      s = t < len ? len - 1 - t : t;
			const int64_t to = at->time_axis ? b * time + t : t * batch + b,
				      from = at->time_axis ? b * time + s : s * batch + b;
			memcpy((char *)out[0].data + to * size, (const char *)in[0].data + from * size, (size_t)size);
		}
	return true;
}

static const AttrDef reverse_attrs[] = { AT_INT(struct reverse, batch_axis, 1), AT_INT(struct reverse, time_axis, 0),
	AT_END };

const OpDef op_ReverseSequence = {
	.name = "ReverseSequence",
	.minin = 2,
	.maxin = 2,
	.nout = 1,
	.flags = OP_PURE,
	.attrs = reverse_attrs,
	.attrsize = sizeof(struct reverse),
	.shape = reverse_shape,
	.grad = reverse_grad,
	.dgrad = { DENSE, NOGRAD },
	.cost = move_cost,
	.holes = reverse_holes,
	.eval = reverse_eval,
	.cpu = { .file = "reverse.cpu.c", .call = "$k($=, $0, $1);" },
	.ref = { .file = "reverse.cpu.c", .call = "$k($=, $0, $1);" },
	.cuda = { .file = "reverse.cuda.cu", .call = "$k($=, $0, $1);" },
};
