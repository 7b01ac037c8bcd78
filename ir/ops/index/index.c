/* What the ops that read or write through indices share (index.h). */
#include <string.h>
#include "index.h"

int64_t dims_product(const Type *t, int from, int to)
{
	int64_t k = 1;

	for (int i = from; i < to; i++)
		k *= t->dim[i];
	return k;
}

Blocks blocks_of(const Type *t, int axis)
{
	return (Blocks){ dims_product(t, 0, axis), t->dim[axis], dims_product(t, axis + 1, t->rank) };
}

int axis_from(int64_t axis, int rank) { return (int)(axis < 0 ? axis + rank : axis); }

/* ---- indices ---- */

bool index_dtype(const Node *n, int i, Diag *d)
{
	const Value *ids = n->in[i];

	if (ids->type.dtype != DT_i64 && ids->type.dtype != DT_i32)
		return diag_error(d, n->loc, 302, "%s: indices %s are %s, not i32 or i64", optab[n->op]->name,
			ids->name, str_type(d->scratch, &ids->type));
	return true;
}

bool index_inside(const Node *n, const Value *v, int64_t at, int64_t dim, Diag *d)
{
	const Tensor t = const_tensor(v);

	if (t.data && (elem_i(&t, at) < -dim || elem_i(&t, at) >= dim))
		return diag_error(d, n->loc, 306, "%s: index %lld of %s is outside of [0, %lld)", optab[n->op]->name,
			(long long)elem_i(&t, at), v->name, (long long)dim);
	return true;
}

bool index_checked(const Value *v) { return const_tensor(v).data != NULL; }

bool index_negative(const Value *v)
{
	const Tensor t = const_tensor(v);

	for (int64_t i = 0; t.data && i < type_numel(&v->type); i++)
		if (elem_i(&t, i) < 0)
			return true;
	return !t.data;
}

const char *index_missing(DType t) { return t == DT_f32 || t == DT_f64 ? "NAN" : "0"; }

int scatter_ways(int64_t columns, int64_t updates)
{
	return updates < 256 || columns >= 4096 ? 1 : columns >= 512 ? 32 : 256;
}

/* ---- reductions ---- */

bool reduction_ok(const Node *n, const char *reduction, Diag *d)
{
	static const char *const known[] = { "none", "add", "mul", "max", "min" };
	const Type *t = &n->out[0]->type;

	for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
		if (strcmp(reduction, known[i]))
			continue;
		if (i && (t->dtype == DT_bool || t->dtype == DT_f16 || t->dtype == DT_bf16))
			return diag_error(d, n->loc, 302, "%s: reduction %s does not compute on %s, which is %s",
				optab[n->op]->name, reduction, n->in[0]->name, str_type(d->scratch, t));
		return true;
	}
	return diag_error(d, n->loc, 303, "%s: reduction '%s' is none of none, add, mul, max, min", optab[n->op]->name,
		reduction);
}

const char *reduction_text(Arena *a, const char *reduction, const char *to, const char *from)
{
	if (!strcmp(reduction, "none"))
		return arena_printf(a, "%s = %s;", to, from);
	if (!strcmp(reduction, "add"))
		return arena_printf(a, "%s += %s;", to, from);
	if (!strcmp(reduction, "mul"))
		return arena_printf(a, "%s *= %s;", to, from);
	return arena_printf(
		a, "%s = %s %s %s ? %s : %s;", to, to, strcmp(reduction, "max") ? ">" : "<", from, from, to);
}

void reduction_eval(const char *reduction, Tensor *to, int64_t i, const Tensor *from, int64_t k)
{
	const bool real = dtype_float(to->type.dtype);
	const double x = real ? elem_f(to, i) : 0, y = real ? elem_f(from, k) : 0;
	const int64_t p = real ? 0 : elem_i(to, i), q = real ? 0 : elem_i(from, k);
	double r = y;
	int64_t s = q;

	if (!strcmp(reduction, "add")) {
		r = x + y;
		s = (int64_t)((uint64_t)p + (uint64_t)q);
	} else if (!strcmp(reduction, "mul")) {
		r = x * y;
		s = (int64_t)((uint64_t)p * (uint64_t)q);
	} else if (!strcmp(reduction, "max")) {
		r = x < y ? y : x;
		s = p < q ? q : p;
	} else if (!strcmp(reduction, "min")) {
		r = x > y ? y : x;
		s = p > q ? q : p;
	}
	if (real)
		elem_set_f(to, i, r);
	else
		elem_set_i(to, i, s);
}

/* ---- gradients of scatters ---- */

/* x where the indices of n point. */
static Value *gathered(Builder *b, const Node *n, Value *x)
{
	const OpKind op = n->op == OP_ScatterElements ? OP_GatherElements : OP_GatherND;
	void *at = attr_new(b->m->arena, op);

	if (op == OP_GatherElements)
		attr_put_int(op, at, "axis", attr_int(n, "axis"));
	return mk(b, op, at, NULL, 2, x, n->in[1]);
}

static Value *scattered(Builder *b, const Node *n, Value *x, Value *updates, const char *reduction)
{
	void *at = attr_new(b->m->arena, n->op);

	if (n->op == OP_ScatterElements)
		attr_put_int(n->op, at, "axis", attr_int(n, "axis"));
	attr_put_str(b->m->arena, n->op, at, "reduction", reduction);
	return mk(b, n->op, at, NULL, 3, x, n->in[1], updates);
}

/* none: what is overwritten has no gradient. mul: not at 0. max, min: shared among equals. */
void scatter_grad(Builder *b, const Node *n, Value *const *dy, Value **dx)
{
	const char *reduction = attr_str(n, "reduction");
	Value *x = n->in[0], *u = n->in[2], *y = n->out[0], *g = dy[0];
	const DType t = x->type.dtype;

	if (!strcmp(reduction, "none")) {
		dx[0] = scattered(b, n, g, mk_scalar(b, t, 0), "none");
		dx[2] = gathered(b, n, g);
	} else if (!strcmp(reduction, "add")) {
		dx[0] = g;
		dx[2] = gathered(b, n, g);
	} else if (!strcmp(reduction, "mul")) {
		g = mk_binary(b, OP_Mul, g, y);
		dx[0] = mk_binary(b, OP_Div, g, x);
		dx[2] = mk_binary(b, OP_Div, gathered(b, n, g), u);
	} else {
		Value *keep = mk_cast(b, mk_binary(b, OP_Equal, x, y), t);
		Value *won = mk_cast(b, mk_binary(b, OP_Equal, u, gathered(b, n, y)), t);

		g = mk_binary(b, OP_Div, g, scattered(b, n, keep, won, "add"));
		dx[0] = mk_binary(b, OP_Mul, keep, g);
		dx[2] = mk_binary(b, OP_Mul, won, gathered(b, n, g));
	}
	if (u->type.rank == 0 && y->type.rank) /* one update for all */
		dx[2] = reduce_to(b, dx[2], &u->type);
}
