/* Dropout in training: y = x / (1 - ratio) where a random number is at least ratio, else 0. The numbers are counted by
 * node (id), global sample and element, four of which share a draw (pd_random_four), so they are the same for every plan, and
 * where attention takes a Dropout in; the first axis is the batch, or holds so many `rows` of each sample, one sample behind
 * the other. The mask goes to the second output, from which the gradient works. In programs that evaluate, y = x there.
 * Elements are counted in plain order, also where they lie channels-last. Of a part (ir/shard.h): runs of `run` elements, of
 * `degree` times as many a sample, whose rows are `width` wide.
 * On GPUs, made by passes/gpu/products.c: %y, %mask = Dropout(%x, %more) adds more to y; {to}: y, or dx, is of that type. Where a
 * normalisation takes both in (ir/ops/norm/layernorm.c), no mask is kept: it is drawn again. */
#include "../common/common.h"

struct dropout {
	double ratio;
	int64_t id, seed, evaluates, to, rows, run, degree, width;
};

static bool shape(Node *n, Diag *d)
{
	const struct dropout *at = n->attr;
	Type t = n->in[0]->type;

	if (!dtype_float(t.dtype))
		return diag_error(d, n->loc, 302, "%s takes floats, %s is %s", optab[n->op]->name, n->in[0]->name,
			str_type(d->scratch, &t));
	if (!(at->ratio >= 0 && at->ratio < 1))
		return diag_error(d, n->loc, 302, "ratio %g is outside [0, 1)", at->ratio);
	if (at->rows < 1 || (at->rows > 1 && (!t.rank || t.dim[0] % at->rows)))
		return diag_error(d, n->loc, 305, "Dropout: %s does not hold %lld rows per sample", n->in[0]->name,
			(long long)at->rows);
	if (n->op == OP_DropoutGrad && (!shape_eq(&t, &n->in[1]->type) || t.layout != n->in[1]->type.layout))
		return diag_error(d, n->loc, 304, "DropoutGrad: %s is %s, the mask is %s", n->in[0]->name,
			str_type(d->scratch, &t), str_type(d->scratch, &n->in[1]->type));
	t.rows = 0;
	if (at->to)
		t.dtype = dtype_from_onnx((int)at->to);
	if (n->op == OP_Dropout && n->nin > 1 && (!shape_eq(&t, &n->in[1]->type) || n->in[1]->type.dtype != t.dtype))
		return diag_error(d, n->loc, 304, "Dropout: %s is %s, what is added is %s", n->in[0]->name,
			str_type(d->scratch, &t), str_type(d->scratch, &n->in[1]->type));
	set_out(n, 0, t);
	t.dtype = DT_bool;
	set_out(n, 1, t);
	return true;
}

static void grad(Builder *b, const Node *n, Value *const *dy, Value **dx)
{
	if (dy[0])
		dx[0] = mk(b, OP_DropoutGrad, n->attr, NULL, 2, dy[0], n->out[1]);
}

int64_t dropout_width(const Type *t, int64_t rows)
{
	const int64_t width = t->rank > 1 ? t->dim[t->rank - 1] : rows;

	return width ? width : 1;
}

/* The plain place of element i of a sample that lies channels-last. */
static const char *unlaid(Holes *h, const Type *x, int64_t rows)
{
	const long long c = x->dim[1], row = type_numel(x) / x->dim[0], each = row / c;

	if (rows == 1)
		return arena_printf(h->arena, "(i %% %lld * %lld + i / %lld)", c, each, c);
	return arena_printf(
		h->arena, "(i / %lld * %lld + i %% %lld * %lld + i %% %lld / %lld)", row, row, c, each, row, c);
}

/* The parts lie within samples: random numbers stay those of the whole. */
static bool divide(const Node *n, bool out, int at, ShardWay *w)
{
	const struct dropout *x = n->attr;
	const Type *t = &n->in[0]->type;
	const Shard s = out ? w->out[at] : w->in[at];

	return s.kind == SHARD_AXIS && x->degree < 2 && n->nin == 1 && t->layout == LAYOUT_PLAIN &&
	       (s.axis > 0 || s.outer % (t->dim[0] / x->rows) == 0) && shard_same_shapes(n, out, at, w);
}

void dropout_part(Node *n, Shard s, int degree)
{
	struct dropout *x = n->attr;
	const Type *t = &n->in[0]->type; /* the part */

	x->degree = degree;
	x->width = dropout_width(t, x->rows) * (t->rank > 1 && s.axis == t->rank - 1 ? degree : 1);
	x->run = t->dim[s.axis] / s.outer;
	for (int i = s.axis + 1; i < t->rank; i++)
		x->run *= t->dim[i];
	if (s.axis == 0)
		x->rows /= degree;
}

static void holes(const Node *n, Holes *h)
{
	const struct dropout *at = n->attr;
	const Type *x = &n->in[0]->type;
	const DType in = x->dtype, out = n->out[0]->type.dtype;
	const bool more = n->op == OP_Dropout && n->nin > 1;
	const int64_t count = type_numel(x), batch = x->rank > 0 && x->dim[0] > 0 ? x->dim[0] / at->rows : 1;

	const int64_t together = n->op == OP_Dropout ? count / batch : count;

	hole_text(h, "T", "%s", dtype_c(dtype_math(in)));
	hole_text(h, "TX", "%s", dtype_c(in));
	hole_text(h, "TY", "%s", dtype_c(out));
	hole_text(h, "LOAD", "%s%s", dtype_half(in) ? "pd_from_" : "", dtype_half(in) ? dtype_name(in) : "");
	hole_text(h, "LOAD_MORE", "%s%s", dtype_half(out) ? "pd_from_" : "", dtype_half(out) ? dtype_name(out) : "");
	hole_text(h, "STORE", "%s%s", dtype_half(out) ? "pd_to_" : "", dtype_half(out) ? dtype_name(out) : "");
	hole_int(h, "MORE", more);
	const int v = together % 8 == 0 ? 8 : together % 4 == 0 ? 4 : 1;
	const int64_t width = at->width ? at->width : dropout_width(x, at->rows);
	const bool plain = at->degree < 2 && x->layout == LAYOUT_PLAIN, runs = at->degree > 1 && at->run % v == 0;
	hole_int(h, "V", v);
	hole_int(h, "WIDTH", width);
	hole_int(h, "BY_ROW", plain && width % 16 == 0);
	hole_int(h, "BY_VECTOR", (plain || runs) && width % v == 0);
	if (n->op == OP_Dropout)
		hole_text(h, "CUDA_CALL",
			more ? "$k($=0, $=1, $0, $1, pd_sample_of_step($mb), $ID);"
			     : "$k($=0, $=1, $0, pd_sample_of_step($mb), $ID);");
	hole_int(h, "BATCH", batch);
	hole_int(h, "EACH", count / batch);
	hole_int(h, "N", count);
	if (at->degree > 1)
		hole_text(h, "ELEMENT", "((i / %lld * %lld + member) * %lld + i %% %lld)", (long long)at->run,
			(long long)at->degree, (long long)at->run, (long long)at->run);
	else if (x->layout == LAYOUT_PLAIN)
		hole_text(h, "ELEMENT", "i");
	else
		hole_text(h, "ELEMENT", "%s", unlaid(h, x, at->rows));
	drop_holes(h, at->ratio, at->seed);
	hole_text(h, "SCALE", "%.17g", 1 / (1 - at->ratio));
	hole_text(h, "ID", "%lld", (long long)at->id);
	hole_int(h, "PAR", count >= 16384);
	hole_int(h, "EVALUATES", at->evaluates != 0);
	hole_int(h, "PARTS", at->degree > 1);
	hole_name(h, "dropout%s%s%s%s%s",
		n->op == OP_DropoutGrad
			? arena_printf(h->arena, "_grad_%lld", (long long)count)
			: arena_printf(h->arena, "_%lldx%lld", (long long)(count / width), (long long)width),
		dtype_suffix(in), in != out ? arena_printf(h->arena, "_to_%s", dtype_name(out)) : "",
		more ? "_more" : "",
		at->degree > 1 ? arena_printf(h->arena, "_%lld_of_%lld", (long long)at->run, (long long)at->degree)
			       : "");
}

static Cost cost(const Node *n) { return cost_bytes(n, 15.0 * (double)type_numel(&n->in[0]->type)); }

static const AttrDef attrs[] = { AT_FLOAT(struct dropout, ratio, 0.5), AT_INT(struct dropout, id, 0),
	AT_INT(struct dropout, seed, 1), AT_INT(struct dropout, evaluates, 0), AT_INT(struct dropout, to, 0),
	AT_INT(struct dropout, rows, 1), AT_INT(struct dropout, run, 0), AT_INT(struct dropout, degree, 1),
	AT_INT(struct dropout, width, 0), AT_END };

const OpDef op_Dropout = {
	.name = "Dropout",
	.outputs = (const char *const[]){ NULL, "mask" },
	.minin = 1,
	.maxin = 2,
	.nout = 2,
	.flags = OP_PURE | OP_RANDOM | OP_NHWC,
	.attrs = attrs,
	.attrsize = sizeof(struct dropout),
	.shape = shape,
	.shard = divide,
	.grad = grad,
	.dgrad = { DENSE },
	.cost = cost,
	.holes = holes,
	.cpu = { .file = "dropout.cpu.c", .call = "$k($=0, $=1, $0, pd_sample($mb), $ID);" },
	.cuda = { .file = "dropout.cuda.cu" },
};

const OpDef op_DropoutGrad = {
	.name = "DropoutGrad",
	.minin = 2,
	.maxin = 2,
	.nout = 1,
	.flags = OP_PURE | OP_INPLACE | OP_NHWC,
	.attrs = attrs,
	.attrsize = sizeof(struct dropout),
	.shape = shape,
	.shard = shard_same_shapes,
	.holes = holes,
	.cpu = { .file = "dropout_grad.cpu.c", .call = "$k($=, $0, $1);" },
	.cuda = { .file = "dropout_grad.cuda.cu", .call = "$k($=, $0, $1);" },
};
