/* GatherElements, its gradient, and ScatterElements: indices have the rank of the data and name a place along one axis;
 * along the other axes an element stays where it is. They may cover less of those axes than the data has.
 *     GatherElements      y[.. i ..] = x[.. ids[.. i ..] ..]
 *     GatherElementsGrad  zeros of `shape`, to which dy adds up where ids point
 *     ScatterElements     x, which updates join (none: replace) where ids point
 * Equal indices join in the order in which they stand along the axis, whatever the threads. */
#include <string.h>
#include "index.h"

struct elements {
	int64_t axis;
	Ints shape;
	const char *reduction;
};

static bool table_type(const Node *n, Type *t, Diag *d)
{
	const struct elements *at = n->attr;

	*t = n->in[0]->type;
	t->rows = 0;
	t->layout = LAYOUT_PLAIN;
	if (n->op != OP_GatherElementsGrad)
		return true;
	if (at->shape.n != t->rank)
		return diag_error(d, n->loc, 305, "%s: %s is %s, the shape has %d axes", optab[n->op]->name,
			n->in[0]->name, str_type(d->scratch, t), at->shape.n);
	return need_type(n, d, "shape", at->shape, t->dtype, t);
}

/* The indices lie inside of the table along every axis, as coordinates and as values. */
static bool check_ids(const Node *n, const Type *table, int *axis, Diag *d)
{
	const struct elements *at = n->attr;
	const Value *v = n->in[1];
	const Type *ids = &v->type;
	bool ok = ids->rank == table->rank;

	if (!index_dtype(n, 1, d) || !norm_axis(n, d, "axis", at->axis, table->rank, axis))
		return false;
	for (int i = 0; ok && i < ids->rank; i++)
		ok = i == *axis || ids->dim[i] <= table->dim[i];
	if (!ok)
		return diag_error(d, n->loc, 304, "%s: indices %s are %s, which do not lie within %s",
			optab[n->op]->name, v->name, str_type(d->scratch, ids), str_type(d->scratch, table));
	for (int64_t i = 0; v->kind == VAL_CONST && v->data && i < type_numel(ids); i++)
		if (!index_inside(n, v, i, table->dim[*axis], d))
			return false;
	return true;
}

static bool shape(Node *n, Diag *d)
{
	const struct elements *at = n->attr;
	const int with_ids = n->op == OP_GatherElementsGrad ? 0 : 2;
	Type table, y;
	int axis;

	if (!need_operands(n, d) || !table_type(n, &table, d) || !check_ids(n, &table, &axis, d))
		return false;
	y = table;
	if (n->op == OP_GatherElements) {
		y = n->in[1]->type;
		y.dtype = table.dtype;
	}
	set_out(n, 0, y);
	if (n->op == OP_GatherElements)
		return true;
	const Value *u = n->in[with_ids], *ids = n->in[1];
	if (u->type.dtype != y.dtype)
		return diag_error(d, n->loc, 302, "%s: operands differ in element type: %s is %s, %s is %s",
			optab[n->op]->name, n->in[0]->name, str_type(d->scratch, &y), u->name,
			str_type(d->scratch, &u->type));
	if (!shape_eq(&u->type, &ids->type) && u->type.rank)
		return diag_error(d, n->loc, 304, "%s: updates %s are %s, indices %s are %s", optab[n->op]->name,
			u->name, str_type(d->scratch, &u->type), ids->name, str_type(d->scratch, &ids->type));
	return n->op == OP_GatherElementsGrad || reduction_ok(n, at->reduction, d);
}

/* ---- gradients ---- */

static void gather_grad(Builder *b, const Node *n, Value *const *dy, Value **dx)
{
	const Type *x = &n->in[0]->type;
	void *at = attr_new(b->m->arena, OP_GatherElementsGrad);

	attr_put_int(OP_GatherElementsGrad, at, "axis", attr_int(n, "axis"));
	attr_put_ints(b->m->arena, OP_GatherElementsGrad, at, "shape", x->rank, x->dim);
	dx[0] = mk(b, OP_GatherElementsGrad, at, NULL, 2, dy[0], n->in[1]);
}

static void grad_grad(Builder *b, const Node *n, Value *const *dy, Value **dx)
{
	void *at = attr_new(b->m->arena, OP_GatherElements);

	attr_put_int(OP_GatherElements, at, "axis", attr_int(n, "axis"));
	dx[0] = mk(b, OP_GatherElements, at, NULL, 2, dy[0], n->in[1]);
}

/* ---- constant folding ---- */

/* Where element i of the indices lies in the table when its place along the axis is `row`. */
static int64_t place(const Type *ids, const Type *table, int axis, int64_t i, int64_t row)
{
	int64_t at = 0, step = 1;

	for (int k = ids->rank - 1; k >= 0; i /= ids->dim[k--]) {
		at += (k == axis ? row : i % ids->dim[k]) * step;
		step *= table->dim[k];
	}
	return at;
}

static int64_t row_of(const Tensor *ids, int64_t i, int64_t dim)
{
	const int64_t r = elem_i(ids, i);

	return r < 0 ? r + dim : r;
}

static bool gather_eval(const Node *n, const Tensor *in, Tensor *out, Arena *a)
{
	const struct elements *at = n->attr;
	const Type *x = &in[0].type;
	const int axis = axis_from(at->axis, x->rank), size = dtype_bytes(x->dtype);

	tensor_alloc(&out[0], &n->out[0]->type, a);
	for (int64_t i = 0; i < type_numel(&in[1].type); i++)
		memcpy((char *)out[0].data + i * size,
			(const char *)in[0].data +
				place(&in[1].type, x, axis, i, row_of(&in[1], i, x->dim[axis])) * size,
			(size_t)size);
	return true;
}

static bool scatter_eval(const Node *n, const Tensor *in, Tensor *out, Arena *a)
{
	const struct elements *at = n->attr;
	const Type *y = &n->out[0]->type;
	const bool back = n->op == OP_GatherElementsGrad;
	const Tensor *u = &in[back ? 0 : 2];
	const int axis = axis_from(at->axis, y->rank);

	tensor_alloc(&out[0], y, a);
	if (!back && type_numel(y))
		memcpy(out[0].data, in[0].data, (size_t)type_bytes(y));
	for (int64_t i = 0; i < type_numel(&in[1].type); i++)
		reduction_eval(back ? "add" : at->reduction, &out[0],
			place(&in[1].type, y, axis, i, row_of(&in[1], i, y->dim[axis])), u, u->type.rank ? i : 0);
	return true;
}

/* ---- kernels ---- */

/* The loops over the indices: op 0 the indices, op 1 the table at place 0 of the axis, op 2 what lies like op 0. */
static Nest ids_nest(const Node *n, const Type *table, int axis, const char *named_table, const char *like, bool one)
{
	const Type *ids = &n->in[1]->type;
	int64_t stride[MAXRANK];
	Nest s;

	type_strides(table, stride);
	stride[axis] = 0;
	nest_begin(&s, node_arena(n), ids->rank, ids->dim);
	nest_add_type(&s, "ids", ids);
	nest_add(&s, named_table, 0, stride);
	if (one)
		nest_add(&s, like, 0, NULL);
	else
		nest_add_type(&s, like, ids);
	nest_finish(&s);
	return s;
}

static const char *row_text(Arena *a, const Node *n, const char *ref, int64_t dim)
{
	return index_negative(n->in[1]) ? arena_printf(a, "%s < 0 ? %s + %lld : %s", ref, ref, (long long)dim, ref)
	                                : ref;
}

static const char *ids_name(Arena *a, const Node *n)
{
	const Value *v = n->in[1];

	return arena_printf(a, "%s%s", v->type.dtype == DT_i32 ? "_i32" : "",
		!index_checked(v)   ? "_checked"
		: index_negative(v) ? "_neg"
				    : "");
}

static void gather_holes(const Node *n, Holes *h)
{
	const struct elements *at = n->attr;
	const Type *x = &n->in[0]->type, *y = &n->out[0]->type;
	const int axis = axis_from(at->axis, x->rank);
	const Blocks k = blocks_of(x, axis);
	const Nest s = ids_nest(n, x, axis, "a", "y", false);
	const char *c = dtype_c(x->dtype), *to = nest_ref(h->arena, &s, 2);
	const char *from = arena_printf(h->arena, "(&%s)[row * %lld]", nest_ref(h->arena, &s, 1), (long long)k.inner);

	nest_holes(&s, h);
	hole_text(h, "PARAMS", "%s *y, const %s *a, const %s *ids", c, c, dtype_c(n->in[1]->type.dtype));
	hole_text(h, "CALL", "$k($=, $0, $1);");
	if (!index_checked(n->in[1]))
		from = arena_printf(
			h->arena, "row < 0 || row >= %lld ? %s : %s", (long long)k.dim, index_missing(x->dtype), from);
	if (k.dim)
		hole_text(h, "BODY", "const int64_t row = %s;\n\t\t%s = %s;",
			row_text(h->arena, n, nest_ref(h->arena, &s, 0), k.dim), to, from);
	else
		hole_text(h, "BODY", "(void)a, (void)ids;\n\t\t%s = %s;", to, index_missing(x->dtype));
	hole_name(h, "gather_elements_%s_by_%s_axis%d%s%s", dims_name(h->arena, x), dims_name(h->arena, y), axis,
		ids_name(h->arena, n), dtype_suffix(x->dtype));
}

/* All loops but the innermost as text, outermost first, and how many of all run before the axis does. */
static const char *loops(Arena *a, const Nest *s, const char *ix, int *free)
{
	static const char loop[] = "ijklmnpq";
	const char *text = "";

	for (int d = 0; d + 1 < s->rank; d++)
		text = arena_printf(a, "%s%sfor (%s %c = 0; %c < %lld; %c++)", text, d ? "\n\t" : "", ix,
			loop[s->rank - 1 - d], loop[s->rank - 1 - d], (long long)s->dim[d], loop[s->rank - 1 - d]);
	for (*free = 0; *free < s->rank && s->op[1].stride[*free]; ++*free)
		;
	return text;
}

/* The holes of the loops: threads take the loops before the axis, or columns behind it. */
static void loop_holes(Holes *h, const Nest *s, bool small, bool many)
{
	const int64_t d0 = s->rank ? s->dim[s->rank - 1] : 1;
	int outer;

	hole_text(h, "IX", small ? "int" : "int64_t");
	hole_text(h, "LOOPS", "%s", loops(h->arena, s, small ? "int" : "int64_t", &outer));
	hole_int(h, "RANK", s->rank);
	hole_int(h, "D0", d0);
	hole_int(h, "PAR", many && outer > 0);
	hole_int(h, "COLS", many && !outer && s->rank > 1 && d0 >= 128 && s->op[1].stride[s->rank - 1]);
	parallel_hole(h, false, outer);
}

/* GPU: the loops along the axis (where the table stands still) and the others. */
static void kept_holes(Holes *h, const Nest *s)
{
	unsigned kept = 0;
	int64_t kept_count = 1, gone_count = 1;

	for (int d = 0; d < s->rank; d++) {
		kept |= s->op[1].stride[d] ? 1u << d : 0;
		*(s->op[1].stride[d] ? &kept_count : &gone_count) *= s->dim[d];
	}
	hole_int(h, "KEPT_COUNT", kept_count);
	hole_int(h, "GONE_COUNT", gone_count);
	hole_text(h, "KEPT_INDEX", "%s", nest_index(h->arena, s, "o", kept));
	hole_text(h, "GONE_INDEX", "%s", nest_index(h->arena, s, "r", ~kept));
	hole_int(h, "WAYS", scatter_ways(kept_count, gone_count));
}

static void scatter_holes(const Node *n, Holes *h)
{
	const struct elements *at = n->attr;
	const bool back = n->op == OP_GatherElementsGrad;
	const Type *y = &n->out[0]->type, *ids = &n->in[1]->type;
	const Value *u = n->in[back ? 0 : 2];
	const bool one = !shape_eq(&u->type, ids);
	const int axis = axis_from(at->axis, y->rank);
	const Blocks k = blocks_of(y, axis);
	const Nest s = ids_nest(n, y, axis, "y", "u", one);
	const char *reduction = back ? "add" : at->reduction, *c = dtype_c(y->dtype), *base = nest_ref(h->arena, &s, 1);

	hole_text(h, "T", "%s", c);
	hole_text(h, "PARAMS", "%sconst %s *restrict u, const %s *restrict ids", back ? "" : "const T *restrict a, ", c,
		dtype_c(ids->dtype));
	hole_int(h, "ZERO", back);
	hole_int(h, "NUMEL", type_numel(y));
	loop_holes(h, &s, type_numel(y) < INT32_MAX && type_numel(ids) < INT32_MAX, type_numel(ids) >= 32768);
	kept_holes(h, &s);
	hole_text(h, "ROW", "%s", row_text(h->arena, n, nest_ref(h->arena, &s, 0), k.dim));
	hole_int(h, "CHECK", !index_checked(n->in[1]));
	hole_int(h, "LOST", !back && k.dim > 0 && dtype_float(y->dtype));
	hole_int(h, "DIM", k.dim);
	hole_text(h, "BASE", "%s", base);
	hole_text(h, "JOIN", "%s",
		reduction_text(h->arena, reduction,
			arena_printf(h->arena, "(&%s)[row * %lld]", base, (long long)k.inner),
			nest_ref(h->arena, &s, 2)));
	hole_name(h, "%s_%s_by_%s_axis%d%s%s%s%s%s", back ? "gather_elements_grad" : "scatter_elements",
		dims_name(h->arena, y), dims_name(h->arena, ids), axis, back || !strcmp(reduction, "none") ? "" : "_",
		back || !strcmp(reduction, "none") ? "" : reduction, one ? "_one" : "", ids_name(h->arena, n),
		dtype_suffix(y->dtype));
}

static const AttrDef gather_attrs[] = { AT_INT(struct elements, axis, 0), AT_END };
static const AttrDef grad_attrs[] = { AT_INT(struct elements, axis, 0), AT_INTS(struct elements, shape), AT_END };
static const AttrDef scatter_attrs[] = { AT_INT(struct elements, axis, 0), AT_STR(struct elements, reduction, "none"),
	AT_END };

const OpDef op_GatherElements = {
	.name = "GatherElements",
	.minin = 2,
	.maxin = 2,
	.nout = 1,
	.flags = OP_PURE,
	.attrs = gather_attrs,
	.attrsize = sizeof(struct elements),
	.shape = shape,
	.grad = gather_grad,
	.dgrad = { DENSE, NOGRAD },
	.cost = move_cost,
	.holes = gather_holes,
	.eval = gather_eval,
	.cpu = { .file = "nest.cpu.c" },
	.ref = { .file = "nest.cpu.c" },
	.cuda = { .file = "nest.cuda.cu" },
};

const OpDef op_GatherElementsGrad = {
	.name = "GatherElementsGrad",
	.minin = 2,
	.maxin = 2,
	.nout = 1,
	.flags = OP_PURE,
	.attrs = grad_attrs,
	.attrsize = sizeof(struct elements),
	.shape = shape,
	.grad = grad_grad,
	.dgrad = { DENSE, NOGRAD },
	.cost = move_cost,
	.holes = scatter_holes,
	.eval = scatter_eval,
	.cpu = { .file = "scatter_elements.cpu.c", .call = "$k($=, $0, $1);" },
	.ref = { .file = "scatter_elements.cpu.c", .call = "$k($=, $0, $1);" },
	.cuda = { .file = "scatter_elements.cuda.cu", .call = "$k($=, $0, $1);" },
};

const OpDef op_ScatterElements = {
	.name = "ScatterElements",
	.minin = 3,
	.maxin = 3,
	.nout = 1,
	.flags = OP_PURE,
	.attrs = scatter_attrs,
	.attrsize = sizeof(struct elements),
	.shape = shape,
	.grad = scatter_grad,
	.dgrad = { DENSE, NOGRAD, DENSE },
	.cost = move_cost,
	.holes = scatter_holes,
	.eval = scatter_eval,
	.cpu = { .file = "scatter_elements.cpu.c", .call = "$k($=, $0, $2, $1);" },
	.ref = { .file = "scatter_elements.cpu.c", .call = "$k($=, $0, $2, $1);" },
	.cuda = { .file = "scatter_elements.cuda.cu", .call = "$k($=, $0, $2, $1);" },
};
