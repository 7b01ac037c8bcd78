/* LayerNormalization over the axes from `axis` on: y = (x - mean) / sqrt(var + epsilon) * scale + bias;
 * RMSNormalization: y = x / sqrt(mean of x x + epsilon) * scale; scale and bias may be left out. The results behind y,
 * the mean (not of RMSNormalization) and the reciprocal root per row, are what the gradients read. {to}: y is of that type (GPUs).
 *     %y, %mean, %inv = LayerNormalization(%x[, %scale[, %bias]])     %y, %inv = RMSNormalization(%x[, %scale])
 *     %dx[, %dscale, %dbias] = LayerNormGrad(%dy, %x, %mean, %inv[, %scale])
 *     %dx[, %dscale] = RMSNormGrad(%dy, %x, %inv[, %scale])
 * GPUs (passes/gpu/products_between.c, sums.c): dy may be of 16 bits, and what lies round a normalisation is part of it:
 *     %y, %mean, %inv, %sum = LayerNormalization(%x, %scale, %bias, %more)      y is of sum = x + more, x of f32 or 16 bits
 *     %dx, %dscale, %dbias = LayerNormGrad(%dy, %x, %mean, %inv, %scale, %more)  dx = that + more
 *     {each, ratio, id, seed}: sum = dropout(x) [+ more], and of a gradient one result more, %past, of type `to`: dx behind the
 *     gradient of that dropout. Its mask is drawn where it is needed, by sample (of `each` elements) and element, as Dropout's.
 *     A gradient with `to` alone has %past too: dx in that type. */
#include "../common/common.h"

struct layernorm {
	int64_t axis;
	double epsilon;
	int64_t to;
	double ratio;
	int64_t each, id, seed, evaluates;
};

static bool is_grad(const Node *n) { return n->op == OP_LayerNormGrad || n->op == OP_RMSNormGrad; }

static bool has_mean(const Node *n) { return n->op == OP_LayerNormalization || n->op == OP_LayerNormGrad; }

static const Value *scale_of(const Node *n)
{
	const int i = n->op == OP_LayerNormGrad ? 4 : n->op == OP_RMSNormGrad ? 3 : 1;

	return i < n->nin ? n->in[i] : NULL;
}

/* What is added to x, or to a gradient's dx, behind all other operands; NULL: nothing. */
static const Value *more_of(const Node *n)
{
	const int i = (is_grad(n) ? 4 : 2) + has_mean(n);

	return i < n->nin ? n->in[i] : NULL;
}

static bool drops(const Node *n) { return ((const struct layernorm *)n->attr)->each > 0; }

/* Of a gradient: one result more. */
static bool has_past(const Node *n) { return is_grad(n) && (drops(n) || ((const struct layernorm *)n->attr)->to); }

static bool has_sum(const Node *n) { return !is_grad(n) && (more_of(n) || drops(n)); }

/* Axis made non-negative; scale must be of the normalised shape. */
static bool check(const Node *n, const Type *x, int *axis, Diag *d)
{
	const struct layernorm *at = n->attr;
	const Value *scale = scale_of(n);
	Type want = *x;

	if (!norm_axis(n, d, "axis", at->axis, x->rank, axis))
		return false;
	want.rank = x->rank - *axis;
	for (int i = 0; i < want.rank; i++)
		want.dim[i] = x->dim[*axis + i];
	if (!dtype_float(x->dtype))
		return diag_error(
			d, n->loc, 302, "%s takes floats, X is %s", optab[n->op]->name, str_type(d->scratch, x));
	if (scale && !shape_eq(&want, &scale->type) && type_numel(&want) != type_numel(&scale->type))
		return diag_error(d, n->loc, 304, "%s: scale is %s, the normalised axes are %s", optab[n->op]->name,
			str_shape(d->scratch, &scale->type), str_shape(d->scratch, &want));
	const int64_t width = type_numel(&want);
	return need_count(n, d, x, width ? type_numel(x) / width : 0);
}

bool norm_in_registers(const Type *x, int64_t axis)
{
	int64_t width = 1;

	for (int i = (int)(axis < 0 ? axis + x->rank : axis); i < x->rank; i++)
		width *= x->dim[i];
	return x->dtype == DT_f32 && x->layout == LAYOUT_PLAIN && width % 4 == 0 && width >= 32 && width <= 4096;
}

/* What lies round it is part of it where rows stay in registers; those of a sample are whole. */
static bool check_round(const Node *n, const Type *x, int axis, Diag *d)
{
	const struct layernorm *at = n->attr;
	int64_t width = 1;

	for (int i = axis; i < x->rank; i++)
		width *= x->dim[i];
	if (!(drops(n) || has_sum(n) || has_past(n)) ||
		(norm_in_registers(x, axis) && scale_of(n) && at->ratio >= 0 && at->ratio < 1 &&
			(!drops(n) || (at->each % width == 0 && type_numel(x) % at->each == 0))))
		return true;
	return diag_error(d, n->loc, 304, "%s: rows of %s, in samples of %lld, are not summed or dropped on the way",
		optab[n->op]->name, str_type(d->scratch, x), (long long)at->each);
}

static bool shape(Node *n, Diag *d)
{
	const bool sum = has_sum(n);
	const int last = has_mean(n) ? 3 : 2;
	Type x = n->in[0]->type, row;
	int axis;

	if (sum && dtype_half(x.dtype))
		x.dtype = DT_f32;
	if (!same_dtype(n, sum, d) || !check(n, &x, &axis, d) || !check_round(n, &x, axis, d) ||
		(more_of(n) && !need_same_shape(n, d, more_of(n), &x)))
		return false;
	if (has_mean(n) && n->nin > 2 && !shape_eq(&n->in[1]->type, &n->in[2]->type))
		return diag_error(d, n->loc, 304, "LayerNormalization: scale is %s, bias is %s",
			str_shape(d->scratch, &n->in[1]->type), str_shape(d->scratch, &n->in[2]->type));
	x.layout = LAYOUT_PLAIN;
	x.rows = 0;
	row = x;
	if (sum)
		set_out(n, last, x);
	else
		trim_outs(n, last);
	if (((const struct layernorm *)n->attr)->to)
		x.dtype = dtype_from_onnx((int)((const struct layernorm *)n->attr)->to);
	set_out(n, 0, x);
	for (int i = axis; i < row.rank; i++)
		row.dim[i] = 1;
	for (int i = 1; i < last; i++)
		set_out(n, i, row);
	return true;
}

static bool grad_shape(Node *n, Diag *d)
{
	const Value *scale = scale_of(n);
	Type row = n->in[1]->type;
	int axis;

	if (!same_dtype(n, 1, d) || !check(n, &n->in[1]->type, &axis, d) || !need_same_shape(n, d, n->in[0], &row) ||
		!check_round(n, &n->in[1]->type, axis, d))
		return false;
	for (int i = axis; i < row.rank; i++)
		row.dim[i] = 1;
	if (!need_same_shape(n, d, n->in[2], &row) || (has_mean(n) && !need_same_shape(n, d, n->in[3], &row)))
		return false;
	if (more_of(n) && !need_same_shape(n, d, more_of(n), &n->in[1]->type))
		return false;
	for (int i = 0; i < n->nin; i++)
		if (n->in[i]->type.layout != LAYOUT_PLAIN)
			return diag_error(d, n->loc, 304, "%s: operand %d is %s, rows are wanted", optab[n->op]->name,
				i, str_type(d->scratch, &n->in[i]->type));
	const int last = has_mean(n) ? 3 : 2;
	Type past = n->in[1]->type;

	set_out(n, 0, past);
	for (int i = 1; scale && i < last; i++)
		set_out(n, i, scale->type);
	if (!has_past(n)) {
		trim_outs(n, scale ? last : 1);
		return true;
	}
	if (((const struct layernorm *)n->attr)->to)
		past.dtype = dtype_from_onnx((int)((const struct layernorm *)n->attr)->to);
	set_out(n, last, past);
	return true;
}

static void grad(Builder *b, const Node *n, Value *const *dy, Value **dx)
{
	Value *in[5] = { dy[0], n->in[0], n->out[1] };
	int nin = 3;

	if (!dy[0])
		return;
	if (has_mean(n))
		in[nin++] = n->out[2];
	if (n->nin > 1)
		in[nin++] = n->in[1];
	const Node *g = build(b, has_mean(n) ? OP_LayerNormGrad : OP_RMSNormGrad, n->attr, nin, in, NULL);
	for (int i = 0; i < n->nin; i++)
		dx[i] = g->out[i];
}

/* Of the gradient on GPUs: threads to a row, rows to a block, blocks; these keep sums of the columns from one kernel to the next. All of them
 * run at once on 132 multiprocessors: of wide rows that one warp has three on each, with at most 170 registers for each thread. */
static void grid_holes(Holes *h, int64_t rows, int64_t width, bool scale)
{
	const int64_t group = width <= 768 ? 32 : 256, at_once = group == 32 ? 4 : 1,
		      all = (rows + at_once - 1) / at_once;
	const bool wide = group == 32 && width > 512;
	const int64_t most = 132 * (wide ? 3 : 4), blocks = all < most ? all : most;

	hole_int(h, "GROUP", group);
	hole_int(h, "AT_ONCE", at_once);
	hole_int(h, "BLOCKS", blocks);
	hole_int(h, "RESIDENT", wide ? 3 : 1);
	if (scale)
		hole_int(h, "ROOM", blocks * 2 * width * (int64_t)sizeof(float));
}

/* $k of all results, all operands and what says where dropout draws. */
static void call_hole(const Node *n, Holes *h)
{
	const char *args = "";

	for (int i = 0; i < n->nout; i++)
		args = arena_printf(h->arena, "%s%s$=%d", args, *args ? ", " : "", i);
	for (int i = 0; i < n->nin; i++)
		args = arena_printf(h->arena, "%s, $%d", args, i);
	hole_text(h, "CALL", "$k(%s%s);", args, drops(n) ? ", pd_sample_of_step($mb), $ID" : "");
}

/* A type in memory, by the holes of what it is called and of what reads or writes one. */
static void type_holes(Holes *h, const char *type, const char *by, const char *how, DType t)
{
	hole_text(h, type, "%s", dtype_c(t));
	hole_text(h, by, "%s%s", dtype_half(t) ? how : "", dtype_half(t) ? dtype_name(t) : "");
}

static void dropout_holes(const Node *n, Holes *h)
{
	const struct layernorm *at = n->attr;

	hole_int(h, "DROP", drops(n));
	hole_int(h, "PAST", has_past(n));
	hole_int(h, "SAMPLE", at->each);
	drop_holes(h, at->ratio, at->seed);
	hole_text(h, "FACTOR", "%.17g", 1 / (1 - at->ratio));
	hole_text(h, "ID", "%lld", (long long)at->id);
	hole_int(h, "EVALUATES", at->evaluates && !is_grad(n));
}

static void holes(const Node *n, Holes *h)
{
	const struct layernorm *at = n->attr;
	const bool back = is_grad(n), mean = has_mean(n), scale = scale_of(n) != NULL, sum = has_sum(n),
		   more = more_of(n) != NULL;
	const DType in = n->in[0]->type.dtype, out = n->out[has_past(n) ? n->nout - 1 : 0]->type.dtype;
	const Type *x = &n->in[back ? 1 : 0]->type;
	const int axis = (int)(at->axis < 0 ? at->axis + x->rank : at->axis);
	int64_t rows = 1;

	for (int i = 0; i < axis; i++)
		rows *= x->dim[i];
	const int64_t width = rows ? type_numel(x) / rows : 0;
	hole_text(h, "T", "%s", dtype_c(dtype_math(x->dtype)));
	hole_int(h, "ROWS", rows);
	hole_int(h, "N", width);
	hole_text(h, "EPSILON", "%.17g", at->epsilon);
	hole_int(h, "MEAN", mean);
	hole_int(h, "SCALE", scale);
	hole_int(h, "MORE", more);
	hole_int(h, "SUM", sum);
	hole_int(h, "BIAS", mean && (back ? scale : n->nin > 2));
	hole_int(h, "PAR", type_numel(x) >= 16384);
	dropout_holes(n, h);
	const bool vectors = sum || norm_in_registers(x, axis);
	hole_int(h, "VECTORS", vectors);
	if (vectors && back)
		grid_holes(h, rows, width, scale);
	type_holes(h, back ? "TD" : "TX", "LOAD", "pd_from_", in);
	type_holes(h, "TY", "AS", "pd_to_", out);
	call_hole(n, h);
	hole_name(h, "%snorm%s%s%s%s%s_%lldx%lld%s%s", mean ? "layer" : "rms", back ? "_grad" : "",
		scale ? "" : "_plain",
		drops(n)      ? "_dropout"
		: has_past(n) ? "_both"
			      : "",
		sum ? "_sum" : "", back && more ? "_more" : "", (long long)rows, (long long)width, dtype_suffix(in),
		in != out && (!back || has_past(n)) ? arena_printf(h->arena, "_to_%s", dtype_name(out)) : "");
}

static Cost cost(const Node *n) { return cost_bytes(n, 12.0 * (double)type_numel(&n->out[0]->type)); }

static const AttrDef attrs[] = { AT_INT(struct layernorm, axis, -1), AT_FLOAT(struct layernorm, epsilon, 1e-5),
	AT_INT(struct layernorm, to, 0), AT_FLOAT(struct layernorm, ratio, 0), AT_INT(struct layernorm, each, 0),
	AT_INT(struct layernorm, id, 0), AT_INT(struct layernorm, seed, 1), AT_INT(struct layernorm, evaluates, 0),
	AT_END };

#define COMMON .flags = OP_PURE, .attrs = attrs, .attrsize = sizeof(struct layernorm), .cost = cost, .holes = holes

/* Along the axes that are not normalised; each device then has a summand of the gradients of scale and bias. */
static bool by_rows(const Node *n, bool out, int at, ShardWay *w)
{
	const struct layernorm *a = n->attr;
	const int rank = n->in[0]->type.rank, axis = (int)(a->axis < 0 ? a->axis + rank : a->axis);
	Shard s;
	const Type *of;
	const bool grad = is_grad(n);

	if (!shard_seed(n, out, at, w, &s, &of) || s.axis >= axis)
		return false;
	const int scale = n->op == OP_LayerNormGrad ? 4 : n->op == OP_RMSNormGrad ? 3 : 1;

	if ((!out && at >= scale) || (out && grad && at))
		return false;
	for (int i = 0; i < n->nin; i++)
		if (n->in[i] && i < scale)
			w->in[i] = s;
	for (int i = 0; i < n->nout; i++)
		w->out[i] = grad && i ? (Shard){ SHARD_PARTIAL, 0, 0 } : s;
	return true;
}

const OpDef op_LayerNormalization = {
	.name = "LayerNormalization",
	.outputs = (const char *const[]){ NULL, "mean", "rstd", "sum" },
	.minin = 1,
	.maxin = 4,
	.nout = 4,
	.shape = shape,
	.shard = by_rows,
	.grad = grad,
	.dgrad = { DENSE, DENSE, DENSE, DENSE }, /* of `more` none is asked for: it comes behind autodiff */
	COMMON,
	.cpu = { .file = "layernorm.cpu.c" },
	.cuda = { .file = "layernorm.cuda.cu" },
};

const OpDef op_LayerNormGrad = {
	.name = "LayerNormGrad",
	.minin = 4,
	.maxin = 6,
	.nout = 4,
	.shape = grad_shape,
	.shard = by_rows,
	COMMON,
	.cpu = { .file = "layernorm_grad.cpu.c" },
	.cuda = { .file = "layernorm_grad.cuda.cu" },
};

const OpDef op_RMSNormalization = {
	.name = "RMSNormalization",
	.outputs = (const char *const[]){ NULL, "rstd", "sum" },
	.minin = 1,
	.maxin = 3,
	.nout = 3,
	.shape = shape,
	.shard = by_rows,
	.grad = grad,
	.dgrad = { DENSE, DENSE, DENSE }, /* as above */
	COMMON,
	.cpu = { .file = "layernorm.cpu.c" },
	.cuda = { .file = "layernorm.cuda.cu" },
};

const OpDef op_RMSNormGrad = {
	.name = "RMSNormGrad",
	.minin = 3,
	.maxin = 5,
	.nout = 3,
	.shape = grad_shape,
	.shard = by_rows,
	COMMON,
	.cpu = { .file = "layernorm_grad.cpu.c" },
	.cuda = { .file = "layernorm_grad.cuda.cu" },
};
