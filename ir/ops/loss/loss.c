/* SoftmaxCrossEntropyLoss and NegativeLogLikelihoodLoss over axis 1, their gradients, and CountLabels: how many labels
 * count (the sum of their class weights, where there are some). Labels equal to ignore_index do not count, if
 * has_ignore. Kernels see logits as [OUTER, C, INNER].
 *
 *     %loss, %logp = SoftmaxCrossEntropyLoss(%x, %labels[, %weights])     loss: f32[], or [OUTER, INNER] for "none"
 *     %dx = SoftmaxCrossEntropyLossGrad(%dloss, %logp, %labels[, %weights])
 *     %dx = NegativeLogLikelihoodLossGrad(%dloss, %labels[, %weights]) {classes=C}
 * Of scores whose classes are divided among the `parts` members of a tensor group (ir/shard.h; Shoeybi 2019, section 3) each has those of
 * its own; greatest, sum and the label's score of every row, three numbers a member, go to all inside of the forward, of CountHits the
 * greatest and where it is. Scores from `classes` on (0: none; passes/shard/pad.c) are not looked at: their log-softmax is -1e30, so that
 * their gradient is 0.
 *     %n = CountHits(%x, %labels)          f32[2]: labels that have the greatest score; labels that count
 * On GPUs, made by passes/gpu/products.c of SoftmaxCrossEntropyLoss over rows of scores and its gradient, so that scores are read once and
 * their logarithms never written; scores may be of 16 bits, and their rows longer than the classes are many:
 *     %loss, %sums = ScoreLoss(%x, %labels[, %weights]) {classes=C}       sums: f32[rows], log of the sum of exp(x)
 *     %dx = ScoreLossGrad(%dloss, %x, %sums, %labels[, %weights]) {classes=C, dtype=...}
 *     %dx, %loss = ScoreLossAndGrad(%x, %dloss, %labels[, %weights]) {classes=C, dtype=...}      both; dx may take x's memory
 * In `parts`, C are those of a member, `of` all of them where the last members have fewer; each tells two numbers of a row. */
#include <string.h>
#include "../common/common.h"

struct loss {
	const char *reduction;
	int64_t ignore_index, has_ignore, parts, classes, of, dtype;
};

enum { MEAN, SUM, NONE };

static int reduction(const Node *n)
{
	const struct loss *at = n->attr;

	return !at->reduction || !strcmp(at->reduction, "mean") ? MEAN : !strcmp(at->reduction, "sum") ? SUM : NONE;
}

/* labels: the type of x without axis 1 */
static bool check_labels(const Node *n, const Type *x, const Value *labels, const Value *weights, Diag *d)
{
	const struct loss *at = n->attr;
	Type want = *x;

	if (strcmp(at->reduction, "mean") && strcmp(at->reduction, "sum") && strcmp(at->reduction, "none"))
		return diag_error(d, n->loc, 302, "%s: reduction '%s' is none of mean, sum, none", optab[n->op]->name,
			at->reduction);
	if (x->rank < 2 || !dtype_float(x->dtype))
		return diag_error(d, n->loc, 304, "%s: scores are %s, they need two axes", optab[n->op]->name,
			str_type(d->scratch, x));
	want.rank--;
	for (int i = 1; i < want.rank; i++)
		want.dim[i] = x->dim[i + 1];
	if (!shape_eq(&want, &labels->type))
		return diag_error(d, n->loc, 304, "%s: scores are %s, so labels must be %s; %s is %s",
			optab[n->op]->name, str_shape(d->scratch, x), str_shape(d->scratch, &want), labels->name,
			str_shape(d->scratch, &labels->type));
	if (labels->type.dtype != DT_i64 && labels->type.dtype != DT_i32)
		return diag_error(d, n->loc, 302, "%s: labels %s are %s, not i64 or i32", optab[n->op]->name,
			labels->name, dtype_name(labels->type.dtype));
	if (weights &&
		(weights->type.rank != 1 || weights->type.dim[0] != x->dim[1] || weights->type.dtype != x->dtype))
		return diag_error(d, n->loc, 304, "%s: weights are %s, there are %lld classes", optab[n->op]->name,
			str_type(d->scratch, &weights->type), (long long)x->dim[1]);
	return true;
}

static const Value *weights_of(const Node *n, int i) { return n->nin > i ? n->in[i] : NULL; }

static bool shape(Node *n, Diag *d)
{
	const Type *x = &n->in[0]->type;
	Type y = n->in[1]->type;

	const struct loss *at = n->attr;

	if (!check_labels(n, x, n->in[1], weights_of(n, 2), d))
		return false;
	if (n->op == OP_SoftmaxCrossEntropyLoss && (at->classes < 0 || at->classes > x->dim[1] * at->parts))
		return diag_error(d, n->loc, 304, "%s: scores are %s, classes %lld", optab[n->op]->name,
			str_type(d->scratch, x), (long long)at->classes);
	y.dtype = x->dtype;
	y.layout = LAYOUT_PLAIN;
	set_out(n, 0, reduction(n) == NONE ? y : type_scalar(x->dtype));
	y = *x;
	y.layout = LAYOUT_PLAIN;
	set_out(n, 1, y);
	return true;
}

/* dloss: a scalar, or one per label where the loss has that many */
static bool check_dloss(const Node *n, const Type *x, const Value *labels, Diag *d)
{
	Type want = reduction(n) == NONE ? labels->type : type_scalar(x->dtype);

	if (n->in[0]->type.dtype != x->dtype)
		return diag_error(d, n->loc, 302, "%s: %s is %s, scores are %s", optab[n->op]->name, n->in[0]->name,
			dtype_name(n->in[0]->type.dtype), dtype_name(x->dtype));
	return need_same_shape(n, d, n->in[0], &want);
}

static bool ce_grad_shape(Node *n, Diag *d)
{
	Type t = n->in[1]->type;

	if (!check_labels(n, &t, n->in[2], weights_of(n, 3), d) || !check_dloss(n, &t, n->in[2], d))
		return false;
	set_out(n, 0, t);
	return true;
}

static bool nll_grad_shape(Node *n, Diag *d)
{
	const struct loss *at = n->attr;
	const Type *l = &n->in[1]->type;
	int64_t dim[MAXRANK] = { l->dim[0], at->classes };

	if (l->rank < 1 || l->rank + 1 > MAXRANK || at->classes < 1)
		return diag_error(d, n->loc, 304, "%s: labels are %s, classes %lld", optab[n->op]->name,
			str_type(d->scratch, l), (long long)at->classes);
	for (int i = 1; i < l->rank; i++)
		dim[i + 1] = l->dim[i];
	Type t;
	if (!need_type(n, d, "classes", (Ints){ l->rank + 1, dim }, n->in[0]->type.dtype, &t) ||
		!check_labels(n, &t, n->in[1], weights_of(n, 2), d) || !check_dloss(n, &t, n->in[1], d))
		return false;
	set_out(n, 0, t);
	return true;
}

static bool count_shape(Node *n, Diag *d)
{
	const struct loss *at = n->attr;

	if (!dtype_float(dtype_from_onnx((int)at->dtype)))
		return diag_error(d, n->loc, 302, "CountLabels: element type %lld is no float", (long long)at->dtype);
	set_out(n, 0, type_scalar(dtype_from_onnx((int)at->dtype)));
	return true;
}

/* Rows of scores: at least as wide as the classes are many, as far apart as 16 bytes are where they are wider. */
static bool check_scores(const Node *n, int first, Diag *d)
{
	const struct loss *at = n->attr;
	const Type *x = &n->in[first]->type;
	const Value *labels = n->in[optab[n->op]->minin - 1], *w = weights_of(n, optab[n->op]->minin);

	if (x->rank != 2 || !dtype_float(x->dtype) || at->classes < 1 || at->classes > x->dim[1] ||
		reduction(n) == NONE || type_numel(&labels->type) != x->dim[0] ||
		(w && type_numel(&w->type) != at->classes))
		return diag_error(d, n->loc, 304, "%s: scores are %s, classes %lld, labels %s", optab[n->op]->name,
			str_type(d->scratch, x), (long long)at->classes, str_type(d->scratch, &labels->type));
	return true;
}

static bool score_shape(Node *n, Diag *d)
{
	if (!check_scores(n, 0, d))
		return false;
	set_out(n, 0, type_scalar(DT_f32));
	set_out(n, 1, type_make(DT_f32, 1, &n->in[0]->type.dim[0]));
	return true;
}

static bool score_grad_shape(Node *n, Diag *d)
{
	Type t = n->in[1]->type;

	if (!check_scores(n, 1, d))
		return false;
	t.dtype = dtype_from_onnx((int)((const struct loss *)n->attr)->dtype);
	set_out(n, 0, t);
	return true;
}

static bool score_both_shape(Node *n, Diag *d)
{
	Type t = n->in[0]->type;

	if (!check_scores(n, 0, d))
		return false;
	t.dtype = dtype_from_onnx((int)((const struct loss *)n->attr)->dtype);
	set_out(n, 0, t);
	set_out(n, 1, type_scalar(DT_f32));
	return true;
}

static bool hits_shape(Node *n, Diag *d)
{
	const int64_t two = 2;

	if (!check_labels(n, &n->in[0]->type, n->in[1], NULL, d))
		return false;
	set_out(n, 0, type_make(n->in[0]->type.dtype, 1, &two));
	return true;
}

/* ---- gradients ---- */

static void *same_rule(Builder *b, const Node *n, OpKind op, int64_t classes)
{
	struct loss *at = attr_new(b->m->arena, op);
	const struct loss *of = n->attr;

	at->reduction = of->reduction;
	at->ignore_index = of->ignore_index;
	at->has_ignore = of->has_ignore;
	at->classes = classes;
	if (op_attr(op, "of")) {
		at->parts = of->parts;
		at->of = of->parts > 1 && n->op == OP_SoftmaxCrossEntropyLoss ? of->classes : of->of;
	}
	return at;
}

static void ce_grad(Builder *b, const Node *n, Value *const *dy, Value **dx)
{
	Value *w = n->nin > 2 ? n->in[2] : NULL;

	if (dy[0]) {
		Value *in[4] = { dy[0], n->out[1], n->in[1], w };
		dx[0] = build(b, OP_SoftmaxCrossEntropyLossGrad, same_rule(b, n, OP_SoftmaxCrossEntropyLossGrad, 0),
			w ? 4 : 3, in, NULL)
		                ->out[0];
	}
	if (dy[1]) {
		void *at = attr_new(b->m->arena, OP_LogSoftmaxGrad);
		attr_put_int(OP_LogSoftmaxGrad, at, "axis", 1);
		Value *more = mk(b, OP_LogSoftmaxGrad, at, NULL, 2, dy[1], n->out[1]);
		dx[0] = dx[0] ? mk_binary(b, OP_Add, dx[0], more) : more;
	}
}

static void nll_grad(Builder *b, const Node *n, Value *const *dy, Value **dx)
{
	Value *w = n->nin > 2 ? n->in[2] : NULL;

	if (!dy[0])
		return;
	Value *in[3] = { dy[0], n->in[1], w };
	dx[0] = build(b, OP_NegativeLogLikelihoodLossGrad,
		same_rule(b, n, OP_NegativeLogLikelihoodLossGrad, n->in[0]->type.dim[1]), w ? 3 : 2, in, NULL)
	                ->out[0];
}

Node *score_loss_make(Builder *b, OpKind op, const Node *of, int nin, Value *const *in, int64_t classes, DType t)
{
	struct loss *at = same_rule(b, of, op, classes);

	at->dtype = dtype_onnx(t);
	return build(b, op, at, nin, in, NULL);
}

/* By classes: scores, their log-softmax, their gradient; labels and losses are whole. */
static bool by_classes(const Node *n, bool out, int at, ShardWay *w)
{
	const bool back = n->op == OP_SoftmaxCrossEntropyLossGrad;
	const Shard s = out ? w->out[at] : w->in[at];
	const int scores = back ? 1 : 0, made = back ? 0 : 1;

	if (s.kind != SHARD_AXIS || s.axis != 1 || s.outer != 1 || at != (out ? made : scores) ||
		weights_of(n, back ? 3 : 2) || ((const struct loss *)n->attr)->parts > 1)
		return false;
	w->in[scores] = w->out[made] = s;
	return true;
}

/* The same of hits, which are whole. */
static bool hits_by_classes(const Node *n, bool out, int at, ShardWay *w)
{
	const Shard s = out ? w->out[at] : w->in[at];

	return !out && at == 0 && s.kind == SHARD_AXIS && s.axis == 1 && s.outer == 1 &&
	       ((const struct loss *)n->attr)->parts < 2;
}

int64_t loss_told(const Node *n)
{
	const int64_t numbers = n->op == OP_SoftmaxCrossEntropyLoss ? 3 : n->op == OP_CountHits ? 2 : 0;
	const bool scores = n->op == OP_ScoreLoss || n->op == OP_ScoreLossAndGrad;

	if (!(numbers || scores) || ((const struct loss *)n->attr)->parts < 2)
		return 0;
	const Type *x = &n->in[0]->type;

	if (scores)
		return x->dim[0] * 2 * (int64_t)sizeof(float);
	return x->dim[1] ? numbers * type_bytes(x) / x->dim[1] : 0;
}

/* ---- kernels ---- */

static void label_holes(const Node *n, Holes *h, const Value *labels, const Value *weights)
{
	const struct loss *at = n->attr;

	hole_text(h, "TL", "%s", dtype_c(labels->type.dtype));
	hole_int(h, "IGNORE", at->has_ignore != 0);
	hole_text(h, "IGNORED", at->ignore_index == INT64_MIN ? "INT64_MIN" : "%lld", (long long)at->ignore_index);
	hole_int(h, "WEIGHTS", weights != NULL);
}

/* Of scores behind which some are of no class; 0: none are. */
static void class_holes(Holes *h, int64_t classes)
{
	hole_int(h, "CLASSES", classes);
	hole_text(h, "HAS", classes ? "has" : "C");
}

static const char *of_classes(Holes *h, const Type *x, int64_t classes, int64_t parts)
{
	return parts > 1 || classes
	               ? arena_printf(h->arena, "_of_%lld", (long long)(classes ? classes : x->dim[1] * parts))
	               : "";
}

static void holes(const Node *n, Holes *h)
{
	const bool back = n->op == OP_SoftmaxCrossEntropyLossGrad || n->op == OP_NegativeLogLikelihoodLossGrad;
	const bool ce = n->op == OP_SoftmaxCrossEntropyLoss || n->op == OP_SoftmaxCrossEntropyLossGrad;
	const int first = n->op == OP_SoftmaxCrossEntropyLossGrad ? 2 : 1;
	const Value *labels = n->in[first], *weights = weights_of(n, first + 1);
	const Type *x = back ? &n->out[0]->type : &n->in[0]->type;
	const int64_t parts = ce ? ((const struct loss *)n->attr)->parts : 1;
	const int64_t classes = n->op == OP_SoftmaxCrossEntropyLoss ? ((const struct loss *)n->attr)->classes : 0;
	int64_t inner = 1;

	for (int i = 2; i < x->rank; i++)
		inner *= x->dim[i];
	label_holes(n, h, labels, weights);
	hole_text(h, "T", "%s", dtype_c(x->dtype));
	hole_int(h, "OUTER", x->dim[0]);
	hole_int(h, "C", x->dim[1]);
	hole_int(h, "INNER", inner);
	hole_int(h, "MEAN", reduction(n) == MEAN);
	hole_int(h, "EACH", reduction(n) == NONE);
	hole_int(h, "CE", ce);
	hole_int(h, "PARTS", parts > 1 ? parts : 0);
	class_holes(h, classes);
	hole_text(h, "SCORE", parts > 1 ? "stat[(o * INNER + i) * 3]" : "score[(o * C + label) * INNER + i]");
	hole_int(h, "PAR", type_numel(x) >= 16384);
	if (parts > 1 && !back)
		hole_int(h, "ROOM", (3 + 3 * parts + 1) * x->dim[0] * inner * dtype_bytes(x->dtype));
	hole_text(h, "CALL", "%s",
		n->op == OP_SoftmaxCrossEntropyLoss ? (weights ? "$k($=0, $=1, $0, $1, $2);" : "$k($=0, $=1, $0, $1);")
		: n->op == OP_SoftmaxCrossEntropyLossGrad
			? (weights ? "$k($=, $0, $1, $2, $3);" : "$k($=, $0, $1, $2);")
		: weights ? "$k($=, $0, $1, $2);"
			  : "$k($=, $0, $1);");
	hole_name(h, "%s%s_%lldx%lld%s%s%s%s", ce ? "cross_entropy" : "nll", back ? "_grad" : "",
		(long long)(x->dim[0] * inner), (long long)x->dim[1], of_classes(h, x, classes, parts),
		reduction(n) == MEAN  ? "_mean"
		: reduction(n) == SUM ? "_sum"
				      : "",
		weights ? "_weighted" : "", dtype_suffix(x->dtype));
}

enum {
	MOST_KEPT = 128
}; /* bytes of a row that a thread keeps: half of the registers that there are for each of 1024 */

static void score_holes(const Node *n, Holes *h)
{
	const struct loss *at = n->attr;
	const bool back = n->op == OP_ScoreLossGrad, both = n->op == OP_ScoreLossAndGrad;
	const Type *x = &n->in[back ? 1 : 0]->type;
	const DType low = x->dtype, to = n->out[0]->type.dtype;
	const int per = dtype_half(low) ? 8 : 4, labels = optab[n->op]->minin - 1;
	const int vector = x->dim[1] % per ? 1 : per;
	const int threads = at->classes <= 256 ? 32 : at->classes <= 4096 ? 128 : both ? 1024 : 512;
	const int64_t kept = (x->dim[1] / vector + threads - 1) / threads; /* vectors of a thread */
	const Value *weights = weights_of(n, labels + 1);

	const char *wide = x->dim[1] == at->classes ? "" : arena_printf(h->arena, "_in_%lld", (long long)x->dim[1]);

	label_holes(n, h, n->in[labels], weights);
	hole_text(h, "TX", "%s", dtype_c(low));
	hole_text(h, "TY", "%s", dtype_c(to));
	hole_text(h, "LOAD", "%s%s", dtype_half(low) ? "pd_from_" : "", dtype_half(low) ? dtype_name(low) : "");
	hole_text(h, "STORE", "%s%s", dtype_half(to) ? "pd_to_" : "", dtype_half(to) ? dtype_name(to) : "");
	hole_int(h, "ROWS", x->dim[0]);
	hole_int(h, "C", at->classes);
	hole_int(h, "W", x->dim[1]);
	hole_int(h, "PER", vector);
	hole_int(h, "THREADS", threads);
	const int64_t parts = at->parts > 1 ? at->parts : 0;
	hole_int(h, "KEPT", both && vector > 1 && kept * 16 <= MOST_KEPT && !parts ? kept : 0);
	hole_int(h, "MEAN", reduction(n) == MEAN);
	hole_int(h, "PARTS", parts);
	hole_int(h, "CLASSES", at->of);
	if (both || (parts && !back)) /* a loss for each row; two numbers of each of every member, and of this one */
		hole_int(h, "ROOM", x->dim[0] * (int64_t)sizeof(float) * (both + (parts ? 2 * (1 + parts) : 0)));
	hole_text(h, "CALL",
		back      ? (weights ? "$k($=, $0, $1, $2, $3, $4);" : "$k($=, $0, $1, $2, $3);")
		: both    ? (weights ? "$k($=0, $=1, $0, $1, $2, $3);" : "$k($=0, $=1, $0, $1, $2);")
		: weights ? "$k($=0, $=1, $0, $1, $2);"
			  : "$k($=0, $=1, $0, $1);");
	hole_name(h, "%s_%lldx%lld%s%s%s%s%s%s",
		back   ? "score_loss_grad"
		: both ? "loss_and_grad"
		       : "score_loss",
		(long long)x->dim[0], (long long)at->classes, wide,
		parts ? arena_printf(h->arena, "_of_%lld", (long long)(at->of ? at->of : at->classes * parts)) : "",
		reduction(n) == MEAN ? "_mean" : "", weights ? "_weighted" : "", dtype_suffix(low),
		(back || both) && to != low ? arena_printf(h->arena, "_to_%s", dtype_name(to)) : "");
}

static void count_holes(const Node *n, Holes *h)
{
	const Value *weights = weights_of(n, 1);

	label_holes(n, h, n->in[0], weights);
	hole_text(h, "T", "%s", dtype_c(n->out[0]->type.dtype));
	hole_text(h, "TW", "%s", weights ? dtype_c(weights->type.dtype) : "float");
	hole_int(h, "N", type_numel(&n->in[0]->type));
	hole_text(h, "CALL", weights ? "$k($=, $0, $1);" : "$k($=, $0);");
	hole_name(h, "count_labels_%lld%s", (long long)type_numel(&n->in[0]->type), weights ? "_weighted" : "");
}

static void hits_holes(const Node *n, Holes *h)
{
	const struct loss *at = n->attr;
	const Type *x = &n->in[0]->type;
	int64_t inner = 1;

	for (int i = 2; i < x->rank; i++)
		inner *= x->dim[i];
	label_holes(n, h, n->in[1], NULL);
	hole_text(h, "T", "%s", dtype_c(x->dtype));
	hole_int(h, "OUTER", x->dim[0]);
	hole_int(h, "C", x->dim[1]);
	hole_int(h, "INNER", inner);
	hole_int(h, "PAR", type_numel(x) >= 16384);
	hole_int(h, "PARTS", at->parts > 1 ? at->parts : 0);
	if (at->parts > 1)
		hole_int(h, "ROOM", (2 + 2 * at->parts) * x->dim[0] * inner * dtype_bytes(x->dtype));
	class_holes(h, at->classes);
	hole_name(h, "count_hits_%lldx%lld%s%s", (long long)(x->dim[0] * inner), (long long)x->dim[1],
		of_classes(h, x, at->classes, at->parts), dtype_suffix(x->dtype));
}

static Cost hits_cost(const Node *n) { return cost_bytes(n, (double)type_numel(&n->in[0]->type)); }

static Cost cost(const Node *n) { return cost_bytes(n, 10.0 * (double)type_numel(&n->out[n->nout > 1 ? 1 : 0]->type)); }

static Cost score_cost(const Node *n)
{
	return cost_bytes(n, 10.0 * (double)type_numel(&n->in[n->op == OP_ScoreLossGrad ? 1 : 0]->type));
}

#define RULE \
	AT_STR(struct loss, reduction, "mean"), AT_INT(struct loss, ignore_index, 0), AT_INT(struct loss, has_ignore, 0)

static const AttrDef attrs[] = { RULE, AT_INT(struct loss, parts, 1), AT_END };
static const AttrDef ce_attrs[] = { RULE, AT_INT(struct loss, classes, 0), AT_INT(struct loss, parts, 1), AT_END };
static const AttrDef grad_attrs[] = { RULE, AT_INT(struct loss, classes, 0), AT_INT(struct loss, parts, 1), AT_END };
static const AttrDef score_attrs[] = { RULE, AT_INT(struct loss, classes, 0), AT_INT(struct loss, parts, 1),
	AT_INT(struct loss, of, 0), AT_INT(struct loss, dtype, 1), AT_END };
static const AttrDef count_attrs[] = { AT_INT(struct loss, ignore_index, 0), AT_INT(struct loss, has_ignore, 0),
	AT_INT(struct loss, dtype, 1), AT_END };

const OpDef op_SoftmaxCrossEntropyLoss = {
	.name = "SoftmaxCrossEntropyLoss",
	.outputs = (const char *const[]){ NULL, "log_probs" },
	.minin = 2,
	.maxin = 3,
	.nout = 2,
	.flags = OP_PURE,
	.attrs = ce_attrs,
	.attrsize = sizeof(struct loss),
	.shape = shape,
	.shard = by_classes,
	.grad = ce_grad,
	.dgrad = { DENSE },
	.cost = cost,
	.holes = holes,
	.cpu = { .file = "loss.cpu.c" },
	.cuda = { .file = "loss.cuda.cu" },
};

const OpDef op_SoftmaxCrossEntropyLossGrad = {
	.name = "SoftmaxCrossEntropyLossGrad",
	.minin = 3,
	.maxin = 4,
	.nout = 1,
	.flags = OP_PURE,
	.attrs = attrs,
	.attrsize = sizeof(struct loss),
	.shape = ce_grad_shape,
	.shard = by_classes,
	.cost = cost,
	.holes = holes,
	.cpu = { .file = "loss_grad.cpu.c" },
	.cuda = { .file = "loss_grad.cuda.cu" },
};

const OpDef op_ScoreLoss = {
	.name = "ScoreLoss",
	.outputs = (const char *const[]){ NULL, "lse" },
	.minin = 2,
	.maxin = 3,
	.nout = 2,
	.flags = OP_PURE,
	.attrs = score_attrs,
	.attrsize = sizeof(struct loss),
	.shape = score_shape,
	.cost = score_cost,
	.holes = score_holes,
	.cuda = { .file = "score_loss.cuda.cu" },
};

const OpDef op_ScoreLossGrad = {
	.name = "ScoreLossGrad",
	.minin = 4,
	.maxin = 5,
	.nout = 1,
	.flags = OP_PURE,
	.attrs = score_attrs,
	.attrsize = sizeof(struct loss),
	.shape = score_grad_shape,
	.cost = score_cost,
	.holes = score_holes,
	.cuda = { .file = "score_loss_grad.cuda.cu" },
};

const OpDef op_ScoreLossAndGrad = {
	.name = "ScoreLossAndGrad",
	.outputs = (const char *const[]){ NULL, "loss" },
	.minin = 3,
	.maxin = 4,
	.nout = 2,
	.flags = OP_PURE | OP_INPLACE,
	.attrs = score_attrs,
	.attrsize = sizeof(struct loss),
	.shape = score_both_shape,
	.cost = score_cost,
	.holes = score_holes,
	.cuda = { .file = "score_loss_and_grad.cuda.cu" },
};

const OpDef op_NegativeLogLikelihoodLoss = {
	.name = "NegativeLogLikelihoodLoss",
	.minin = 2,
	.maxin = 3,
	.nout = 1,
	.flags = OP_PURE,
	.attrs = attrs,
	.attrsize = sizeof(struct loss),
	.shape = shape,
	.grad = nll_grad,
	.dgrad = { DENSE },
	.cost = cost,
	.holes = holes,
	.cpu = { .file = "loss.cpu.c" },
	.cuda = { .file = "loss.cuda.cu" },
};

const OpDef op_NegativeLogLikelihoodLossGrad = {
	.name = "NegativeLogLikelihoodLossGrad",
	.minin = 2,
	.maxin = 3,
	.nout = 1,
	.flags = OP_PURE,
	.attrs = grad_attrs,
	.attrsize = sizeof(struct loss),
	.shape = nll_grad_shape,
	.cost = cost,
	.holes = holes,
	.cpu = { .file = "loss_grad.cpu.c" },
	.cuda = { .file = "loss_grad.cuda.cu" },
};

const OpDef op_CountLabels = {
	.name = "CountLabels",
	.minin = 1,
	.maxin = 2,
	.nout = 1,
	.flags = OP_PURE,
	.attrs = count_attrs,
	.attrsize = sizeof(struct loss),
	.shape = count_shape,
	.holes = count_holes,
	.cpu = { .file = "count.cpu.c" },
	.cuda = { .file = "count.cuda.cu" },
};

const OpDef op_CountHits = {
	.name = "CountHits",
	.minin = 2,
	.maxin = 2,
	.nout = 1,
	.flags = OP_PURE,
	.attrs = ce_attrs,
	.attrsize = sizeof(struct loss),
	.shape = hits_shape,
	.shard = hits_by_classes,
	.cost = hits_cost,
	.holes = hits_holes,
	.cpu = { .file = "hits.cpu.c", .call = "$k($=, $0, $1);" },
	.cuda = { .file = "hits.cuda.cu", .call = "$k($=, $0, $1);" },
};
