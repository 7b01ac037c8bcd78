/* Product: a product of matrices as the GPU's library takes it, cuBLASLt, with what the library does to the result before it
 * is written (its epilogue) or to an operand while it is read. Made by passes/gpu/products.c of MatMul or Gemm and what lies
 * around them.
 *     %y[, %also] = Product(%a, %b[, %bias[, %kept[, @ascale, @bscale]]]) {transA, transB, to, end, keep, sum}
 * y = end(op(a) op(b) + bias), bias a row of n numbers.
 *     end = "relu", "gelu" (by tanh)          keep=1: %also is what the backward wants of it: relu a bit per element, rows of a
 *                                             multiple of 128 bits; gelu what went in
 *     end = "relu_grad", "gelu_grad"          y = op(a) op(b) times the derivative at what is %kept so
 *     sum=1, sum=2                            %also is op(a) added up over each row, op(b) over each column: a bias's gradient,
 *                                             where the product is that of the weights
 *     wide=3, wide=1, wide=2                  the rows of y, or of operand 0 or 1, are longer than the `columns` that count, so that
 *                                             each begins at a multiple of 16 bytes; without bias, end and sum
 *     into_sum                                y is added to the sum of the step's microbatches (passes/memory/sums.c)
 *     f8                                      what it may take in 8 bits (ProductF8): where it does, a and b are f8e4m3 or one of them
 *                                             f8e5m2, times the first number of @ascale and @bscale (quantize.c), and rows of both lie
 *                                             along k, the only way in which GPUs of sm_89 and sm_90 multiply those
 * Results, bias and sums are of one type. Operands have at least two axes, of which the last two are the matrix; whoever has
 * no batch (product_flatten) may have all of this, others `to` alone. */
#include <string.h>
#include "matmul.h"

struct product {
	int64_t transA, transB, to;
	const char *end;
	int64_t keep, sum, wide, columns, f8, into_sum;
};

static const Value *operand(const Node *n, int i) { return i < n->nin ? n->in[i] : NULL; }

/* The problem, whose columns are those that count. */
static bool dims(const Node *n, Dims *p)
{
	const struct product *at = n->attr;
	const int side = (int)at->wide - 1;
	Value narrow, *in[2] = { n->in[0], n->in[1] };
	Node seen = *n;

	if (side == 0 || side == 1) {
		narrow = *n->in[side];
		narrow.type.dim[narrow.type.rank - 1] = at->columns;
		in[side] = &narrow;
		seen.in = in;
	}
	return product_dims(&seen, at->transA != 0, at->transB != 0, p);
}

static bool problem(const Node *n, Dims *p)
{
	const struct product *at = n->attr;

	if (!dims(n, p))
		return false;
	product_flatten(p, at->transA != 0);
	return true;
}

static bool grad_end(const struct product *at)
{
	return !strcmp(at->end, "relu_grad") || !strcmp(at->end, "gelu_grad");
}

static bool relu_end(const struct product *at) { return !strncmp(at->end, "relu", 4); }

/* A bit per element of [m, n]. */
static Type mask_type(const Dims *p)
{
	const int64_t dim[2] = { p->m, (p->n + 127) / 128 * 16 };

	return type_make(DT_u8, 2, dim);
}

static bool extras(const Node *n, const Dims *p, const Type *y, Diag *d)
{
	const struct product *at = n->attr;
	const Value *bias = operand(n, 2), *kept = operand(n, 3);
	const Type mask = mask_type(p);
	const bool known = !*at->end || !strcmp(at->end, "relu") || !strcmp(at->end, "gelu") || grad_end(at);

	if (!known || (at->keep && (!*at->end || grad_end(at))) || at->sum < 0 || at->sum > 2 ||
		(at->sum && (at->keep || *at->end)))
		return diag_error(d, n->loc, 302, "Product: end '%s' with keep %lld and sum %lld has no meaning",
			at->end, (long long)at->keep, (long long)at->sum);
	if ((at->sum == 1 && !at->transA) || (at->sum == 2 && at->transB))
		return diag_error(d, n->loc, 302,
			"Product: sum %lld adds up rows of an operand that lies the other way", (long long)at->sum);
	if (p->batch > 1 && (bias || *at->end || at->sum))
		return diag_error(d, n->loc, 304, "Product: %lld matrices have no epilogue", (long long)p->batch);
	if (at->wide &&
		(bias || *at->end || at->sum || p->batch > 1 ||
			(at->wide == 3 ? at->columns < p->n
				       : at->columns >
						 n->in[at->wide - 1]->type.dim[n->in[at->wide - 1]->type.rank - 1])))
		return diag_error(d, n->loc, 304, "Product: %lld columns count of operand or result %lld",
			(long long)at->columns, (long long)at->wide);
	if (bias && (type_numel(&bias->type) != p->n || bias->type.dtype != y->dtype))
		return diag_error(d, n->loc, 304, "Product: the bias is %s, rows are %lld of %s",
			str_type(d->scratch, &bias->type), (long long)p->n, dtype_name(y->dtype));
	if (grad_end(at) != (kept != NULL))
		return diag_error(d, n->loc, 301, "Product: end '%s' %s", at->end,
			kept ? "reads nothing kept" : "lacks what was kept");
	if (kept && (relu_end(at) ? !shape_eq(&kept->type, &mask)
				  : type_numel(&kept->type) != p->m * p->n || kept->type.dtype != y->dtype))
		return diag_error(d, n->loc, 304, "Product: what was kept is %s, the result %s",
			str_type(d->scratch, &kept->type), str_type(d->scratch, y));
	return true;
}

/* Operands of 8 bits: with their scales, rows along k, results of 16 bits or f32, the latter without a bias, no sums. */
static bool eight(const Node *n)
{
	const struct product *at = n->attr;
	const DType a = n->in[0]->type.dtype, b = n->in[1]->type.dtype, y = dtype_from_onnx((int)at->to);

	for (int i = 4; i < 6; i++)
		if (!operand(n, i) || n->in[i]->type.dtype != DT_f32 || type_numel(&n->in[i]->type) != F8_STATE)
			return false;
	return dtype_f8(a) && dtype_f8(b) && (a != DT_f8e5m2 || b != DT_f8e5m2) && !at->transA && at->transB &&
	       !at->sum && !at->wide && (y == DT_bf16 || (y == DT_f32 && !operand(n, 2)));
}

static bool shape(Node *n, Diag *d)
{
	const struct product *at = n->attr;
	const Type *a = &n->in[0]->type, *b = &n->in[1]->type;
	Type y = type_scalar(at->to ? dtype_from_onnx((int)at->to) : a->dtype);
	Dims p, all;

	const bool f8 = dtype_f8(a->dtype) || dtype_f8(b->dtype);

	if ((f8 ? !eight(n) : a->dtype != b->dtype || !dtype_float(a->dtype)) || a->rank < 2 || b->rank < 2 ||
		a->layout != LAYOUT_PLAIN || b->layout != LAYOUT_PLAIN || at->wide < 0 || at->wide > 3 ||
		!dims(n, &all))
		return diag_error(
			d, n->loc, 304, "Product: %s by %s", str_type(d->scratch, a), str_type(d->scratch, b));
	if (!f8 && y.dtype != a->dtype && !(y.dtype == DT_f32 && dtype_half(a->dtype)))
		return diag_error(
			d, n->loc, 302, "Product of %s cannot give %s", dtype_name(a->dtype), dtype_name(y.dtype));
	for (int i = 0; i < all.rank; i++)
		y.dim[y.rank++] = all.dim[i];
	y.dim[y.rank++] = all.m;
	y.dim[y.rank++] = at->wide == 3 ? at->columns : all.n;
	if (!problem(n, &p) || !extras(n, &p, &y, d))
		return false;
	set_out(n, 0, y);
	if (!at->keep && !at->sum) {
		trim_outs(n, 1);
		return true;
	}
	const Type row = type_make(y.dtype, 1, at->sum == 1 ? &p.m : &p.n);
	set_out(n, 1, at->sum ? row : relu_end(at) ? mask_type(&p) : y);
	return true;
}

static Cost cost(const Node *n)
{
	Dims p;

	problem(n, &p);
	return cost_bytes(n, 2.0 * (double)p.batch * (double)p.m * (double)p.n * (double)p.k);
}

/* Room for parts of the result that are added up at the end: what the library may use, not what it needs. */
static void lib(const Node *n, Lib *l)
{
	enum { PARTS = 16, MOST = 32 << 20 };
	Dims p;

	problem(n, &p);
	const int64_t bytes = p.batch * p.m * p.n * 4 * PARTS;
	*l = (Lib){ .kind = LIB_PRODUCT, .bytes = bytes < MOST ? bytes : MOST };
}

static const char *end_name(const struct product *at)
{
	return !*at->end                  ? "PD_AS_IT_IS"
	       : !strcmp(at->end, "relu") ? "PD_RELU"
	       : !strcmp(at->end, "gelu") ? "PD_GELU"
	       : relu_end(at)             ? "PD_RELU_GRAD"
	                                  : "PD_GELU_GRAD";
}

static void holes(const Node *n, Holes *h)
{
	static const char *const kind[] = { [DT_f32] = "PD_F32",
		[DT_f16] = "PD_F16",
		[DT_bf16] = "PD_BF16",
		[DT_f8e4m3] = "PD_F8E4M3",
		[DT_f8e5m2] = "PD_F8E5M2" };
	const bool f8 = dtype_f8(n->in[0]->type.dtype);
	const struct product *at = n->attr;
	const Value *bias = operand(n, 2), *kept = operand(n, 3);
	Dims p;

	problem(n, &p);
	const char *batch = p.batch < 2 ? ""
	                                : arena_printf(h->arena, ", .batch = %lld, .astep = %lld, .bstep = %lld",
						  (long long)p.batch, (long long)product_step(&p, p.sa),
						  (long long)product_step(&p, p.sb));
	const Type *rows = at->wide == 3 ? &n->out[0]->type : at->wide ? &n->in[at->wide - 1]->type : NULL;
	const char *apart = !rows ? ""
	                          : arena_printf(h->arena, ", .ld%c = %lld", "aby"[at->wide - 1],
					    (long long)rows -> dim[rows->rank - 1]);
	hole_text(h, "DESC",
		"(pd_product_desc){ .in = %s%s, .out = %s, .transa = %d, .transb = %d, .m = %lld, .n = %lld, .k = %lld%s%s, "
		".end = %s%s%s%s%s, .scratch = %lld }",
		kind[n->in[0]->type.dtype],
		f8 ? arena_printf(h->arena, ", .in_b = %s", kind[n->in[1]->type.dtype]) : "",
		kind[n->out[0]->type.dtype], at->transA != 0, at->transB != 0, (long long)p.m, (long long)p.n,
		(long long)p.k, batch, apart, end_name(at), at->keep ? ", .keep = 1" : "", bias ? ", .bias = 1" : "",
		at->sum ? at->sum == 1 ? ", .sum = 1" : ", .sum = 2" : "", at->into_sum ? ", .adds = &done" : "",
		(long long)n->scratch);
	hole_text(h, "CALL", "pd_product_run%s(&$o, $=, %s, $0, $1, %s, %s, %s$scratch);", f8 ? "_f8" : "",
		n->nout > 1 ? "$=1" : "NULL", bias ? "$2" : "NULL", kept ? "$3" : "NULL", f8 ? "$4, $5, " : "");
}

/* ---- making one ---- */

ProductForm product_form(const Node *n)
{
	const bool made = n->op == OP_Product;
	ProductForm f = { .transa = attr_int(n, "transA") != 0,
		.transb = attr_int(n, "transB") != 0,
		.to = (int)attr_int(n, "to"),
		.keep = made && attr_int(n, "keep"),
		.sum = made ? (int)attr_int(n, "sum") : 0,
		.end = made ? attr_str(n, "end") : "",
		.wide = made ? (int)attr_int(n, "wide") : 0,
		.columns = made ? attr_int(n, "columns") : 0,
		.f8 = (int)attr_int(n, "f8") };

	for (int i = 0; i < n->nin; i++)
		f.in[i] = n->in[i];
	return f;
}

Node *product_make(Builder *b, const ProductForm *f)
{
	struct product *at = attr_new(b->m->arena, OP_Product);

	*at = (struct product){ f->transa, f->transb, f->to, f->end, f->keep, f->sum, f->wide, f->columns, f->f8, 0 };
	return build(b, OP_Product, at, f->in[5] ? 6 : f->in[3] ? 4 : f->in[2] ? 3 : 2, f->in, NULL);
}

/* Of 8 bits too the library has what adds; it was run on no GPU yet. */
bool product_end_adds(const Node *n)
{
	const struct product *at = n->attr;
	Dims p;

	return n->out[0]->type.dtype == DT_f32 && !*at->end && !at->keep && at->wide != 3 && !operand(n, 2) &&
	       !dtype_f8(n->in[0]->type.dtype) && problem(n, &p) && p.batch == 1;
}

int64_t product_rows(const Node *n)
{
	Dims p;

	return problem(n, &p) && p.batch == 1 ? p.m : 0;
}

bool product_even(const Node *n)
{
	const bool transa = attr_int(n, "transA") != 0;
	Dims p;

	if (!product_dims(n, transa, attr_int(n, "transB") != 0, &p))
		return false;
	product_flatten(&p, transa);
	return p.batch == 1 || (product_step(&p, p.sa) >= 0 && product_step(&p, p.sb) >= 0);
}

static const AttrDef attrs[] = { AT_INT(struct product, transA, 0), AT_INT(struct product, transB, 0),
	AT_INT(struct product, to, 0), AT_STR(struct product, end, ""), AT_INT(struct product, keep, 0),
	AT_INT(struct product, sum, 0), AT_INT(struct product, wide, 0), AT_INT(struct product, columns, 0),
	AT_INT(struct product, f8, 0), AT_INT(struct product, into_sum, 0), AT_END };

const OpDef op_Product = {
	.name = "Product",
	.minin = 2,
	.maxin = 6,
	.nout = 2,
	.flags = OP_PURE | OP_HEAVY,
	.attrs = attrs,
	.attrsize = sizeof(struct product),
	.shape = shape,
	.cost = cost,
	.holes = holes,
	.lib = lib,
	.cuda = { .object = "pd_product", .init = "pd_product_init(&$o, &$DESC);", .call = "" },
};
