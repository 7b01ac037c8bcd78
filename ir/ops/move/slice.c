/* Slice and its gradient SliceGrad, which puts dy back where it was cut from and zeros everywhere else. */
#include "move.h"

/* Of SliceGrad, shape is the shape that was cut. axes empty: 0, 1, ...; steps empty: all 1. */
struct slice {
	Ints starts, ends, axes, steps, shape;
};

/* Per axis of x: the first index, the step and the number of indices. */
typedef struct Cut {
	int64_t start[MAXRANK], step[MAXRANK], count[MAXRANK];
} Cut;

static int64_t clamp(int64_t v, int64_t lo, int64_t hi) { return v < lo ? lo : v > hi ? hi : v; }

static bool resolve(const Node *n, const Type *x, Cut *c, Diag *d)
{
	const struct slice *at = n->attr;
	bool seen[MAXRANK] = { false };

	if (at->ends.n != at->starts.n || (at->axes.n && at->axes.n != at->starts.n) ||
		(at->steps.n && at->steps.n != at->starts.n) || at->starts.n > x->rank)
		return diag_error(d, n->loc, 305, "%s: %d starts, %d ends, %d axes, %d steps for rank %d",
			optab[n->op]->name, at->starts.n, at->ends.n, at->axes.n, at->steps.n, x->rank);
	if (!norm_axes(n, d, "axes", at->axes, x->rank, seen))
		return false;
	for (int i = 0; i < x->rank; i++) {
		c->start[i] = 0;
		c->step[i] = 1;
		c->count[i] = x->dim[i];
	}
	for (int i = 0; i < at->starts.n; i++) {
		const int64_t ax = at->axes.n ? at->axes.v[i] : i, k = ax < 0 ? ax + x->rank : ax, dim = x->dim[k];
		const int64_t most =
			dim > 0 ? dim : 1; /* a longer step takes the first element only, as this one does */
		const int64_t step = at->steps.n ? clamp(at->steps.v[i], -most, most) : 1;
		int64_t s = at->starts.v[i], e = at->ends.v[i];
		if (step == 0)
			return diag_error(d, n->loc, 305, "%s: step 0 on axis %lld", optab[n->op]->name, (long long)k);
		s = clamp(s < 0 ? s + dim : s, 0, step > 0 ? dim : dim - 1);
		e = clamp(e < 0 ? (e < -dim ? -1 : e + dim) : e, step > 0 ? 0 : -1, dim);
		c->start[k] = s;
		c->step[k] = step;
		c->count[k] =
			step > 0 ? (e > s ? (e - s + step - 1) / step : 0) : (s > e ? (s - e - step - 1) / -step : 0);
		if (dim == 0)
			c->count[k] = 0;
	}
	return true;
}

static bool slice_shape(Node *n, Diag *d)
{
	Cut c;

	if (!need_operands(n, d) || !resolve(n, &n->in[0]->type, &c, d))
		return false;
	Type t = n->in[0]->type;
	for (int i = 0; i < t.rank; i++)
		t.dim[i] = c.count[i];
	t.rows = 0;
	set_out(n, 0, t);
	return true;
}

static bool grad_shape(Node *n, Diag *d)
{
	const struct slice *at = n->attr;
	Cut c;

	if (!need_operands(n, d))
		return false;
	const Type *dy = &n->in[0]->type;
	if (at->shape.n != dy->rank)
		return diag_error(d, n->loc, 305, "SliceGrad: shape has rank %d, %s is %s", at->shape.n, n->in[0]->name,
			str_type(d->scratch, dy));
	Type t;
	if (!need_type(n, d, "shape", at->shape, dy->dtype, &t))
		return false;
	t.layout = dy->layout;
	if (!resolve(n, &t, &c, d))
		return false;
	for (int i = 0; i < t.rank; i++)
		if (c.count[i] != dy->dim[i])
			return diag_error(d, n->loc, 305, "SliceGrad: axis %d of %s is %lld, the cut has %lld", i,
				n->in[0]->name, (long long)dy->dim[i], (long long)c.count[i]);
	set_out(n, 0, t);
	return true;
}

static Value *mk_cut(Builder *b, OpKind op, Value *x, const struct slice *s, const Type *whole)
{
	Arena *a = b->m->arena;
	void *at = attr_new(a, op);

	attr_put_ints(a, op, at, "starts", s->starts.n, s->starts.v);
	attr_put_ints(a, op, at, "ends", s->ends.n, s->ends.v);
	attr_put_ints(a, op, at, "axes", s->axes.n, s->axes.v);
	attr_put_ints(a, op, at, "steps", s->steps.n, s->steps.v);
	if (op == OP_SliceGrad)
		attr_put_ints(a, op, at, "shape", whole->rank, whole->dim);
	return mk(b, op, at, NULL, 1, x);
}

static void slice_grad(Builder *b, const Node *n, Value *const *dy, Value **dx)
{
	dx[0] = mk_cut(b, OP_SliceGrad, dy[0], n->attr, &n->in[0]->type);
}

static void grad_grad(Builder *b, const Node *n, Value *const *dy, Value **dx)
{
	dx[0] = mk_cut(b, OP_Slice, dy[0], n->attr, NULL);
}

/* The loops run over the cut; `whole` is read by Slice, written by SliceGrad. */
static Nest cut_nest(const Node *n, Cut *c)
{
	const bool put = n->op == OP_SliceGrad;
	const Type *whole = put ? &n->out[0]->type : &n->in[0]->type, *part = put ? &n->in[0]->type : &n->out[0]->type;
	int64_t stride[MAXRANK], pstride[MAXRANK], offset = 0;
	Diag quiet;
	Nest s;

	diag_init(&quiet, stderr, node_arena(n));
	if (!resolve(n, whole, c, &quiet))
		bug("%s without a shape", optab[n->op]->name);
	type_strides(whole, stride);
	type_strides(part, pstride);
	for (int i = 0; i < whole->rank; i++) {
		offset += c->start[i] * stride[i];
		stride[i] *= c->step[i];
	}
	nest_begin(&s, node_arena(n), part->rank, part->dim);
	if (put) {
		nest_add(&s, "y", offset, stride);
		nest_add(&s, "a", 0, pstride);
	} else {
		nest_add(&s, "y", 0, pstride);
		nest_add(&s, "a", offset, stride);
	}
	return s;
}

static void holes(const Node *n, Holes *h)
{
	const Type *x = &n->in[0]->type, *y = &n->out[0]->type;
	const char *step = "";
	Cut c;
	Nest s = cut_nest(n, &c);

	for (int i = 0; i < x->rank; i++)
		if (c.step[i] != 1)
			step = arena_printf(h->arena, "_by_%s", ints_name(h->arena, x->rank, c.step));
	copy_holes(n, h, &s, n->op == OP_SliceGrad && type_numel(x) < type_numel(y), "0");
	hole_name(h, "%s_%s_to_%s_at_%s%s%s", n->op == OP_Slice ? "slice" : "slice_grad", dims_name(h->arena, x),
		dims_name(h->arena, y), ints_name(h->arena, x->rank, c.start), step, dtype_suffix(x->dtype));
}

static bool eval(const Node *n, const Tensor *in, Tensor *out, Arena *a)
{
	Cut c;
	Nest s = cut_nest(n, &c);

	return copy_eval(n, &s, in, out, a, 0);
}

/* Along the axes of which nothing is cut away. */
static bool uncut(const Node *n, bool out, int at, ShardWay *w)
{
	Shard s;
	const Type *of, *x = &n->in[0]->type, *y = &n->out[0]->type;
	const struct slice *a = n->attr;

	if (!shard_seed(n, out, at, w, &s, &of) || x->dim[s.axis] != y->dim[s.axis])
		return false;
	for (int i = 0; i < a->steps.n; i++)
		if (a->steps.v[i] < 0)
			return false;
	w->in[0] = w->out[0] = s;
	return true;
}

static const AttrDef attrs[] = { AT_INTS(struct slice, starts), AT_INTS(struct slice, ends),
	AT_INTS(struct slice, axes), AT_INTS(struct slice, steps), AT_END };
static const AttrDef grad_attrs[] = { AT_INTS(struct slice, starts), AT_INTS(struct slice, ends),
	AT_INTS(struct slice, axes), AT_INTS(struct slice, steps), AT_INTS(struct slice, shape), AT_END };

const OpDef op_Slice = {
	.name = "Slice",
	.minin = 1,
	.maxin = 1,
	.nout = 1,
	.flags = OP_PURE | OP_NHWC,
	.attrs = attrs,
	.attrsize = sizeof(struct slice),
	.shape = slice_shape,
	.shard = uncut,
	.grad = slice_grad,
	.dgrad = { DENSE },
	.cost = move_cost,
	.holes = holes,
	.eval = eval,
	.cpu = { .file = "nest.cpu.c" },
	.ref = { .file = "nest.cpu.c" },
	.cuda = { .file = "nest.cuda.cu" },
};

const OpDef op_SliceGrad = {
	.name = "SliceGrad",
	.minin = 1,
	.maxin = 1,
	.nout = 1,
	.flags = OP_PURE | OP_NHWC,
	.attrs = grad_attrs,
	.attrsize = sizeof(struct slice),
	.shape = grad_shape,
	.shard = uncut,
	.grad = grad_grad,
	.dgrad = { DENSE },
	.cost = move_cost,
	.holes = holes,
	.eval = eval,
	.cpu = { .file = "nest.cpu.c" },
	.ref = { .file = "nest.cpu.c" },
	.cuda = { .file = "nest.cuda.cu" },
};
