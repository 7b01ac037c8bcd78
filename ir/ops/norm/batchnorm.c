/* BatchNormalization in training mode, by the statistics of the microbatch, and its gradients:
 *     %y, %mean, %var = BatchNorm(%x, %scale, %bias[, %running_mean, %running_var][, %more])     var: of the population
 *     %dx, %dscale, %dbias = BatchNormGrad(%dy, %x, %scale, %mean, %var[, %bias])
 * x may be of 16-bit floats: so is y then, all else stays f32. Running statistics are a matter of the update phase
 * (Stack, RunningStat); as operands they are taken in evaluation. relu, on GPUs alone (passes/gpu/norms.c): y is max(0, what it would
 * be), and dy the gradient of that, for which the backward takes the bias. cpu: the library; ref: plain loops. */
#include "../common/common.h"

struct batchnorm {
	double epsilon;
	int64_t relu;
};

static bool check(const Node *n, const Type *x, int from, int to, Diag *d)
{
	if (x->rank < 2 || x->rank > 5 || !dtype_float(x->dtype))
		return diag_error(d, n->loc, 304,
			"%s: X is %s; it takes floats with a channel axis and up to three more", optab[n->op]->name,
			str_type(d->scratch, x));
	for (int i = from; i < to; i++)
		if (n->in[i]->type.rank != 1 || n->in[i]->type.dim[0] != x->dim[1] ||
			n->in[i]->type.dtype != dtype_math(x->dtype))
			return diag_error(d, n->loc, 304, "%s: %s is %s, X is %s: one value per channel is needed",
				optab[n->op]->name, n->in[i]->name, str_type(d->scratch, &n->in[i]->type),
				str_type(d->scratch, x));
	return true;
}

static bool shape(Node *n, Diag *d)
{
	Type x = n->in[0]->type;
	const bool more = n->nin % 2 == 0;

	if (!check(n, &x, 1, n->nin - more, d))
		return false;
	if (more && (!shape_eq(&n->in[n->nin - 1]->type, &x) || n->in[n->nin - 1]->type.dtype != x.dtype))
		return diag_error(d, n->loc, 304, "BatchNorm: %s is %s, X is %s", n->in[n->nin - 1]->name,
			str_type(d->scratch, &n->in[n->nin - 1]->type), str_type(d->scratch, &x));
	x.rows = 0;
	set_out(n, 0, x);
	set_out(n, 1, n->in[1]->type);
	set_out(n, 2, n->in[1]->type);
	return true;
}

static bool grad_shape(Node *n, Diag *d)
{
	Type x = n->in[1]->type;

	if (!check(n, &x, 2, n->nin, d))
		return false;
	if (!shape_eq(&n->in[0]->type, &x) || n->in[0]->type.dtype != x.dtype)
		return diag_error(d, n->loc, 304, "BatchNormGrad: %s is %s, X is %s", n->in[0]->name,
			str_type(d->scratch, &n->in[0]->type), str_type(d->scratch, &x));
	set_out(n, 0, x);
	set_out(n, 1, n->in[2]->type);
	set_out(n, 2, n->in[2]->type);
	return true;
}

static void grad(Builder *b, const Node *n, Value *const *dy, Value **dx)
{
	if (!dy[0])
		return;
	Value *in[5] = { dy[0], n->in[0], n->in[1], n->out[1], n->out[2] };
	Node *g = build(b, OP_BatchNormGrad, n->attr, 5, in, NULL);
	for (int i = 0; i < 3; i++)
		dx[i] = g->out[i];
}

static const Type *x_of(const Node *n) { return &n->in[n->op == OP_BatchNormGrad ? 1 : 0]->type; }

static void lib(const Node *n, Lib *l)
{
	const struct batchnorm *at = n->attr;
	const Type *x = x_of(n);

	*l = (Lib){ .kind = LIB_BN,
		.what = n->op == OP_BatchNormGrad,
		.n = (int)x->dim[0],
		.c = (int)x->dim[1],
		.nd = x->rank > 2 ? x->rank - 2 : 1,
		.nhwc = x->layout == LAYOUT_NHWC,
		.eps = (float)at->epsilon };
	for (int i = 0; i < 3; i++)
		l->in[i] = i < x->rank - 2 ? (int)x->dim[2 + i] : 1;
}

static void holes(const Node *n, Holes *h)
{
	const bool back = n->op == OP_BatchNormGrad, relu = ((const struct batchnorm *)n->attr)->relu != 0;
	const Type *x = x_of(n);
	int64_t inner = 1;
	Lib l;

	lib(n, &l);
	for (int i = 2; i < x->rank; i++)
		inner *= x->dim[i];
	hole_text(h, "T", "%s", dtype_c(x->dtype));
	hole_int(h, "BATCH", x->dim[0]);
	hole_int(h, "C", x->dim[1]);
	hole_int(h, "INNER", inner);
	hole_int(h, "BACK", back);
	hole_text(h, "EPSILON", "%.17g", ((const struct batchnorm *)n->attr)->epsilon);
	hole_text(h, "DESC",
		"(pd_bn_desc){ .what = %s, .n = %d, .c = %d, .nd = %d, .sp = { %d, %d, %d }, .nhwc = %d, "
		".eps = %.9ef%s%s }",
		back ? "PD_BACKWARD_DATA" : "PD_FORWARD", l.n, l.c, l.nd, l.in[0], l.in[1], l.in[2], l.nhwc,
		(double)l.eps,
		x->dtype == DT_bf16  ? ", .type = PD_BF16"
		: x->dtype == DT_f16 ? ", .type = PD_F16"
				     : "",
		relu ? ", .relu = 1" : "");
	hole_int(h, "PLANNED", n->scratch);
	hole_text(h, "WHO", "batchnorm%s of %s", back ? "_grad" : "", dims_name(h->arena, x));
	const bool both = !back && n->nin > 4;
	const char *more = n->nin == 4 ? "$3" : n->nin == 6 ? "$5" : "NULL";
	hole_int(h, "RUNNING", both);
	hole_name(h, "batchnorm%s_%s%s", back ? "_grad" : "", dims_name(h->arena, x), dtype_suffix(x->dtype));
	if (x->dtype == DT_f64)
		hole_text(h, "CALL",
			back || both ? "$k($=0, $=1, $=2, $0, $1, $2, $3, $4);" : "$k($=0, $=1, $=2, $0, $1, $2);");
	else if (back)
		hole_text(h, "CALL",
			relu ? "pd_bn_relu_backward(&$o, $=0, $=1, $=2, $0, $1, $3, $4, $2, $5);"
			     : "pd_bn_backward(&$o, $=0, $=1, $=2, $0, $1, $3, $4, $2, $scratch);");
	else if (relu)
		hole_text(h, "CALL",
			both ? "pd_evaluating() ? pd_bn_relu_evaluate(&$o, $=0, $0, $1, $2, $3, $4, %s) : "
			       "pd_bn_relu_forward(&$o, $=0, $=1, $=2, $0, $1, $2, %s);"
			     : "pd_bn_relu_forward(&$o, $=0, $=1, $=2, $0, $1, $2, %s);",
			more, more);
	else
		hole_text(h, "CALL",
			both ? "pd_evaluating() ? pd_bn_evaluate(&$o, $=0, $0, $1, $2, $3, $4) : "
			       "pd_bn_forward(&$o, $=0, $=1, $=2, $0, $1, $2, $scratch);"
			     : "pd_bn_forward(&$o, $=0, $=1, $=2, $0, $1, $2, $scratch);");
}

static Cost cost(const Node *n) { return cost_bytes(n, 10.0 * (double)type_numel(&n->out[0]->type)); }

static const AttrDef attrs[] = { AT_FLOAT(struct batchnorm, epsilon, 1e-5), AT_INT(struct batchnorm, relu, 0), AT_END };

static bool by_channels(const Node *n, bool out, int at, ShardWay *w) { return shard_channels(n, out, at, 1, w); }

#define INIT "pd_check_scratch(\"$WHO\", pd_bn_scratch(&$DESC), $PLANNED);\npd_bn_init(&$o, &$DESC);"
#define COMMON \
	.nout = 3, .flags = OP_PURE | OP_NHWC, .shard = by_channels, .attrs = attrs, \
	.attrsize = sizeof(struct batchnorm), .cost = cost, .holes = holes, .lib = lib, \
	.cpu = { .object = "pd_bn", .init = INIT, .call = "" }, .ref = { .file = "batchnorm.ref.c" }, \
	.cuda = { .object = "pd_bn", .init = INIT, .call = "" }

const OpDef op_BatchNorm = {
	.name = "BatchNorm",
	.minin = 3,
	.maxin = 6,
	.shape = shape,
	.grad = grad,
	.dgrad = { DENSE, DENSE, DENSE },
	COMMON,
};

const OpDef op_BatchNormGrad = { .name = "BatchNormGrad", .minin = 5, .maxin = 6, .shape = grad_shape, COMMON };
