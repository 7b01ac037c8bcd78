/* Concat along an axis and Split, its inverse. In memory both are rows: what lies before the axis counts the rows, what
 * lies from the axis on is one block per part. */
#include <string.h>
#include "move.h"

struct concat {
	int64_t axis;
};
struct split {
	int64_t axis;
	Ints split;
};

static int axis_of(const Node *n)
{
	const struct concat *at = n->attr; /* both structs begin with the axis */
	const int rank = n->in[0]->type.rank;

	return (int)(at->axis < 0 ? at->axis + rank : at->axis);
}

/* How t lies around `axis` in memory: rows before it, elements per index of it. The axis counts as 2 here, so that
 * its place shows in the strides whatever its size. */
static int64_t rows_of(const Type *t, int axis, int64_t *unit)
{
	int64_t stride[MAXRANK], rows = 1;
	Type two = *t;

	two.dim[axis] = 2;
	type_strides(&two, stride);
	for (int i = 0; i < t->rank; i++)
		if (i != axis && two.dim[i] != 1 && stride[i] > stride[axis])
			rows *= t->dim[i];
	*unit = rows ? type_numel(&two) / 2 / rows : 0;
	return rows;
}

static bool concat_shape(Node *n, Diag *d)
{
	const struct concat *at = n->attr;
	int axis;

	if (!same_dtype(n, 0, d))
		return false;
	Type t = n->in[0]->type;
	if (!norm_axis(n, d, "axis", at->axis, t.rank, &axis))
		return false;
	for (int k = 1; k < n->nin; k++) {
		const Type *x = &n->in[k]->type;
		bool ok = x->rank == t.rank && x->layout == t.layout;
		for (int i = 0; ok && i < t.rank; i++)
			ok = i == axis || x->dim[i] == t.dim[i];
		if (!ok)
			return diag_error(d, n->loc, 304, "Concat: operands differ off axis %d: %s is %s, %s is %s",
				axis, n->in[0]->name, str_type(d->scratch, &n->in[0]->type), n->in[k]->name,
				str_type(d->scratch, x));
		if (!dim_plus(n, d, axis, x->dim[axis], &t.dim[axis]))
			return false;
	}
	t.rows = 0;
	set_out(n, 0, t);
	return true;
}

static Node *mk_split(Builder *b, Value *x, int axis, int k, const int64_t *part)
{
	void *at = attr_new(b->m->arena, OP_Split);

	attr_put_int(OP_Split, at, "axis", axis);
	attr_put_ints(b->m->arena, OP_Split, at, "split", k, part);
	return build(b, OP_Split, at, 1, &x, NULL);
}

static void concat_grad(Builder *b, const Node *n, Value *const *dy, Value **dx)
{
	const int axis = axis_of(n);
	int64_t *part = NEWN(b->m->arena, int64_t, n->nin);

	if (n->nin == 1) {
		dx[0] = dy[0];
		return;
	}
	for (int i = 0; i < n->nin; i++)
		part[i] = n->in[i]->type.dim[axis];
	Node *s = mk_split(b, dy[0], axis, n->nin, part);
	for (int i = 0; i < n->nin; i++)
		dx[i] = s->out[i];
}

static int split_outs(const void *attr)
{
	const struct split *at = attr;

	return at->split.n > 0 ? at->split.n : 1;
}

static bool split_shape(Node *n, Diag *d)
{
	const struct split *at = n->attr;
	int64_t sum = 0;
	int axis;

	if (!need_operands(n, d))
		return false;
	Type t = n->in[0]->type;
	if (!norm_axis(n, d, "axis", at->axis, t.rank, &axis))
		return false;
	for (int i = 0; i < at->split.n; i++) {
		if (at->split.v[i] < 0)
			return diag_error(d, n->loc, 305, "Split: part %d has size %lld", i, (long long)at->split.v[i]);
		if (!dim_plus(n, d, axis, at->split.v[i], &sum))
			return false;
	}
	trim_outs(n, at->split.n);
	if (sum != t.dim[axis])
		return diag_error(d, n->loc, 305, "Split: %d parts [%s] of axis %d of %s, which is %s", at->split.n,
			ints_name(d->scratch, at->split.n, at->split.v), axis, n->in[0]->name,
			str_type(d->scratch, &t));
	t.rows = 0;
	for (int i = 0; i < n->nout; i++) {
		t.dim[axis] = at->split.v[i];
		set_out(n, i, t);
	}
	return true;
}

static void split_grad(Builder *b, const Node *n, Value *const *dy, Value **dx)
{
	const struct split *at = n->attr;
	const int axis = axis_of(n);
	Value **part = NEWN(b->m->arena, Value *, at->split.n);
	void *c = attr_new(b->m->arena, OP_Concat);

	for (int i = 0; i < at->split.n; i++) {
		Type t = n->in[0]->type;
		t.dim[axis] = at->split.v[i];
		part[i] = i < n->nout && dy[i] ? dy[i] : mk_expand(b, mk_scalar(b, t.dtype, 0), &t);
	}
	attr_put_int(OP_Concat, c, "axis", axis);
	dx[0] = build(b, OP_Concat, c, at->split.n, part, NULL)->out[0];
}

/* ---- kernels: memcpy of a block per row and part ---- */

/* "y + i * 96 + 32" */
static const char *block_at(Arena *a, const char *p, int64_t rows, int64_t row, int64_t at)
{
	if (rows != 1)
		p = arena_printf(a, "%s + i * %lld", p, (long long)row);
	return at ? arena_printf(a, "%s + %lld", p, (long long)at) : p;
}

static void blocks(const Node *n, Holes *h, Value *const *part, int k, const Value *whole, bool joins)
{
	const struct split *sp = n->attr;
	Arena *a = h->arena;
	const char *params, *args = "", *body = "", *gpu = "", *sizes = "", *c = dtype_c(whole->type.dtype);
	const int axis = axis_of(n);
	int64_t unit, at = 0;
	const int64_t rows = rows_of(&whole->type, axis, &unit), row = unit * whole->type.dim[axis];

	params = arena_printf(a, joins ? "%s *restrict y" : "const %s *restrict a", c);
	for (int i = 0; i < k; i++) {
		const int64_t size = joins ? part[i]->type.dim[axis] : sp->split.v[i], block = unit * size;
		if (part[i]) {
			const char *p = arena_printf(a, joins ? "x%d" : "y%d", i);
			const char *in = block_at(a, joins ? "y" : "a", rows, row, at),
				   *out = block_at(a, p, rows, block, 0);
			params = arena_printf(
				a, "%s, %s%s *%s%s", params, joins ? "const " : "", c, joins ? "" : "restrict ", p);
			args = arena_printf(a, joins ? "%s, $%d" : "%s, $=%d", args, i);
			gpu = arena_printf(a, "%s%spd_copy_rows(%s%s, %lld, %s%s, %lld, %lld, ROWS, sizeof *%s);", gpu,
				*gpu ? "\n\t" : "", joins ? "y" : p,
				joins ? arena_printf(a, " + %lld", (long long)at) : "",
				(long long)(joins ? row : block), joins ? p : "a",
				joins ? "" : arena_printf(a, " + %lld", (long long)at),
				(long long)(joins ? block : row), (long long)block, p);
			body = arena_printf(a, "%s%smemcpy(%s, %s, %lld * sizeof *%s);", body,
				!*body      ? ""
				: rows == 1 ? "\n\t"
					    : "\n\t\t",
				joins ? in : out, joins ? out : in, (long long)block, p);
		}
		at += block;
		sizes = arena_printf(a, "%s_%lld%s", sizes, (long long)size, part[i] ? "" : "no");
	}
	hole_text(h, "PARAMS", "%s", params);
	hole_text(h, "CALL", "$k(%s%s);", joins ? "$=" : "$0", args);
	hole_text(h, "BODY", "%s", body);
	hole_text(h, "BODY_GPU", "%s", gpu);
	hole_text(h, "IX", "%s", type_numel(&whole->type) < INT32_MAX ? "int" : "int64_t");
	hole_int(h, "ROWS", rows);
	hole_int(h, "PAR", rows > 1 && type_numel(&whole->type) >= 32768);
	hole_name(h, "%s_%s_axis%d%s%s", joins ? "concat" : "split", dims_name(a, &whole->type), axis, sizes,
		dtype_suffix(whole->type.dtype));
}

static void concat_holes(const Node *n, Holes *h) { blocks(n, h, n->in, n->nin, n->out[0], true); }

static void split_holes(const Node *n, Holes *h) { blocks(n, h, n->out, n->nout, n->in[0], false); }

/* Rows of `block` bytes: every `from` bytes there, every `to` bytes here. */
static void copy_rows(int64_t rows, char *y, int64_t to, const char *x, int64_t from, int64_t block)
{
	for (int64_t r = 0; r < rows; r++)
		memcpy(y + r * to, x + r * from, (size_t)block);
}

static bool concat_eval(const Node *n, const Tensor *in, Tensor *out, Arena *a)
{
	const int axis = axis_of(n), size = dtype_bytes(n->out[0]->type.dtype);
	int64_t unit, block, at = 0;

	tensor_alloc(&out[0], &n->out[0]->type, a);
	const int64_t rows = rows_of(&out[0].type, axis, &unit), row = unit * out[0].type.dim[axis] * size;
	for (int k = 0; k < n->nin; k++, at += block) {
		block = unit * in[k].type.dim[axis] * size;
		copy_rows(rows, (char *)out[0].data + at, row, in[k].data, block, block);
	}
	return true;
}

static bool split_eval(const Node *n, const Tensor *in, Tensor *out, Arena *a)
{
	const struct split *sp = n->attr;
	const int axis = axis_of(n), size = dtype_bytes(in[0].type.dtype);
	int64_t unit, block, at = 0;
	const int64_t rows = rows_of(&in[0].type, axis, &unit), row = unit * in[0].type.dim[axis] * size;

	for (int k = 0; k < n->nout; k++, at += block) {
		Type t = in[0].type;
		t.dim[axis] = sp->split.v[k];
		block = unit * t.dim[axis] * size;
		tensor_alloc(&out[k], &t, a);
		copy_rows(rows, out[k].data, block, (const char *)in[0].data + at, row, block);
	}
	return true;
}

/* Along other axes, or along this one where every part holds whole blocks of all devices' shares. */
static bool by_parts(const Node *n, bool out, int at, ShardWay *w)
{
	const int axis = axis_of(n);
	Shard s;
	const Type *of;

	if (!shard_seed(n, out, at, w, &s, &of))
		return false;
	const int64_t share = of->dim[s.axis] / s.outer; /* of a block: `degree` parts */

	for (int i = 0; i < n->nin + n->nout; i++) {
		const Value *v = i < n->nin ? n->in[i] : n->out[i - n->nin];
		Shard *lies = i < n->nin ? &w->in[i] : &w->out[i - n->nin];

		if (!v)
			continue;
		*lies = s;
		if (s.axis == axis && v->type.dim[axis] % share)
			return false;
		if (s.axis == axis)
			lies->outer = v->type.dim[axis] / share;
	}
	return true;
}

static const AttrDef concat_attrs[] = { AT_INT(struct concat, axis, 0), AT_END };
static const AttrDef split_attrs[] = { AT_INT(struct split, axis, 0), AT_INTS(struct split, split), AT_END };

const OpDef op_Concat = {
	.name = "Concat",
	.minin = 1,
	.maxin = -1,
	.nout = 1,
	.flags = OP_PURE | OP_NHWC,
	.attrs = concat_attrs,
	.attrsize = sizeof(struct concat),
	.shape = concat_shape,
	.shard = by_parts,
	.grad = concat_grad,
	.dgrad = { DENSE },
	.cost = move_cost,
	.holes = concat_holes,
	.eval = concat_eval,
	.cpu = { .file = "blocks.cpu.c" },
	.ref = { .file = "blocks.cpu.c" },
	.cuda = { .file = "blocks.cuda.cu" },
};

const OpDef op_Split = {
	.name = "Split",
	.minin = 1,
	.maxin = 1,
	.outs = split_outs,
	.flags = OP_PURE | OP_NHWC,
	.attrs = split_attrs,
	.attrsize = sizeof(struct split),
	.shape = split_shape,
	.shard = by_parts,
	.grad = split_grad,
	.dgrad = { DENSE },
	.cost = move_cost,
	.holes = split_holes,
	.eval = split_eval,
	.cpu = { .file = "blocks.cpu.c" },
	.ref = { .file = "blocks.cpu.c" },
	.cuda = { .file = "blocks.cuda.cu" },
};
