/* What LSTM, GRU and RNN share: checks, sizes, products. */
#include "recurrent.h"

const AttrDef rec_attrs[] = { AT_INT(struct recurrent, reverse, 0), AT_INT(struct recurrent, linear_before_reset, 0),
	AT_STR(struct recurrent, activation, "Tanh"), AT_END };

RecSizes rec_sizes(const Type *gx, int gates) { return (RecSizes){ gx->dim[0], gx->dim[1], gx->dim[2] / gates }; }

bool rec_check_gx(const Node *n, const Type *gx, const Value *r, int gates, Diag *d)
{
	const char *name = optab[n->op]->name;

	if (!r || !dtype_float(gx->dtype) || gx->rank != 3 || gx->dim[2] % gates || r->type.dtype != gx->dtype)
		return diag_error(d, n->loc, 304,
			"%s: the input's product is %s: it takes floats [steps, batch, %d * hidden] "
			"and recurrent weights of the same type",
			name, str_type(d->scratch, gx), gates);
	const int64_t h = gx->dim[2] / gates;
	if (r->type.rank != 2 || r->type.dim[0] != gx->dim[2] || r->type.dim[1] != h)
		return diag_error(d, n->loc, 304,
			"%s: the recurrent weights are %s, for %lld hidden units they must be "
			"[%lld,%lld]",
			name, str_shape(d->scratch, &r->type), (long long)h, (long long)gx->dim[2], (long long)h);
	return need_count(n, d, gx, gx->dim[1]);
}

bool rec_check(const Node *n, int i, const char *what, int rank, const int64_t *dim, Diag *d)
{
	const Value *v = rec_opt(n, i);
	Type want = { .rank = rank };

	if (!v)
		return true;
	for (int k = 0; k < rank; k++)
		want.dim[k] = dim[k];
	if (!shape_eq(&v->type, &want) || !dtype_float(v->type.dtype))
		return diag_error(d, n->loc, 304, "%s: %s is %s, it must be floats %s", optab[n->op]->name, what,
			str_type(d->scratch, &v->type), str_shape(d->scratch, &want));
	return true;
}

bool rec_check_lens(const Node *n, int i, int64_t batch, Diag *d)
{
	const Value *v = rec_opt(n, i);

	if (v && (v->type.dtype != DT_i32 || v->type.rank != 1 || v->type.dim[0] != batch))
		return diag_error(d, n->loc, 304, "%s: sequence lengths are %s, they must be i32[%lld]",
			optab[n->op]->name, str_type(d->scratch, &v->type), (long long)batch);
	return true;
}

Type rec_type(const Node *n, int rank, int64_t a, int64_t b, int64_t c)
{
	const int64_t dim[3] = { a, b, c };

	for (int i = 0; i < n->nin; i++)
		if (n->in[i] && dtype_float(n->in[i]->type.dtype))
			return type_make(n->in[i]->type.dtype, rank, dim);
	return type_make(DT_f32, rank, dim);
}

Value *rec_opt(const Node *n, int i) { return i < n->nin ? n->in[i] : NULL; }

const char *rec_args(const Node *n, Arena *a, int from, int to)
{
	const char *s = "";

	for (int i = from; i <= to; i++)
		s = rec_opt(n, i) ? arena_printf(a, "%s, $%d", s, i) : arena_printf(a, "%s, NULL", s);
	return s;
}

Value *rec_rows(Builder *b, Value *x)
{
	const int64_t dim[2] = { x->type.dim[0] * x->type.dim[1], x->type.dim[2] };
	const Type t = type_make(x->type.dtype, 2, dim);

	return mk_reshape(b, x, &t);
}

Value *rec_product(Builder *b, Value *dg, Value *hprev) { return mk_gemm(b, dg, hprev, NULL, 1, 0); }

Value *rec_columns(Builder *b, Value *x, int64_t from, int64_t to)
{
	void *at = attr_new(b->m->arena, OP_Slice);
	const int64_t axis = 1;

	attr_put_ints(b->m->arena, OP_Slice, at, "starts", 1, &from);
	attr_put_ints(b->m->arena, OP_Slice, at, "ends", 1, &to);
	attr_put_ints(b->m->arena, OP_Slice, at, "axes", 1, &axis);
	return mk(b, OP_Slice, at, NULL, 1, x);
}

/* Below these the copy costs more than it saves: it pays after 3 to 7 steps of 16 sequences and more, after up to 25 of 8, and
 * never for 4 (products of 64 to 1024 units, one thread and two). */
bool rec_transposed(const Type *gx, int gates)
{
	enum { LEAST_STEPS = 8, LEAST_BATCH = 8, LEAST_ROWS = 192 };
	const RecSizes s = rec_sizes(gx, gates);

	return gx->dtype == DT_f32 && s.steps >= LEAST_STEPS && s.batch >= LEAST_BATCH &&
	       s.steps * s.batch >= LEAST_ROWS;
}

void rec_lib(const Node *n, Lib *l, int gates)
{
	const Type *gx = &n->in[0]->type, *r = &n->in[1]->type;

	*l = (Lib){ .kind = LIB_ROOM, .bytes = rec_transposed(gx, gates) ? type_bytes(r) : 0 };
}

void rec_call(const Node *n, Holes *h, const char *outs, int last, bool transposed)
{
	const char *in = rec_args(n, h->arena, 0, last);

	hole_int(h, "TRANSPOSED", transposed);
	hole_text(h, "CALL", "$k(%s%s%s);", outs, transposed ? ", (float *)(void *)$scratch" : "", in);
	hole_text(h, "CUDA_CALL", "$k(%s%s);", outs, in);
}

void rec_holes(const Node *n, Holes *h, RecSizes s, const Value *lens)
{
	const struct recurrent *at = n->attr;
	const DType t = rec_type(n, 0, 0, 0, 0).dtype;

	hole_text(h, "T", "%s", dtype_c(t));
	hole_int(h, "GEMM", t == DT_f32);
	hole_int(h, "STEPS", s.steps);
	hole_int(h, "BATCH", s.batch);
	hole_int(h, "H", s.hidden);
	hole_int(h, "REVERSE", at->reverse != 0);
	hole_int(h, "LENS", lens != NULL);
	hole_int(h, "PAR", s.batch > 1 && s.batch * s.hidden >= 4096);
}

Cost rec_cost(const Node *n, RecSizes s, int gates)
{
	const double units = (double)s.steps * (double)s.batch * (double)s.hidden;

	return cost_bytes(n, units * gates * (2.0 * (double)s.hidden + 15));
}
