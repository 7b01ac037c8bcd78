/* Convolution over one to three spatial axes, and its gradients by the data and by the weights and bias.
 *     %y = Conv(%x, %w[, %b])      %dx = ConvGradData(%dy, %w) {dims=shape of x}
 *     %y = ConvRelu(%x, %w, %b)    max(0, Conv), of GPUs (passes/gpu/products.c)
 *     %dw, %db = ConvGradWeights(%x, %dy) {dims=shape of w}      %db only with bias=1
 * Activations may be channels-last; weights are plain on CPUs, on GPUs they lie as the activations (ConvGradWeights.layout says how
 * dw does). cpu: oneDNN; ref: plain loops. */
#include "../common/common.h"

struct conv {
	Ints kernel_shape, strides, dilations, pads, dims;
	int64_t group, bias;
	const char *layout;
};

static bool is_forward(const Node *n) { return n->op == OP_Conv || n->op == OP_ConvRelu; }

static const Type *x_of(const Node *n) { return n->op == OP_ConvGradData ? &n->out[0]->type : &n->in[0]->type; }

static const Type *w_of(const Node *n) { return n->op == OP_ConvGradWeights ? &n->out[0]->type : &n->in[1]->type; }

static const Type *y_of(const Node *n)
{
	return is_forward(n) ? &n->out[0]->type : n->op == OP_ConvGradData ? &n->in[0]->type : &n->in[1]->type;
}

static int64_t get(Ints v, int i, int64_t otherwise) { return i < v.n ? v.v[i] : otherwise; }

/* The result's extent along spatial axis i; 0 where the kernel does not fit. */
static int64_t extent(const struct conv *at, const Type *x, const Type *w, int i)
{
	const int nd = x->rank - 2;
	const int64_t span = (w->dim[2 + i] - 1) * get(at->dilations, i, 1) + 1;
	const int64_t begin = get(at->pads, i, 0), end = get(at->pads, nd + i, 0);
	const int64_t room = x->dim[2 + i] + begin + end - span;

	return room < 0 ? 0 : room / get(at->strides, i, 1) + 1;
}

static bool check(const Node *n, const Type *x, const Type *w, Diag *d)
{
	const struct conv *at = n->attr;

	if (x->rank < 3 || x->rank > 5 || w->rank != x->rank)
		return diag_error(d, n->loc, 304, "%s takes one to three spatial axes: X is %s, W is %s",
			optab[n->op]->name, str_type(d->scratch, x), str_type(d->scratch, w));
	if (!dtype_float(x->dtype) || x->dtype != w->dtype)
		return diag_error(d, n->loc, 302, "%s: X is %s, W is %s", optab[n->op]->name, str_type(d->scratch, x),
			str_type(d->scratch, w));
	if (at->group < 1 || x->dim[1] % at->group || x->dim[1] / at->group != w->dim[1] || w->dim[0] % at->group)
		return diag_error(d, n->loc, 304, "%s: X has %lld channels, W is %s, group is %lld", optab[n->op]->name,
			(long long)x->dim[1], str_type(d->scratch, w), (long long)at->group);
	if (!need_window(n, d, x, at->kernel_shape, at->strides, at->dilations, at->pads))
		return false;
	for (int i = 0; i < x->rank - 2; i++)
		if (get(at->kernel_shape, i, w->dim[2 + i]) != w->dim[2 + i])
			return diag_error(d, n->loc, 304, "%s: kernel_shape[%d] is %lld, W is %s", optab[n->op]->name,
				i, (long long)at->kernel_shape.v[i], str_type(d->scratch, w));
		else if (w->dim[2 + i] < 1 || w->dim[2 + i] > EXTENT_MOST || extent(at, x, w, i) < 1)
			return diag_error(d, n->loc, 304,
				"%s: the kernel does not fit along spatial axis %d: X is %s, W is %s",
				optab[n->op]->name, i, str_type(d->scratch, x), str_type(d->scratch, w));
	return true;
}

static Type result(const struct conv *at, const Type *x, const Type *w)
{
	Type y = *x;

	y.rows = 0;
	y.dim[1] = w->dim[0];
	for (int i = 0; i < x->rank - 2; i++)
		y.dim[2 + i] = extent(at, x, w, i);
	return y;
}

static bool shape(Node *n, Diag *d)
{
	const Type *x = &n->in[0]->type, *w = &n->in[1]->type;

	if (!check(n, x, w, d))
		return false;
	if (n->nin > 2 && n->in[2] &&
		(n->in[2]->type.rank != 1 || n->in[2]->type.dim[0] != w->dim[0] || n->in[2]->type.dtype != w->dtype))
		return diag_error(d, n->loc, 304, "Conv: bias is %s, W has %lld filters",
			str_type(d->scratch, &n->in[2]->type), (long long)w->dim[0]);
	set_out(n, 0, result(n->attr, x, w));
	return true;
}

static bool data_shape(Node *n, Diag *d)
{
	const struct conv *at = n->attr;
	const Type *dy = &n->in[0]->type, *w = &n->in[1]->type;
	Type x, y;

	if (!need_type(n, d, "dims", at->dims, dy->dtype, &x) || !check(n, &x, w, d))
		return false;
	y = result(at, &x, w);
	if (!need_same_shape(n, d, n->in[0], &y))
		return false;
	x.layout = dy->layout;
	set_out(n, 0, x);
	return true;
}

static bool weights_shape(Node *n, Diag *d)
{
	const struct conv *at = n->attr;
	const Type *x = &n->in[0]->type;
	Type w, y;

	if (!need_type(n, d, "dims", at->dims, x->dtype, &w) || !check(n, x, &w, d))
		return false;
	y = result(at, x, &w);
	if (!need_same_shape(n, d, n->in[1], &y))
		return false;
	if (!layout_from_name(at->layout, &w.layout))
		return diag_error(d, n->loc, 305, "ConvGradWeights: layout '%s' is neither plain nor nhwc", at->layout);
	set_out(n, 0, w);
	if (!at->bias) {
		trim_outs(n, 1);
		return true;
	}
	set_out(n, 1, type_make(w.dtype, 1, w.dim));
	return true;
}

static void grad(Builder *b, const Node *n, Value *const *dy, Value **dx)
{
	struct conv at = *(const struct conv *)n->attr;
	const Type *x = &n->in[0]->type, *w = &n->in[1]->type;
	Value *of[2] = { n->in[0], dy[0] }, *by[2] = { dy[0], n->in[1] };

	at.dims = ints_dup(b->m->arena, x->rank, x->dim);
	dx[0] = build(b, OP_ConvGradData, &at, 2, by, NULL)->out[0];
	at.dims = ints_dup(b->m->arena, w->rank, w->dim);
	at.layout = "plain";
	at.bias = n->nin > 2 && n->in[2];
	const Node *g = build(b, OP_ConvGradWeights, &at, 2, of, NULL);
	dx[1] = g->out[0];
	if (at.bias)
		dx[2] = g->out[1];
}

/* ConvGradData is linear in both operands: a convolution of what reaches its result, and the weights' gradient of it. */
static void data_grad(Builder *b, const Node *n, Value *const *dy, Value **dx)
{
	struct conv at = *(const struct conv *)n->attr;
	const Type *w = &n->in[1]->type;

	at.dims = (Ints){ 0 };
	dx[0] = mk(b, OP_Conv, &at, NULL, 2, dy[0], n->in[1]);
	at.dims = ints_dup(b->m->arena, w->rank, w->dim);
	at.layout = "plain";
	dx[1] = mk(b, OP_ConvGradWeights, &at, NULL, 2, dy[0], n->in[0]);
}

/* ---- kernels ---- */

static void lib(const Node *n, Lib *l)
{
	const struct conv *at = n->attr;
	const Type *x = x_of(n), *w = w_of(n), *y = y_of(n);

	*l = (Lib){ .kind = LIB_CONV,
		.type = x->dtype,
		.what = is_forward(n)              ? 0
		        : n->op == OP_ConvGradData ? 1
		                                   : 2,
		.nd = x->rank - 2,
		.n = (int)x->dim[0],
		.c = (int)x->dim[1],
		.oc = (int)w->dim[0],
		.groups = (int)at->group,
		.nhwc = x->layout == LAYOUT_NHWC,
		.krsc = w->layout == LAYOUT_NHWC,
		.bias = is_forward(n) ? n->nin > 2 && n->in[2] : n->op == OP_ConvGradWeights && at->bias };
	for (int i = 0; i < l->nd; i++) {
		l->in[i] = (int)x->dim[2 + i];
		l->out[i] = (int)y->dim[2 + i];
		l->kernel[i] = (int)w->dim[2 + i];
		l->stride[i] = (int)get(at->strides, i, 1);
		l->dilation[i] = (int)get(at->dilations, i, 1);
		l->pad_begin[i] = (int)get(at->pads, i, 0);
		l->pad_end[i] = (int)get(at->pads, l->nd + i, 0);
	}
}

static const char *three(Arena *a, int nd, const int *v)
{
	return nd == 1   ? arena_printf(a, "{ %d }", v[0])
	       : nd == 2 ? arena_printf(a, "{ %d, %d }", v[0], v[1])
	                 : arena_printf(a, "{ %d, %d, %d }", v[0], v[1], v[2]);
}

static const char *desc(Arena *a, const Lib *l, bool relu, DType t)
{
	static const char *const what[] = { "PD_FORWARD", "PD_BACKWARD_DATA", "PD_BACKWARD_WEIGHTS" };

	return arena_printf(a,
		"(pd_conv_desc){ .what = %s, .nd = %d, .n = %d, .c = %d, .oc = %d, .groups = %d, "
		".in = %s, .out = %s, .kernel = %s, .stride = %s, .pad_begin = %s, .pad_end = %s, .dilation = %s, .nhwc = %d, "
		".bias = %d%s%s%s }",
		what[l->what], l->nd, l->n, l->c, l->oc, l->groups, three(a, l->nd, l->in), three(a, l->nd, l->out),
		three(a, l->nd, l->kernel), three(a, l->nd, l->stride), three(a, l->nd, l->pad_begin),
		three(a, l->nd, l->pad_end), three(a, l->nd, l->dilation), l->nhwc, l->bias,
		l->krsc ? ", .krsc = 1" : "", relu ? ", .relu = 1" : "",
		t == DT_bf16  ? ", .type = PD_BF16"
		: t == DT_f16 ? ", .type = PD_F16"
			      : "");
}

static void ref_holes(Holes *h, const Lib *l)
{
	static const char axis[] = "DHW";
	const int skip = 3 - l->nd; /* missing axes lead, with extent 1 */

	for (int i = 0; i < 3; i++) {
		const int k = i - skip;
		hole_int(h, arena_printf(h->arena, "I%c", axis[i]), k < 0 ? 1 : l->in[k]);
		hole_int(h, arena_printf(h->arena, "O%c", axis[i]), k < 0 ? 1 : l->out[k]);
		hole_int(h, arena_printf(h->arena, "K%c", axis[i]), k < 0 ? 1 : l->kernel[k]);
		hole_int(h, arena_printf(h->arena, "S%c", axis[i]), k < 0 ? 1 : l->stride[k]);
		hole_int(h, arena_printf(h->arena, "P%c", axis[i]), k < 0 ? 0 : l->pad_begin[k]);
		hole_int(h, arena_printf(h->arena, "L%c", axis[i]), k < 0 ? 1 : l->dilation[k]);
	}
	hole_int(h, "BATCH", l->n);
	hole_int(h, "GROUPS", l->groups);
	hole_int(h, "CG", l->c / l->groups);
	hole_int(h, "OG", l->oc / l->groups);
	hole_int(h, "WHAT", l->what);
	hole_int(h, "BIAS", l->bias);
}

static void holes(const Node *n, Holes *h)
{
	static const char *const name[] = { "conv", "conv_grad_data", "conv_grad_weights" };
	const Type *x = x_of(n);
	Lib l;

	lib(n, &l);
	ref_holes(h, &l);
	hole_text(h, "T", "%s", dtype_c(x->dtype));
	hole_text(h, "DESC", "%s", desc(h->arena, &l, n->op == OP_ConvRelu, x->dtype));
	hole_int(h, "PLANNED", n->scratch);
	hole_text(h, "WHO", "%s of %s", name[l.what], dims_name(h->arena, x));
	hole_name(h, "%s_%s_%d%s", name[l.what], dims_name(h->arena, x), l.oc, dtype_suffix(x->dtype));
	if (x->dtype == DT_f64) /* the plain loops are one function with its operands in this order */
		hole_text(h, "CALL",
			l.what == 0   ? (l.bias ? "$k($=, $0, $1, $2);" : "$k($=, $0, $1);")
			: l.what == 1 ? "$k($=, $0, $1);"
			: l.bias      ? "$k($=0, $=1, $0, $1);"
				      : "$k($=0, $0, $1);");
	else
		hole_text(h, "CALL",
			l.what == 0   ? (l.bias ? "pd_conv_forward(&$o, $=, $0, $1, $2, $scratch);"
						: "pd_conv_forward(&$o, $=, $0, $1, NULL, $scratch);")
			: l.what == 1 ? "pd_conv_backward_data(&$o, $=, $0, $1, $scratch);"
			: l.bias      ? "pd_conv_backward_weights(&$o, $=0, $=1, $0, $1, $scratch);"
				      : "pd_conv_backward_weights(&$o, $=0, NULL, $0, $1, $scratch);");
}

static Cost cost(const Node *n)
{
	const Type *w = w_of(n), *y = y_of(n);
	double flops = 2.0 * (double)type_numel(y) * (double)w->dim[1];

	for (int i = 2; i < w->rank; i++)
		flops *= (double)w->dim[i];
	return cost_bytes(n, flops);
}

#define WINDOW \
	AT_INTS(struct conv, kernel_shape), AT_INTS(struct conv, strides), AT_INTS(struct conv, dilations), \
		AT_INTS(struct conv, pads), AT_INT(struct conv, group, 1)

static const AttrDef attrs[] = { WINDOW, AT_END };
static const AttrDef data_attrs[] = { WINDOW, AT_INTS(struct conv, dims), AT_END };
static const AttrDef weights_attrs[] = { WINDOW, AT_INTS(struct conv, dims), AT_INT(struct conv, bias, 0),
	AT_STR(struct conv, layout, "plain"), AT_END };

#define INIT "pd_check_scratch(\"$WHO\", pd_conv_scratch(&$DESC), $PLANNED);\npd_conv_init(&$o, &$DESC);"
#define COMMON \
	.flags = OP_PURE | OP_HEAVY | OP_NHWC, .attrsize = sizeof(struct conv), .cost = cost, .holes = holes, \
	.lib = lib, .cpu = { .object = "pd_conv", .init = INIT, .call = "" }, .ref = { .file = "conv.ref.c" }, \
	.cuda = { .object = "pd_conv", .init = INIT, .call = "" }

/* By channels of the result, or of what it is made from, which leaves summands; groups are left whole. */
static bool by_channels(const Node *n, bool out, int at, ShardWay *w)
{
	const struct conv *a = n->attr;
	/* where x, the weights and y are: below nin an operand, else a result */
	const int x = n->op == OP_ConvGradData ? n->nin : 0, k = n->op == OP_ConvGradWeights ? n->nin : 1,
		  y = is_forward(n)              ? n->nin
	              : n->op == OP_ConvGradData ? 0
	                                         : 1,
		  seed = out ? n->nin + at : at;
	Shard s;
	const Type *of;

	if (!shard_seed(n, out, at, w, &s, &of) || a->group > 1)
		return false;
	const bool made = seed == k ? s.axis == 0 : seed == y ? s.axis == 1 : seed != x && s.axis == 0;

	if (!made && (seed == k || seed == x ? s.axis != 1 : true))
		return false;
	for (int i = 0; i < n->nin + n->nout; i++) {
		Shard *lies = i < n->nin ? &w->in[i] : &w->out[i - n->nin];
		const bool bias = i != x && i != k && i != y;

		if (made ? i == k || i == y || bias : i == k || i == x)
			*lies = (Shard){ SHARD_AXIS, made && (i == k || bias) ? 0 : 1, s.outer };
	}
	if (made && x == n->nin)
		w->out[0] = (Shard){ SHARD_PARTIAL, 0, 0 };
	if (!made && y == n->nin)
		w->out[0] = (Shard){ SHARD_PARTIAL, 0, 0 };
	return made || y != n->nin || n->nin == 2; /* a bias could not be left for later: it lies along another axis */
}

const OpDef op_Conv = {
	.name = "Conv",
	.minin = 2,
	.maxin = 3,
	.nout = 1,
	.attrs = attrs,
	.shape = shape,
	.shard = by_channels,
	.grad = grad,
	.dgrad = { DENSE, DENSE, DENSE },
	COMMON,
};

const OpDef op_ConvRelu = {
	.name = "ConvRelu",
	.minin = 3,
	.maxin = 3,
	.nout = 1,
	.flags = OP_PURE | OP_HEAVY | OP_NHWC,
	.attrs = attrs,
	.attrsize = sizeof(struct conv),
	.shape = shape,
	.cost = cost,
	.holes = holes,
	.lib = lib,
	.cuda = { .object = "pd_conv", .init = INIT, .call = "" },
};

const OpDef op_ConvGradData = {
	.name = "ConvGradData",
	.minin = 2,
	.maxin = 2,
	.nout = 1,
	.attrs = data_attrs,
	.shape = data_shape,
	.shard = by_channels,
	.grad = data_grad,
	.dgrad = { DENSE, DENSE },
	COMMON,
};

const OpDef op_ConvGradWeights = {
	.name = "ConvGradWeights",
	.minin = 2,
	.maxin = 2,
	.nout = 2,
	.attrs = weights_attrs,
	.shape = weights_shape,
	.shard = by_channels,
	COMMON,
};
