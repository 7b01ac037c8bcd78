/* Nodes and attributes by name, for gradients; the checks that shape rules share. */
#include <math.h>
#include <string.h>
#include "ir/base/buf.h"
#include "common.h"

/* ---- attributes ---- */

void *attr_new(Arena *a, OpKind op)
{
	char *attr = arena_alloc(a, optab[op]->attrsize + 1);

	for (const AttrDef *d = optab[op]->attrs; d && d->name; d++) {
		const int64_t i = d->kind == A_INT ? (int64_t)d->def : 0; /* floats may default to infinity */
		if (d->kind == A_INT)
			memcpy(attr + d->offset, &i, sizeof i);
		else if (d->kind == A_FLOAT)
			memcpy(attr + d->offset, &d->def, sizeof d->def);
		else if (d->kind == A_STR)
			memcpy(attr + d->offset, &d->sdef, sizeof d->sdef);
	}
	return attr;
}

static void put_attr(OpKind op, void *attr, const char *name, AttrKind kind, const void *v, size_t size)
{
	const AttrDef *d = op_attr(op, name);

	if (!d || d->kind != kind)
		bug("%s has no attribute %s of this kind", optab[op]->name, name);
	memcpy((char *)attr + d->offset, v, size);
}

void attr_put_int(OpKind op, void *attr, const char *name, int64_t v) { put_attr(op, attr, name, A_INT, &v, sizeof v); }

void attr_put_float(OpKind op, void *attr, const char *name, double v)
{
	put_attr(op, attr, name, A_FLOAT, &v, sizeof v);
}

void attr_put_str(Arena *a, OpKind op, void *attr, const char *name, const char *v)
{
	const char *s = arena_str(a, v);

	put_attr(op, attr, name, A_STR, &s, sizeof s);
}

Ints ints_dup(Arena *a, int n, const int64_t *v)
{
	return (Ints){ n, n ? arena_dup(a, v, (size_t)n * sizeof *v) : NULL };
}

void attr_put_ints(Arena *a, OpKind op, void *attr, const char *name, int n, const int64_t *v)
{
	const Ints s = ints_dup(a, n, v);

	put_attr(op, attr, name, A_INTS, &s, sizeof s);
}

/* ---- graphs ---- */

Value *mk_unary(Builder *b, OpKind op, Value *x) { return mk(b, op, NULL, NULL, 1, x); }

Value *mk_binary(Builder *b, OpKind op, Value *x, Value *y) { return mk(b, op, NULL, NULL, 2, x, y); }

Value *mk_scalar(Builder *b, DType t, double x) { return const_scalar(b->m, t, x); }

static Value *with_ints(Builder *b, OpKind op, Value *x, const char *name, int n, const int64_t *v)
{
	void *attr = attr_new(b->m->arena, op);

	attr_put_ints(b->m->arena, op, attr, name, n, v);
	return mk(b, op, attr, NULL, 1, x);
}

Value *mk_reshape(Builder *b, Value *x, const Type *t)
{
	return shape_eq(&x->type, t) ? x : with_ints(b, OP_Reshape, x, "shape", t->rank, t->dim);
}

Value *mk_expand(Builder *b, Value *x, const Type *t)
{
	return shape_eq(&x->type, t) ? x : with_ints(b, OP_Expand, x, "shape", t->rank, t->dim);
}

Value *mk_transpose(Builder *b, Value *x, const int64_t *perm)
{
	return with_ints(b, OP_Transpose, x, "perm", x->type.rank, perm);
}

Value *mk_cast(Builder *b, Value *x, DType t)
{
	if (x->type.dtype == t)
		return x;
	void *attr = attr_new(b->m->arena, OP_Cast);
	attr_put_int(OP_Cast, attr, "to", dtype_onnx(t));
	return mk(b, OP_Cast, attr, NULL, 1, x);
}

Value *mk_reduce(Builder *b, OpKind op, Value *x, Ints axes, int keepdims)
{
	void *attr = attr_new(b->m->arena, op);

	attr_put_ints(b->m->arena, op, attr, "axes", axes.n, axes.v);
	attr_put_int(op, attr, "keepdims", keepdims);
	attr_put_int(op, attr, "noop_with_empty_axes", 1);
	return mk(b, op, attr, NULL, 1, x);
}

Value *mk_gemm(Builder *b, Value *x, Value *y, Value *bias, int transA, int transB)
{
	void *attr = attr_new(b->m->arena, OP_Gemm);

	attr_put_int(OP_Gemm, attr, "transA", transA);
	attr_put_int(OP_Gemm, attr, "transB", transB);
	return bias ? mk(b, OP_Gemm, attr, NULL, 3, x, y, bias) : mk(b, OP_Gemm, attr, NULL, 2, x, y);
}

Value *reduce_to(Builder *b, Value *dy, const Type *t)
{
	const int lead = dy->type.rank - t->rank;
	int64_t axes[MAXRANK];
	int n = 0;

	if (shape_eq(&dy->type, t))
		return dy;
	for (int i = 0; i < dy->type.rank; i++)
		if (i < lead || (t->dim[i - lead] == 1 && dy->type.dim[i] != 1))
			axes[n++] = i;
	if (n)
		dy = mk_reduce(b, OP_ReduceSum, dy, (Ints){ n, axes }, 0);
	return mk_reshape(b, dy, t);
}

/* ---- shape rules ---- */

Arena *node_arena(const Node *n) { return n->graph->module->arena; }

bool same_dtype(const Node *n, int from, Diag *d)
{
	for (int i = from; i < n->nin; i++)
		if (!n->in[i])
			return diag_error(d, n->loc, 301, "%s: operand %d is missing", optab[n->op]->name, i);
	for (int i = from + 1; i < n->nin; i++)
		if (n->in[i]->type.dtype != n->in[from]->type.dtype)
			return diag_error(d, n->loc, 302, "%s: operands differ in element type: %s is %s, %s is %s",
				optab[n->op]->name, n->in[from]->name, str_type(d->scratch, &n->in[from]->type),
				n->in[i]->name, str_type(d->scratch, &n->in[i]->type));
	return true;
}

bool norm_axis(const Node *n, Diag *d, const char *what, int64_t ax, int rank, int *out)
{
	if (ax < -rank || ax >= rank)
		return diag_error(d, n->loc, 303, "%s: %s %lld is outside of [%d, %d) for rank %d", optab[n->op]->name,
			what, (long long)ax, -rank, rank, rank);
	*out = (int)(ax < 0 ? ax + rank : ax);
	return true;
}

bool norm_axes(const Node *n, Diag *d, const char *what, Ints axes, int rank, bool *seen)
{
	int ax = 0;

	memset(seen, 0, MAXRANK * sizeof *seen);
	for (int i = 0; i < axes.n; i++) {
		if (!norm_axis(n, d, what, axes.v[i], rank, &ax))
			return false;
		if (seen[ax])
			return diag_error(d, n->loc, 303, "%s: %s names axis %d twice", optab[n->op]->name, what, ax);
		seen[ax] = true;
	}
	return true;
}

void set_out(Node *n, int i, Type t)
{
	if (i < n->nout && n->out[i])
		n->out[i]->type = t;
}

void trim_outs(Node *n, int count)
{
	for (int i = count; i < n->nout; i++)
		n->out[i] = NULL;
	n->nout = n->nout < count ? n->nout : count;
}

Cost cost_bytes(const Node *n, double flops)
{
	Cost c = { flops, 0 };

	for (int i = 0; i < n->nin; i++)
		if (n->in[i])
			c.bytes += (double)type_bytes(&n->in[i]->type);
	for (int i = 0; i < n->nout; i++)
		if (n->out[i])
			c.bytes += (double)type_bytes(&n->out[i]->type);
	return c;
}

void half_holes(Holes *h, DType t)
{
	const bool half = dtype_half(t);

	hole_int(h, "HALF", half);
	hole_text(h, "TS", "%s", dtype_c(t));
	hole_text(h, "LOAD", "%s%s", half ? "pd_from_" : "", half ? dtype_name(t) : "");
	hole_text(h, "STORE", "%s%s", half ? "pd_to_" : "", half ? dtype_name(t) : "");
}

void drop_holes(Holes *h, double ratio, int64_t seed)
{
	const double least = floor(ratio * 0x1p16 + 0.5);

	hole_text(h, "DROPPED", "%uu", least < 0xffff ? (unsigned)least : 0xffff);
	hole_text(h, "SEED", "%lldu", (long long)seed);
}

const char *copy_order(Arena *a, const Type *x, const Type *y)
{
	const bool turned = x->layout != y->layout;
	const int64_t count = type_numel(x), c = turned ? x->dim[1] : 1, s = count ? count / x->dim[0] / c : 1;

	if ((turned && (x->layout != LAYOUT_PLAIN || y->layout != LAYOUT_NHWC)) || c * s > INT32_MAX)
		return NULL;
	return turned && c > 1 && s > 1 ? arena_printf(a, ", .of = { %lld, %lld }", (long long)c, (long long)s) : "";
}

/* ---- names ---- */

const char *dims_name(Arena *a, const Type *t)
{
	const char *s = "";

	for (int i = 0; i < t->rank; i++)
		s = arena_printf(a, "%s%s%lld", s, i ? "x" : "", (long long)t->dim[i]);
	if (!t->rank)
		s = "1";
	return t->layout == LAYOUT_NHWC ? arena_printf(a, "%snhwc", s) : s;
}

const char *dtype_suffix(DType t)
{
	static const char *const suffix[DT_COUNT] = {
#define X(name, ctype, bytes, onnx) [DT_##name] = "_" #name,
		DTYPES(X)
#undef X
	};
	return t == DT_f32 ? "" : suffix[t];
}
