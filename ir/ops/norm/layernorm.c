/* LayerNormalization over the axes from `axis` on: y = (x - mean) / sqrt(var + epsilon) * scale + bias;
 * RMSNormalization: y = x / sqrt(mean of x x + epsilon) * scale; scale and bias may be left out. The results behind y,
 * the mean (not of RMSNormalization) and the reciprocal root per row, are what the gradients read. {to}: y is of that type (GPUs).
 *     %y, %mean, %inv = LayerNormalization(%x[, %scale[, %bias]])     %y, %inv = RMSNormalization(%x[, %scale])
 *     %dx[, %dscale, %dbias] = LayerNormGrad(%dy, %x, %mean, %inv[, %scale])
 *     %dx[, %dscale] = RMSNormGrad(%dy, %x, %inv[, %scale])
 * GPUs: %more, of dx's shape, behind the scale of a gradient is added to dx, and dy may be of 16 bits (passes/gpu/products_between.c). */
#include "../common/common.h"

struct layernorm {
	int64_t axis;
	double epsilon;
	int64_t to;
};

static bool is_grad(const Node *n) { return n->op == OP_LayerNormGrad || n->op == OP_RMSNormGrad; }

static bool has_mean(const Node *n) { return n->op == OP_LayerNormalization || n->op == OP_LayerNormGrad; }

static const Value *scale_of(const Node *n)
{
	const int i = n->op == OP_LayerNormGrad ? 4 : n->op == OP_RMSNormGrad ? 3 : 1;

	return i < n->nin ? n->in[i] : NULL;
}

/* What a gradient adds to dx; NULL: nothing. */
static const Value *more_of(const Node *n)
{
	const int i = n->op == OP_LayerNormGrad ? 5 : n->op == OP_RMSNormGrad ? 4 : MAXIN;

	return i < n->nin ? n->in[i] : NULL;
}

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
	return true;
}

static bool shape(Node *n, Diag *d)
{
	Type x = n->in[0]->type, row;
	int axis;

	if (!same_dtype(n, 0, d) || !check(n, &x, &axis, d))
		return false;
	if (n->nin > 2 && !shape_eq(&n->in[1]->type, &n->in[2]->type))
		return diag_error(d, n->loc, 304, "LayerNormalization: scale is %s, bias is %s",
			str_shape(d->scratch, &n->in[1]->type), str_shape(d->scratch, &n->in[2]->type));
	x.layout = LAYOUT_PLAIN;
	x.rows = 0;
	row = x;
	if (((const struct layernorm *)n->attr)->to)
		x.dtype = dtype_from_onnx((int)((const struct layernorm *)n->attr)->to);
	set_out(n, 0, x);
	for (int i = axis; i < row.rank; i++)
		row.dim[i] = 1;
	set_out(n, 1, row);
	set_out(n, 2, row);
	return true;
}

static bool grad_shape(Node *n, Diag *d)
{
	const Value *scale = scale_of(n);
	Type row = n->in[1]->type;
	int axis;

	if (!same_dtype(n, 1, d) || !check(n, &n->in[1]->type, &axis, d) || !need_same_shape(n, d, n->in[0], &row))
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
	set_out(n, 0, n->in[1]->type);
	if (!scale) {
		trim_outs(n, 1);
		return true;
	}
	set_out(n, 1, scale->type);
	set_out(n, 2, scale->type);
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

/* Of the gradient on GPUs: threads to a row, rows to a block, blocks; these keep sums of the columns from one kernel to the next. */
static void grid_holes(Holes *h, int64_t rows, int64_t width, bool scale)
{
	enum { MOST = 528 };
	const int64_t group = width <= 768 ? 32 : 256, at_once = group == 32 ? 4 : 1,
		      all = (rows + at_once - 1) / at_once;
	const int64_t blocks = all < MOST ? all : MOST;

	hole_int(h, "GROUP", group);
	hole_int(h, "AT_ONCE", at_once);
	hole_int(h, "BLOCKS", blocks);
	if (scale)
		hole_int(h, "ROOM", blocks * 2 * width * (int64_t)sizeof(float));
}

static void holes(const Node *n, Holes *h)
{
	const struct layernorm *at = n->attr;
	const bool back = is_grad(n), mean = has_mean(n), scale = scale_of(n) != NULL,
		   half = dtype_half(n->out[0]->type.dtype);
	const Type *x = &n->in[back ? 1 : 0]->type;
	const int axis = (int)(at->axis < 0 ? at->axis + x->rank : at->axis);
	int64_t rows = 1;

	for (int i = 0; i < axis; i++)
		rows *= x->dim[i];
	const int64_t width = rows ? type_numel(x) / rows : 0;
	hole_text(h, "T", "%s", dtype_c(x->dtype));
	hole_int(h, "ROWS", rows);
	hole_int(h, "N", width);
	hole_text(h, "EPSILON", "%.17g", at->epsilon);
	hole_int(h, "MEAN", mean);
	hole_int(h, "SCALE", scale);
	hole_int(h, "MORE", more_of(n) != NULL);
	hole_int(h, "BIAS", mean && (back ? scale : n->nin > 2));
	hole_int(h, "PAR", type_numel(x) >= 16384);
	const bool vectors = x->dtype == DT_f32 && width % 4 == 0 && width >= 32 && width <= 4096;
	hole_int(h, "VECTORS", vectors);
	if (vectors && back)
		grid_holes(h, rows, width, scale);
	hole_text(h, "TD", "%s", dtype_c(n->in[0]->type.dtype));
	hole_text(h, "LOAD", "%s%s", dtype_half(n->in[0]->type.dtype) ? "pd_from_" : "",
		dtype_half(n->in[0]->type.dtype) ? dtype_name(n->in[0]->type.dtype) : "");
	hole_text(h, "TY", "%s", dtype_c(n->out[0]->type.dtype));
	hole_text(h, "AS", "%s%s", half ? "pd_to_" : "", half ? dtype_name(n->out[0]->type.dtype) : "");
	if (back)
		hole_text(h, "CALL",
			mean    ? (scale ? "$k($=0, $=1, $=2, $0, $1, $2, $3, $4);" : "$k($=0, $0, $1, $2, $3);")
			: scale ? "$k($=0, $=1, $0, $1, $2, $3);"
				: "$k($=0, $0, $1, $2);");
	if (back && more_of(n))
		hole_text(h, "CALL",
			mean ? "$k($=0, $=1, $=2, $0, $1, $2, $3, $4, $5);" : "$k($=0, $=1, $0, $1, $2, $3, $4);");
	if (!back)
		hole_text(h, "CALL",
			mean    ? (n->nin > 2     ? "$k($=0, $=1, $=2, $0, $1, $2);"
					  : scale ? "$k($=0, $=1, $=2, $0, $1);"
						  : "$k($=0, $=1, $=2, $0);")
			: scale ? "$k($=0, $=1, $0, $1);"
				: "$k($=0, $=1, $0);");
	hole_name(h, "%snorm%s%s%s_%lldx%lld%s", mean ? "layer" : "rms", back ? "_grad" : "", scale ? "" : "_plain",
		more_of(n) ? "_more" : "", (long long)rows, (long long)width,
		dtype_suffix(half ? n->out[0]->type.dtype : n->in[0]->type.dtype));
}

static Cost cost(const Node *n) { return cost_bytes(n, 12.0 * (double)type_numel(&n->out[0]->type)); }

static const AttrDef attrs[] = { AT_INT(struct layernorm, axis, -1), AT_FLOAT(struct layernorm, epsilon, 1e-5),
	AT_INT(struct layernorm, to, 0), AT_END };

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
	.outputs = (const char *const[]){ NULL, "mean", "rstd" },
	.minin = 1,
	.maxin = 3,
	.nout = 3,
	.shape = shape,
	.shard = by_rows,
	.grad = grad,
	.dgrad = { DENSE, DENSE, DENSE },
	COMMON,
	.cpu = { .file = "layernorm.cpu.c" },
	.cuda = { .file = "layernorm.cuda.cu" },
};

const OpDef op_LayerNormGrad = {
	.name = "LayerNormGrad",
	.minin = 4,
	.maxin = 6,
	.nout = 3,
	.shape = grad_shape,
	.shard = by_rows,
	COMMON,
	.cpu = { .file = "layernorm_grad.cpu.c" },
	.cuda = { .file = "layernorm_grad.cuda.cu" },
};

const OpDef op_RMSNormalization = {
	.name = "RMSNormalization",
	.outputs = (const char *const[]){ NULL, "rstd" },
	.minin = 1,
	.maxin = 2,
	.nout = 2,
	.shape = shape,
	.shard = by_rows,
	.grad = grad,
	.dgrad = { DENSE, DENSE },
	COMMON,
	.cpu = { .file = "layernorm.cpu.c" },
	.cuda = { .file = "layernorm.cuda.cu" },
};

const OpDef op_RMSNormGrad = {
	.name = "RMSNormGrad",
	.minin = 3,
	.maxin = 5,
	.nout = 2,
	.shape = grad_shape,
	.shard = by_rows,
	COMMON,
	.cpu = { .file = "layernorm_grad.cpu.c" },
	.cuda = { .file = "layernorm_grad.cuda.cu" },
};
