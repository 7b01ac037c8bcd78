/* Attention: scaled dot products, softmax over the keys, weighted sums of the values, and its gradients, a block of
 * rows of queries at a time, so that the matrix of scores is never in memory.
 *     %y, %lse, %rest = Attention(%q, %k, %v[, %mask[, %bias]])
 *     %dq, %dk, %dv = AttentionGrad(%dy, %q, %k, %v, %y, %lse, %rest[, %mask[, %bias]])
 *     score = (mask ? scale q.k : fill) + bias        y = dropout(softmax(score)) v       lse + rest = log sum exp score
 * packed, with heads: q, k and v are one operand [B, T, 3 heads D], given thrice, where they lie side by side, and dq is their
 * gradients in that order, dk and dv none; on GPUs (passes/gpu/packed.c).
 * Operands are [B, H, T, D], [B, T, D] or [T, D]; with transK k is [.., D, T]; with heads they are [B, T, heads D].
 * mask (bool) and bias broadcast to the scores [B, H, T, T]; no gradient goes to bias. causal: query i sees keys
 * up to i. Dropout draws as the op Dropout does on the scores. Where q, k and v are 16-bit floats, so are y and gradients;
 * scores, lse, rest and bias are f32.
 *
 * rest is what rounding took from lse: of a row whose keys are all hidden by fill=-1e9 lse is -1e9, and the log of how many they
 * are is rest, without which the gradients would be as many times too large.
 *
 * Causal without mask and bias: later keys score `fill`. Where that is -inf they have no weight. Where it is finite (FILLED), as
 * exports have it (-1e4), they have none as long as exp(fill - the row's largest score) is 0, which is so below LEAST; kernels look
 * at each row, and go over the later keys too where it is not. So nothing is assumed of the scores, and they cost nothing else. */
#include <math.h>
#include <string.h>
#include "../common/common.h"

struct attention {
	int64_t heads, transK, causal;
	double scale, fill, ratio;
	int64_t id, seed, evaluates, packed, parts;
};

/* on the stack: one or two blocks of so many scores; a row of them at least */
enum { BLOCK = 1 << 15, ROWS_MOST = 64, KEYS_MOST = 1 << 17 };

/* bytes on a GPU of what is drawn for all scores */
enum { WORDS_MOST = 64 << 20 };

/* Strides by batch, head, row (and column of what goes to the scores). */
typedef struct Geo {
	int64_t b, h, tq, tk, d, dv;
	int64_t q[3], k[3], v[3], y[3], mask[4], bias[4];
} Geo;

static bool is_grad(const Node *n) { return n->op == OP_AttentionGrad; }

static const Value *operand(const Node *n, int i) { return i < n->nin ? n->in[i] : NULL; }

static const Value *mask_of(const Node *n) { return operand(n, is_grad(n) ? 7 : 3); }

static const Value *bias_of(const Node *n) { return operand(n, is_grad(n) ? 8 : 4); }

/* Later keys are hidden by a score that a row may reach. */
static bool filled(const Node *n)
{
	const struct attention *at = n->attr;

	return at->causal && !mask_of(n) && !bias_of(n) && isfinite(at->fill);
}

/* ---- shapes ---- */

/* x, or one of so many that lie side by side in it, as [b, h, t, d]. */
static void split(const Type *x, int64_t heads, bool trans, int parts, int64_t *dim, int64_t *stride)
{
	const int r = x->rank;
	const int64_t rows = x->dim[r - 2], wide = x->dim[r - 1], cols = wide / parts;

	dim[0] = r > 2 ? x->dim[0] : 1;
	dim[1] = heads ? heads : r > 3 ? x->dim[1] : 1;
	dim[2] = trans ? cols : rows;
	dim[3] = heads ? cols / heads : trans ? rows : cols;
	stride[2] = wide;
	stride[1] = heads ? dim[3] : rows * cols;
	stride[0] = heads ? rows * wide : dim[1] * stride[1];
}

static Type scores(const Node *n, const Geo *g)
{
	const struct attention *at = n->attr;
	const Type *q = &n->in[is_grad(n)]->type;
	const int64_t dim[4] = { g->b, g->h, g->tq, g->tk };
	const int rank = at->heads ? 4 : q->rank;
	Type t = type_make(dtype_math(q->dtype), rank, dim + 4 - rank);

	if (rank == 3)
		t.dim[0] = g->b;
	return t;
}

static void broadcast(const Type *x, int rank, int64_t *stride)
{
	int64_t step = 1, of[4] = { 0 };

	for (int i = x->rank - 1, k = 3; i >= 0; step *= x->dim[i--], k--)
		of[k] = x->dim[i] == 1 ? 0 : step;
	memcpy(stride, of, sizeof of);
	if (rank == 3) { /* [B, T, T]: there is no head */
		stride[0] = of[1];
		stride[1] = 0;
	}
}

static bool same_leads(const Geo *g, const int64_t *dim) { return dim[0] == g->b && dim[1] == g->h; }

/* False after a diagnostic. */
static bool geometry(const Node *n, Geo *g, Diag *d)
{
	const struct attention *at = n->attr;
	const Value *const *in = (const Value *const *)n->in + is_grad(n);
	const char *name = optab[n->op]->name;
	int64_t q[4], k[4], v[4];

	*g = (Geo){ 0 };
	for (int i = 0; i < n->nin; i++)
		if (!n->in[i] && i < 3 + 4 * is_grad(n))
			return diag_error(d, n->loc, 301, "%s: operand %d is missing", name, i);
	const Type *tq = &in[0]->type, *tk = &in[1]->type, *tv = &in[2]->type;
	if (!dtype_float(tq->dtype) || tk->dtype != tq->dtype || tv->dtype != tq->dtype)
		return diag_error(d, n->loc, 302, "%s takes floats of one type: %s, %s, %s", name,
			str_type(d->scratch, tq), str_type(d->scratch, tk), str_type(d->scratch, tv));
	if (at->heads ? tq->rank != 3 || at->heads < 0 || at->transK : tq->rank < 2 || tq->rank > 4)
		return diag_error(d, n->loc, 304, "%s: %s is %s; with heads=%lld it takes %s", name, in[0]->name,
			str_type(d->scratch, tq), (long long)at->heads,
			at->heads ? "[B, T, heads D], not transposed" : "rank 2 to 4");
	if (tk->rank != tq->rank || tv->rank != tq->rank ||
		(at->heads && (tq->dim[2] % at->heads || tk->dim[2] % at->heads || tv->dim[2] % at->heads)))
		return diag_error(d, n->loc, 304, "%s: ranks or heads differ: %s, %s, %s, heads=%lld", name,
			str_shape(d->scratch, tq), str_shape(d->scratch, tk), str_shape(d->scratch, tv),
			(long long)at->heads);
	for (int i = 0; i < 3; i++)
		for (int ax = 0; ax < tq->rank; ax++)
			if (in[i]->type.dim[ax] > EXTENT_MOST)
				return diag_error(d, n->loc, 304, "%s: %s is %s; the largest size is %d", name,
					in[i]->name, str_shape(d->scratch, &in[i]->type), EXTENT_MOST);
	const int parts = at->packed ? 3 : 1;
	if (at->packed && (in[0] != in[1] || in[1] != in[2] || at->heads <= 0 || tq->dim[2] % (parts * at->heads)))
		return diag_error(d, n->loc, 304,
			"%s: packed takes one operand [B, T, 3 heads D] thrice, with heads: %s, heads=%lld", name,
			str_type(d->scratch, tq), (long long)at->heads);
	split(tq, at->heads, false, parts, q, g->q);
	split(tk, at->heads, at->transK, parts, k, g->k);
	split(tv, at->heads, false, parts, v, g->v);
	g->b = q[0];
	g->h = q[1];
	g->tq = q[2];
	g->tk = k[2];
	g->d = q[3];
	g->dv = v[3];
	if (!same_leads(g, k) || !same_leads(g, v) || k[3] != g->d || v[2] != g->tk)
		return diag_error(d, n->loc, 304, "%s: sizes differ: q is %s, k is %s%s, v is %s", name,
			str_shape(d->scratch, tq), str_shape(d->scratch, tk), at->transK ? " transposed" : "",
			str_shape(d->scratch, tv));
	if (g->tk < 1 || g->tk > KEYS_MOST || g->d < 1 || g->dv < 1)
		return diag_error(d, n->loc, 304, "%s: %lld keys of %lld, values of %lld; it takes 1 to %d keys", name,
			(long long)g->tk, (long long)g->d, (long long)g->dv, KEYS_MOST);
	return true;
}

/* x broadcasts to the scores. */
static bool check_score(
	const Node *n, const Value *x, DType t, const char *what, const Type *s, int64_t *stride, Diag *d)
{
	Type all;

	if (!x)
		return true;
	if (x->type.dtype != t)
		return diag_error(d, n->loc, 302, "%s: the %s is %s, not %s", optab[n->op]->name, what,
			str_type(d->scratch, &x->type), dtype_name(t));
	if (!shape_broadcast(s, &x->type, &all) || !shape_eq(&all, s))
		return diag_error(d, n->loc, 304, "%s: the %s is %s, the scores are %s", optab[n->op]->name, what,
			str_shape(d->scratch, &x->type), str_shape(d->scratch, s));
	broadcast(&x->type, s->rank, stride);
	return true;
}

static bool full_geometry(const Node *n, Geo *g, Diag *d)
{
	const struct attention *at = n->attr;

	if (!geometry(n, g, d))
		return false;
	const Type s = scores(n, g);
	if (!(at->ratio >= 0 && at->ratio < 1))
		return diag_error(d, n->loc, 302, "ratio %g is outside [0, 1)", at->ratio);
	return check_score(n, mask_of(n), DT_bool, "mask", &s, g->mask, d) &&
	       check_score(n, bias_of(n), s.dtype, "bias", &s, g->bias, d);
}

static Type y_type(const Node *n, Geo *g)
{
	const struct attention *at = n->attr;
	Type y = n->in[is_grad(n)]->type;
	int64_t dim[4];

	y.rows = 0;
	y.layout = LAYOUT_PLAIN;
	y.dim[y.rank - 1] = at->heads ? at->heads * g->dv : g->dv;
	split(&y, at->heads, false, 1, dim, g->y);
	return y;
}

static Type lse_type(const Node *n, const Geo *g)
{
	Type t = scores(n, g);

	t.rank--;
	return t;
}

static bool shape(Node *n, Diag *d)
{
	Geo g;

	if (!full_geometry(n, &g, d))
		return false;
	set_out(n, 0, y_type(n, &g));
	set_out(n, 1, lse_type(n, &g));
	set_out(n, 2, n->out[1]->type);
	return true;
}

static bool grad_shape(Node *n, Diag *d)
{
	Geo g;

	if (!full_geometry(n, &g, d))
		return false;
	const Type y = y_type(n, &g), lse = lse_type(n, &g);
	if (!need_same_shape(n, d, n->in[0], &y) || !need_same_shape(n, d, n->in[4], &y) ||
		!need_same_shape(n, d, n->in[5], &lse) || !need_same_shape(n, d, n->in[6], &lse))
		return false;
	for (int i = 0; i < 3; i++)
		set_out(n, i, n->in[1 + i]->type);
	if (((const struct attention *)n->attr)->packed)
		trim_outs(n, 1);
	return true;
}

static void grad(Builder *b, const Node *n, Value *const *dy, Value **dx)
{
	Value *in[9] = { dy[0], n->in[0], n->in[1], n->in[2], n->out[0], n->out[1], n->out[2] };

	if (!dy[0])
		return;
	for (int i = 3; i < n->nin; i++)
		in[4 + i] = n->in[i];
	const Node *g = build(b, OP_AttentionGrad, n->attr, n->nin + 4, in, NULL);
	for (int i = 0; i < 3; i++)
		dx[i] = g->out[i];
}

/* ---- kernels ---- */

static void strides(Holes *h, char of, const int64_t *s)
{
	hole_int(h, arena_printf(h->arena, "%cB", of), s[0]);
	hole_int(h, arena_printf(h->arena, "%cH", of), s[1]);
	hole_int(h, arena_printf(h->arena, "%cR", of), s[2]);
}

/* "mask[b * 64 + j]" */
static const char *element(Arena *a, const char *name, const int64_t *s)
{
	const char *at = "";

	for (int i = 0; i < 4; i++)
		if (s[i])
			at = arena_printf(a, s[i] == 1 ? "%s%s%c" : "%s%s%c * %lld", at, *at ? " + " : "", "bhij"[i],
				(long long)s[i]);
	return arena_printf(a, "%s[%s]", name, *at ? at : "0");
}

/* How a score is made of the product s, and what of the gradient reaches the product: ds. */
static void score_holes(const Node *n, Holes *h, const Geo *g)
{
	const struct attention *at = n->attr;
	const DType t = n->in[0]->type.dtype;
	const char *scale = c_literal(h->arena, t, at->scale, 0), *fill = c_literal(h->arena, t, at->fill, 0);
	const char *score = at->scale == 1 ? "s" : arena_printf(h->arena, "s * %s", scale);
	const char *back = at->scale == 1 ? "ds" : arena_printf(h->arena, "ds * %s", scale);

	if (mask_of(n)) {
		const char *m = element(h->arena, "mask", g->mask);
		score = arena_printf(h->arena, "(%s ? %s : %s)", m, score, fill);
		back = arena_printf(h->arena, "%s ? %s : 0", m, back);
	}
	if (bias_of(n))
		score = arena_printf(h->arena, "%s + %s", score, element(h->arena, "bias", g->bias));
	hole_text(h, "SCORE", "%s", score);
	hole_text(h, "DSCORE", "%s", back);
	hole_int(h, "FILLED", filled(n));
	hole_text(h, "FILL", "%s", fill);
	hole_text(
		h, "LEAST", "%s", t == DT_f64 ? "-746" : "-104"); /* exp of it is less than half of the least number */
}

static const char *forward_args(const struct attention *at)
{
	return at->packed ? "$0, $0 + $PART, $0 + 2 * $PART" : "$0, $1, $2";
}

/* rest: with what rounding took from lse, too */
static const char *grad_args(const struct attention *at, bool rest)
{
	return !at->packed
	               ? rest ? "$=0, $=1, $=2, $0, $1, $2, $3, $4, $5, $6" : "$=0, $=1, $=2, $0, $1, $2, $3, $4, $5"
	       : rest ? "$=0, $=0 + $PART, $=0 + 2 * $PART, $0, $1, $1 + $PART, $1 + 2 * $PART, $4, $5, $6"
	              : "$=0, $=0 + $PART, $=0 + 2 * $PART, $0, $1, $1 + $PART, $1 + 2 * $PART, $4, $5";
}

/* GPUs: the library's fused kernels may have it: heads of 16 bits, in rows of whole multiples of 16 bytes, nothing but later keys
 * hidden. */
static bool by_library(const Node *n, const Geo *g, bool vectors)
{
	const struct attention *at = n->attr;

	return vectors && dtype_half(n->in[0]->type.dtype) && !mask_of(n) && !bias_of(n) && at->ratio <= 0 &&
	       !at->transK && g->d <= 128 && g->dv <= 128 && g->b * g->h * g->tq >= 1;
}

/* The kernel does it where the library has none after all, and is told whether it has: the library leaves later keys out, and of FILLED
 * the kernel looks for rows where that is wrong. */
static void library_holes(const Node *n, Holes *h, const Geo *g, bool vectors)
{
	const struct attention *at = n->attr;
	const int64_t *s[] = { g->q, g->k, g->v, g->y };
	const char *text = "";

	if (!by_library(n, g, vectors)) {
		hole_int(h, "LIBRARY", 0);
		return;
	}
	for (int i = 0; i < 4; i++)
		text = arena_printf(h->arena, "%s, .%c = { %lld, %lld, %lld }", text, "qkvy"[i], (long long)s[i][0],
			(long long)s[i][1], (long long)s[i][2]);
	hole_text(h, "DESC",
		"(pd_attention_desc){ .type = %s, .causal = %d, .backward = %d, .scale = %s, .b = %lld, .h = %lld, .tq = %lld, .tk = %lld, "
		".d = %lld, .dv = %lld%s }",
		n->in[0]->type.dtype == DT_f16 ? "PD_F16" : "PD_BF16", at->causal != 0, is_grad(n),
		c_literal(h->arena, DT_f32, at->scale, 0), (long long)g->b, (long long)g->h, (long long)g->tq,
		(long long)g->tk, (long long)g->d, (long long)g->dv, text);
	hole_int(h, "LIBRARY", 1);
	if (is_grad(n))
		hole_text(h, "CUDA_CALL", "$k(%s, pd_attention_grad_run(&$o, %s));", grad_args(at, true),
			grad_args(at, false));
	else
		hole_text(h, "CUDA_CALL", "$k($=, $=1, $=2, %s, pd_attention_run(&$o, $=, $=1, $=2, %s));",
			forward_args(at), forward_args(at));
}

static int64_t sixteens(int64_t n, int64_t most)
{
	n = (n + 15) / 16 * 16;
	return n < most ? n : most;
}

/* GPUs: 16-bit floats in small heads whose rows are whole multiples of 16 bytes, with no score of their own (quick.part.h). Scores are
 * counted in UNITs there; those that are hidden are HIDDEN. A row's base lies LAZY below its largest score at most. BITS: the first
 * kernel of gradients leaves what it has drawn to the second, where that is not too much to keep. */
static void quick_holes(const Node *n, Holes *h, const Geo *g, bool quick, int64_t tile)
{
	const struct attention *at = n->attr;
	const int64_t rows = g->b * g->h * ((g->tq + tile - 1) / tile * tile), words = rows * ((g->tk + 31) / 32) * 4;
	const bool bits = at->ratio > 0 && words <= WORDS_MOST;
	const double hidden = at->fill / at->scale;

	hole_int(h, "QUICK", quick);
	hole_text(h, "UNIT", "%s", c_literal(h->arena, DT_f32, at->scale, 0));
	hole_text(h, "LAZY", "%s", c_literal(h->arena, DT_f32, 8 * log(2) / at->scale, 0));
	hole_text(h, "HIDDEN", "%s", c_literal(h->arena, DT_f32, hidden < -3e38 ? -3e38 : hidden, 0));
	hole_int(h, "BITS", bits);
	if (is_grad(n) && quick)
		hole_int(h, "ROOM", rows * 8 + (bits ? words : 0));
	else if (is_grad(n))
		hole_int(h, "ROOM",
			g->b * g->h * g->tq * (int64_t)sizeof(float)); /* from one kernel of a GPU to the other */
}

/* Tiles of GPUs: columns of a head that lie in shared memory at a time, queries and keys of a block. All of them take less than
 * the 48 KiB that a launch may have; the gradients have four matrices there, the forward three. RESIDENT blocks of small heads find
 * registers on an SM at once, of the second kernel of gradients half as many, with nothing spilled from sm_80 to sm_100. */
static void tile_holes(const Node *n, Holes *h, const Geo *g)
{
	const struct attention *at = n->attr;
	const DType t = n->in[0]->type.dtype;
	const bool half = dtype_half(t);
	const int64_t dc = sixteens(g->d, half ? 128 : 64), dvc = sixteens(g->dv, half ? 128 : 64), each = half ? 8 : 4;
	const bool small = half && dc <= 64 && dvc <= 64;
	const int64_t longest = is_grad(n) && g->tk > g->tq ? g->tk : g->tq, *s[] = { g->q, g->k, g->v, g->y };
	bool vectors = g->d % each == 0 && g->dv % each == 0;

	for (int i = 0; i < 4; i++)
		for (int k = 0; k < 3; k++)
			vectors &= s[i][k] % each == 0;
	hole_text(h, "TILE", half ? "pd_%ss" : "pd_f32s", dtype_name(t));
	hole_int(h, "DC", dc);
	hole_int(h, "DVC", dvc);
	/* quick kernels of gradients do not look for what the library left out */
	const bool quick = small && vectors && !at->transK && !mask_of(n) && !bias_of(n) && at->scale > 0 &&
	                   !(is_grad(n) && filled(n) && by_library(n, g, vectors));
	const int64_t most = longest > 0 ? longest : 1,
		      warps = quick ? most > 32   ? 4
	                              : most > 16 ? 2
	                                          : 1
	                            : sixteens(most, is_grad(n) && !small ? 32 : 64) / 16;
	hole_int(h, "WARPS", warps);
	hole_int(h, "TALL", 1);
	hole_int(h, "KEYS", sixteens(is_grad(n) && g->tq > g->tk ? g->tq : g->tk, 32));
	hole_int(h, "VECTORS", vectors);
	hole_int(h, "RESIDENT", !small ? 1 : !quick ? 4 : is_grad(n) ? 2 : 3);
	hole_int(h, "RESIDENTQ", small ? 3 : 1);
	quick_holes(n, h, g, quick, 16 * warps);
	library_holes(n, h, g, vectors);
}

static void name_hole(const Node *n, Holes *h, const Geo *g)
{
	const struct attention *at = n->attr;

	const char *keys = g->tk == g->tq ? "" : arena_printf(h->arena, "x%lld", (long long)g->tk);
	const char *values = g->dv == g->d ? "" : arena_printf(h->arena, "x%lld", (long long)g->dv);

	hole_name(h, "attention%s_%lldx%lldx%lld%sx%lld%s%s%s%s%s%s%s", is_grad(n) ? "_grad" : "", (long long)g->b,
		(long long)g->h, (long long)g->tq, keys, (long long)g->d, values,
		filled(n)    ? "_filled"
		: at->causal ? "_causal"
			     : "",
		at->packed ? "_packed" : "", mask_of(n) ? "_masked" : "", bias_of(n) ? "_biased" : "",
		at->parts > 1 ? "_parts" : "", dtype_suffix(n->in[0]->type.dtype));
}

static void call_hole(const Node *n, Holes *h)
{
	const struct attention *at = n->attr;
	const int first = is_grad(n) ? 7 : 3;
	const char *args =
		is_grad(n) ? grad_args(at, true) : arena_printf(h->arena, "$=0, $=1, $=2, %s", forward_args(at));

	for (int i = first; i < n->nin; i++)
		if (n->in[i])
			args = arena_printf(h->arena, "%s, $%d", args, i);
	hole_text(h, "CALL", "$k(%s%s);", args,
		at->ratio <= 0                 ? ""
		: at->evaluates && !is_grad(n) ? ", pd_evaluating() ? -1 : pd_sample($mb), $ID"
					       : ", pd_sample($mb), $ID");
	if (at->ratio > 0)
		hole_text(h, "CUDA_CALL", "$k(%s, pd_sample_of_step($mb), $ID);", args);
}

static void holes(const Node *n, Holes *h)
{
	const struct attention *at = n->attr;
	Geo g;
	Diag d;

	diag_init(&d, stderr, h->arena);
	if (!full_geometry(n, &g, &d))
		bug("%s with bad operands", optab[n->op]->name);
	y_type(n, &g);
	int64_t rows = BLOCK / g.tk;
	rows = rows > ROWS_MOST ? ROWS_MOST : rows < 1 ? 1 : rows;
	rows = rows > g.tq && g.tq > 0 ? g.tq : rows;
	const int64_t blocks = g.tq > 0 ? (g.tq + rows - 1) / rows : 1, heads = g.tq > 0 ? g.b * g.h : 0;
	hole_text(h, "T", "%s", dtype_c(dtype_math(n->in[0]->type.dtype)));
	half_holes(h, n->in[0]->type.dtype);
	hole_text(h, "KIND", n->in[0]->type.dtype == DT_f16 ? "PD_F16" : "PD_BF16");
	hole_int(h, "PART", g.h * g.d); /* packed: from q to k, from k to v */
	hole_int(h, "QN", type_numel(&n->in[is_grad(n)]->type));
	hole_int(h, "KN", type_numel(&n->in[is_grad(n) + 1]->type));
	hole_int(h, "VN", type_numel(&n->in[is_grad(n) + 2]->type));
	hole_int(h, "YN", g.b * g.h * g.tq * g.dv);
	hole_int(h, "HEADS", heads);
	hole_int(h, "H", g.h > 0 ? g.h : 1);
	hole_int(h, "TQ", g.tq);
	hole_int(h, "TK", g.tk);
	hole_int(h, "D", g.d);
	hole_int(h, "DV", g.dv);
	hole_int(h, "ROWS", rows);
	hole_int(h, "BLOCKS", blocks);
	strides(h, 'Q', g.q);
	strides(h, 'K', g.k);
	strides(h, 'V', g.v);
	strides(h, 'Y', g.y);
	hole_int(h, "KT", at->transK != 0);
	hole_int(h, "CAUSAL", at->causal != 0);
	hole_int(h, "MASK", mask_of(n) != NULL);
	hole_int(h, "BIAS", bias_of(n) != NULL);
	hole_int(h, "DROP", at->ratio > 0);
	hole_int(h, "MEMBERS", at->parts > 1);
	hole_text(h, "HEAD", at->parts > 1 ? "(heads + h)" : "h");
	hole_int(h, "EVALUATES", at->evaluates && !is_grad(n));
	drop_holes(h, at->ratio, at->seed);
	hole_text(h, "KEEP", "%s", c_literal(h->arena, n->in[0]->type.dtype, 1 / (1 - at->ratio), 0));
	hole_text(h, "ID", "%lld", (long long)at->id);
	hole_int(h, "PAR", heads * (is_grad(n) ? 1 : blocks) > 1 && heads * g.tq * g.tk * g.d >= 65536);
	tile_holes(n, h, &g);
	score_holes(n, h, &g);
	call_hole(n, h);
	name_hole(n, h, &g);
}

static Cost cost(const Node *n)
{
	Geo g;
	Diag d;

	diag_init(&d, stderr, node_arena(n));
	if (!full_geometry(n, &g, &d))
		bug("%s with bad operands", optab[n->op]->name);
	const double all = (double)g.b * (double)g.h * (double)g.tq * (double)g.tk;
	const double each = is_grad(n) ? 6.0 * (double)g.d + 4.0 * (double)g.dv + 18 : 2.0 * (double)(g.d + g.dv) + 14;
	return cost_bytes(n, all * each * (((const struct attention *)n->attr)->causal ? 0.5 : 1));
}

static const AttrDef attrs[] = { AT_INT(struct attention, heads, 0), AT_INT(struct attention, transK, 0),
	AT_INT(struct attention, causal, 0), AT_FLOAT(struct attention, scale, 1),
	AT_FLOAT(struct attention, fill, -INFINITY), AT_FLOAT(struct attention, ratio, 0),
	AT_INT(struct attention, id, 0), AT_INT(struct attention, seed, 1), AT_INT(struct attention, evaluates, 0),
	AT_INT(struct attention, packed, 0), AT_INT(struct attention, parts, 1), AT_END };

#define COMMON \
	.flags = OP_PURE | OP_HEAVY | OP_RANDOM, .attrs = attrs, .attrsize = sizeof(struct attention), .cost = cost, \
	.holes = holes

/* By heads: the last axis of [B, T, heads D], axis 1 of [B, H, T, D]; lse, rest and what broadcasts to the scores [B, H, T, T] lie
 * likewise. Dropout counts the scores of all heads: its numbers stay those of the whole (`parts`). */
static bool by_heads(const Node *n, bool out, int at, ShardWay *w)
{
	const struct attention *a = n->attr;
	const int first = is_grad(n), rank = n->in[first]->type.rank;
	const int axis = a->heads ? 2 : rank - 3, row = a->heads ? 1 : axis;
	const bool of_row = out ? !first && at : first && (at == 5 || at == 6); /* lse, rest */
	Shard s;
	const Type *of;

	if (!shard_seed(n, out, at, w, &s, &of) || s.outer != 1 || a->parts > 1 || a->packed || axis < 0 ||
		(a->heads && a->heads % w->degree) || (!out && at >= (first ? 7 : 3)) ||
		s.axis != (of_row ? row : axis))
		return false;
	for (int i = 0; i < n->nin; i++) {
		const bool score = n->in[i] && (n->in[i] == mask_of(n) || n->in[i] == bias_of(n));
		const bool rest = is_grad(n) && (i == 5 || i == 6);
		const int lead = score ? n->in[i]->type.rank - 3 : 0;

		if (n->in[i] && !score)
			w->in[i] = (Shard){ SHARD_AXIS, rest ? row : axis, 1 };
		else if (score && lead >= 0 && n->in[i]->type.dim[lead] > 1)
			w->in[i] = (Shard){ SHARD_AXIS, lead, 1 };
	}
	for (int i = 0; i < n->nout; i++)
		w->out[i] = (Shard){ SHARD_AXIS, !is_grad(n) && i ? row : axis, 1 };
	return true;
}

const OpDef op_Attention = {
	.name = "Attention",
	.outputs = (const char *const[]){ NULL, "lse", "rest" },
	.minin = 3,
	.maxin = 5,
	.nout = 3,
	.shape = shape,
	.shard = by_heads,
	.grad = grad,
	.dgrad = { DENSE, DENSE, DENSE },
	COMMON,
	.cpu = { .file = "attention.cpu.c" },
	.ref = { .file = "attention.ref.c" },
	.cuda = { .file = "attention.cuda.cu", .object = "pd_attention", .init = "pd_attention_init(&$o, &$DESC);" },
};

const OpDef op_AttentionGrad = {
	.name = "AttentionGrad",
	.minin = 7,
	.maxin = 9,
	.nout = 3,
	.shape = grad_shape,
	.shard = by_heads,
	COMMON,
	.cpu = { .file = "attention_grad.cpu.c" },
	.ref = { .file = "attention_grad.ref.c" },
	.cuda = { .file = "attention_grad.cuda.cu",
		.object = "pd_attention",
		.init = "pd_attention_init(&$o, &$DESC);" },
};
