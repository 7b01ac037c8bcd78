/* Pad: before and after every axis by a constant, the edge element, or mirrored. Negative counts crop (constant). */
#include <string.h>
#include "move.h"

struct pad {
	const char *mode;
	Ints pads;
	double value;
};

static bool is_mode(const Node *n, const char *mode) { return !strcmp(((const struct pad *)n->attr)->mode, mode); }

static bool shape(Node *n, Diag *d)
{
	const struct pad *at = n->attr;

	if (!need_operands(n, d))
		return false;
	Type t = n->in[0]->type;
	if (at->pads.n != 2 * t.rank)
		return diag_error(d, n->loc, 305, "Pad: %d counts in pads, %s is %s: two per axis", at->pads.n,
			n->in[0]->name, str_type(d->scratch, &t));
	if (!is_mode(n, "constant") && !is_mode(n, "reflect") && !is_mode(n, "edge"))
		return diag_error(d, n->loc, 305, "Pad: mode '%s' is not constant, reflect or edge", at->mode);
	for (int i = 0; i < t.rank; i++) {
		const int64_t lo = at->pads.v[i], hi = at->pads.v[t.rank + i], dim = t.dim[i];
		const int64_t most = is_mode(n, "reflect") ? dim - 1 : INT32_MAX;
		if (lo > TENSOR_MOST || hi > TENSOR_MOST || lo < -TENSOR_MOST || hi < -TENSOR_MOST)
			return diag_error(d, n->loc, 305, "Pad: axis %d of %s cannot be padded by %lld and %lld", i,
				str_shape(d->scratch, &n->in[0]->type), (long long)lo, (long long)hi);
		if (!is_mode(n, "constant") && (lo < 0 || hi < 0 || lo > most || hi > most || dim == 0))
			return diag_error(d, n->loc, 305, "Pad: mode %s cannot pad axis %d of %s by %lld and %lld",
				at->mode, i, str_shape(d->scratch, &t), (long long)lo, (long long)hi);
		t.dim[i] += lo + hi;
		if (t.dim[i] < 0 || lo < -dim || hi < -dim)
			return diag_error(d, n->loc, 305, "Pad: axis %d of %s is cropped by %lld and %lld", i,
				str_shape(d->scratch, &n->in[0]->type), (long long)-lo, (long long)-hi);
	}
	t.rows = 0;
	set_out(n, 0, t);
	return true;
}

/* ---- gradient ---- */

static Value *mk_part(Builder *b, Value *x, int axis, int64_t from, int64_t to)
{
	const int64_t ax = axis;
	Arena *a = b->m->arena;
	void *at = attr_new(a, OP_Slice);

	attr_put_ints(a, OP_Slice, at, "starts", 1, &from);
	attr_put_ints(a, OP_Slice, at, "ends", 1, &to);
	attr_put_ints(a, OP_Slice, at, "axes", 1, &ax);
	return mk(b, OP_Slice, at, NULL, 1, x);
}

/* x with zeros around it so that its axis has `dim` elements and it starts at `from`, in steps of -1 if back. */
static Value *mk_place(Builder *b, Value *x, int axis, int64_t from, int64_t dim, bool back)
{
	const int64_t ax = axis, n = x->type.dim[axis], start = back ? from + n - 1 : from, step = back ? -1 : 1;
	const int64_t end = back ? (from ? from - 1 : -dim - 1) : from + n;
	Type t = x->type;
	Arena *a = b->m->arena;
	void *at = attr_new(a, OP_SliceGrad);

	t.dim[axis] = dim;
	attr_put_ints(a, OP_SliceGrad, at, "starts", 1, &start);
	attr_put_ints(a, OP_SliceGrad, at, "ends", 1, &end);
	attr_put_ints(a, OP_SliceGrad, at, "axes", 1, &ax);
	attr_put_ints(a, OP_SliceGrad, at, "steps", 1, &step);
	attr_put_ints(a, OP_SliceGrad, at, "shape", t.rank, t.dim);
	return mk(b, OP_SliceGrad, at, NULL, 1, x);
}

/* What lies in the border of one axis goes back to where it was taken from: the mirror image, or the edge. */
static Value *fold_axis(Builder *b, Value *g, int axis, int64_t lo, int64_t hi, bool reflect)
{
	const int64_t dim = g->type.dim[axis] - lo - hi, ax = axis;
	Value *core = mk_part(b, g, axis, lo, lo + dim);

	for (int side = 0; side < 2; side++) {
		const int64_t k = side ? hi : lo, from = side ? lo + dim : 0;
		if (!k)
			continue;
		Value *part = mk_part(b, g, axis, from, from + k);
		if (reflect)
			part = mk_place(b, part, axis, side ? dim - 1 - k : 1, dim, true);
		else
			part = mk_place(b, mk_reduce(b, OP_ReduceSum, part, (Ints){ 1, &ax }, 1), axis,
				side ? dim - 1 : 0, dim, false);
		core = mk_binary(b, OP_Add, core, part);
	}
	return core;
}

static void grad(Builder *b, const Node *n, Value *const *dy, Value **dx)
{
	const struct pad *at = n->attr;
	const int rank = n->in[0]->type.rank;
	int64_t crop[2 * MAXRANK];

	if (is_mode(n, "constant")) {
		void *p = attr_new(b->m->arena, OP_Pad);
		for (int i = 0; i < 2 * rank; i++)
			crop[i] = -at->pads.v[i];
		attr_put_ints(b->m->arena, OP_Pad, p, "pads", 2 * rank, crop);
		dx[0] = mk(b, OP_Pad, p, NULL, 1, dy[0]);
		return;
	}
	dx[0] = dy[0];
	for (int i = rank - 1; i >= 0; i--)
		if (at->pads.v[i] || at->pads.v[rank + i])
			dx[0] = fold_axis(b, dx[0], i, at->pads.v[i], at->pads.v[rank + i], is_mode(n, "reflect"));
}

/* ---- kernels ---- */

/* Constant mode: the part of x that stays, as a copy. */
static Nest kept(const Node *n)
{
	const struct pad *at = n->attr;
	const Type *x = &n->in[0]->type, *y = &n->out[0]->type;
	int64_t dim[MAXRANK], xs[MAXRANK], ys[MAXRANK], xo = 0, yo = 0;
	Nest s;

	type_strides(x, xs);
	type_strides(y, ys);
	for (int i = 0; i < x->rank; i++) {
		const int64_t lo = at->pads.v[i], hi = at->pads.v[x->rank + i];
		dim[i] = x->dim[i] + (lo < 0 ? lo : 0) + (hi < 0 ? hi : 0);
		if (dim[i] < 0)
			dim[i] = 0;
		xo += lo < 0 ? -lo * xs[i] : 0;
		yo += lo > 0 ? lo * ys[i] : 0;
	}
	nest_begin(&s, node_arena(n), x->rank, dim);
	nest_add(&s, "y", yo, ys);
	nest_add(&s, "a", xo, xs);
	return s;
}

/* The other modes: y over all its elements; an axis with a border reads through an index of its own. The joined nest
 * cannot show where an axis ends, so loops stay one per axis. */
static void border_holes(const Node *n, Holes *h)
{
	static const char loop[] = "ijklmnpq";
	const struct pad *at = n->attr;
	const Type *x = &n->in[0]->type, *y = &n->out[0]->type;
	Arena *a = h->arena;
	const char *body = "", *from = "";
	int64_t xs[MAXRANK];
	Nest s;

	type_strides(x, xs);
	nest_begin(&s, node_arena(n), y->rank, y->dim);
	nest_add_type(&s, "y", y);
	for (int i = 0; i < x->rank; i++) {
		const char v = loop[x->rank - 1 - i];
		const long long lo = at->pads.v[i], last = x->dim[i] - 1;
		const char *idx = arena_printf(a, "%c", v);
		if (lo || at->pads.v[x->rank + i]) {
			idx = arena_printf(a, "r%d", i);
			if (is_mode(n, "edge"))
				body = arena_printf(a,
					"%sconst IX r%d = %c < %lld ? 0 : %c - %lld > %lld ? %lld : %c - %lld;\n\t\t",
					body, i, v, lo, v, lo, last, last, v, lo);
			else
				body = arena_printf(a,
					"%sconst IX r%d = %c < %lld ? %lld - %c : %c - %lld > %lld ? %lld - %c : "
					"%c - %lld;\n\t\t",
					body, i, v, lo, lo, v, v, lo, last, 2 * last + lo, v, v, lo);
		}
		from = arena_printf(a, "%s%s%s * %lld", from, i ? " + " : "", idx, (long long)xs[i]);
	}
	nest_holes(&s, h);
	hole_text(h, "PARAMS", "%s *y, const %s *a", dtype_c(x->dtype), dtype_c(x->dtype));
	hole_text(h, "CALL", "$k($=, $0);");
	hole_text(h, "BODY", "%s%s = a[%s];", body, nest_ref(a, &s, 0), *from ? from : "0");
}

static void holes(const Node *n, Holes *h)
{
	const struct pad *at = n->attr;
	const Type *x = &n->in[0]->type;
	const char *value = c_literal(h->arena, x->dtype, at->value, (int64_t)at->value);
	Nest s = kept(n);
	bool grows = false;

	for (int i = 0; i < at->pads.n; i++)
		grows |= at->pads.v[i] > 0;
	if (is_mode(n, "constant"))
		copy_holes(n, h, &s, grows, value);
	else
		border_holes(n, h);
	hole_name(h, "pad_%s_by_%s%s%s%s", dims_name(h->arena, x), ints_name(h->arena, at->pads.n, at->pads.v),
		is_mode(n, "constant") ? "" : arena_printf(h->arena, "_%s", at->mode),
		at->value != 0 ? arena_printf(h->arena, "_value_%s", name_of_literal(h->arena, value)) : "",
		dtype_suffix(x->dtype));
}

/* Index into x of y's index i on one axis; the same rule as the text of border_holes. */
static int64_t border(const Node *n, int64_t i, int64_t lo, int64_t dim)
{
	i -= lo;
	if (is_mode(n, "edge"))
		return i < 0 ? 0 : i >= dim ? dim - 1 : i;
	return i < 0 ? -i : i >= dim ? 2 * (dim - 1) - i : i;
}

static bool eval(const Node *n, const Tensor *in, Tensor *out, Arena *a)
{
	const struct pad *at = n->attr;
	const Type *x = &in[0].type, *y = &n->out[0]->type;
	const int size = dtype_bytes(x->dtype);
	Nest s;

	if (is_mode(n, "constant")) {
		s = kept(n);
		return copy_eval(n, &s, in, out, a, at->value);
	}
	tensor_alloc(&out[0], y, a);
	for (int64_t i = 0; i < type_numel(y); i++) {
		int64_t from = 0, step = 1, rest = i;
		for (int k = x->rank - 1; k >= 0; step *= x->dim[k], rest /= y->dim[k], k--)
			from += border(n, rest % y->dim[k], at->pads.v[k], x->dim[k]) * step;
		memcpy((char *)out[0].data + i * size, (const char *)in[0].data + from * size, (size_t)size);
	}
	return true;
}

static const AttrDef attrs[] = { AT_STR(struct pad, mode, "constant"), AT_INTS(struct pad, pads),
	AT_FLOAT(struct pad, value, 0), AT_END };

const OpDef op_Pad = {
	.name = "Pad",
	.minin = 1,
	.maxin = 1,
	.nout = 1,
	.flags = OP_PURE | OP_NHWC,
	.attrs = attrs,
	.attrsize = sizeof(struct pad),
	.shape = shape,
	.grad = grad,
	.dgrad = { DENSE },
	.cost = move_cost,
	.holes = holes,
	.eval = eval,
	.cpu = { .file = "nest.cpu.c" },
	.ref = { .file = "nest.cpu.c" },
	.cuda = { .file = "nest.cuda.cu" },
};
