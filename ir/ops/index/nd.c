/* GatherND, its gradient, and ScatterND: the last axis of the indices holds the first q coordinates of a block in the
 * data (behind batch_dims axes that both share); the rest of the data's axes are the block.
 *     GatherND      y[b.., k.., ..] = x[b.., ids[b.., k..], ..]
 *     GatherNDGrad  zeros of `shape`, to which dy adds up where ids point
 *     ScatterND     x, which updates join (none: replace) where ids point
 * Kernels see x as [OUTER, TABLE, INNER], TABLE the product of the q axes. Equal indices join in their order. */
#include <string.h>
#include "index.h"

struct nd {
	int64_t batch_dims;
	Ints shape;
	const char *reduction;
};

/* What a node's tensors are to the kernel. */
typedef struct Cut {
	int batch, q;
	int64_t outer, ids, table, inner;
} Cut;

static int64_t batch_of(const Node *n) { return n->op == OP_ScatterND ? 0 : ((const struct nd *)n->attr)->batch_dims; }

static Cut cut(const Node *n, const Type *table)
{
	const Type *ids = &n->in[1]->type;
	const int b = (int)batch_of(n), q = (int)ids->dim[ids->rank - 1];

	return (Cut){ b, q, dims_product(table, 0, b), dims_product(ids, b, ids->rank - 1),
		dims_product(table, b, b + q), dims_product(table, b + q, table->rank) };
}

static bool table_type(const Node *n, Type *t, Diag *d)
{
	const struct nd *at = n->attr;

	*t = n->in[0]->type;
	t->rows = 0;
	t->layout = LAYOUT_PLAIN;
	return n->op != OP_GatherNDGrad || need_type(n, d, "shape", at->shape, t->dtype, t);
}

/* Checks table and indices against each other; *dense is the type of what is gathered, or of the updates. */
static bool check_ids(const Node *n, const Type *table, Type *dense, Diag *d)
{
	const Value *v = n->in[1];
	const Type *ids = &v->type;
	const int64_t b = batch_of(n);

	if (!index_dtype(n, 1, d))
		return false;
	if (b < 0 || b >= ids->rank || b >= table->rank)
		return diag_error(d, n->loc, 303, "%s: batch_dims is %lld, outside of [0, %d)", optab[n->op]->name,
			(long long)b, ids->rank < table->rank ? ids->rank : table->rank);
	const int64_t q = ids->dim[ids->rank - 1];
	if (q < 1 || q > table->rank - b)
		return diag_error(d, n->loc, 305, "%s: indices %s are %s, %lld coordinates for %s", optab[n->op]->name,
			v->name, str_type(d->scratch, ids), (long long)q, str_type(d->scratch, table));
	for (int i = 0; i < b; i++)
		if (ids->dim[i] != table->dim[i])
			return diag_error(d, n->loc, 304,
				"%s: axis %d, one of batch_dims, is %lld in %s and %lld in %s", optab[n->op]->name, i,
				(long long)ids->dim[i], v->name, (long long)table->dim[i], n->in[0]->name);
	if (ids->rank - 1 + table->rank - b - q > MAXRANK)
		return diag_error(d, n->loc, 305, "%s: rank of the result %lld is above %d", optab[n->op]->name,
			(long long)(ids->rank - 1 + table->rank - b - q), MAXRANK);
	for (int64_t i = 0; v->kind == VAL_CONST && v->data && i < type_numel(ids); i++)
		if (!index_inside(n, v, i, table->dim[b + i % q], d))
			return false;
	*dense = type_scalar(table->dtype);
	for (int i = 0; i < ids->rank - 1; i++)
		dense->dim[dense->rank++] = ids->dim[i];
	for (int i = (int)(b + q); i < table->rank; i++)
		dense->dim[dense->rank++] = table->dim[i];
	return true;
}

static bool shape(Node *n, Diag *d)
{
	const struct nd *at = n->attr;
	Type table, dense;

	if (!need_operands(n, d))
		return false;
	if (!n->in[1]->type.rank)
		return diag_error(d, n->loc, 305, "%s: indices %s are %s, rank 1 is needed", optab[n->op]->name,
			n->in[1]->name, str_type(d->scratch, &n->in[1]->type));
	if (!table_type(n, &table, d) || !check_ids(n, &table, &dense, d))
		return false;
	set_out(n, 0, n->op == OP_GatherND ? dense : table);
	if (n->op == OP_GatherND)
		return true;
	const Value *u = n->in[n->op == OP_GatherNDGrad ? 0 : 2];
	if (u->type.dtype != table.dtype)
		return diag_error(d, n->loc, 302, "%s: operands differ in element type: %s is %s, %s is %s",
			optab[n->op]->name, n->in[0]->name, str_type(d->scratch, &table), u->name,
			str_type(d->scratch, &u->type));
	if (u->type.rank && !need_same_shape(n, d, u, &dense))
		return false;
	return n->op == OP_GatherNDGrad || reduction_ok(n, at->reduction, d);
}

/* ---- gradients ---- */

static void gather_grad(Builder *b, const Node *n, Value *const *dy, Value **dx)
{
	const Type *x = &n->in[0]->type;
	void *at = attr_new(b->m->arena, OP_GatherNDGrad);

	attr_put_int(OP_GatherNDGrad, at, "batch_dims", batch_of(n));
	attr_put_ints(b->m->arena, OP_GatherNDGrad, at, "shape", x->rank, x->dim);
	dx[0] = mk(b, OP_GatherNDGrad, at, NULL, 2, dy[0], n->in[1]);
}

static void grad_grad(Builder *b, const Node *n, Value *const *dy, Value **dx)
{
	void *at = attr_new(b->m->arena, OP_GatherND);

	attr_put_int(OP_GatherND, at, "batch_dims", batch_of(n));
	dx[0] = mk(b, OP_GatherND, at, NULL, 2, dy[0], n->in[1]);
}

/* ---- constant folding ---- */

/* The row of the table that coordinates k of the indices name. */
static int64_t row_of(const Tensor *ids, const Type *table, const Cut *c, int64_t k)
{
	int64_t row = 0;

	for (int i = 0; i < c->q; i++) {
		const int64_t dim = table->dim[c->batch + i], r = elem_i(ids, k * c->q + i);
		row = row * dim + (r < 0 ? r + dim : r);
	}
	return row;
}

static bool gather_eval(const Node *n, const Tensor *in, Tensor *out, Arena *a)
{
	const Cut c = cut(n, &in[0].type);
	const int64_t size = c.inner * dtype_bytes(in[0].type.dtype);

	tensor_alloc(&out[0], &n->out[0]->type, a);
	for (int64_t k = 0; size && k < c.outer * c.ids; k++)
		memcpy((char *)out[0].data + k * size,
			(const char *)in[0].data + (k / c.ids * c.table + row_of(&in[1], &in[0].type, &c, k)) * size,
			(size_t)size);
	return true;
}

static bool scatter_eval(const Node *n, const Tensor *in, Tensor *out, Arena *a)
{
	const struct nd *at = n->attr;
	const Type *y = &n->out[0]->type;
	const bool back = n->op == OP_GatherNDGrad;
	const Tensor *u = &in[back ? 0 : 2];
	const bool one = !u->type.rank;
	const Cut c = cut(n, y);

	tensor_alloc(&out[0], y, a);
	if (!back && type_numel(y))
		memcpy(out[0].data, in[0].data, (size_t)type_bytes(y));
	for (int64_t k = 0; k < c.outer * c.ids; k++) {
		const int64_t to = (k / c.ids * c.table + row_of(&in[1], y, &c, k)) * c.inner;
		for (int64_t i = 0; i < c.inner; i++)
			reduction_eval(back ? "add" : at->reduction, &out[0], to + i, u, one ? 0 : k * c.inner + i);
	}
	return true;
}

/* ---- kernels ---- */

static void common_holes(const Node *n, Holes *h, const Type *table, const Cut *c)
{
	const char *dims = "";
	int64_t most = type_numel(table);

	for (int i = 0; i < c->q; i++)
		dims = arena_printf(h->arena, "%s%s%lld", dims, i ? ", " : "", (long long)table->dim[c->batch + i]);
	if (most < c->outer * c->ids * c->inner)
		most = c->outer * c->ids * c->inner;
	hole_text(h, "T", "%s", dtype_c(table->dtype));
	hole_text(h, "TI", "%s", dtype_c(n->in[1]->type.dtype));
	hole_text(h, "IX", "%s", most < INT32_MAX && type_numel(&n->in[1]->type) < INT32_MAX ? "int" : "int64_t");
	hole_int(h, "OUTER", c->outer);
	hole_int(h, "IDS", c->ids);
	hole_int(h, "TABLE", c->table);
	hole_int(h, "INNER", c->inner);
	hole_int(h, "Q", c->q);
	hole_text(h, "DIMS", "%s", dims);
	hole_int(h, "CHECK", !index_checked(n->in[1]));
	hole_int(h, "NUMEL", type_numel(table));
}

static const char *kernel_name(Arena *a, const Node *n, const Type *table, const Cut *c)
{
	return arena_printf(a, "%s_by_%s%s%s%s", dims_name(a, table), dims_name(a, &n->in[1]->type),
		c->batch ? arena_printf(a, "_batch%d", c->batch) : "", n->in[1]->type.dtype == DT_i32 ? "_i32" : "",
		index_checked(n->in[1]) ? "" : "_checked");
}

static void gather_holes(const Node *n, Holes *h)
{
	const Type *x = &n->in[0]->type;
	const Cut c = cut(n, x);

	common_holes(n, h, x, &c);
	hole_int(h, "ROWS", c.outer * c.ids);
	hole_int(h, "EACH", c.ids ? c.ids : 1);
	hole_text(h, "MISSING", "%s", index_missing(x->dtype));
	hole_int(h, "PAR", type_numel(&n->out[0]->type) >= 32768);
	hole_name(h, "gather_nd_%s%s", kernel_name(h->arena, n, x, &c), dtype_suffix(x->dtype));
}

static void scatter_holes(const Node *n, Holes *h)
{
	const struct nd *at = n->attr;
	const bool back = n->op == OP_GatherNDGrad;
	const Type *y = &n->out[0]->type;
	const bool one = !n->in[back ? 0 : 2]->type.rank;
	const Cut c = cut(n, y);
	const char *reduction = back ? "add" : at->reduction;
	const int64_t work = c.outer * c.ids * c.inner;

	common_holes(n, h, y, &c);
	hole_text(h, "PARAMS", "%sconst T *restrict u, const TI *restrict ids", back ? "" : "const T *restrict a, ");
	hole_int(h, "ZERO", back);
	hole_int(h, "LOST", !back && c.table > 0 && dtype_float(y->dtype));
	hole_int(h, "BLOCK", c.inner > 64 && work >= 32768 ? 64 : c.inner > 0 ? c.inner : 1);
	hole_int(h, "PAR", work >= 32768 && (c.outer > 1 || c.inner > 64));
	hole_text(h, "JOIN", "%s", reduction_text(h->arena, reduction, "to[i]", one ? "u[0]" : "from[i]"));
	hole_int(h, "ONE", one);
	hole_int(h, "WAYS", scatter_ways(c.outer * c.inner, c.ids));
	hole_name(h, "%s%s_%s%s%s", back ? "gather_nd_grad" : "scatter_nd",
		back || !strcmp(reduction, "none") ? "" : arena_printf(h->arena, "_%s", reduction),
		kernel_name(h->arena, n, y, &c), one ? "_one" : "", dtype_suffix(y->dtype));
}

static const AttrDef gather_attrs[] = { AT_INT(struct nd, batch_dims, 0), AT_END };
static const AttrDef grad_attrs[] = { AT_INT(struct nd, batch_dims, 0), AT_INTS(struct nd, shape), AT_END };
static const AttrDef scatter_attrs[] = { AT_STR(struct nd, reduction, "none"), AT_END };

const OpDef op_GatherND = {
	.name = "GatherND",
	.minin = 2,
	.maxin = 2,
	.nout = 1,
	.flags = OP_PURE,
	.attrs = gather_attrs,
	.attrsize = sizeof(struct nd),
	.shape = shape,
	.grad = gather_grad,
	.dgrad = { DENSE, NOGRAD },
	.cost = move_cost,
	.holes = gather_holes,
	.eval = gather_eval,
	.cpu = { .file = "gather_nd.cpu.c", .call = "$k($=, $0, $1);" },
	.ref = { .file = "gather_nd.cpu.c", .call = "$k($=, $0, $1);" },
	.cuda = { .file = "gather_nd.cuda.cu", .call = "$k($=, $0, $1);" },
};

const OpDef op_GatherNDGrad = {
	.name = "GatherNDGrad",
	.minin = 2,
	.maxin = 2,
	.nout = 1,
	.flags = OP_PURE,
	.attrs = grad_attrs,
	.attrsize = sizeof(struct nd),
	.shape = shape,
	.grad = grad_grad,
	.dgrad = { DENSE, NOGRAD },
	.cost = move_cost,
	.holes = scatter_holes,
	.eval = scatter_eval,
	.cpu = { .file = "scatter_nd.cpu.c", .call = "$k($=, $0, $1);" },
	.ref = { .file = "scatter_nd.cpu.c", .call = "$k($=, $0, $1);" },
	.cuda = { .file = "scatter_nd.cuda.cu", .call = "$k($=, $0, $1);" },
};

const OpDef op_ScatterND = {
	.name = "ScatterND",
	.minin = 3,
	.maxin = 3,
	.nout = 1,
	.flags = OP_PURE,
	.attrs = scatter_attrs,
	.attrsize = sizeof(struct nd),
	.shape = shape,
	.grad = scatter_grad,
	.dgrad = { DENSE, NOGRAD, DENSE },
	.cost = move_cost,
	.holes = scatter_holes,
	.eval = scatter_eval,
	.cpu = { .file = "scatter_nd.cpu.c", .call = "$k($=, $0, $2, $1);" },
	.ref = { .file = "scatter_nd.cpu.c", .call = "$k($=, $0, $2, $1);" },
	.cuda = { .file = "scatter_nd.cuda.cu", .call = "$k($=, $0, $2, $1);" },
};
