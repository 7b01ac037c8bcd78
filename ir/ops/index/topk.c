/* TopK: the k largest (smallest) along an axis in order, and where they stood (i64). Of equals the earlier one comes
 * first. NaN counts as the largest. Sorted or not, the results are sorted. ArgMax and ArgMin: where the extreme stands.
 * Kernels see x as [OUTER, N, INNER]. */
#include <math.h>
#include "index.h"

struct topk {
	int64_t k, axis, largest, sorted;
};
struct argmax {
	int64_t axis, keepdims, select_last_index;
};

static bool comparable(const Node *n, Diag *d)
{
	const Type *x = &n->in[0]->type;

	if (x->dtype == DT_bool || ((x->dtype == DT_f16 || x->dtype == DT_bf16) && n->in[0]->kind != VAL_CONST))
		return diag_error(d, n->loc, 302, "%s does not compute on %s, which is %s", optab[n->op]->name,
			n->in[0]->name, str_type(d->scratch, x));
	return true;
}

/* ---- TopK ---- */

static bool topk_shape(Node *n, Diag *d)
{
	const struct topk *at = n->attr;
	int axis;

	if (!need_operands(n, d) || !comparable(n, d))
		return false;
	Type t = n->in[0]->type;
	if (!norm_axis(n, d, "axis", at->axis, t.rank, &axis))
		return false;
	if (at->k < 0 || at->k > t.dim[axis])
		return diag_error(d, n->loc, 305, "TopK: k is %lld, axis %d of %s is %lld", (long long)at->k, axis,
			n->in[0]->name, (long long)t.dim[axis]);
	t.dim[axis] = at->k;
	t.rows = 0;
	t.layout = LAYOUT_PLAIN;
	set_out(n, 0, t);
	t.dtype = DT_i64;
	set_out(n, 1, t);
	return true;
}

static void topk_grad(Builder *b, const Node *n, Value *const *dy, Value **dx)
{
	const Type *x = &n->in[0]->type;
	void *at = attr_new(b->m->arena, OP_GatherElementsGrad);

	if (!dy[0])
		return;
	attr_put_int(OP_GatherElementsGrad, at, "axis", attr_int(n, "axis"));
	attr_put_ints(b->m->arena, OP_GatherElementsGrad, at, "shape", x->rank, x->dim);
	dx[0] = mk(b, OP_GatherElementsGrad, at, NULL, 2, dy[0], n->out[1]);
}

static Cost topk_cost(const Node *n) { return cost_bytes(n, 4.0 * (double)type_numel(&n->in[0]->type)); }

/* Element p at i comes before element q at j. */
static void before_hole(
	Holes *h, const char *name, const char *p, const char *i, const char *q, const char *j, bool largest, bool real)
{
	const char *less = largest ? ">" : "<", *nan = largest ? p : q, *number = largest ? q : p;

	if (real)
		hole_text(h, name,
			"%s %s %s || (%s != %s && %s == %s) || ((%s == %s || (%s != %s && %s != %s)) && %s < %s)", p,
			less, q, nan, nan, number, number, p, q, p, p, q, q, i, j);
	else
		hole_text(h, name, "%s %s %s || (%s == %s && %s < %s)", p, less, q, p, q, i, j);
}

static void topk_holes(const Node *n, Holes *h)
{
	const struct topk *at = n->attr;
	const Type *x = &n->in[0]->type;
	const Blocks s = blocks_of(x, axis_from(at->axis, x->rank));
	const bool real = dtype_float(x->dtype);

	hole_text(h, "T", "%s", dtype_c(x->dtype));
	hole_int(h, "ROWS", s.outer * s.inner);
	hole_int(h, "N", s.dim);
	hole_int(h, "INNER", s.inner);
	hole_int(h, "K", at->k);
	before_hole(h, "BEFORE", "p", "i", "q", "j", at->largest, real);
	before_hole(h, "WORSE", "q", "j", "other", "place", at->largest, real);
	hole_int(h, "PAR", type_numel(x) >= 16384 && s.outer * s.inner > 1);
	hole_name(h, "top%lld%s_%lldx%lldx%lld%s", (long long)at->k, at->largest ? "" : "_smallest", (long long)s.outer,
		(long long)s.dim, (long long)s.inner, dtype_suffix(x->dtype));
}

/* Whether element i comes before element j of x, which stands earlier. */
static bool beats(const Tensor *x, int64_t i, int64_t j, bool largest)
{
	if (!dtype_float(x->type.dtype)) {
		const int64_t p = elem_i(x, i), q = elem_i(x, j);
		if (x->type.dtype == DT_u64)
			return largest ? (uint64_t)p > (uint64_t)q : (uint64_t)p < (uint64_t)q;
		return largest ? p > q : p < q;
	}
	const double p = elem_f(x, i), q = elem_f(x, j);
	return largest ? p > q || (isnan(p) && !isnan(q)) : p < q || (!isnan(p) && isnan(q));
}

/* Each element goes to its place among the best so far. */
static bool topk_eval(const Node *n, const Tensor *in, Tensor *out, Arena *a)
{
	const struct topk *at = n->attr;
	const Blocks s = blocks_of(&in[0].type, axis_from(at->axis, in[0].type.rank));
	int64_t *best = NEWN(a, int64_t, at->k + 1);

	tensor_alloc(&out[0], &n->out[0]->type, a);
	tensor_alloc(&out[1], &n->out[1]->type, a);
	for (int64_t r = 0; r < s.outer * s.inner; r++) {
		const int64_t base = r / s.inner * s.dim * s.inner + r % s.inner,
			      to = r / s.inner * at->k * s.inner + r % s.inner;
		int64_t count = 0;
		for (int64_t i = 0; i < s.dim; i++) {
			int64_t p = count;
			for (; p > 0 && beats(&in[0], base + i * s.inner, base + best[p - 1] * s.inner, at->largest);
				p--)
				best[p] = best[p - 1];
			best[p] = i;
			count += count < at->k;
		}
		for (int64_t i = 0; i < at->k; i++) {
			if (dtype_float(in[0].type.dtype))
				elem_set_f(&out[0], to + i * s.inner, elem_f(&in[0], base + best[i] * s.inner));
			else
				elem_set_i(&out[0], to + i * s.inner, elem_i(&in[0], base + best[i] * s.inner));
			elem_set_i(&out[1], to + i * s.inner, best[i]);
		}
	}
	return true;
}

static const AttrDef topk_attrs[] = { AT_INT(struct topk, k, 1), AT_INT(struct topk, axis, -1),
	AT_INT(struct topk, largest, 1), AT_INT(struct topk, sorted, 1), AT_END };

const OpDef op_TopK = {
	.name = "TopK",
	.outputs = (const char *const[]){ NULL, "indices" },
	.minin = 1,
	.maxin = 1,
	.nout = 2,
	.flags = OP_PURE,
	.attrs = topk_attrs,
	.attrsize = sizeof(struct topk),
	.shape = topk_shape,
	.grad = topk_grad,
	.dgrad = { DENSE },
	.cost = topk_cost,
	.holes = topk_holes,
	.eval = topk_eval,
	.cpu = { .file = "topk.cpu.c", .call = "$k($=, $=1, $0);" },
	.ref = { .file = "topk.cpu.c", .call = "$k($=, $=1, $0);" },
	.cuda = { .file = "topk.cuda.cu", .call = "$k($=, $=1, $0);" },
};

/* ---- ArgMax, ArgMin ---- */

static bool argmax_shape(Node *n, Diag *d)
{
	const struct argmax *at = n->attr;
	int axis;

	if (!need_operands(n, d) || !comparable(n, d))
		return false;
	Type t = n->in[0]->type;
	if (!norm_axis(n, d, "axis", at->axis, t.rank, &axis))
		return false;
	if (!t.dim[axis])
		return diag_error(d, n->loc, 305, "%s: axis %d of %s, which is %s, has no elements", optab[n->op]->name,
			axis, n->in[0]->name, str_type(d->scratch, &t));
	t.dim[axis] = 1;
	if (!at->keepdims) {
		for (int i = axis; i + 1 < t.rank; i++)
			t.dim[i] = t.dim[i + 1];
		t.dim[--t.rank] = 0;
	}
	t.dtype = DT_i64;
	t.rows = 0;
	t.layout = LAYOUT_PLAIN;
	set_out(n, 0, t);
	return true;
}

static void argmax_holes(const Node *n, Holes *h)
{
	const struct argmax *at = n->attr;
	const Type *x = &n->in[0]->type;
	const Blocks s = blocks_of(x, axis_from(at->axis, x->rank));
	const char *more = n->op == OP_ArgMax ? ">" : "<", *last = at->select_last_index ? "=" : "";

	hole_text(h, "T", "%s", dtype_c(x->dtype));
	hole_int(h, "OUTER", s.outer);
	hole_int(h, "N", s.dim);
	hole_int(h, "INNER", s.inner);
	hole_int(h, "BLOCK", s.inner < 64 ? s.inner ? s.inner : 1 : 64);
	hole_int(h, "WIDE", s.dim >= 512 && s.outer * s.inner < 65536);
	hole_text(h, "BEFORE",
		!dtype_float(x->dtype)  ? "p %s%s q"
		: at->select_last_index ? "p %s%s q || p != p"
					: "p %s%s q || (p != p && q == q)",
		more, last);
	hole_int(h, "PAR", type_numel(x) >= 32768 && s.outer * (s.inner / 64 + 1) > 1);
	hole_name(h, "arg%s_%lldx%lldx%lld%s%s", n->op == OP_ArgMax ? "max" : "min", (long long)s.outer,
		(long long)s.dim, (long long)s.inner, at->select_last_index ? "_last" : "", dtype_suffix(x->dtype));
}

/* Whether p takes the place of q, which stands earlier. */
static bool wins(const Tensor *x, int64_t p, int64_t q, bool largest, bool last)
{
	if (dtype_float(x->type.dtype) && isnan(elem_f(x, p)))
		return last || !isnan(elem_f(x, q));
	if (dtype_float(x->type.dtype) && isnan(elem_f(x, q)))
		return false;
	return beats(x, p, q, largest) || (last && !beats(x, q, p, largest));
}

static bool argmax_eval(const Node *n, const Tensor *in, Tensor *out, Arena *a)
{
	const struct argmax *at = n->attr;
	const Tensor *x = &in[0];
	const Blocks s = blocks_of(&x->type, axis_from(at->axis, x->type.rank));

	tensor_alloc(&out[0], &n->out[0]->type, a);
	for (int64_t r = 0; r < s.outer * s.inner; r++) {
		const int64_t base = r / s.inner * s.dim * s.inner + r % s.inner;
		int64_t best = 0;
		for (int64_t i = 1; i < s.dim; i++)
			if (wins(x, base + i * s.inner, base + best * s.inner, n->op == OP_ArgMax,
				    at->select_last_index != 0))
				best = i;
		elem_set_i(&out[0], r, best);
	}
	return true;
}

static const AttrDef argmax_attrs[] = { AT_INT(struct argmax, axis, 0), AT_INT(struct argmax, keepdims, 1),
	AT_INT(struct argmax, select_last_index, 0), AT_END };

#define ARG(NAME) \
	const OpDef op_##NAME = { \
		.name = #NAME, \
		.minin = 1, \
		.maxin = 1, \
		.nout = 1, \
		.flags = OP_PURE, \
		.attrs = argmax_attrs, \
		.attrsize = sizeof(struct argmax), \
		.shape = argmax_shape, \
		.cost = topk_cost, \
		.holes = argmax_holes, \
		.eval = argmax_eval, \
		.cpu = { .file = "argmax.cpu.c", .call = "$k($=, $0);" }, \
		.ref = { .file = "argmax.cpu.c", .call = "$k($=, $0);" }, \
		.cuda = { .file = "argmax.cuda.cu", .call = "$k($=, $0);" }, \
	};
ARG(ArgMax)
ARG(ArgMin)
