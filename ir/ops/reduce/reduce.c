/* Reductions: ReduceSum, ReduceMean, ReduceMax, ReduceMin, ReduceProd, ReduceL2 over a list of axes.
 *
 * The kernel has two forms, by what lies innermost in x: a reduced axis (sum along the row) or a kept one (rows are
 * added up, a block of columns at a time, the block's sums in registers). Sums have one order whatever the threads. */
#include <math.h>
#include <string.h>
#include "../common/common.h"

struct reduce {
	Ints axes;
	int64_t keepdims, noop_with_empty_axes;
};

/* How one element joins (s is what there is, v the element), and what is written in the end. */
static const struct Rule {
	OpKind op;
	const char *join, *simd;
	double flops;
} rules[] = {
	{ OP_ReduceSum, "s + v", "+:", 1 },
	{ OP_ReduceMean, "s + v", "+:", 1 },
	{ OP_ReduceMax, "s < v ? v : s", "max:", 1 },
	{ OP_ReduceMin, "v < s ? v : s", "min:", 1 },
	{ OP_ReduceProd, "s * v", "*:", 1 },
	{ OP_ReduceL2, "s + v * v", "+:", 2 },
};

static const struct Rule *rule(const Node *n)
{
	size_t i = 0;

	while (rules[i].op != n->op)
		i++;
	return &rules[i];
}

/* Which axes of x go; an empty list means all, or none with noop_with_empty_axes. */
static bool reduced(const Node *n, Diag *d, bool *gone)
{
	const struct reduce *at = n->attr;
	const int rank = n->in[0]->type.rank;

	if (!norm_axes(n, d, "axes", at->axes, rank, gone))
		return false;
	for (int i = 0; !at->axes.n && !at->noop_with_empty_axes && i < rank; i++)
		gone[i] = true;
	return true;
}

static void reduced_axes(const Node *n, bool *gone)
{
	Diag d;

	diag_init(&d, stderr, node_arena(n));
	if (!reduced(n, &d, gone))
		bug("%s with bad axes", optab[n->op]->name);
}

static int64_t count(const Node *n, const bool *gone)
{
	int64_t k = 1;

	for (int i = 0; i < n->in[0]->type.rank; i++)
		k *= gone[i] ? n->in[0]->type.dim[i] : 1;
	return k;
}

/* The type of y with every reduced axis kept as 1. */
static Type kept_type(const Node *n, const bool *gone)
{
	Type t = n->in[0]->type;

	for (int i = 0; i < t.rank; i++)
		t.dim[i] = gone[i] ? 1 : t.dim[i];
	t.rows = 0;
	return t;
}

static bool shape(Node *n, Diag *d)
{
	const struct reduce *at = n->attr;
	bool gone[MAXRANK];

	if (!same_dtype(n, 0, d) || !reduced(n, d, gone))
		return false;
	const Type *x = &n->in[0]->type;
	if (x->dtype == DT_bool || ((n->op == OP_ReduceL2 || n->op == OP_ReduceMean) && !dtype_float(x->dtype)) ||
		((x->dtype == DT_f16 || x->dtype == DT_bf16) && n->in[0]->kind != VAL_CONST))
		return diag_error(d, n->loc, 302, "%s does not compute on %s, which is %s", optab[n->op]->name,
			n->in[0]->name, str_type(d->scratch, x));
	if (count(n, gone) == 0 && (n->op == OP_ReduceMax || n->op == OP_ReduceMin || n->op == OP_ReduceMean))
		return diag_error(d, n->loc, 305, "%s: %s is %s, nothing to reduce", optab[n->op]->name, n->in[0]->name,
			str_type(d->scratch, x));
	Type t = kept_type(n, gone);
	if (!at->keepdims) {
		t.rank = 0;
		for (int i = 0; i < x->rank; i++)
			if (!gone[i])
				t.dim[t.rank++] = x->dim[i];
	}
	if (t.rank != x->rank)
		t.layout = LAYOUT_PLAIN;
	set_out(n, 0, t);
	return true;
}

static Cost cost(const Node *n) { return cost_bytes(n, rule(n)->flops * (double)type_numel(&n->in[0]->type)); }

/* ---- gradients; g and y are seen with the reduced axes as 1, so that they broadcast over x ---- */

static Value *product_grad(Builder *b, Value *x, Value *g, Ints axes)
{
	void *at = attr_new(b->m->arena, OP_ReduceProdGrad);

	attr_put_ints(b->m->arena, OP_ReduceProdGrad, at, "axes", axes.n, axes.v);
	return mk(b, OP_ReduceProdGrad, at, NULL, 2, x, g);
}

static void grad(Builder *b, const Node *n, Value *const *dy, Value **dx)
{
	Value *x = n->in[0], *g, *y, *hit;
	const DType t = x->type.dtype;
	bool gone[MAXRANK];
	int64_t axes[MAXRANK];
	int k = 0;

	reduced_axes(n, gone);
	for (int i = 0; i < x->type.rank; i++)
		if (gone[i])
			axes[k++] = i;
	const Type kept = kept_type(n, gone);
	g = mk_reshape(b, dy[0], &kept);
	y = mk_reshape(b, n->out[0], &kept);
	switch (n->op) {
	case OP_ReduceMean:
		g = mk_binary(b, OP_Mul, g, mk_scalar(b, t, 1 / (double)count(n, gone)));
		/* fall through */
	case OP_ReduceSum: dx[0] = mk_expand(b, g, &x->type); break;
	case OP_ReduceMax: /* shared among equals */
	case OP_ReduceMin:
		hit = mk_cast(b, mk_binary(b, OP_Equal, x, y), t);
		g = mk_binary(b, OP_Div, g, k ? mk_reduce(b, OP_ReduceSum, hit, (Ints){ k, axes }, 1) : hit);
		dx[0] = mk_binary(b, OP_Mul, hit, g);
		break;
	case OP_ReduceProd: dx[0] = k ? product_grad(b, x, g, (Ints){ k, axes }) : g; break;
	case OP_ReduceL2: /* 0 where all of x is 0, as in PyTorch */
		g = mk_binary(b, OP_Div, g, mk_binary(b, OP_Max, y, mk_scalar(b, t, 1e-30)));
		dx[0] = mk_binary(b, OP_Mul, x, g);
		break;
	default: bug("%s is no reduction", optab[n->op]->name);
	}
}

/* ---- constant folding ---- */

static double start_value(OpKind op)
{
	return op == OP_ReduceMax ? -INFINITY : op == OP_ReduceMin ? INFINITY : op == OP_ReduceProd;
}

static double join(OpKind op, double s, double v)
{
	switch (op) {
	case OP_ReduceMax: return s < v ? v : s;
	case OP_ReduceMin: return v < s ? v : s;
	case OP_ReduceProd: return s * v;
	case OP_ReduceL2: return s + v * v;
	default: return s + v;
	}
}

static bool eval(const Node *n, const Tensor *in, Tensor *out, Arena *a)
{
	const Type *x = &in[0].type;
	const int64_t outs = type_numel(&n->out[0]->type);
	double *s = NEWN(a, double, outs);
	bool gone[MAXRANK];

	reduced_axes(n, gone);
	for (int64_t o = 0; o < outs; o++)
		s[o] = start_value(n->op);
	for (int64_t i = 0; i < type_numel(x); i++) {
		int64_t o = 0, step = 1, rest = i;
		for (int k = x->rank - 1; k >= 0; rest /= x->dim[k--]) {
			o += gone[k] ? 0 : rest % x->dim[k] * step;
			step *= gone[k] ? 1 : x->dim[k];
		}
		s[o] = join(n->op, s[o], elem_f(&in[0], i));
	}
	tensor_alloc(&out[0], &n->out[0]->type, a);
	for (int64_t o = 0; o < outs; o++)
		elem_set_f(&out[0], o,
			n->op == OP_ReduceMean ? s[o] / (double)count(n, gone)
			: n->op == OP_ReduceL2 ? sqrt(s[o])
					       : s[o]);
	return true;
}

/* ---- kernel ---- */

static const char *start_text(const Node *n)
{
	static const struct {
		DType t;
		const char *lo, *hi;
	} ends[] = {
		{ DT_f32, "-INFINITY", "INFINITY" },
		{ DT_f64, "-INFINITY", "INFINITY" },
		{ DT_i8, "INT8_MIN", "INT8_MAX" },
		{ DT_i16, "INT16_MIN", "INT16_MAX" },
		{ DT_i32, "INT32_MIN", "INT32_MAX" },
		{ DT_i64, "INT64_MIN", "INT64_MAX" },
		{ DT_u8, "0", "UINT8_MAX" },
		{ DT_u16, "0", "UINT16_MAX" },
		{ DT_u32, "0", "UINT32_MAX" },
		{ DT_u64, "0", "UINT64_MAX" },
	};

	if (n->op != OP_ReduceMax && n->op != OP_ReduceMin)
		return n->op == OP_ReduceProd ? "1" : "0";
	for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
		if (ends[i].t == n->in[0]->type.dtype)
			return n->op == OP_ReduceMax ? ends[i].lo : ends[i].hi;
	return "0";
}

/* x's axes in its own order in memory; y's strides are 0 on reduced axes. Loops that stay are counted by kind. */
static Nest reduce_nest(const Node *n)
{
	const Type *x = &n->in[0]->type;
	bool gone[MAXRANK];
	Nest s;

	reduced_axes(n, gone);
	Type y = kept_type(n, gone);
	if (n->out[0]->type.rank != x->rank) /* without keepdims y is plain, whatever x is */
		y.layout = LAYOUT_PLAIN;
	nest_begin(&s, node_arena(n), x->rank, x->dim);
	nest_add_type(&s, "a", x);
	nest_add_type(&s, "y", &y);
	nest_finish(&s);
	return s;
}

/* The loops of one kind, outermost first, as text; the innermost loop of the nest is left to the template. */
static const char *loops(Arena *a, const Nest *s, bool kept, const char *ix)
{
	static const char loop[] = "ijklmnpq";
	const char *text = "";

	for (int d = 0; d + 1 < s->rank; d++) {
		const char v = loop[s->rank - 1 - d];
		if ((s->op[1].stride[d] != 0) == kept)
			text = arena_printf(a, "%s%sfor (%s %c = 0; %c < %lld; %c++)", text,
				!*text ? ""
				: kept ? "\n\t"
				       : "\n\t\t",
				ix, v, v, (long long)s->dim[d], v);
	}
	return text;
}

static int loops_of(const Nest *s, bool kept)
{
	int k = 0;

	for (int d = 0; d + 1 < s->rank; d++)
		k += (s->op[1].stride[d] != 0) == kept;
	return k;
}

/* A block per element where many are added to few; a thread each where that fills the device anyway. Where neighbours in
 * memory belong to different elements, blocks of 32 of them share what is added to each: as many as fill a large device. */
static void gpu_holes(const Node *n, Holes *h, const Nest *s, bool cols)
{
	enum { BLOCKS = 1056, LEAST = 64 };
	unsigned kept = 0;
	int64_t kept_count = 1, gone_count = 1;

	for (int d = 0; d < s->rank; d++) {
		kept |= s->op[1].stride[d] ? 1u << d : 0;
		*(s->op[1].stride[d] ? &kept_count : &gone_count) *= s->dim[d];
	}
	hole_int(h, "KEPT_COUNT", kept_count);
	hole_int(h, "GONE_COUNT", gone_count);
	const bool few = gone_count >= 256 && kept_count < 65536, tall = few && cols && kept_count >= 8;
	const int64_t across = (kept_count + 31) / 32, most = gone_count / LEAST, want = across ? BLOCKS / across : 0;
	hole_int(h, "TALL", tall);
	hole_int(h, "ACROSS", across);
	const int64_t shares = want < 1 ? 1 : want < most ? want : most;
	hole_int(h, "SHARES", shares);
	if (tall)
		hole_int(h, "ROOM", shares * kept_count * dtype_bytes(n->in[0]->type.dtype));
	hole_int(h, "WIDE", few && !tall);
	hole_text(h, "KEPT_INDEX", "%s", nest_index(h->arena, s, "o", kept));
	hole_text(h, "GONE_INDEX", "%s", nest_index(h->arena, s, "r", ~kept));
	hole_text(h, "MERGE", "%s", n->op == OP_ReduceL2 ? "s + v" : rule(n)->join);
}

static void holes(const Node *n, Holes *h)
{
	const struct Rule *r = rule(n);
	const Nest s = reduce_nest(n);
	Arena *a = h->arena;
	const Type *x = &n->in[0]->type;
	const bool cols = s.rank > 0 && s.op[1].stride[s.rank - 1] != 0;
	const char *ix = type_numel(x) < INT32_MAX ? "int" : "int64_t", *c = dtype_c(x->dtype), *finish = "s",
		   *axes = "";
	bool gone[MAXRANK];

	reduced_axes(n, gone);
	if (n->op == OP_ReduceMean)
		finish = arena_printf(a, "s / %lld", (long long)count(n, gone));
	if (n->op == OP_ReduceL2)
		finish = x->dtype == DT_f32 ? "sqrtf(s)" : "sqrt(s)";
	hole_text(h, "T", "%s", c);
	hole_text(h, "IX", "%s", ix);
	hole_int(h, "RANK", s.rank);
	hole_int(h, "COLS", cols);
	hole_int(h, "D0", s.rank ? s.dim[s.rank - 1] : 1);
	hole_int(h, "KEPT", loops_of(&s, true));
	hole_int(h, "GONE", loops_of(&s, false));
	hole_text(h, "KEPT_LOOPS", "%s", loops(a, &s, true, ix));
	hole_text(h, "GONE_LOOPS", "%s", loops(a, &s, false, ix));
	hole_text(h, "START", "%s", start_text(n));
	hole_text(h, "JOIN", "%s", r->join);
	hole_text(h, "SIMD", "%s", r->simd);
	hole_text(h, "FINISH", "%s", finish);
	hole_text(h, "FROM", "%s", nest_ref(a, &s, 0));
	hole_text(h, "TO", "%s", nest_ref(a, &s, 1));
	gpu_holes(n, h, &s, cols);
	const int64_t d0 = s.rank ? s.dim[s.rank - 1] : 1;
	const bool big = type_numel(x) >= 32768;
	const int64_t most = big && d0 <= 1024 ? 64 : 256, block = d0 < most ? d0 : most; /* threads share the blocks */
	const int par = loops_of(&s, true) + (cols && block < d0);
	hole_int(h, "BLOCK", block);
	hole_int(h, "PAR", big && par > 0);
	parallel_hole(h, false, par);
	for (int i = 0; i < x->rank; i++)
		if (gone[i])
			axes = arena_printf(a, "%s%d", axes, i);
	hole_name(h, "reduce_%s_%s_axes%s%s%s",
		(const char *[]){ "sum", "mean", "max", "min", "prod", "l2" }[r - rules], dims_name(a, x), axes,
		n->out[0]->type.rank != x->rank && x->layout != LAYOUT_PLAIN ? "_plain" : "", dtype_suffix(x->dtype));
}

/* Along kept axes; sums along the others leave summands. */
static bool reduce_shard(const Node *n, bool out, int at, ShardWay *w)
{
	const struct reduce *a = n->attr;
	const Type *x = &n->in[0]->type, *of;
	bool gone[MAXRANK] = { false };
	Shard s;

	if (!shard_seed(n, out, at, w, &s, &of))
		return false;
	for (int i = 0; i < a->axes.n; i++)
		gone[a->axes.v[i] < 0 ? a->axes.v[i] + x->rank : a->axes.v[i]] = true;
	for (int i = 0; i < x->rank && !a->axes.n; i++)
		gone[i] = !a->noop_with_empty_axes;
	for (int i = 0, k = 0; i < x->rank; i++) {
		if (i == s.axis && !out && gone[i]) {
			w->out[0] = (Shard){ SHARD_PARTIAL, 0, 0 };
			return n->op == OP_ReduceSum;
		}
		if (out ? k == s.axis && !gone[i] : i == s.axis) {
			w->in[0] = (Shard){ SHARD_AXIS, i, s.outer };
			w->out[0] = (Shard){ SHARD_AXIS, k, s.outer };
			return true;
		}
		k += !gone[i] || a->keepdims;
	}
	return false;
}

static const AttrDef attrs[] = { AT_INTS(struct reduce, axes), AT_INT(struct reduce, keepdims, 1),
	AT_INT(struct reduce, noop_with_empty_axes, 0), AT_END };

#define REDUCE(NAME) \
	const OpDef op_##NAME = { \
		.name = #NAME, \
		.minin = 1, \
		.maxin = 1, \
		.nout = 1, \
		.flags = OP_PURE | OP_NHWC, \
		.attrs = attrs, \
		.attrsize = sizeof(struct reduce), \
		.shape = shape, \
		.shard = reduce_shard, \
		.grad = grad, \
		.dgrad = { DENSE }, \
		.cost = cost, \
		.holes = holes, \
		.eval = eval, \
		.cpu = { .file = "reduce.cpu.c", .call = "$k($=, $0);" }, \
		.ref = { .file = "reduce.cpu.c", .call = "$k($=, $0);" }, \
		.cuda = { .file = "reduce.cuda.cu", .call = "$k($=, $0);" }, \
	};
REDUCE(ReduceSum)
REDUCE(ReduceMean)
REDUCE(ReduceMax)
REDUCE(ReduceMin)
REDUCE(ReduceProd)
REDUCE(ReduceL2)
