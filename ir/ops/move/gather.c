/* Gather along an axis and its gradient. For a float table and axis 0 the gradient touches as many rows as there are
 * indices: GatherGrad's type says so (rows), though the kernel writes all of dim[0], zeros where no index points. The
 * row `padding` gets no gradient (-1: all get theirs).
 * Of a table whose rows are divided among `parts` members of a tensor group (ir/shard.h) each looks up those that it has, zeros where it has
 * not, and so the members' rows add up; it has the gradient of its own.
 *     %y = GatherAdd(%a, %dy, %ids)      %a + GatherGrad(%dy, %ids), where all else that %a holds stays as it is: of a table
 *                                        that is looked up and multiplied with (passes/split/add_uses.c) */
#include <string.h>
#include "move.h"

struct gather {
	int64_t axis, padding, parts, dim0, into_sum;
}; /* of GatherGrad; dim0: size of the axis that was gathered from; into_sum: added to what other microbatches gave (passes/memory/sums.c) */

/* GatherAdd has what it adds to in front. */
static const Value *rows_of(const Node *n) { return n->in[n->op == OP_GatherAdd]; }
static const Value *ids_of(const Node *n) { return n->in[n->op == OP_GatherAdd ? 2 : 1]; }

static int axis_of(const Node *n, int rank)
{
	const struct gather *at = n->attr;

	return (int)(at->axis < 0 ? at->axis + rank : at->axis);
}

static bool check_ids(const Node *n, int64_t dim, Diag *d)
{
	const Value *ids = ids_of(n);
	const Tensor t = const_tensor(ids);

	if (ids->type.dtype != DT_i64 && ids->type.dtype != DT_i32)
		return diag_error(d, n->loc, 302, "%s: indices %s are %s, not i32 or i64", optab[n->op]->name,
			ids->name, str_type(d->scratch, &ids->type));
	for (int64_t i = 0; t.data && i < type_numel(&ids->type); i++)
		if (elem_i(&t, i) < -dim || elem_i(&t, i) >= dim)
			return diag_error(d, n->loc, 306, "%s: index %lld of %s is outside of [0, %lld)",
				optab[n->op]->name, (long long)elem_i(&t, i), ids->name, (long long)dim);
	return true;
}

static bool gather_shape(Node *n, Diag *d)
{
	const struct gather *at = n->attr;
	int axis;

	if (!need_operands(n, d))
		return false;
	const Type *x = &n->in[0]->type, *ids = &n->in[1]->type;
	if (!norm_axis(n, d, "axis", at->axis, x->rank, &axis) || !check_ids(n, x->dim[axis] * at->parts, d))
		return false;
	if (at->padding < -1 || at->padding >= x->dim[axis] * at->parts)
		return diag_error(d, n->loc, 303, "Gather: padding %lld is outside of [0, %lld)",
			(long long)at->padding, (long long)x->dim[axis]);
	if (x->rank + ids->rank - 1 > MAXRANK)
		return diag_error(
			d, n->loc, 305, "Gather: rank of the result %d is above %d", x->rank + ids->rank - 1, MAXRANK);
	Type t = type_scalar(x->dtype);
	for (int i = 0; i < axis; i++)
		t.dim[t.rank++] = x->dim[i];
	for (int i = 0; i < ids->rank; i++)
		t.dim[t.rank++] = ids->dim[i];
	for (int i = axis + 1; i < x->rank; i++)
		t.dim[t.rank++] = x->dim[i];
	set_out(n, 0, t);
	return true;
}

static bool grad_shape(Node *n, Diag *d)
{
	const struct gather *at = n->attr;

	if (!need_operands(n, d))
		return false;
	const Type *dy = &rows_of(n)->type, *ids = &ids_of(n)->type;
	const int rank = dy->rank - ids->rank + 1;
	int axis;
	if (rank < 1)
		return diag_error(d, n->loc, 305, "%s: %s is %s, indices are %s", optab[n->op]->name, rows_of(n)->name,
			str_type(d->scratch, dy), str_type(d->scratch, ids));
	if (!norm_axis(n, d, "axis", at->axis, rank, &axis) || !check_ids(n, at->dim0 * at->parts, d))
		return false;
	Type t = type_scalar(dy->dtype);
	for (int i = 0; i < axis; i++)
		t.dim[t.rank++] = dy->dim[i];
	t.dim[t.rank++] = at->dim0;
	for (int i = axis + ids->rank; i < dy->rank; i++)
		t.dim[t.rank++] = dy->dim[i];
	if (n->op == OP_GatherAdd) {
		if (!shape_eq(&n->in[0]->type, &t) || n->in[0]->type.dtype != t.dtype)
			return diag_error(d, n->loc, 305, "GatherAdd: %s is %s, rows of %s go there", n->in[0]->name,
				str_type(d->scratch, &n->in[0]->type), str_type(d->scratch, &t));
	} else if (axis == 0 && at->parts < 2 && type_numel(ids) < at->dim0) {
		t.rows = type_numel(ids);
	}
	set_out(n, 0, t);
	return true;
}

static void gather_grad(Builder *b, const Node *n, Value *const *dy, Value **dx)
{
	const Type *x = &n->in[0]->type;
	const int axis = axis_of(n, x->rank);
	void *at = attr_new(b->m->arena, OP_GatherGrad);

	attr_put_int(OP_GatherGrad, at, "axis", axis);
	attr_put_int(OP_GatherGrad, at, "padding", ((const struct gather *)n->attr)->padding);
	attr_put_int(OP_GatherGrad, at, "dim0", x->dim[axis]);
	dx[0] = mk(b, OP_GatherGrad, at, NULL, 2, dy[0], n->in[1]);
}

static void grad_grad(Builder *b, const Node *n, Value *const *dy, Value **dx)
{
	void *at = attr_new(b->m->arena, OP_Gather);

	attr_put_int(OP_Gather, at, "axis", axis_of(n, n->out[0]->type.rank));
	dx[0] = mk(b, OP_Gather, at, NULL, 2, dy[0], n->in[1]);
}

/* Indices that the shape rule has seen (constants) or that the runtime checks where they come in need no test. */
static bool checked(const Value *ids, int64_t dim)
{
	return const_tensor(ids).data || (ids->kind == VAL_INPUT && ids->index_range > 0 && ids->index_range <= dim);
}

/* Inputs are checked to lie in [0, dim); constants may be negative, and so may what is computed. */
static bool negative(const Value *ids, int64_t dim)
{
	const Tensor t = const_tensor(ids);

	for (int64_t i = 0; t.data && i < type_numel(&ids->type); i++)
		if (elem_i(&t, i) < 0)
			return true;
	return !checked(ids, dim);
}

static void holes(const Node *n, Holes *h)
{
	const bool adds = n->op == OP_GatherAdd, back = adds || n->op == OP_GatherGrad;
	const Type *table = back ? &n->out[0]->type : &n->in[0]->type,
		   *dense = back ? &rows_of(n)->type : &n->out[0]->type;
	const Type *ids = &ids_of(n)->type;
	const int axis = axis_of(n, table->rank);
	const int64_t parts = ((const struct gather *)n->attr)->parts, dim = table->dim[axis];
	const bool neg = negative(ids_of(n), dim * parts), check = !checked(ids_of(n), dim * parts);
	const char *ix = type_numel(table) < INT32_MAX && type_numel(dense) < INT32_MAX ? "int" : "int64_t";
	const bool sum = back && ((const struct gather *)n->attr)->into_sum;
	const int64_t pad = back ? ((const struct gather *)n->attr)->padding : -1;
	int64_t outer = 1, inner = 1;

	for (int i = 0; i < table->rank; i++) {
		if (i < axis)
			outer *= table->dim[i];
		if (i > axis)
			inner *= table->dim[i];
	}
	hole_text(h, "T", "%s", dtype_c(table->dtype));
	hole_text(h, "TI", "%s", dtype_c(ids->dtype));
	hole_int(h, "OUTER", outer);
	hole_int(h, "IDS", type_numel(ids));
	hole_int(h, "DIM", dim);
	hole_int(h, "WHOLE", dim * parts);
	hole_int(h, "PARTS", parts > 1);
	hole_int(h, "INNER", inner);
	hole_int(h, "NEG", neg);
	hole_int(h, "CHECK", check);
	hole_int(h, "PADDED", pad >= 0);
	hole_int(h, "PADDING", pad);
	hole_text(h, "MISSING", "%s", dtype_float(table->dtype) ? "NAN" : "0");
	hole_text(h, "IX", "%s", ix);
	hole_text(h, "TO", "%s", outer == 1 ? "k" : "(o * IDS + k)");
	hole_text(h, "FROM", outer == 1 ? "(%s)row" : "(o * DIM + (%s)row)", ix);
	hole_int(h, "NUMEL", type_numel(&n->out[0]->type));
	hole_int(h, "ADDS", adds);
	hole_int(h, "SUM", sum);
	if (sum)
		hole_text(h, "CALL", "$k($=, $0, $1, done > 0);");
	const int64_t times = inner >= 32 ? dim * (int64_t)sizeof(int) : 0,
		      own = parts > 1 ? type_numel(ids) * dtype_bytes(ids->dtype) : 0;
	hole_int(h, "TIMES", own ? (times + 255) / 256 * 256 : times);
	if (back && times + own)
		hole_int(h, "ROOM", own ? (times + 255) / 256 * 256 + own : times);
	hole_int(h, "PAR", type_numel(dense) >= 32768 && (!back || inner > 64));
	parallel_hole(h, false, outer == 1 ? 1 : 2);
	hole_name(h, "gather%s_%lldx%lldx%lld_by_%lld%s%s%s%s%s",
		sum    ? "_sum"
		: adds ? "_add"
		: back ? "_grad"
		       : "",
		(long long)outer, (long long)dim, (long long)inner, (long long)type_numel(ids),
		pad >= 0 ? arena_printf(h->arena, "_pad%lld", (long long)pad) : "",
		parts > 1 ? arena_printf(h->arena, "_of_%lld", (long long)(dim * parts)) : "",
		ids->dtype == DT_i32 ? "_i32" : "",
		check ? "_checked"
		: neg ? "_neg"
		      : "",
		dtype_suffix(table->dtype));
}

static bool eval(const Node *n, const Tensor *in, Tensor *out, Arena *a)
{
	const Type *x = &in[0].type;
	const int axis = axis_of(n, x->rank), size = dtype_bytes(x->dtype);
	const int64_t ids = type_numel(&in[1].type), dim = x->dim[axis];
	int64_t outer = 1, inner = size;

	for (int i = 0; i < axis; i++)
		outer *= x->dim[i];
	for (int i = axis + 1; i < x->rank; i++)
		inner *= x->dim[i];
	tensor_alloc(&out[0], &n->out[0]->type, a);
	for (int64_t o = 0; o < outer; o++)
		for (int64_t k = 0; k < ids; k++) {
			const int64_t r = elem_i(&in[1], k), row = o * dim + (r < 0 ? r + dim : r);
			memcpy((char *)out[0].data + (o * ids + k) * inner, (const char *)in[0].data + row * inner,
				(size_t)inner);
		}
	return true;
}

static bool grad_eval(const Node *n, const Tensor *in, Tensor *out, Arena *a)
{
	const Type *y = &n->out[0]->type;
	const bool adds = n->op == OP_GatherAdd;
	const Tensor *rows = &in[adds], *at = &in[adds ? 2 : 1];
	const int axis = axis_of(n, y->rank);
	const int64_t ids = type_numel(&at->type), dim = y->dim[axis];
	int64_t inner = 1;

	for (int i = axis + 1; i < y->rank; i++)
		inner *= y->dim[i];
	tensor_alloc(&out[0], y, a);
	for (int64_t i = 0; adds && i < type_numel(y); i++)
		elem_set_f(&out[0], i, elem_f(&in[0], i));
	for (int64_t i = 0; i < type_numel(&rows->type); i++) {
		const int64_t r = elem_i(at, i / inner % ids), row = i / inner / ids * dim + (r < 0 ? r + dim : r);
		const int64_t to = row * inner + i % inner;
		if ((r < 0 ? r + dim : r) != ((const struct gather *)n->attr)->padding)
			elem_set_f(&out[0], to, elem_f(&out[0], to) + elem_f(rows, i));
	}
	return true;
}

#define COMMON AT_INT(struct gather, axis, 0), AT_INT(struct gather, padding, -1), AT_INT(struct gather, parts, 1)
static const AttrDef attrs[] = { COMMON, AT_END };
static const AttrDef grad_attrs[] = { COMMON, AT_INT(struct gather, dim0, 0), AT_INT(struct gather, into_sum, 0),
	AT_END };

/* The axis that is looked up, or those that are not. Table and rows are in and out of Gather, out and in of its gradient. */
static bool by_table(const Node *n, bool out, int at, ShardWay *w)
{
	const bool grad = n->op == OP_GatherGrad;
	const Type *table = grad ? &n->out[0]->type : &n->in[0]->type;
	const int axis = axis_of(n, table->rank), more = n->in[1]->type.rank - 1;
	Shard s, *whole = grad ? &w->out[0] : &w->in[0], *rows = grad ? &w->in[0] : &w->out[0];
	const Type *of;

	if (!shard_seed(n, out, at, w, &s, &of) || (!out && at))
		return false;
	const bool from_table = out == grad;
	const int column = from_table || s.axis < axis ? s.axis : s.axis - more;

	if (from_table && column == axis && s.outer == 1 && axis == 0 && dtype_float(table->dtype) &&
		((const struct gather *)n->attr)->parts < 2) {
		*rows = grad ? (Shard){ SHARD_WHOLE, 0, 0 } : (Shard){ SHARD_PARTIAL, 0, 0 };
		return true;
	}
	if (column == axis || (!from_table && s.axis >= axis && s.axis <= axis + more))
		return false;
	*whole = (Shard){ SHARD_AXIS, column, s.outer };
	*rows = (Shard){ SHARD_AXIS, column < axis ? column : column + more, s.outer };
	return true;
}

const OpDef op_Gather = {
	.name = "Gather",
	.minin = 2,
	.maxin = 2,
	.nout = 1,
	.flags = OP_PURE,
	.attrs = attrs,
	.attrsize = sizeof(struct gather),
	.shape = gather_shape,
	.shard = by_table,
	.grad = gather_grad,
	.dgrad = { ROWS, NOGRAD },
	.cost = move_cost,
	.holes = holes,
	.eval = eval,
	.cpu = { .file = "gather.cpu.c", .call = "$k($=, $0, $1);" },
	.ref = { .file = "gather.cpu.c", .call = "$k($=, $0, $1);" },
	.cuda = { .file = "gather.cuda.cu", .call = "$k($=, $0, $1);" },
};

const OpDef op_GatherGrad = {
	.name = "GatherGrad",
	.minin = 2,
	.maxin = 2,
	.nout = 1,
	.flags = OP_PURE,
	.attrs = grad_attrs,
	.attrsize = sizeof(struct gather),
	.shape = grad_shape,
	.shard = by_table,
	.grad = grad_grad,
	.dgrad = { DENSE, NOGRAD },
	.cost = move_cost,
	.holes = holes,
	.eval = grad_eval,
	.cpu = { .file = "gather_grad.cpu.c", .call = "$k($=, $0, $1);" },
	.ref = { .file = "gather_grad.cpu.c", .call = "$k($=, $0, $1);" },
	.cuda = { .file = "gather_grad.cuda.cu", .call = "$k($=, $0, $1);" },
};

/* Of what it adds to, the rows alone are read and written when it is the result's memory. */
static Cost add_cost(const Node *n)
{
	return (Cost){ (double)type_numel(&n->in[1]->type),
		3.0 * (double)type_bytes(&n->in[1]->type) + (double)type_bytes(&n->in[2]->type) };
}

const OpDef op_GatherAdd = {
	.name = "GatherAdd",
	.minin = 3,
	.maxin = 3,
	.nout = 1,
	.flags = OP_PURE | OP_INPLACE,
	.attrs = grad_attrs,
	.attrsize = sizeof(struct gather),
	.shape = grad_shape,
	.cost = add_cost,
	.holes = holes,
	.eval = grad_eval,
	.cpu = { .file = "gather_grad.cpu.c", .call = "$k($=, $0, $1, $2);" },
	.ref = { .file = "gather_grad.cpu.c", .call = "$k($=, $0, $1, $2);" },
	.cuda = { .file = "gather_grad.cuda.cu", .call = "$k($=, $0, $1, $2);" },
};
