/* Identity, Reshape, Transpose, Expand, Tile and Reorder. The last four are strided copies (nest.cpu.c). */
#include <string.h>
#include "move.h"

/* ---- what all copies share ---- */

void copy_holes(const Node *n, Holes *h, Nest *s, bool fill, const char *value)
{
	const char *c = dtype_c(n->out[0]->type.dtype);

	nest_finish(s);
	const bool tiled = nest_tiled(s);
	nest_holes(s, h);
	if (tiled) {
		hole_int(h, "TILE", 1);
		parallel_hole(h, false, s->rank); /* loops over tiles count too */
	}
	if (fill) {
		hole_int(h, "FILL", 1);
		hole_int(h, "NUMEL", type_numel(&n->out[0]->type));
		hole_text(h, "VALUE", "%s", value);
	}
	hole_text(h, "PARAMS", "%s *y, const %s *a", c, c);
	hole_text(h, "CALL", "$k($=, $0);");
	hole_text(h, "BODY", "%s = %s;", nest_ref(h->arena, s, 0), nest_ref(h->arena, s, 1));
}

bool copy_eval(const Node *n, Nest *s, const Tensor *in, Tensor *out, Arena *a, double value)
{
	const Type *t = &n->out[0]->type;

	tensor_alloc(&out[0], t, a);
	for (int64_t i = 0; value != 0 && i < type_numel(t); i++)
		elem_set_f(&out[0], i, value);
	nest_finish(s);
	nest_copy(s, out[0].data, in[0].data, dtype_bytes(t->dtype));
	return true;
}

const char *ints_name(Arena *a, int n, const int64_t *v)
{
	const char *s = "";

	for (int i = 0; i < n; i++)
		s = arena_printf(
			a, "%s%s%s%lld", s, i ? "_" : "", v[i] < 0 ? "m" : "", (long long)(v[i] < 0 ? -v[i] : v[i]));
	return s;
}

Cost move_cost(const Node *n) { return cost_bytes(n, 0); }

bool need_operands(const Node *n, Diag *d)
{
	for (int i = 0; i < optab[n->op]->minin; i++)
		if (i >= n->nin || !n->in[i])
			return diag_error(d, n->loc, 301, "%s: operand %d is missing", optab[n->op]->name, i);
	return true;
}

/* ---- Identity ---- */

static bool identity_shape(Node *n, Diag *d)
{
	if (!need_operands(n, d))
		return false;
	set_out(n, 0, n->in[0]->type);
	return true;
}

/* detached: a value through which no gradient runs back (torch's detach, what was computed under no_grad). */
struct identity {
	int64_t detached;
};

static void identity_grad(Builder *b, const Node *n, Value *const *dy, Value **dx)
{
	(void)b, (void)n;
	dx[0] = dy[0];
}

static bool view_eval(const Node *n, const Tensor *in, Tensor *out, Arena *a)
{
	(void)a;
	out[0] = (Tensor){ n->out[0]->type, in[0].data };
	return true;
}

static const AttrDef identity_attrs[] = { AT_INT(struct identity, detached, 0), AT_END };
const OpDef op_Identity = {
	.name = "Identity",
	.minin = 1,
	.maxin = 1,
	.nout = 1,
	.flags = OP_PURE | OP_VIEW | OP_NHWC,
	.attrs = identity_attrs,
	.attrsize = sizeof(struct identity),
	.shape = identity_shape,
	.shard = shard_elementwise,
	.grad = identity_grad,
	.dgrad = { DENSE },
	.eval = view_eval,
};

/* ---- Reshape: 0 keeps the dimension (unless allowzero), -1 takes what is left ---- */

struct reshape {
	Ints shape;
	int64_t allowzero;
};

static bool reshape_shape(Node *n, Diag *d)
{
	const struct reshape *at = n->attr;
	int64_t known = 1;
	int infer = -1;

	if (!need_operands(n, d))
		return false;
	const Type *x = &n->in[0]->type;
	Type t = *x;
	if (at->shape.n > MAXRANK)
		return diag_error(d, n->loc, 305, "Reshape: rank %d is above %d", at->shape.n, MAXRANK);
	t.rank = at->shape.n;
	t.rows = 0;
	t.layout = LAYOUT_PLAIN;
	for (int i = 0; i < t.rank; i++) {
		t.dim[i] = at->shape.v[i];
		if (t.dim[i] == 0 && !at->allowzero) {
			if (i >= x->rank)
				return diag_error(d, n->loc, 305, "Reshape: shape[%d] is 0, %s is %s", i,
					n->in[0]->name, str_shape(d->scratch, x));
			t.dim[i] = x->dim[i];
		}
		if (t.dim[i] < -1 || (t.dim[i] == -1 && infer >= 0))
			return diag_error(d, n->loc, 305, "Reshape: shape[%d] is %lld%s", i, (long long)t.dim[i],
				t.dim[i] == -1 ? ", the second -1" : "");
		if (t.dim[i] == -1)
			infer = i;
		else if (__builtin_mul_overflow(known, t.dim[i], &known))
			return diag_error(d, n->loc, 305, "Reshape: the new shape [%s] is too large",
				ints_name(d->scratch, at->shape.n, at->shape.v));
	}
	if (infer >= 0)
		t.dim[infer] = known ? type_numel(x) / known : 0;
	if (type_numel(&t) != type_numel(x))
		return diag_error(d, n->loc, 305,
			"Reshape: %s is %s, %lld elements, the new shape [%s] does not hold as many", n->in[0]->name,
			str_type(d->scratch, x), (long long)type_numel(x),
			ints_name(d->scratch, at->shape.n, at->shape.v));
	set_out(n, 0, t);
	return true;
}

static void reshape_grad(Builder *b, const Node *n, Value *const *dy, Value **dx)
{
	dx[0] = mk_reshape(b, dy[0], &n->in[0]->type);
}

static const AttrDef reshape_attrs[] = { AT_INTS(struct reshape, shape), AT_INT(struct reshape, allowzero, 0), AT_END };

const OpDef op_Reshape = {
	.name = "Reshape",
	.minin = 1,
	.maxin = 1,
	.nout = 1,
	.flags = OP_PURE | OP_VIEW,
	.attrs = reshape_attrs,
	.attrsize = sizeof(struct reshape),
	.shape = reshape_shape,
	.shard = shard_reshape,
	.grad = reshape_grad,
	.dgrad = { DENSE },
	.eval = view_eval,
};

/* ---- Transpose: y's axis i is x's axis perm[i]; no perm: all axes reversed ---- */

struct transpose {
	Ints perm;
};

static int64_t perm_at(const Node *n, int i)
{
	const struct transpose *at = n->attr;

	return at->perm.n ? at->perm.v[i] : n->in[0]->type.rank - 1 - i;
}

static bool transpose_shape(Node *n, Diag *d)
{
	const struct transpose *at = n->attr;
	bool seen[MAXRANK];

	if (!need_operands(n, d))
		return false;
	const Type *x = &n->in[0]->type;
	Type t = *x;
	if (at->perm.n && at->perm.n != x->rank)
		return diag_error(d, n->loc, 305, "Transpose: perm has %d axes, %s is %s", at->perm.n, n->in[0]->name,
			str_type(d->scratch, x));
	if (!norm_axes(n, d, "perm", at->perm, x->rank, seen))
		return false;
	for (int i = 0; i < t.rank; i++) {
		if (perm_at(n, i) < 0)
			return diag_error(d, n->loc, 303, "Transpose: perm[%d] is negative", i);
		t.dim[i] = x->dim[perm_at(n, i)];
	}
	t.rows = 0;
	t.layout = LAYOUT_PLAIN;
	set_out(n, 0, t);
	return true;
}

static void transpose_grad(Builder *b, const Node *n, Value *const *dy, Value **dx)
{
	int64_t inverse[MAXRANK];

	for (int i = 0; i < n->in[0]->type.rank; i++)
		inverse[perm_at(n, i)] = i;
	dx[0] = mk_transpose(b, dy[0], inverse);
}

static Nest transpose_nest(const Node *n)
{
	const Type *t = &n->out[0]->type;
	int64_t xs[MAXRANK], stride[MAXRANK];
	Nest s;

	type_strides(&n->in[0]->type, xs);
	for (int i = 0; i < t->rank; i++)
		stride[i] = xs[perm_at(n, i)];
	nest_begin(&s, node_arena(n), t->rank, t->dim);
	nest_add_type(&s, "y", t);
	nest_add(&s, "a", 0, stride);
	return s;
}

static void transpose_holes(const Node *n, Holes *h)
{
	Nest s = transpose_nest(n);
	int64_t perm[MAXRANK];

	for (int i = 0; i < n->in[0]->type.rank; i++)
		perm[i] = perm_at(n, i);
	copy_holes(n, h, &s, false, "0");
	hole_name(h, "transpose_%s_to_%s%s", dims_name(h->arena, &n->in[0]->type),
		ints_name(h->arena, n->in[0]->type.rank, perm), dtype_suffix(n->in[0]->type.dtype));
}

static bool transpose_eval(const Node *n, const Tensor *in, Tensor *out, Arena *a)
{
	Nest s = transpose_nest(n);

	return copy_eval(n, &s, in, out, a, 0);
}

static bool transpose_shard(const Node *n, bool out, int at, ShardWay *w)
{
	const Shard s = out ? w->out[at] : w->in[at];

	w->in[0] = w->out[0] = s;
	for (int i = 0; i < n->in[0]->type.rank && s.kind == SHARD_AXIS; i++)
		if (out && i == s.axis)
			w->in[0].axis = (int)perm_at(n, i);
		else if (!out && perm_at(n, i) == s.axis)
			w->out[0].axis = i;
	return true;
}

static const AttrDef transpose_attrs[] = { AT_INTS(struct transpose, perm), AT_END };

const OpDef op_Transpose = {
	.name = "Transpose",
	.minin = 1,
	.maxin = 1,
	.nout = 1,
	.flags = OP_PURE | OP_NHWC,
	.attrs = transpose_attrs,
	.attrsize = sizeof(struct transpose),
	.shape = transpose_shape,
	.shard = transpose_shard,
	.grad = transpose_grad,
	.dgrad = { DENSE },
	.cost = move_cost,
	.holes = transpose_holes,
	.eval = transpose_eval,
	.cpu = { .file = "nest.cpu.c" },
	.ref = { .file = "nest.cpu.c" },
	.cuda = { .file = "nest.cuda.cu" },
};

/* ---- Expand: broadcasting made real ---- */

struct expand {
	Ints shape;
};

static bool expand_shape(Node *n, Diag *d)
{
	const struct expand *at = n->attr;
	Type want, t;

	if (!need_operands(n, d))
		return false;
	if (at->shape.n > MAXRANK)
		return diag_error(d, n->loc, 305, "Expand: rank %d is above %d", at->shape.n, MAXRANK);
	want = type_make(n->in[0]->type.dtype, at->shape.n, at->shape.v);
	t = n->in[0]->type;
	if (!shape_broadcast(&n->in[0]->type, &want, &t))
		return diag_error(d, n->loc, 304, "Expand: %s is %s, which does not broadcast to %s", n->in[0]->name,
			str_shape(d->scratch, &n->in[0]->type), str_shape(d->scratch, &want));
	t.dtype = want.dtype;
	t.rows = 0;
	t.layout = t.rank == n->in[0]->type.rank ? n->in[0]->type.layout : LAYOUT_PLAIN;
	set_out(n, 0, t);
	return true;
}

static void expand_grad(Builder *b, const Node *n, Value *const *dy, Value **dx)
{
	dx[0] = reduce_to(b, dy[0], &n->in[0]->type);
}

static Nest expand_nest(const Node *n)
{
	const Type *t = &n->out[0]->type;
	Nest s;

	nest_begin(&s, node_arena(n), t->rank, t->dim);
	nest_add_type(&s, "y", t);
	nest_add_type(&s, "a", &n->in[0]->type);
	return s;
}

static void expand_holes(const Node *n, Holes *h)
{
	Nest s = expand_nest(n);

	copy_holes(n, h, &s, false, "0");
	hole_name(h, "expand_%s_to_%s%s", dims_name(h->arena, &n->in[0]->type), dims_name(h->arena, &n->out[0]->type),
		dtype_suffix(n->in[0]->type.dtype));
}

static bool expand_eval(const Node *n, const Tensor *in, Tensor *out, Arena *a)
{
	Nest s = expand_nest(n);

	return copy_eval(n, &s, in, out, a, 0);
}

static const AttrDef expand_attrs[] = { AT_INTS(struct expand, shape), AT_END };

const OpDef op_Expand = {
	.name = "Expand",
	.minin = 1,
	.maxin = 1,
	.nout = 1,
	.flags = OP_PURE | OP_NHWC,
	.attrs = expand_attrs,
	.attrsize = sizeof(struct expand),
	.shape = expand_shape,
	.shard = shard_elementwise,
	.grad = expand_grad,
	.dgrad = { DENSE },
	.cost = move_cost,
	.holes = expand_holes,
	.eval = expand_eval,
	.cpu = { .file = "nest.cpu.c" },
	.ref = { .file = "nest.cpu.c" },
	.cuda = { .file = "nest.cuda.cu" },
};

/* ---- Tile: y is x repeated repeats[i] times along axis i ---- */

struct tile {
	Ints repeats;
};

static bool tile_shape(Node *n, Diag *d)
{
	const struct tile *at = n->attr;
	int loops = 0;

	if (!need_operands(n, d))
		return false;
	Type t = n->in[0]->type;
	if (at->repeats.n != t.rank)
		return diag_error(d, n->loc, 305, "Tile: %d repeats, %s is %s", at->repeats.n, n->in[0]->name,
			str_type(d->scratch, &t));
	for (int i = 0; i < t.rank; i++) {
		if (at->repeats.v[i] < 0)
			return diag_error(d, n->loc, 305, "Tile: repeats[%d] is %lld", i, (long long)at->repeats.v[i]);
		loops += (t.dim[i] != 1) + (at->repeats.v[i] != 1);
		if (!dim_times(n, d, i, at->repeats.v[i], &t.dim[i]))
			return false;
	}
	if (loops > NEST_LOOPS)
		return diag_error(d, n->loc, 305, "Tile: %d axes of %s repeated at once is above %d loops", loops,
			n->in[0]->name, NEST_LOOPS);
	t.rows = 0;
	set_out(n, 0, t);
	return true;
}

/* As [r0, d0, r1, d1 ...] the repeats are axes of their own; only true repeats are split off. */
static void tile_grad(Builder *b, const Node *n, Value *const *dy, Value **dx)
{
	const struct tile *at = n->attr;
	const Type *x = &n->in[0]->type;
	int64_t dim[2 * MAXRANK] = { 0 }, axes[MAXRANK];
	int rank = 0, k = 0;

	for (int i = 0; i < x->rank; i++) {
		if (at->repeats.v[i] != 1) {
			axes[k++] = rank;
			dim[rank++] = at->repeats.v[i];
		}
		dim[rank++] = x->dim[i];
	}
	if (rank > MAXRANK)
		return;
	const Type t = type_make(x->dtype, rank, dim);
	Value *v = mk_reshape(b, dy[0], &t);
	if (k)
		v = mk_reduce(b, OP_ReduceSum, v, (Ints){ k, axes }, 0);
	dx[0] = mk_reshape(b, v, x);
}

static Nest tile_nest(const Node *n)
{
	const struct tile *at = n->attr;
	const Type *x = &n->in[0]->type;
	int64_t dim[NEST_DIMS], ys[NEST_DIMS], as[NEST_DIMS], sy[MAXRANK], sx[MAXRANK];
	Nest s;

	type_strides(&n->out[0]->type, sy);
	type_strides(x, sx);
	for (int i = 0; i < x->rank; i++) {
		dim[2 * i] = at->repeats.v[i];
		ys[2 * i] = sy[i] * x->dim[i];
		as[2 * i] = 0;
		dim[2 * i + 1] = x->dim[i];
		ys[2 * i + 1] = sy[i];
		as[2 * i + 1] = sx[i];
	}
	nest_begin(&s, node_arena(n), 2 * x->rank, dim);
	nest_add(&s, "y", 0, ys);
	nest_add(&s, "a", 0, as);
	return s;
}

static void tile_holes(const Node *n, Holes *h)
{
	Nest s = tile_nest(n);

	copy_holes(n, h, &s, false, "0");
	hole_name(h, "tile_%s_to_%s%s", dims_name(h->arena, &n->in[0]->type), dims_name(h->arena, &n->out[0]->type),
		dtype_suffix(n->in[0]->type.dtype));
}

static bool tile_eval(const Node *n, const Tensor *in, Tensor *out, Arena *a)
{
	Nest s = tile_nest(n);

	return copy_eval(n, &s, in, out, a, 0);
}

static const AttrDef tile_attrs[] = { AT_INTS(struct tile, repeats), AT_END };

const OpDef op_Tile = {
	.name = "Tile",
	.minin = 1,
	.maxin = 1,
	.nout = 1,
	.flags = OP_PURE | OP_NHWC,
	.attrs = tile_attrs,
	.attrsize = sizeof(struct tile),
	.shape = tile_shape,
	.grad = tile_grad,
	.dgrad = { DENSE },
	.cost = move_cost,
	.holes = tile_holes,
	.eval = tile_eval,
	.cpu = { .file = "nest.cpu.c" },
	.ref = { .file = "nest.cpu.c" },
	.cuda = { .file = "nest.cuda.cu" },
};

/* ---- Reorder: the same tensor in another layout ---- */

struct reorder {
	const char *layout;
};

static bool reorder_shape(Node *n, Diag *d)
{
	const struct reorder *at = n->attr;

	if (!need_operands(n, d))
		return false;
	Type t = n->in[0]->type;
	if (!layout_from_name(at->layout, &t.layout))
		return diag_error(d, n->loc, 305, "Reorder: layout '%s' is neither plain nor nhwc", at->layout);
	if (t.layout == LAYOUT_NHWC && t.rank < 3)
		return diag_error(
			d, n->loc, 305, "Reorder: %s has rank %d, nhwc needs 3 or more", n->in[0]->name, t.rank);
	t.rows = 0;
	set_out(n, 0, t);
	return true;
}

static void reorder_grad(Builder *b, const Node *n, Value *const *dy, Value **dx)
{
	void *at = attr_new(b->m->arena, OP_Reorder);

	attr_put_str(b->m->arena, OP_Reorder, at, "layout", n->in[0]->type.layout == LAYOUT_NHWC ? "nhwc" : "plain");
	dx[0] = mk(b, OP_Reorder, at, NULL, 1, dy[0]);
}

static void reorder_holes(const Node *n, Holes *h)
{
	Nest s = expand_nest(n);

	copy_holes(n, h, &s, false, "0");
	hole_name(h, "reorder_%s_to_%s%s", dims_name(h->arena, &n->in[0]->type),
		n->out[0]->type.layout == LAYOUT_NHWC ? "nhwc" : "plain", dtype_suffix(n->in[0]->type.dtype));
}

static bool reorder_eval(const Node *n, const Tensor *in, Tensor *out, Arena *a)
{
	if (n->out[0]->type.layout != LAYOUT_PLAIN) /* constants are row-major */
		return false;
	return view_eval(n, in, out, a);
}

static const AttrDef reorder_attrs[] = { AT_STR(struct reorder, layout, "plain"), AT_END };

const OpDef op_Reorder = {
	.name = "Reorder",
	.minin = 1,
	.maxin = 1,
	.nout = 1,
	.flags = OP_PURE | OP_NHWC,
	.attrs = reorder_attrs,
	.attrsize = sizeof(struct reorder),
	.shape = reorder_shape,
	.grad = reorder_grad,
	.dgrad = { DENSE },
	.cost = move_cost,
	.holes = reorder_holes,
	.eval = reorder_eval,
	.cpu = { .file = "nest.cpu.c" },
	.ref = { .file = "nest.cpu.c" },
	.cuda = { .file = "nest.cuda.cu" },
};
