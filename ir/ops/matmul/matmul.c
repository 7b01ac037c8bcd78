/* Gemm and MatMul: y = op(a) op(b) + c over a batch. Gemm's bias may be anything that broadcasts to [M,N]; MatMul takes
 * any ranks, broadcasts the leading axes as numpy does, and has transA / transB of its own (the last two axes), which
 * gradients use. Operands of 16 bits are multiplied exactly and added in f32; `to` is the type of the result where it is
 * another one (f32), and c may be f32 too. `into_sum`: the result is a gradient that is added to the sum of the step's
 * microbatches, if the first of them is in it (passes/memory/sums.c). f8: what a program for GPUs may take in 8 bits (ProductF8). cpu:
 * pd_gemm per matrix; ref: plain loops. */
#include "matmul.h"

struct gemm {
	int64_t transA, transB, to, into_sum, f8;
};

static DType result_dtype(const Node *n)
{
	const struct gemm *at = n->attr;

	return at->to ? dtype_from_onnx((int)at->to) : n->in[0]->type.dtype;
}

/* x as a stack of matrices: a vector is a row (first operand) or a column. */
static Type as_matrix(const Type *x, bool first)
{
	Type t = *x;

	if (x->rank == 1) {
		t.rank = 2;
		t.dim[0] = first ? 1 : x->dim[0];
		t.dim[1] = first ? x->dim[0] : 1;
	}
	return t;
}

static void batch_strides(const Type *x, const Dims *d, int64_t *s)
{
	int64_t step = x->dim[x->rank - 2] * x->dim[x->rank - 1];

	for (int i = d->rank - 1; i >= 0; i--) {
		const int ax = x->rank - 2 - (d->rank - i);
		s[i] = ax < 0 || x->dim[ax] == 1 ? 0 : step;
		if (ax >= 0)
			step *= x->dim[ax];
	}
}

bool product_dims(const Node *n, bool transa, bool transb, Dims *d)
{
	const Type a = as_matrix(&n->in[0]->type, true), b = as_matrix(&n->in[1]->type, false);
	const int64_t *ma = a.dim + a.rank - 2, *mb = b.dim + b.rank - 2;
	Type ba = a, bb = b, all;

	ba.rank -= 2;
	bb.rank -= 2;
	if (a.rank < 2 || b.rank < 2 || !shape_broadcast(&ba, &bb, &all))
		return false;
	*d = (Dims){
		.m = ma[transa ? 1 : 0], .k = ma[transa ? 0 : 1], .n = mb[transb ? 0 : 1], .batch = 1, .rank = all.rank
	};
	for (int i = 0; i < all.rank; i++) {
		d->dim[i] = all.dim[i];
		d->batch *= all.dim[i];
	}
	batch_strides(&a, d, d->sa);
	batch_strides(&b, d, d->sb);
	return d->k == mb[transb ? 1 : 0];
}

static bool dims_of(const Node *n, Dims *d)
{
	const struct gemm *at = n->attr;

	return product_dims(n, at->transA != 0, at->transB != 0, d);
}

static bool shape(Node *n, Diag *d)
{
	const Type *a = &n->in[0]->type, *b = &n->in[1]->type;
	const bool gemm = n->op == OP_Gemm;
	Type y = type_scalar(result_dtype(n)), c;
	const Value *bias = n->nin > 2 ? n->in[2] : NULL;
	Dims p;

	if (!(bias && dtype_half(a->dtype) && bias->type.dtype == DT_f32 && b->dtype == a->dtype) &&
		!same_dtype(n, 0, d))
		return false;
	if (y.dtype != a->dtype && !(y.dtype == DT_f32 && dtype_half(a->dtype)))
		return diag_error(d, n->loc, 302, "%s of %s cannot give %s", optab[n->op]->name, dtype_name(a->dtype),
			dtype_name(y.dtype));
	if (!dtype_float(a->dtype))
		return diag_error(d, n->loc, 302, "%s takes floats, %s is %s", optab[n->op]->name, n->in[0]->name,
			str_type(d->scratch, a));
	const struct gemm *at = n->attr;
	if (at->transA >> 1 || at->transB >> 1)
		return diag_error(d, n->loc, 303, "%s: transA is %lld, transB %lld; they are 0 or 1",
			optab[n->op]->name, (long long)at->transA, (long long)at->transB);
	if (gemm && (a->rank != 2 || b->rank != 2))
		return diag_error(d, n->loc, 304, "Gemm takes matrices: A is %s, B is %s", str_type(d->scratch, a),
			str_type(d->scratch, b));
	if (!dims_of(n, &p))
		return diag_error(d, n->loc, 304, "inner sizes differ: A is %s%s, B is %s%s", str_type(d->scratch, a),
			((const struct gemm *)n->attr)->transA ? " transposed" : "", str_type(d->scratch, b),
			((const struct gemm *)n->attr)->transB ? " transposed" : "");
	if (!need_count(n, d, a, b->rank <= 2 ? p.m * p.batch : p.m) || !need_count(n, d, a, p.k) ||
		!need_count(n, d, b, p.n))
		return false;
	for (int i = 0; i < p.rank; i++)
		y.dim[y.rank++] = p.dim[i];
	if (a->rank > 1)
		y.dim[y.rank++] = p.m;
	if (b->rank > 1)
		y.dim[y.rank++] = p.n;
	if (n->nin > 2 && n->in[2] && (!shape_broadcast(&y, &n->in[2]->type, &c) || !shape_eq(&y, &c)))
		return diag_error(d, n->loc, 304, "C is %s, which does not broadcast to %s",
			str_type(d->scratch, &n->in[2]->type), str_type(d->scratch, &y));
	set_out(n, 0, y);
	return true;
}

/* ---- gradients ---- */

static void gemm_grad(Builder *b, const Node *n, Value *const *dy, Value **dx)
{
	const struct gemm *g = n->attr;
	const int ta = (int)g->transA, tb = (int)g->transB;
	Value *x = n->in[0], *y = n->in[1];

	dx[0] = ta ? mk_gemm(b, y, dy[0], NULL, tb, 1) : mk_gemm(b, dy[0], y, NULL, 0, !tb);
	dx[1] = tb ? mk_gemm(b, dy[0], x, NULL, 1, ta) : mk_gemm(b, x, dy[0], NULL, !ta, 0);
	if (n->nin > 2 && n->in[2])
		dx[2] = reduce_to(b, dy[0], &n->in[2]->type);
}

static Value *mk_matmul(Builder *b, Value *x, Value *y, int ta, int tb)
{
	void *at = attr_new(b->m->arena, OP_MatMul);

	attr_put_int(OP_MatMul, at, "transA", ta);
	attr_put_int(OP_MatMul, at, "transB", tb);
	return mk(b, OP_MatMul, at, NULL, 2, x, y);
}

/* All leading axes as one: [.., k] -> [rows, k]. */
static Value *flat(Builder *b, Value *x)
{
	const Type *t = &x->type;
	const int64_t last = t->dim[t->rank - 1], dim[2] = { last ? type_numel(t) / last : 0, last };
	const Type f = type_make(t->dtype, 2, dim);

	return mk_reshape(b, x, &f);
}

static void matmul_grad(Builder *b, const Node *n, Value *const *dy, Value **dx)
{
	const struct gemm *g = n->attr;
	const int ta = (int)g->transA, tb = (int)g->transB;
	const Type tx = as_matrix(&n->in[0]->type, true), ty = as_matrix(&n->in[1]->type, false);
	Value *x = mk_reshape(b, n->in[0], &tx), *y = mk_reshape(b, n->in[1], &ty);
	Type td = type_scalar(dy[0]->type.dtype);
	Dims p;

	dims_of(n, &p);
	for (int i = 0; i < p.rank; i++)
		td.dim[td.rank++] = p.dim[i];
	td.dim[td.rank++] = p.m;
	td.dim[td.rank++] = p.n;
	Value *d = mk_reshape(b, dy[0], &td);
	if (ty.rank == 2 && !ta && tx.rank > 2) { /* one weight for all: rows of all matrices at once */
		Value *fx = flat(b, x), *fd = flat(b, d);
		dx[0] = mk_reshape(b, mk_gemm(b, fd, y, NULL, 0, !tb), &n->in[0]->type);
		dx[1] = tb ? mk_gemm(b, fd, fx, NULL, 1, 0) : mk_gemm(b, fx, fd, NULL, 1, 0);
		dx[1] = mk_reshape(b, dx[1], &n->in[1]->type);
		return;
	}
	Value *p0 = ta ? mk_matmul(b, y, d, tb, 1) : mk_matmul(b, d, y, 0, !tb);
	Value *p1 = tb ? mk_matmul(b, d, x, 1, ta) : mk_matmul(b, x, d, !ta, 0);
	dx[0] = mk_reshape(b, reduce_to(b, p0, &tx), &n->in[0]->type);
	dx[1] = mk_reshape(b, reduce_to(b, p1, &ty), &n->in[1]->type);
}

/* ---- kernels ---- */

static Cost cost(const Node *n)
{
	Dims p;

	dims_of(n, &p);
	return cost_bytes(n, 2.0 * (double)p.batch * (double)p.m * (double)p.n * (double)p.k);
}

/* The offset of matrix q of an operand as C: sums of (q / below % dim) * stride, neighbours joined. */
static const char *offset_text(Arena *a, const Dims *p, const int64_t *stride)
{
	const char *text = "";
	int64_t below = 1;

	for (int i = p->rank - 1; i >= 0;) {
		int64_t dim = p->dim[i];
		const int64_t s = stride[i];
		int k = i - 1;
		while (k >= 0 && stride[k] == s * dim && s)
			dim *= p->dim[k--];
		while (k >= 0 && !s && !stride[k])
			dim *= p->dim[k--];
		if (s && dim > 1) {
			const char *q = below > 1 ? arena_printf(a, "q / %lld", (long long)below) : "q";
			if (below * dim < p->batch)
				q = arena_printf(a, "%s %% %lld", q, (long long)dim);
			text = arena_printf(a, "%s%s(%s) * %lld", text, *text ? " + " : "", q, (long long)s);
		}
		below *= dim;
		i = k;
	}
	return *text ? text : "0";
}

int64_t product_step(const Dims *p, const int64_t *stride)
{
	int64_t step = -1, below = 1;

	for (int i = p->rank - 1; i >= 0; i--) {
		if (p->dim[i] > 1 && step < 0)
			step = stride[i];
		else if (p->dim[i] > 1 && stride[i] != step * below)
			return -1;
		if (step >= 0)
			below *= p->dim[i];
	}
	return step;
}

static const char *convert_text(DType from, DType to)
{
	if (from == to || (!dtype_half(from) && !dtype_half(to)))
		return "";
	return to == DT_bf16     ? "pd_to_bf16"
	       : to == DT_f16    ? "pd_to_f16"
	       : from == DT_bf16 ? "pd_from_bf16"
	                         : "pd_from_f16";
}

static void bias_holes(const Node *n, Holes *h, const Dims *p)
{
	const Value *c = n->nin > 2 ? n->in[2] : NULL;
	int64_t row = 0, col = 0;

	if (c) {
		const Type *t = &c->type;
		const int64_t last = t->rank > 0 ? t->dim[t->rank - 1] : 1,
			      first = t->rank > 1 ? t->dim[t->rank - 2] : 1;
		col = last > 1 ? 1 : 0;
		row = first > 1 ? last : 0;
	}
	hole_int(h, "BIAS", c != NULL);
	hole_int(h, "CROW", row);
	hole_int(h, "CCOL", col);
	hole_text(h, "TC", "%s", c ? dtype_c(c->type.dtype) : "float");
	hole_int(h, "CONVERTS", c && *convert_text(c->type.dtype, n->out[0]->type.dtype));
	hole_text(h, "AS", "%s", c ? convert_text(c->type.dtype, n->out[0]->type.dtype) : "");
	hole_text(h, "CALL", c ? "$k($=, $0, $1, $2);" : "$k($=, $0, $1);");
	if (p->batch == 1 && !c)
		hole_text(h, "DIRECT_CALL", "$PRODUCT($HOW, $TB, $M, $N, $K, $0, $LDA, $1, $LDB, $SUM, $=, $N);");
	else if (p->batch == 1 && row == 0 && col == 1 && c->type.dtype == DT_f32 && n->in[0]->type.dtype == DT_f32)
		hole_text(h, "DIRECT_CALL", "pd_gemm_bias($TA, $TB, $M, $N, $K, $0, $LDA, $1, $LDB, $2, $=);");
	hole_name(h, "%s_%s%lldx%lldx%lld%s%s%s%s%s", n->op == OP_Gemm ? "gemm" : "matmul",
		p->batch > 1 ? arena_printf(h->arena, "%lld_", (long long)p->batch) : "", (long long)p->m,
		(long long)p->n, (long long)p->k, ((const struct gemm *)n->attr)->transA ? "_ta" : "",
		((const struct gemm *)n->attr)->transB ? "_tb" : "", c ? "_bias" : "",
		dtype_suffix(n->in[0]->type.dtype), n->out[0]->type.dtype != n->in[0]->type.dtype ? "_f32" : "");
}

/* The call of the library, up to the second operand. */
static void product_holes(const Node *n, Holes *h)
{
	const DType in = n->in[0]->type.dtype, out = n->out[0]->type.dtype;
	const char *const kind[] = {
		[DT_f32] = "PD_F32", [DT_f64] = "PD_F64", [DT_f16] = "PD_F16", [DT_bf16] = "PD_BF16"
	};
	const int ta = (int)((const struct gemm *)n->attr)->transA;

	hole_text(h, "SUM",
		((const struct gemm *)n->attr)->into_sum ? "done > 0" : "0"); /* microbatches that are in the sum */
	hole_text(h, "PRODUCT", dtype_half(in) ? "pd_gemm_half" : "pd_gemm");
	hole_text(h, "KINDS", "%s, %s", kind[in], kind[out]);
	if (dtype_half(in))
		hole_text(h, "HOW", "%s, %s, %d", kind[in], kind[out], ta);
	else
		hole_text(h, "HOW", "%d", ta);
}

void product_flatten(Dims *p, bool transa)
{
	bool one = p->batch > 1 && !transa;

	for (int i = 0; i < p->rank; i++)
		one &= p->sb[i] == 0 && (p->sa[i] != 0 || p->dim[i] == 1);
	if (!one)
		return;
	p->m *= p->batch;
	p->batch = 1;
	p->rank = 0;
}

bool product_adds(const Node *n)
{
	Dims p;

	if (n->op == OP_Product)
		return product_end_adds(n);
	if ((n->op != OP_Gemm && n->op != OP_MatMul) || n->out[0]->type.dtype != DT_f32 || (n->nin > 2 && n->in[2]))
		return false;
	dims_of(n, &p);
	product_flatten(&p, ((const struct gemm *)n->attr)->transA != 0);
	return p.batch == 1;
}

static void holes(const Node *n, Holes *h)
{
	const struct gemm *at = n->attr;
	Dims p;

	dims_of(n, &p);
	product_flatten(&p, at->transA != 0);
	hole_text(h, "T", "%s", dtype_c(n->in[0]->type.dtype));
	hole_text(h, "TY", "%s", dtype_c(n->out[0]->type.dtype));
	product_holes(n, h);
	hole_int(h, "M", p.m);
	hole_int(h, "N", p.n);
	hole_int(h, "K", p.k);
	hole_int(h, "TA", at->transA);
	hole_int(h, "TB", at->transB);
	hole_int(h, "LDA", at->transA ? p.m : p.k);
	hole_int(h, "LDB", at->transB ? p.k : p.n);
	hole_int(h, "BATCH", p.batch);
	hole_int(h, "PAR", p.batch >= 8 && p.batch * p.m * p.n * p.k >= 65536);
	const int64_t sa = product_step(&p, p.sa), sb = product_step(&p, p.sb);
	hole_int(h, "STEPS", sa >= 0 && sb >= 0);
	hole_int(h, "ASTEP", sa);
	hole_int(h, "BSTEP", sb);
	hole_text(h, "AT", "%s", offset_text(h->arena, &p, p.sa));
	hole_text(h, "BT", "%s", offset_text(h->arena, &p, p.sb));
	bias_holes(n, h, &p);
}

static const AttrDef attrs[] = { AT_INT(struct gemm, transA, 0), AT_INT(struct gemm, transB, 0),
	AT_INT(struct gemm, to, 0), AT_INT(struct gemm, into_sum, 0), AT_INT(struct gemm, f8, 0), AT_END };

/* Rows, columns and the batch are divided where they are; what is inside makes results summands, and leaves the bias for later. */
static bool product_shard(const Node *n, bool out, int at, ShardWay *w)
{
	const struct gemm *g = n->attr;
	const Type *of[3] = { &n->in[0]->type, &n->in[1]->type, &n->out[0]->type };
	const Type *bias = n->nin > 2 && n->in[2] ? &n->in[2]->type : NULL, *seed;
	Shard s, *lies[3] = { &w->in[0], &w->in[1], &w->out[0] };
	const int x = out ? 2 : at;

	if (!shard_seed(n, out, at, w, &s, &seed) || of[0]->rank < 2 || of[1]->rank < 2)
		return false;
	/* counted from the end: where operands and result have the rows, what is inside, and the columns */
	const int rows[3] = { g->transA ? 1 : 2, 0, 2 }, inside[3] = { g->transA ? 2 : 1, g->transB ? 1 : 2, 0 },
		  columns[3] = { 0, g->transB ? 2 : 1, 1 };
	const int back = seed->rank - s.axis;
	const int *role = NULL;

	if (x == 2 && !out) /* the bias */
		role = back == 1 ? columns : rows;
	else if (back <= 2)
		role = back == rows[x] ? rows : back == columns[x] ? columns : inside;
	for (int i = 0; i < 3; i++) {
		const int axis = of[i]->rank - (role ? role[i] : back);

		if (role ? role[i] > 0 : axis >= 0 && of[i]->dim[axis] > 1)
			*lies[i] = (Shard){ SHARD_AXIS, axis, s.outer };
	}
	if (role == inside)
		w->out[0] = (Shard){ SHARD_PARTIAL, 0, 0 };
	if (bias && role == inside)
		w->bias_last = true;
	else if (bias && role && bias->rank >= role[2] && bias->dim[bias->rank - role[2]] > 1)
		w->in[2] = (Shard){ SHARD_AXIS, bias->rank - role[2], s.outer };
	return true;
}

const OpDef op_Gemm = {
	.name = "Gemm",
	.minin = 2,
	.maxin = 3,
	.nout = 1,
	.flags = OP_PURE | OP_HEAVY,
	.attrs = attrs,
	.attrsize = sizeof(struct gemm),
	.shape = shape,
	.shard = product_shard,
	.grad = gemm_grad,
	.dgrad = { DENSE, DENSE, DENSE },
	.cost = cost,
	.holes = holes,
	.cpu = { .file = "gemm.cpu.c" },
	.ref = { .file = "gemm.ref.c" },
	.cuda = { .file = "gemm.cuda.cu", .products = true },
};

const OpDef op_MatMul = {
	.name = "MatMul",
	.minin = 2,
	.maxin = 2,
	.nout = 1,
	.flags = OP_PURE | OP_HEAVY,
	.attrs = attrs,
	.attrsize = sizeof(struct gemm),
	.shape = shape,
	.shard = product_shard,
	.grad = matmul_grad,
	.dgrad = { DENSE, DENSE },
	.cost = cost,
	.holes = holes,
	.cpu = { .file = "gemm.cpu.c" },
	.ref = { .file = "gemm.ref.c" },
	.cuda = { .file = "gemm.cuda.cu", .products = true },
};
