/* MaxPool, AveragePool, GlobalAveragePool over one to three spatial axes, and their gradients.
 *     %y, %at = MaxPool(%x)                   at: which element of the window won, u8 or i32
 *     %dx = MaxPoolGrad(%dy, %at) {dims=shape of x}
 *     %dx = AveragePoolGrad(%dy) {dims=shape of x}
 * Kernels see [OUTER, spatial axes, CH]: channels-last as it is, plain with OUTER = N * C and CH = 1. GPUs: cuDNN does what it has a
 * form for (by_vendor); maxima whose places are read have kernels of ours, since the library tells no places, and so have images of
 * 16-bit floats and channels-last ones, of which a thread reads several channels at once. */
#include <stddef.h>
#include "../common/common.h"

struct pool {
	Ints kernel_shape, strides, dilations, pads, dims;
	int64_t ceil_mode, count_include_pad;
};

static int64_t get(Ints v, int i, int64_t otherwise) { return i < v.n ? v.v[i] : otherwise; }

static bool is_grad(const Node *n) { return n->op == OP_MaxPoolGrad || n->op == OP_AveragePoolGrad; }

static bool is_max(const Node *n) { return n->op == OP_MaxPool || n->op == OP_MaxPoolGrad; }

/* Extent of the result, 0 where the window does not fit; windows that begin behind the input and its leading pad do not
 * count. */
static int64_t extent(const struct pool *at, const Type *x, int i)
{
	const int64_t stride = get(at->strides, i, 1), begin = get(at->pads, i, 0);
	const int64_t span = (at->kernel_shape.v[i] - 1) * get(at->dilations, i, 1) + 1;
	const int64_t end = get(at->pads, x->rank - 2 + i, 0);
	const int64_t room = x->dim[2 + i] + begin + end - span;
	if (room < 0)
		return 0;
	const int64_t out = (room + (at->ceil_mode ? stride - 1 : 0)) / stride + 1;
	return at->ceil_mode && (out - 1) * stride >= x->dim[2 + i] + begin ? out - 1 : out;
}

static bool window_shape(const Node *n, const Type *x, Type *y, Diag *d)
{
	const struct pool *at = n->attr;

	if (x->rank < 3 || x->rank > 5 || !dtype_float(x->dtype))
		return diag_error(d, n->loc, 304, "%s: X is %s; it takes floats with one to three spatial axes",
			optab[n->op]->name, str_type(d->scratch, x));
	*y = *x;
	y->rows = 0;
	if (n->op != OP_GlobalAveragePool && at->kernel_shape.n != x->rank - 2)
		return diag_error(d, n->loc, 304, "%s: kernel_shape has %d entries, X is %s", optab[n->op]->name,
			at->kernel_shape.n, str_type(d->scratch, x));
	if (n->op != OP_GlobalAveragePool &&
		!need_window(n, d, x, at->kernel_shape, at->strides, at->dilations, at->pads))
		return false;
	for (int i = 0; i < x->rank - 2; i++) {
		y->dim[2 + i] = 1;
		if (n->op == OP_GlobalAveragePool)
			continue;
		if ((y->dim[2 + i] = extent(at, x, i)) < 1)
			return diag_error(d, n->loc, 304, "%s: the window does not fit along spatial axis %d of %s",
				optab[n->op]->name, i, str_type(d->scratch, x));
	}
	return true;
}

/* Of which of a window's elements won; DT_NONE: a window of so many elements has no such type. */
static DType place_dtype(const struct pool *at)
{
	const Type window = type_make(DT_u8, at->kernel_shape.n, at->kernel_shape.v);
	const int64_t k = type_numel(&window);

	return k <= 256 ? DT_u8 : k <= INT32_MAX ? DT_i32 : DT_NONE;
}

static bool shape(Node *n, Diag *d)
{
	Type y;

	if (!window_shape(n, &n->in[0]->type, &y, d))
		return false;
	set_out(n, 0, y);
	if (n->op == OP_MaxPool) {
		y.dtype = place_dtype(n->attr);
		if (!y.dtype)
			return diag_error(d, n->loc, 304, "MaxPool: the window has more than %d elements", INT32_MAX);
		set_out(n, 1, y);
	}
	return true;
}

static bool grad_shape(Node *n, Diag *d)
{
	const struct pool *at = n->attr;
	Type x, y;

	if (!need_type(n, d, "dims", at->dims, n->in[0]->type.dtype, &x) || !window_shape(n, &x, &y, d) ||
		!need_same_shape(n, d, n->in[0], &y))
		return false;
	if (is_max(n) && !need_same_shape(n, d, n->in[1], &y))
		return false;
	if (is_max(n) && n->in[1]->type.dtype != place_dtype(at))
		return diag_error(d, n->loc, 302, "%s: %s is %s, places in this window are %s", optab[n->op]->name,
			n->in[1]->name, dtype_name(n->in[1]->type.dtype), dtype_name(place_dtype(at)));
	x.layout = n->in[0]->type.layout;
	set_out(n, 0, x);
	return true;
}

static void grad(Builder *b, const Node *n, Value *const *dy, Value **dx)
{
	struct pool at = *(const struct pool *)n->attr;
	const Type *x = &n->in[0]->type;
	const OpKind op = n->op == OP_MaxPool ? OP_MaxPoolGrad : OP_AveragePoolGrad;

	if (!dy[0])
		return;
	at.dims = ints_dup(b->m->arena, x->rank, x->dim);
	if (n->op == OP_GlobalAveragePool)
		at = (struct pool){ .kernel_shape = ints_dup(b->m->arena, x->rank - 2, x->dim + 2), .dims = at.dims };
	dx[0] = op == OP_MaxPoolGrad ? mk(b, op, &at, NULL, 2, dy[0], n->out[1]) : mk(b, op, &at, NULL, 1, dy[0]);
}

static void axis_holes(const Node *n, Holes *h, const Type *x, const Type *y)
{
	static const char axis[] = "DHW";
	const struct pool *at = n->attr;
	const int nd = x->rank - 2, skip = 3 - nd; /* missing axes lead, with extent 1 */
	const bool global = n->op == OP_GlobalAveragePool;

	for (int i = 0; i < 3; i++) {
		const int k = i - skip;
		const char *format = "%s%c";
		hole_int(h, arena_printf(h->arena, format, "I", axis[i]), k < 0 ? 1 : x->dim[2 + k]);
		hole_int(h, arena_printf(h->arena, format, "O", axis[i]), k < 0 ? 1 : y->dim[2 + k]);
		hole_int(h, arena_printf(h->arena, format, "K", axis[i]),
			k < 0    ? 1
			: global ? x->dim[2 + k]
				 : at->kernel_shape.v[k]);
		hole_int(h, arena_printf(h->arena, format, "S", axis[i]), k < 0 || global ? 1 : get(at->strides, k, 1));
		hole_int(h, arena_printf(h->arena, format, "P", axis[i]), k < 0 || global ? 0 : get(at->pads, k, 0));
		hole_int(h, arena_printf(h->arena, format, "E", axis[i]),
			k < 0 || global ? 0 : get(at->pads, nd + k, 0));
		hole_int(h, arena_printf(h->arena, format, "L", axis[i]),
			k < 0 || global ? 1 : get(at->dilations, k, 1));
	}
}

/* ---- by cuDNN ---- */

typedef struct Axis {
	int64_t in, out, kernel, stride, begin, end, dilation;
} Axis;

static const Type *large(const Node *n) { return is_grad(n) ? &n->out[0]->type : &n->in[0]->type; }

static Axis axis_of(const Node *n, int i)
{
	const struct pool *at = n->attr;
	const Type *x = large(n), *y = is_grad(n) ? &n->in[0]->type : &n->out[0]->type;

	if (n->op == OP_GlobalAveragePool)
		return (Axis){ x->dim[2 + i], 1, x->dim[2 + i], 1, 0, 0, 1 };
	return (Axis){ x->dim[2 + i], y->dim[2 + i], at->kernel_shape.v[i], get(at->strides, i, 1), get(at->pads, i, 0),
		get(at->pads, x->rank - 2 + i, 0), get(at->dilations, i, 1) };
}

/* The library pads both sides alike and less than a window, wants a whole window to lie in it, and rounds the extent of the result down. More padding behind, which
 * no window reaches, changes nothing but what averages may count. */
static bool by_vendor(const Node *n)
{
	const Type *x = large(n);
	const bool counts = n->op != OP_GlobalAveragePool && ((const struct pool *)n->attr)->count_include_pad;

	if (x->dtype != DT_f32 || x->layout != LAYOUT_PLAIN || type_numel(x) < 1 || type_numel(x) > INT32_MAX ||
		n->op == OP_MaxPoolGrad || (n->op == OP_MaxPool && n->out[1] && !value_dead(n->out[1])))
		return false;
	for (int i = 0; i < x->rank - 2; i++) {
		const Axis a = axis_of(n, i);
		if (a.dilation != 1 || a.begin >= a.kernel || a.in + 2 * a.begin < a.kernel ||
			(counts && a.begin != a.end) || a.out != (a.in + 2 * a.begin - a.kernel) / a.stride + 1)
			return false;
	}
	return true;
}

static void desc_hole(const Node *n, Holes *h)
{
	static const size_t part[] = { offsetof(Axis, in), offsetof(Axis, out), offsetof(Axis, kernel),
		offsetof(Axis, stride), offsetof(Axis, begin) };
	static const char *const name[] = { "in", "out", "kernel", "stride", "pad" };
	const Type *x = large(n);
	const bool counts = n->op != OP_GlobalAveragePool && ((const struct pool *)n->attr)->count_include_pad;
	const char *text = "";

	for (size_t k = 0; k < sizeof part / sizeof *part; k++) {
		text = arena_printf(h->arena, "%s, .%s = {", text, name[k]);
		for (int i = 0; i < x->rank - 2; i++) {
			const Axis a = axis_of(n, i);
			text = arena_printf(h->arena, "%s%s %lld", text, i ? "," : "",
				(long long)*(const int64_t *)(const void *)((const char *)&a + part[k]));
		}
		text = arena_printf(h->arena, "%s }", text);
	}
	hole_text(h, "DESC", "(pd_pool_desc){ .kind = %s, .nd = %d, .n = %lld, .c = %lld%s }",
		is_max(n) ? "PD_MAX"
		: counts  ? "PD_AVERAGE_PADDED"
			  : "PD_AVERAGE",
		x->rank - 2, (long long)x->dim[0], (long long)x->dim[1], text);
}

/* Channels of 16 bytes, or fewer where there are no multiples of that. */
static int64_t vector_of(const Type *x)
{
	int64_t v = 16 / dtype_bytes(x->dtype);

	while (x->dim[1] % v)
		v /= 2;
	return v;
}

static void holes(const Node *n, Holes *h)
{
	const struct pool *at = n->attr;
	const Type *x = is_grad(n) ? &n->out[0]->type : &n->in[0]->type,
		   *y = is_grad(n) ? &n->in[0]->type : &n->out[0]->type;
	const bool nhwc = x->layout == LAYOUT_NHWC;

	axis_holes(n, h, x, y);
	desc_hole(n, h);
	hole_text(h, "T", "%s", dtype_c(dtype_math(x->dtype)));
	half_holes(h, x->dtype);
	hole_text(h, "TYPE", "%s", x->dtype == DT_f16 ? "PD_F16" : "PD_BF16");
	hole_int(h, "V", nhwc ? vector_of(x) : 1);
	hole_text(h, "TI", "%s", is_max(n) ? dtype_c(place_dtype(at)) : "uint8_t");
	hole_int(h, "OUTER", nhwc ? x->dim[0] : x->dim[0] * x->dim[1]);
	hole_int(h, "CH", nhwc ? x->dim[1] : 1);
	hole_int(h, "MAX", is_max(n));
	hole_int(h, "BACK", is_grad(n));
	hole_int(h, "PADDED", n->op != OP_GlobalAveragePool && at->count_include_pad != 0);
	hole_int(h, "PAR", type_numel(x) >= 16384);
	hole_text(h, "CALL",
		n->op == OP_MaxPool       ? "$k($=0, $=1, $0);"
		: n->op == OP_MaxPoolGrad ? "$k($=, $0, $1);"
					  : "$k($=, $0);");
	hole_name(h, "%spool%s_%s%s", is_max(n) ? "max" : "average", is_grad(n) ? "_grad" : "", dims_name(h->arena, x),
		dtype_suffix(x->dtype));
}

static Cost cost(const Node *n)
{
	const struct pool *at = n->attr;
	double k = 1;

	for (int i = 0; i < at->kernel_shape.n; i++)
		k *= (double)at->kernel_shape.v[i];
	return cost_bytes(n, k * (double)type_numel(is_grad(n) ? &n->in[0]->type : &n->out[0]->type));
}

#define WINDOW \
	AT_INTS(struct pool, kernel_shape), AT_INTS(struct pool, strides), AT_INTS(struct pool, dilations), \
		AT_INTS(struct pool, pads), AT_INT(struct pool, ceil_mode, 0), \
		AT_INT(struct pool, count_include_pad, 0)

static const AttrDef attrs[] = { WINDOW, AT_END };
static const AttrDef grad_attrs[] = { WINDOW, AT_INTS(struct pool, dims), AT_END };
static const AttrDef no_attrs[] = { AT_END };

static bool by_channels(const Node *n, bool out, int at, ShardWay *w) { return shard_channels(n, out, at, 1, w); }

#define COMMON(WAY) \
	.flags = OP_PURE | OP_NHWC, .shard = by_channels, .attrsize = sizeof(struct pool), .cost = cost, \
	.holes = holes, .cpu = { .file = "pool.cpu.c" }, .cuda = { .file = "pool.cuda.cu" }, .by_vendor = by_vendor, \
	.vendor = { \
		.object = "pd_pool", .init = "pd_pool_init(&$o, &$DESC);", .call = "pd_pool_" WAY "(&$o, $=, $0);" \
	}

const OpDef op_MaxPool = {
	.name = "MaxPool",
	.outputs = (const char *const[]){ NULL, "place" },
	.minin = 1,
	.maxin = 1,
	.nout = 2,
	.attrs = attrs,
	.shape = shape,
	.grad = grad,
	.dgrad = { DENSE },
	COMMON("forward"),
};

const OpDef op_AveragePool = {
	.name = "AveragePool",
	.minin = 1,
	.maxin = 1,
	.nout = 1,
	.attrs = attrs,
	.shape = shape,
	.grad = grad,
	.dgrad = { DENSE },
	COMMON("forward"),
};

const OpDef op_GlobalAveragePool = {
	.name = "GlobalAveragePool",
	.minin = 1,
	.maxin = 1,
	.nout = 1,
	.attrs = no_attrs,
	.shape = shape,
	.grad = grad,
	.dgrad = { DENSE },
	COMMON("forward"),
};

const OpDef op_MaxPoolGrad = {
	.name = "MaxPoolGrad",
	.minin = 2,
	.maxin = 2,
	.nout = 1,
	.attrs = grad_attrs,
	.shape = grad_shape,
	COMMON("backward"),
};

const OpDef op_AveragePoolGrad = {
	.name = "AveragePoolGrad",
	.minin = 1,
	.maxin = 1,
	.nout = 1,
	.attrs = grad_attrs,
	.shape = grad_shape,
	COMMON("backward"),
};
