/* Attention (opset 23 and 24) in products and a Softmax: softmax(scale q k^T + bias) v per head, with groups of query
 * heads that share a key head, key and value caches, masks, and a cap of the scores. The bias is the sum of the mask,
 * the causal frontier, a window and the padding; a query that it bars from every key gets zeros. */
#include <float.h>
#include <math.h>
#include <string.h>
#include "canon.h"

typedef struct Attn {
	int64_t batch, qheads, heads, qlen, len, past; /* len: keys, the cached ones included */
	DType t;
} Attn;

static Value *op1(Import *im, OpKind op, Value *x) { return canon_emit1(im, op, NULL, x, NULL, NULL); }
static Value *op2(Import *im, OpKind op, Value *x, Value *y) { return canon_emit1(im, op, NULL, x, y, NULL); }

static Value *op3(Import *im, OpKind op, Value *x, Value *y, Value *z)
{
	Value *in[3] = { x, y, z }, *out[MAXIN] = { 0 };

	canon_emit(im, op, NULL, 3, in, NULL, out);
	return out[0];
}

static Value *shaped(Import *im, Value *x, int64_t a, int64_t b, int64_t c, int64_t d)
{
	return canon_reshape_to(im, x, 4, (int64_t[]){ a, b, c, d }, NULL);
}

/* Operand i as [batch, heads, length, size]. */
static Value *by_head(Import *im, const OnnxNode *n, size_t i, const char *heads)
{
	Value *x = onnx_in(im, n, i);
	const Type *t = &x->type;
	int64_t h = onnx_int(n, heads, 0);

	if (t->rank == 4)
		return x;
	if (t->rank != 3 || h < 1 || t->dim[2] % h) {
		diag_error(im->d, im->b.loc, 303,
			"operand %zu is %s with %s %lld: it must have rank 4, or rank 3 with a last "
			"dimension that the heads divide",
			i, str_type(im->d->scratch, t), heads, (long long)h);
		return NULL;
	}
	return canon_swap(im, shaped(im, x, t->dim[0], t->dim[1], h, t->dim[2] / h), 1, 2);
}

/* The cache `past` before x, along the keys. */
static Value *cached(Import *im, const OnnxNode *n, size_t past, size_t present, Value *x)
{
	Value *p = onnx_in(im, n, past);

	if (p)
		x = canon_join(im, p, x, 2, NULL);
	if (!im->b.failed)
		onnx_bind(im, n, present, x);
	return x;
}

/* Every key head as often as there are query heads that share it. */
static Value *repeated(Import *im, const Attn *s, Value *x)
{
	int64_t g = s->qheads / s->heads, l = x->type.dim[2], d = x->type.dim[3];
	int64_t one[5] = { s->batch, s->heads, 1, l, d }, all[5] = { s->batch, s->heads, g, l, d };

	if (g == 1)
		return x;
	void *at = canon_attr_of(im, OP_Expand);
	canon_put_ints(OP_Expand, at, "shape", (Ints){ 5, arena_dup(im->a, all, sizeof all) });
	x = canon_emit1(im, OP_Expand, at, canon_reshape_to(im, x, 5, one, NULL), NULL, NULL);
	return shaped(im, x, s->batch, s->qheads, l, d);
}

/* ---- the bias: 0 where a query may see a key, -inf where not ---- */

static Value *barred(Import *im, const Attn *s, Value *allowed)
{
	return op3(im, OP_Where, allowed, canon_scalar(im, s->t, 0), canon_scalar(im, s->t, -HUGE_VAL));
}

static Value *plus(Import *im, Value *bias, Value *x) { return bias ? op2(im, OP_Add, bias, x) : x; }

/* 0, 1, ... n-1 as i64[shape] */
static Value *counting(Import *im, int64_t n, const char *name, int64_t rows, int64_t columns)
{
	int64_t *v = NEWN(im->a, int64_t, n);

	for (int64_t i = 0; i < n; i++)
		v[i] = i;
	return module_const(im->m, name, type_make(DT_i64, 4, (int64_t[]){ 1, 1, rows, columns }), v);
}

static Value *mask_bias(Import *im, const Attn *s, Value *mask)
{
	int last = mask->type.rank - 1;
	Value *x = mask->type.dtype == DT_bool ? barred(im, s, mask) : mask;

	if (last < 0 || mask->type.dim[last] >= s->len || mask->type.dim[last] == 1)
		return x;
	void *at = canon_attr_of(im, OP_Pad); /* keys beyond the mask are barred */
	int64_t *pads = NEWN(im->a, int64_t, 2 * mask->type.rank);
	pads[2 * last + 1] = s->len - mask->type.dim[last];
	canon_put_ints(OP_Pad, at, "pads", (Ints){ 2 * mask->type.rank, pads });
	canon_put_float(OP_Pad, at, "value", -HUGE_VAL);
	canon_put_str(OP_Pad, at, "mode", "constant");
	return canon_emit1(im, OP_Pad, at, x, NULL, NULL);
}

/* valid: how many keys of each sample are no padding (NULL: all). *bias stays NULL where all may see all. */
static void biases(Import *im, const OnnxNode *n, const Attn *s, Value *mask, Value *valid, Value **bias)
{
	bool causal = onnx_int(n, "is_causal", 0) != 0;
	int64_t left = onnx_int(n, "left_window_size", -1), right = onnx_int(n, "right_window_size", -1);

	*bias = mask ? mask_bias(im, s, mask) : NULL;
	if (valid)
		valid = shaped(im, valid, s->batch, 1, 1, 1);
	if (causal || left >= 0 || right >= 0) {
		Value *i = counting(im, s->qlen, "queries", s->qlen, 1), *j = counting(im, s->len, "keys", 1, s->len);
		Value *first = valid && !s->past ? op2(im, OP_Sub, valid, canon_scalar(im, DT_i64, (double)s->qlen))
		                                 : canon_scalar(im, DT_i64, (double)s->past);

		i = op2(im, OP_Add, i, first);
		if (causal)
			*bias = plus(im, *bias, barred(im, s, op2(im, OP_LessOrEqual, j, i)));
		if (left >= 0)
			*bias = plus(im, *bias,
				barred(im, s,
					op2(im, OP_GreaterOrEqual, j,
						op2(im, OP_Sub, i, canon_scalar(im, DT_i64, (double)left)))));
		if (right >= 0)
			*bias = plus(im, *bias,
				barred(im, s,
					op2(im, OP_LessOrEqual, j,
						op2(im, OP_Add, i, canon_scalar(im, DT_i64, (double)right)))));
	}
	if (valid)
		*bias = plus(
			im, *bias, barred(im, s, op2(im, OP_Less, counting(im, s->len, "keys", 1, s->len), valid)));
}

/* Which rows of the bias leave any key; NULL when all do and that is known. */
static Value *open_rows(Import *im, Value *bias)
{
	void *at = canon_attr_of(im, OP_ReduceMax);
	int64_t last = -1;

	canon_put_ints(OP_ReduceMax, at, "axes", (Ints){ 1, arena_dup(im->a, &last, sizeof last) });
	canon_put_int(OP_ReduceMax, at, "keepdims", 1);
	Value *top = canon_emit1(im, OP_ReduceMax, at, bias, NULL, NULL);
	Value *open = op2(im, OP_GreaterOrEqual, top, canon_scalar(im, bias->type.dtype, -FLT_MAX));
	if (open->kind != VAL_CONST || !open->data)
		return open;
	for (int64_t i = 0; i < type_numel(&open->type); i++)
		if (!((const uint8_t *)open->data)[i])
			return open;
	return NULL;
}

static Value *weights(Import *im, const OnnxNode *n, Value *score, Value *bias)
{
	int64_t mode = onnx_int(n, "qk_matmul_output_mode", 0);
	double cap = onnx_float(n, "softcap", 0);
	Value *open = NULL;

	if (mode == 0)
		onnx_bind(im, n, 3, score);
	if (cap > 0) {
		Value *c = canon_scalar(im, score->type.dtype, cap);

		score = op2(im, OP_Mul, op1(im, OP_Tanh, op2(im, OP_Div, score, c)), c);
	}
	if (mode == 1)
		onnx_bind(im, n, 3, score);
	if (bias) {
		if (mode == 2)
			onnx_bind(im, n, 3, op2(im, OP_Add, score, bias));
		open = open_rows(im, bias);
		if (open) /* no row may be -inf all over: the softmax of it is no number, and so is its gradient */
			bias = op2(im, OP_Max, bias, canon_scalar(im, bias->type.dtype, -FLT_MAX / 2));
		score = op2(im, OP_Add, score, bias);
	} else if (mode == 2) {
		onnx_bind(im, n, 3, score);
	}
	void *at = canon_attr_of(im, OP_Softmax);
	canon_put_int(OP_Softmax, at, "axis", -1);
	Value *p = canon_emit1(im, OP_Softmax, at, score, NULL, NULL);
	if (open)
		p = op3(im, OP_Where, open, p, canon_scalar(im, p->type.dtype, 0));
	if (mode == 3)
		onnx_bind(im, n, 3, p);
	return p;
}

static bool fits(Import *im, const Attn *s, const Value *q, const Value *k, const Value *v)
{
	const int64_t *a = q->type.dim, *b = k->type.dim, *c = v->type.dim;

	if (a[0] == b[0] && b[0] == c[0] && b[1] == c[1] && b[2] == c[2] && a[3] == b[3] && s->heads > 0 &&
		s->qheads % s->heads == 0 && q->type.dtype == k->type.dtype && k->type.dtype == v->type.dtype &&
		dtype_float(q->type.dtype))
		return true;
	return diag_error(im->d, im->b.loc, 303,
		"Q is %s, K is %s, V is %s ([batch, heads, length, size], caches included): "
		"batch, the heads and lengths of K and V, and the sizes of Q and K must be equal, and key heads must divide query heads",
		str_type(im->d->scratch, &q->type), str_type(im->d->scratch, &k->type),
		str_type(im->d->scratch, &v->type));
}

bool canon_attention(Import *im, const OnnxNode *n)
{
	if (!canon_need(im, n, 3))
		return false;
	bool flat = onnx_in(im, n, 0)->type.rank == 3;
	Value *q = by_head(im, n, 0, "q_num_heads"), *k = by_head(im, n, 1, "kv_num_heads");
	Value *v = by_head(im, n, 2, "kv_num_heads");
	Value *mask = onnx_in(im, n, 3), *valid = onnx_in(im, n, 6), *bias;
	if (!q || !k || !v)
		return false;
	Attn s = { .t = q->type.dtype, .past = onnx_in(im, n, 4) ? onnx_in(im, n, 4)->type.dim[2] : 0 };
	if (!onnx_in(im, n, 4) != !onnx_in(im, n, 5) || (valid && onnx_in(im, n, 4)))
		return canon_refuse(im, "past_key and past_value come together, and without nonpad_kv_seqlen");
	if (valid && (valid->type.dtype != DT_i64 || type_numel(&valid->type) != q->type.dim[0]))
		return diag_error(im->d, im->b.loc, 303, "nonpad_kv_seqlen is %s: it must have one i64 per sample",
			str_type(im->d->scratch, &valid->type));
	k = cached(im, n, 4, 1, k);
	v = cached(im, n, 5, 2, v);
	if (im->b.failed)
		return false;
	s.batch = q->type.dim[0], s.qheads = q->type.dim[1], s.heads = k->type.dim[1];
	s.qlen = q->type.dim[2], s.len = k->type.dim[2];
	if (!fits(im, &s, q, k, v))
		return false;
	double scale = onnx_float(n, "scale", 1 / sqrt((double)(q->type.dim[3] ? q->type.dim[3] : 1)));
	biases(im, n, &s, mask, valid, &bias);
	k = repeated(im, &s, k);
	v = repeated(im, &s, v);
	q = op2(im, OP_Mul, q, canon_scalar(im, s.t, scale));
	Value *y = weights(im, n, op2(im, OP_MatMul, q, canon_swap(im, k, 2, 3)), bias);
	if (im->b.failed)
		return false;
	y = canon_emit1(im, OP_MatMul, NULL, y, v, flat ? NULL : canon_out_name(n));
	if (flat && !im->b.failed)
		y = canon_reshape_to(im, canon_swap(im, y, 1, 2), 3,
			(int64_t[]){ s.batch, s.qlen, s.qheads * y->type.dim[3] }, canon_out_name(n));
	onnx_bind(im, n, 0, y);
	return !im->b.failed;
}
