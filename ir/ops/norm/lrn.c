/* LRN, local response normalisation over neighbouring channels, and its gradient:
 *     %y, %s = LRN(%x)        s = bias + alpha / size * sum of x x over the window, y = x s^-beta
 *     %dx = LRNGrad(%dy, %x, %s)
 * The window of channel c is c - (size - 1) / 2 .. c + size / 2. Kernels see [OUTER, CH, INNER]: plain as it is,
 * channels-last with INNER = 1. */
#include "../common/common.h"

struct lrn {
	double alpha, beta, bias;
	int64_t size;
};

enum { MOST_CHANNELS = 1 << 16, BUFFER = 1 << 13 }; /* a column of channels lies on the stack */

static bool check(const Node *n, const Type *x, Diag *d)
{
	const struct lrn *at = n->attr;

	if (x->rank < 2 || !dtype_float(x->dtype))
		return diag_error(d, n->loc, 304, "%s: X is %s; it takes floats with a channel axis",
			optab[n->op]->name, str_type(d->scratch, x));
	if (x->dim[1] > MOST_CHANNELS)
		return diag_error(d, n->loc, 304, "%s: X is %s; the most channels are %d", optab[n->op]->name,
			str_type(d->scratch, x), MOST_CHANNELS);
	if (at->size < 1)
		return diag_error(d, n->loc, 304, "%s: size is %lld; it must be at least 1", optab[n->op]->name,
			(long long)at->size);
	return true;
}

static bool shape(Node *n, Diag *d)
{
	Type x = n->in[0]->type;

	if (!check(n, &x, d))
		return false;
	x.rows = 0;
	set_out(n, 0, x);
	set_out(n, 1, x);
	return true;
}

static bool grad_shape(Node *n, Diag *d)
{
	const Type *x = &n->in[1]->type;

	if (!check(n, x, d) || !need_same_shape(n, d, n->in[0], x) || !need_same_shape(n, d, n->in[2], x))
		return false;
	set_out(n, 0, *x);
	return true;
}

static void grad(Builder *b, const Node *n, Value *const *dy, Value **dx)
{
	if (dy[0])
		dx[0] = mk(b, OP_LRNGrad, n->attr, NULL, 3, dy[0], n->in[0], n->out[1]);
}

static void holes(const Node *n, Holes *h)
{
	const struct lrn *at = n->attr;
	const bool back = n->op == OP_LRNGrad;
	const Type *x = &n->in[back ? 1 : 0]->type;
	const int64_t ch = x->dim[1], most = ch > 0 ? ch - 1 : 0;
	const int64_t low = (at->size - 1) / 2 < most ? (at->size - 1) / 2 : most;
	const int64_t high = at->size / 2 < most ? at->size / 2 : most;
	int64_t inner = 1, block;

	for (int i = 2; i < x->rank && x->layout == LAYOUT_PLAIN; i++)
		inner *= x->dim[i];
	block = BUFFER / (ch + low + high + 1);
	block = block > 64 ? 64 : block < 1 ? 1 : block;
	block = block > inner && inner > 0 ? inner : block;
	hole_text(h, "T", "%s", dtype_c(x->dtype));
	hole_int(h, "BACK", back);
	hole_int(h, "OUTER", ch && inner ? type_numel(x) / ch / inner : 0);
	hole_int(h, "CH", ch);
	hole_int(h, "INNER", inner);
	hole_int(h, "BLOCK", block);
	hole_int(h, "WHOLE", inner % block == 0); /* blocks are */
	hole_int(h, "BEFORE", back ? high : low);
	hole_int(h, "WINDOW", low + high + 1);
	hole_text(h, "SHARE", "%.17g", at->alpha / (double)at->size);
	hole_text(h, "BIAS", "%.17g", at->bias);
	hole_text(h, "BETA", "%.17g", at->beta);
	hole_int(h, "ROOTS", at->beta == 0.75);
	hole_int(h, "PAR", type_numel(x) >= 16384);
	hole_text(h, "CALL", back ? "$k($=, $0, $1, $2);" : "$k($=0, $=1, $0);");
	hole_name(h, "lrn%s_%s%s", back ? "_grad" : "", dims_name(h->arena, x), dtype_suffix(x->dtype));
}

static Cost cost(const Node *n)
{
	const struct lrn *at = n->attr;
	const double window = (double)(at->size < n->in[0]->type.dim[1] ? at->size : n->in[0]->type.dim[1]);

	return cost_bytes(n, (15 + window) * (double)type_numel(&n->out[0]->type));
}

static const AttrDef attrs[] = { AT_FLOAT(struct lrn, alpha, 1e-4), AT_FLOAT(struct lrn, beta, 0.75),
	AT_FLOAT(struct lrn, bias, 1), AT_INT(struct lrn, size, 0), AT_END };

#define COMMON \
	.flags = OP_PURE | OP_NHWC, .attrs = attrs, .attrsize = sizeof(struct lrn), .cost = cost, .holes = holes, \
	.cpu = { .file = "lrn.cpu.c" }, .cuda = { .file = "lrn.cuda.cu" }

const OpDef op_LRN = {
	.name = "LRN",
	.outputs = (const char *const[]){ NULL, "scale" },
	.minin = 1,
	.maxin = 1,
	.nout = 2,
	.shape = shape,
	.grad = grad,
	.dgrad = { DENSE },
	COMMON,
};

const OpDef op_LRNGrad = { .name = "LRNGrad", .minin = 3, .maxin = 3, .nout = 1, .shape = grad_shape, COMMON };
