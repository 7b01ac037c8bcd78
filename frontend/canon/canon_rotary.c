/* Canonical form of RotaryEmbedding: pairs of the last axis are turned by the angles whose cosines and sines the caches
 * hold, in products, sums and slices. X is [N, heads, S, D], or [N, S, heads * D] seen as [N, S, heads, D]. */
#include "canon.h"

typedef struct Rotary {
	Value *x, *cos, *sin; /* caches: [N, S, half] or [1, S, half], seen to broadcast over the heads */
	int64_t dim, half;    /* of the last axis: all of it, half of the part that turns */
	bool interleaved;
} Rotary;

/* Elements from..to of the last axis, every step-th. */
static Value *slice(Import *im, Value *x, int64_t from, int64_t to, int64_t step)
{
	return canon_slice_axis(im, x, x->type.rank - 1, from, to, step);
}

/* [N, S, half] -> with an axis of 1 for the heads. */
static Value *over_heads(Import *im, Value *v, bool heads_first)
{
	const int64_t n = v->type.dim[0], s = v->type.dim[1], half = v->type.dim[2];
	const int64_t first[4] = { n, 1, s, half }, last[4] = { n, s, 1, half };

	return canon_reshape_to(im, v, 4, heads_first ? first : last, NULL);
}

/* The rows of a cache that the positions name; the first `half` columns. NULL after a diagnostic. */
static Value *angles(Import *im, const OnnxNode *n, size_t i, const Type *x, int64_t seq, int64_t half)
{
	Value *cache = onnx_in(im, n, i), *ids = onnx_in(im, n, 3);
	const Type *t = &cache->type;
	const char *name = i == 1 ? "cos_cache" : "sin_cache";

	if (cache->kind == VAL_PARAM)
		cache->param->frozen = true; /* a table, nothing that is learnt */
	if (t->rank != (ids ? 2 : 3) || t->dtype != x->dtype || t->dim[t->rank - 1] < half) {
		diag_error(im->d, im->b.loc, 304, "%s is %s; %s %s with a last axis of %lld is needed", name,
			str_type(im->d->scratch, t), dtype_name(x->dtype),
			ids ? "[positions, half]" : "[batch, sequence, half]", (long long)half);
		return NULL;
	}
	if (ids) {
		void *at = canon_attr_of(im, OP_Gather);

		if (ids->type.rank != 2) {
			diag_error(im->d, im->b.loc, 304, "position_ids are %s; rank 2 is needed",
				str_type(im->d->scratch, &ids->type));
			return NULL;
		}
		canon_put_int(OP_Gather, at, "axis", 0);
		cache = canon_emit1(im, OP_Gather, at, cache, ids, NULL);
		t = &cache->type;
	}
	if (im->b.failed || (t->dim[0] != 1 && t->dim[0] != x->dim[0]) || t->dim[1] != seq) {
		diag_error(im->d, im->b.loc, 304, "the angles of %s are %s, X is %s: batch and sequence differ", name,
			str_type(im->d->scratch, t), str_type(im->d->scratch, x));
		return NULL;
	}
	return t->dim[2] == half ? cache : slice(im, cache, 0, half, 1);
}

/* The part that turns: (a, b) becomes (a cos - b sin, a sin + b cos). */
static Value *turned(Import *im, const Rotary *r)
{
	const int64_t half = r->half, all = 2 * half;
	Value *a = r->interleaved ? slice(im, r->x, 0, all, 2) : slice(im, r->x, 0, half, 1);
	Value *b = r->interleaved ? slice(im, r->x, 1, all, 2) : slice(im, r->x, half, all, 1);
	Value *real =
		canon_binary(im, OP_Sub, canon_binary(im, OP_Mul, a, r->cos), canon_binary(im, OP_Mul, b, r->sin));
	Value *imag =
		canon_binary(im, OP_Add, canon_binary(im, OP_Mul, a, r->sin), canon_binary(im, OP_Mul, b, r->cos));
	int64_t dim[5];

	if (!r->interleaved || im->b.failed)
		return canon_join(im, real, imag, real->type.rank - 1, NULL);
	for (int i = 0; i < 4; i++)
		dim[i] = real->type.dim[i];
	dim[4] = 1;
	Value *y = canon_join(
		im, canon_reshape_to(im, real, 5, dim, NULL), canon_reshape_to(im, imag, 5, dim, NULL), 4, NULL);
	dim[3] = all;
	return canon_reshape_to(im, y, 4, dim, NULL);
}

bool canon_rotary(Import *im, const OnnxNode *n)
{
	const int64_t heads = onnx_int(n, "num_heads", 0), part = onnx_int(n, "rotary_embedding_dim", 0);
	Rotary r = { .interleaved = onnx_int(n, "interleaved", 0) != 0 };

	if (!canon_need(im, n, 3))
		return false;
	Value *x = onnx_in(im, n, 0), *y;
	const Type *t = &x->type;
	const bool flat = t->rank == 3;
	if ((!flat && t->rank != 4) || !dtype_float(t->dtype))
		return diag_error(im->d, im->b.loc, 304, "X is %s; floats of rank 3 or 4 are needed",
			str_type(im->d->scratch, t));
	if (flat && (heads < 1 || t->dim[2] % heads))
		return diag_error(im->d, im->b.loc, 304, "num_heads is %lld, X is %s: it must divide the last axis",
			(long long)heads, str_type(im->d->scratch, t));
	r.dim = flat ? t->dim[2] / heads : t->dim[3];
	if (part < 0 || part > r.dim || (part ? part : r.dim) % 2)
		return diag_error(im->d, im->b.loc, 304,
			"rotary_embedding_dim is %lld, a head has %lld elements: an even number of "
			"them turns",
			(long long)part, (long long)r.dim);
	r.half = (part ? part : r.dim) / 2;
	const int64_t seq = flat ? t->dim[1] : t->dim[2], split[4] = { t->dim[0], t->dim[1], heads, r.dim };
	r.cos = angles(im, n, 1, t, seq, r.half);
	r.sin = r.cos ? angles(im, n, 2, t, seq, r.half) : NULL;
	if (!r.sin)
		return false;
	r.x = flat ? canon_reshape_to(im, x, 4, split, NULL) : x;
	r.cos = over_heads(im, r.cos, !flat);
	r.sin = over_heads(im, r.sin, !flat);
	y = turned(im, &r);
	if (2 * r.half < r.dim)
		y = canon_join(im, y, slice(im, r.x, 2 * r.half, r.dim, 1), y->type.rank - 1, NULL);
	onnx_bind(im, n, 0, flat ? canon_reshape_to(im, y, 3, t->dim, NULL) : y);
	return true;
}
