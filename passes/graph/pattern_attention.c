/* Attention as exports spell it out:
 *     softmax(q k^T [* scale] [masked] [+ bias]) [with dropout] v
 * The scale is a factor or quotient of the scores, of q or of k^T; masked is Where of the scores and a constant.
 * Where q, k, v come from [B, T, H D] by Reshape and Transpose and the result goes back so, the op reads and writes
 * that form. A mask that is known and hides what comes behind a row is the op's `causal`: of Where by -1e3 at most, which kernels hold
 * against each row's scores (by -1e30 at most, which no score is near, they need not); of a bias by -1e9 at most, which no score
 * outweighs, for those of the hidden keys are not known there. A bias that is trained stays: the op has no gradient for it. */
#include <math.h>
#include <string.h>
#include "patterns.h"

enum { KEYS_MOST = 1 << 17, EXTENT_MOST = 1 << 30 }; /* what the op takes */

typedef struct Att {
	Value *q, *k, *v, *mask, *bias;
	bool hides; /* mask tells what is hidden, not what is seen */
	bool transK, causal;
	double scale, fill, ratio;
	int64_t heads, id, seed, evaluates;
	Type scores;
} Att;

static bool perm_is(const Node *n, int a, int b, int c, int d)
{
	const Ints p = attr_ints(n, "perm");

	return p.n == 4 && p.v[0] == a && p.v[1] == b && p.v[2] == c && p.v[3] == d;
}

/* The node behind v when it is an `op` and v is read once: it can go. */
static Node *own(Match *p, const Value *v, OpKind op)
{
	return v->kind == VAL_NODE && v->def->op == op && v->nuses == 1 && match_def(p, v, op) ? v->def : NULL;
}

/* v = w * c or w / c: gives w; else v. */
static Value *unscaled(Match *p, Value *v, double *scale)
{
	for (;;) {
		const int before = p->n;
		const Node *n = own(p, v, OP_Mul);
		double c;
		int k = 0;
		if (n) {
			k = match_scalar(n->in[0], &c) ? 1 : 0;
			if (!match_scalar(n->in[1 - k], &c))
				n = NULL;
		} else if ((n = own(p, v, OP_Div))) {
			if (!match_scalar(n->in[1], &c))
				n = NULL;
			else
				c = 1 / c;
		}
		if (!n || !type_eq(&n->in[k]->type, &v->type)) {
			p->n = before;
			return v;
		}
		*scale *= c;
		v = n->in[k];
	}
}

/* v = q k^T, scaled */
static bool product(Match *p, Value *v, Att *t)
{
	t->scale = 1;
	v = unscaled(p, v, &t->scale);
	const Node *n = match_def(p, v, OP_MatMul);
	if (!n || attr_int(n, "transA") || n->in[0]->type.rank != n->in[1]->type.rank)
		return false;
	t->q = unscaled(p, n->in[0], &t->scale);
	t->k = unscaled(p, n->in[1], &t->scale);
	t->scores = v->type;
	t->transK = !attr_int(n, "transB");
	return true;
}

/* v = Where(mask, scores, fill) or the scores themselves */
static bool masked(Match *p, Value *v, Att *t)
{
	const Node *n = match_def(p, v, OP_Where);

	t->mask = NULL;
	t->fill = -INFINITY;
	if (!n)
		return product(p, v, t);
	t->hides = match_scalar(n->in[1], &t->fill);
	if ((!t->hides && !match_scalar(n->in[2], &t->fill)) || isnan(t->fill))
		return false;
	t->mask = n->in[0];
	return product(p, n->in[t->hides ? 2 : 1], t) && type_eq(&v->type, &t->scores);
}

/* v = masked scores, with a bias or without */
static bool biased(Match *p, Value *v, Att *t)
{
	const int before = p->n;
	const Node *n = match_def(p, v, OP_Add);

	t->bias = NULL;
	if (!n)
		return masked(p, v, t);
	for (int k = 0; k < 2; k++) {
		p->n = before;
		match_def(p, v, OP_Add);
		if (masked(p, n->in[k], t) && type_eq(&v->type, &t->scores) && !match_trained(n->in[1 - k])) {
			t->bias = n->in[1 - k];
			return true;
		}
	}
	return false;
}

enum { KNOWN_DEPTH = 8, KNOWN_BYTES = 1 << 26 };

/* What v is in every step: a constant, a parameter that nothing trains (a mask that an export without roles calls one), or what pure
 * nodes make of these. data NULL: it is not known. */
static Tensor known(const Value *v, Arena *a, int depth)
{
	Tensor in[MAXIN] = { 0 }, out[MAXIN] = { 0 };
	const Node *n = v->def;

	if (v->kind == VAL_CONST)
		return (Tensor){ v->type, (void *)(uintptr_t)v->data };
	if (v->kind == VAL_PARAM && v->param->kind == PARAM_WEIGHT && v->param->frozen && !v->param->random)
		return (Tensor){ v->type, (void *)(uintptr_t)v->param->data };
	if (v->kind != VAL_NODE || !depth || !optab[n->op]->eval || !(optab[n->op]->flags & OP_PURE) ||
		n->nin > MAXIN || n->nout > MAXIN || type_bytes(&v->type) > KNOWN_BYTES)
		return (Tensor){ 0 };
	for (int i = 0; i < n->nin; i++)
		if (n->in[i] && !(in[i] = known(n->in[i], a, depth - 1)).data)
			return (Tensor){ 0 };
	return optab[n->op]->eval(n, in, out, a) ? out[v->index] : (Tensor){ 0 };
}

/* The matrix of a mask that is known, the same for all batches and heads, hides (1 - seen) just what comes behind a row. */
static bool hides_future(const Value *v, const Type *scores, double seen, Arena *a)
{
	const int64_t rows = scores->dim[scores->rank - 2], cols = scores->dim[scores->rank - 1];
	const Type *x = &v->type;

	if (x->rank < 2 || type_numel(x) != rows * cols || x->dim[x->rank - 1] != cols || x->dim[x->rank - 2] != rows ||
		(x->dtype != DT_bool && x->dtype != DT_f32 && x->dtype != DT_f64))
		return false;
	const void *data = known(v, a, KNOWN_DEPTH).data;
	if (!data)
		return false;
	for (int64_t i = 0; i < rows; i++)
		for (int64_t j = 0; j < cols; j++) {
			const int64_t at = i * cols + j;
			if (x->dtype == DT_bool) {
				if ((((const uint8_t *)data)[at] != 0) != ((j <= i) == (seen != 0)))
					return false;
				continue;
			}
			const double f = x->dtype == DT_f32 ? ((const float *)data)[at] : ((const double *)data)[at];
			if (j <= i ? f != 0 : !(f <= -1e9))
				return false;
		}
	return true;
}

static void find_causal(Att *t, Arena *a)
{
	if (t->mask && t->fill <= (t->bias ? -1e9 : -1e3) && hides_future(t->mask, &t->scores, !t->hides, a)) {
		t->causal = true;
		t->mask = NULL;
	} else if (t->bias && !t->mask && hides_future(t->bias, &t->scores, 1, a)) {
		t->causal = true;
		t->bias = NULL;
	}
}

/* Batch and heads agree and are not broadcast; sizes are what the op takes. */
static bool fits(const Att *t)
{
	const int rank = t->scores.rank;

	if (rank < 2 || rank > 4 || t->v->type.rank != rank || t->q->type.rank != rank)
		return false;
	for (int i = 0; i < rank - 2; i++)
		if (t->q->type.dim[i] != t->k->type.dim[i] || t->q->type.dim[i] != t->v->type.dim[i])
			return false;
	for (int i = 0; i < rank; i++)
		if (t->q->type.dim[i] > EXTENT_MOST || t->k->type.dim[i] > EXTENT_MOST ||
			t->v->type.dim[i] > EXTENT_MOST)
			return false;
	return type_numel(&t->q->type) && type_numel(&t->v->type) && t->scores.dim[rank - 1] <= KEYS_MOST &&
	       (t->q->type.dtype == DT_f32 || t->q->type.dtype == DT_f64) && !(t->ratio > 0 && rank == 2);
}

/* ---- [B, T, H D] instead of [B, H, T, D] ---- */

/* What v, [B, H, T, D], was when its heads lay side by side. */
static const Node *from_rows(const Value *v, bool trans)
{
	const Node *n = v->kind == VAL_NODE && v->def->op == OP_Transpose ? v->def : NULL;

	return n && (trans ? perm_is(n, 0, 2, 3, 1) : perm_is(n, 0, 2, 1, 3)) ? n : NULL;
}

/* The same value as [B, T, H D]; nodes that only v needed are covered. */
static Value *rows_of(Match *p, Builder *b, Value *v)
{
	Value *x = v->def->in[0];
	int64_t dim[3] = { x->type.dim[0], x->type.dim[1], x->type.dim[2] * x->type.dim[3] };
	const Type rows = type_make(x->type.dtype, 3, dim);

	const bool alone = v->nuses == 1 && match_covers(p, v->uses[0].node) && match_def(p, v, OP_Transpose);
	if (x->kind == VAL_NODE && x->def->op == OP_Reshape && type_eq(&x->def->in[0]->type, &rows)) {
		Value *r = x->def->in[0];
		if (alone && x->nuses == 1)
			match_def(p, x, OP_Reshape);
		return r;
	}
	return mk_reshape(b, x, &rows);
}

/* Goes on from y = [B, H, T, D] to its rows [B, T, H D]; NULL: it does not go there. */
static Value *to_rows(Match *p, Value *y)
{
	const int before = p->n;
	const Node *turn = match_user(p, y, OP_Transpose);
	const Node *join = turn && perm_is(turn, 0, 2, 1, 3) ? match_user(p, turn->out[0], OP_Reshape) : NULL;
	const Type *t = join ? &join->out[0]->type : NULL;

	if (!t || t->rank != 3 || t->dim[0] != y->type.dim[0] || t->dim[1] != y->type.dim[2]) {
		p->n = before;
		return NULL;
	}
	return join->out[0];
}

static Value *find_rows(Match *p, Att *t, Value *y)
{
	if (t->scores.rank != 4 || !from_rows(t->q, false) || !from_rows(t->k, t->transK) || !from_rows(t->v, false))
		return NULL;
	Value *last = to_rows(p, y);
	if (last)
		t->heads = t->scores.dim[1];
	return last;
}

/* k^T is a Transpose of k that changes nothing else: k itself is read. */
static void find_k(Match *p, Att *t)
{
	const int rank = t->k->type.rank;
	const Node *n = t->k->kind == VAL_NODE && t->k->def->op == OP_Transpose ? t->k->def : NULL;
	const Ints perm = n ? attr_ints(n, "perm") : (Ints){ 0 };

	if (!n || !t->transK)
		return;
	for (int i = 0; i < rank; i++)
		if ((perm.n ? perm.v[i] : rank - 1 - i) != (i < rank - 2 ? i : i == rank - 2 ? rank - 1 : rank - 2))
			return;
	t->transK = false;
	t->k = own(p, t->k, OP_Transpose) ? unscaled(p, n->in[0], &t->scale) : n->in[0];
}

/* ---- the pattern ---- */

/* From the softmax on: dropout, and the product with v; its result. */
static Value *weigh(Match *p, Value *s, Att *t)
{
	const Node *drop = match_user(p, s, OP_Dropout);

	if (drop && attr_int(drop, "rows") > 1) /* the op draws by its first axis */
		return NULL;
	if (drop) {
		t->ratio = attr_float(drop, "ratio");
		t->id = attr_int(drop, "id");
		t->seed = attr_int(drop, "seed");
		t->evaluates = attr_int(drop, "evaluates");
		s = drop->out[0];
	}
	const Node *n = match_user(p, s, OP_MatMul);
	if (!n || n->in[0] != s || attr_int(n, "transA") || attr_int(n, "transB"))
		return NULL;
	t->v = n->in[1];
	return n->out[0];
}

static void *attributes(Match *p, const Att *t)
{
	void *at = attr_new(p->m->arena, OP_Attention);

	*(int64_t *)match_field(OP_Attention, at, "heads") = t->heads;
	*(int64_t *)match_field(OP_Attention, at, "transK") = t->heads ? 0 : t->transK;
	*(int64_t *)match_field(OP_Attention, at, "causal") = t->causal;
	*(double *)match_field(OP_Attention, at, "scale") = t->scale;
	if (t->mask || (t->causal && !t->bias && t->fill > -1e30))
		*(double *)match_field(OP_Attention, at, "fill") = t->fill;
	if (t->ratio > 0) {
		*(double *)match_field(OP_Attention, at, "ratio") = t->ratio;
		*(int64_t *)match_field(OP_Attention, at, "id") = t->id;
		*(int64_t *)match_field(OP_Attention, at, "seed") = t->seed;
		*(int64_t *)match_field(OP_Attention, at, "evaluates") = t->evaluates;
	}
	return at;
}

Node *pattern_attention(Match *p, Node *n)
{
	Att t = { 0 };

	if (n->op != OP_Softmax || !match_def(p, n->out[0], OP_Softmax))
		return NULL;
	const int64_t axis = attr_int(n, "axis");
	Value *last = weigh(p, n->out[0], &t);
	if (!last || (axis != -1 && axis != n->in[0]->type.rank - 1) || !biased(p, n->in[0], &t) || !fits(&t))
		return NULL;
	find_k(p, &t);
	Value *rows = find_rows(p, &t, last);
	last = rows ? rows : last;
	if (!match_closed(p, last))
		return NULL;
	find_causal(&t, p->cx->scratch);
	Builder b = match_builder(p, last);
	Value *in[5] = { rows ? rows_of(p, &b, t.q) : t.q, rows ? rows_of(p, &b, t.k) : t.k,
		rows ? rows_of(p, &b, t.v) : t.v, t.mask && t.hides ? mk_unary(&b, OP_Not, t.mask) : t.mask, t.bias };
	const int nin = t.bias ? 5 : t.mask ? 4 : 3;
	return match_finish(p, last, build(&b, OP_Attention, attributes(p, &t), nin, in, last->name));
}
