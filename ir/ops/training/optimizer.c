/* Optimizers and running statistics: they write parameters in place, once per step. The gradient operand is a sum over
 * the global batch; %n is what it is divided by. Formulas are PyTorch's (torch.optim); g stands for gradient / n, to which
 * weight_decay adds decay w (AdamW apart); t = 1, 2, ... counts the updates, t0 more where training went on before:
 *     SGD        w -= lr g
 *     Momentum   v = momentum v + (1 - dampening) g, in the first update + g;  w -= lr v, with nesterov lr (g + momentum v)
 *     Adam       m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g g;
 *                w -= lr / (1 - b1^t) m / (sqrt(v) / sqrt(1 - b2^t) + eps)
 *        onnx=1  (ai.onnx.preview.training 1) t counts from 0 and corrects nothing then;
 *                w -= lr sqrt(1 - b2^t) / (1 - b1^t) m / (sqrt(v) + eps);  w *= 1 - weight_decay_post
 *     AdamW      w -= lr decay w before Adam
 *     RMSProp    v = alpha v + (1 - alpha) g g;  w -= lr g / (sqrt(v) + eps);
 *                with momentum: b = momentum b + g / (sqrt(v) + eps);  w -= lr b
 *     Adagrad    s = s + g g;  w -= lr / (1 + (t - 1) lr_decay) g / (sqrt(s) + eps);  ONNX's is the same
 * With one state more each also keeps a moving average of w, without bias to what it began with:
 *     e += (1 - ema) / (1 - ema^t) (w - e)        so e = sum of (1 - ema) ema^(t - s) w_s over s = 1 .. t, by 1 - ema^t
 * part: each replica updates so many elements, from replica x part on, and has the states of those alone (--zero).
 * scheduled: lr is multiplied with pd_rate(), the factor of the step.
 * RunningStat takes the rows of a Stack in order: r = momentum r + (1 - momentum) row, as ONNX has it (population
 * variance). */
#include "../common/common.h"
#include "ir/analysis.h"

struct optim {
	double lr, momentum, dampening, beta1, beta2, alpha, eps, weight_decay, weight_decay_post, lr_decay, ema;
	int64_t nesterov, onnx, t0, scheduled, part;
};
struct running {
	double momentum;
};

/* Params and states of one shape, then the gradient of that shape, then a scalar; with `part` states are f32[part], and the gradient
 * may be. */
static bool shape(Node *n, Diag *d)
{
	const struct optim *at = n->attr;
	const int g = n->nin - 2;
	const Type part = type_make(n->in[0] ? n->in[0]->type.dtype : DT_f32, 1, &at->part);

	for (int i = 0; i < n->nin; i++)
		if (!n->in[i])
			return diag_error(d, n->loc, 301, "%s: operand %d is missing", optab[n->op]->name, i);
	for (int i = 0; i <= g; i++)
		if ((!shape_eq(i && i < g && at->part ? &part : &n->in[0]->type, &n->in[i]->type) &&
			    !(i == g && at->part && shape_eq(&part, &n->in[i]->type))) ||
			n->in[0]->type.dtype != n->in[i]->type.dtype)
			return diag_error(d, n->loc, 304, "%s: %s is %s, %s is %s", optab[n->op]->name, n->in[0]->name,
				str_type(d->scratch, &n->in[0]->type), n->in[i]->name,
				str_type(d->scratch, &n->in[i]->type));
	if (type_numel(&n->in[g + 1]->type) != 1 || n->in[g + 1]->type.dtype != n->in[0]->type.dtype)
		return diag_error(d, n->loc, 304, "%s: %s is %s, not one %s", optab[n->op]->name, n->in[g + 1]->name,
			str_type(d->scratch, &n->in[g + 1]->type), dtype_name(n->in[0]->type.dtype));
	return true;
}

enum { PARALLEL = 32768 }; /* elements from which on threads pay */

static void common_holes(const Node *n, Holes *h, int64_t count)
{
	hole_text(h, "T", "%s", dtype_c(n->in[0]->type.dtype));
	hole_text(h, "IX", "%s", count < INT32_MAX ? "int" : "int64_t");
	hole_int(h, "N", count);
	hole_int(h, "PAR", count >= PARALLEL);
}

static const char *op_name(OpKind op)
{
	switch (op) {
	case OP_SGD: return "sgd";
	case OP_Momentum: return "momentum";
	case OP_Adam: return "adam";
	case OP_AdamW: return "adamw";
	case OP_Adagrad: return "adagrad";
	default: return op == OP_RMSProp ? "rmsprop" : "rmsprop_momentum";
	}
}

static void holes(const Node *n, Holes *h)
{
	const struct optim *at = n->attr;
	const bool adam = n->op == OP_Adam || n->op == OP_AdamW;
	const int64_t count = type_numel(&n->in[0]->type);

	common_holes(n, h, count);
	hole_int(h, "ADAM", adam);
	hole_int(h, "HEAVYBALL", n->op == OP_Momentum);
	hole_int(h, "NESTEROV", at->nesterov != 0);
	hole_int(h, "DAMPENED", at->dampening != 0);
	hole_int(h, "ONNX", at->onnx != 0);
	hole_int(h, "AFTER", at->weight_decay_post != 0);
	hole_int(h, "RMSPROP", n->op == OP_RMSProp || n->op == OP_RMSPropMomentum);
	hole_int(h, "SMOOTHED", n->op == OP_RMSPropMomentum);
	hole_int(h, "ADAGRAD", n->op == OP_Adagrad);
	hole_int(h, "AVERAGE", n->nin > optab[n->op]->minin);
	hole_text(h, "EMA", "%.17g", at->ema);
	hole_int(h, "T0", at->t0);
	hole_int(h, "DECOUPLED", n->op == OP_AdamW && at->weight_decay != 0);
	hole_int(h, "COUPLED", n->op != OP_AdamW && at->weight_decay != 0);
	hole_text(h, "LR", at->scheduled ? "(%.17g * pd_rate())" : "%.17g", at->lr);
	hole_text(h, "MOMENTUM", "%.17g", at->momentum);
	hole_text(h, "BETA1", "%.17g", at->beta1);
	hole_text(h, "BETA2", "%.17g", at->beta2);
	hole_text(h, "EPS", "%.17g", at->eps);
	hole_text(h, "DAMPENING", "%.17g", at->dampening);
	hole_text(h, "ALPHA", "%.17g", at->alpha);
	hole_text(h, "DECAY_POST", "%.17g", at->weight_decay_post);
	hole_text(h, "LR_DECAY", "%.17g", at->lr_decay);
	hole_text(h, "DECAY", "%.17g", at->weight_decay);
	hole_text(h, "SHARED_NAME", "%s%s%s%s%s", op_name(n->op), count >= PARALLEL ? "_large" : "",
		at->weight_decay != 0 ? "_decay" : "", n->nin > optab[n->op]->minin ? "_ema" : "",
		dtype_suffix(n->in[0]->type.dtype));
	hole_name(h, "%s_%lld%s%s%s", op_name(n->op), (long long)count, at->weight_decay != 0 ? "_decay" : "",
		n->nin > optab[n->op]->minin ? "_ema" : "", dtype_suffix(n->in[0]->type.dtype));
}

/* The replica's part of weight and gradient; states are parts, and so are gradients that were summed in parts, and weights with
 * --zero 3. */
static void part_call(const Node *n, Holes *h, int64_t part)
{
	const char *at = arena_printf(h->arena, " + pd_part_at(replica, %lld, $N)", (long long)part), *states = "";
	const bool summed = type_numel(&n->in[n->nin - 2]->type) == part, divided = held_count(n->in[0]) == part;

	for (int i = 1; i < n->nin - 2; i++)
		states = arena_printf(h->arena, "%s, $%d", states, i);
	hole_text(h, "CALL", "$k($0%s%s, $%d%s, $%d, ($IX)pd_part_of(replica, %lld, $N));", divided ? "" : at, states,
		n->nin - 2, summed ? "" : at, n->nin - 1, (long long)part);
	hole_text(h, "MANY", "{ .n = (int64_t)pd_part_of(replica, %lld, $N), .at = { $0%s%s, $%d%s } }",
		(long long)part, divided ? "" : at, states, n->nin - 2, summed ? "" : at);
}

/* GPUs: all parameters by one launch; a row has weight, states and gradient, and the copy of the weight in 16 bits. */
static void row_call(const Node *n, Holes *h)
{
	const Value *copy = copy_beside(n);
	const char *at = "$0", *order = copy ? copy_order(h->arena, &n->in[0]->type, &copy->type) : NULL;

	for (int i = 1; i < n->nin - 1; i++)
		at = arena_printf(h->arena, "%s, $%d", at, i);
	hole_int(h, "STATES", n->nin - 3);
	hole_int(h, "COPIED", order != NULL);
	if (order)
		half_holes(h, copy->type.dtype);
	if (!((const struct optim *)n->attr)->part)
		hole_text(h, "MANY", "{ .n = $N, .at = { %s%s }%s }", at, order ? ", $copy" : "", order ? order : "");
	hole_text(h, "MANY_NAME", "%s%s%s%s%s%s", op_name(n->op),
		((const struct optim *)n->attr)->weight_decay != 0 ? "_decay" : "",
		n->nin > optab[n->op]->minin ? "_ema" : "", dtype_suffix(n->in[0]->type.dtype), order ? "_" : "",
		order ? dtype_name(copy->type.dtype) : "");
	hole_text(h, "CUDA_CALL", "$k($rows, $%d);", n->nin - 1);
}

static void average_call(const Node *n, Holes *h)
{
	static const char *const call[] = { "$k($0, $1, $2, $3", "$k($0, $1, $2, $3, $4", "$k($0, $1, $2, $3, $4, $5" };
	const struct optim *at = n->attr;

	holes(n, h);
	row_call(n, h);
	if (at->part)
		part_call(n, h, at->part);
	else if (n->nin > optab[n->op]->minin)
		hole_text(h, "CALL", "%s, $N);", call[n->nin - 4]);
}

static bool running_shape(Node *n, Diag *d)
{
	const Type *r = &n->in[0]->type, *s = &n->in[1]->type;

	if (s->rank != r->rank + 1 || type_numel(s) != s->dim[0] * type_numel(r))
		return diag_error(d, n->loc, 304, "RunningStat: %s is %s, its rows are %s", n->in[0]->name,
			str_type(d->scratch, r), str_type(d->scratch, s));
	return true;
}

/* The statistics and the rows of them. */
static bool running_shard(const Node *n, bool out, int at, ShardWay *w)
{
	Shard s;
	const Type *of;

	if (!shard_seed(n, out, at, w, &s, &of) || (at && s.axis == 0))
		return false;
	s.axis -= at;
	w->in[0] = s;
	s.axis++;
	w->in[1] = s;
	return true;
}

static void running_holes(const Node *n, Holes *h)
{
	const struct running *at = n->attr;
	const int64_t count = type_numel(&n->in[0]->type);

	common_holes(n, h, count);
	hole_int(h, "ROWS", n->in[1]->type.dim[0]);
	hole_text(h, "MOMENTUM", "%.17g", at->momentum);
	hole_text(h, "MANY", "{ .n = $N, .at = { $0, $1 } }");
	hole_text(h, "MANY_NAME", "running%s", dtype_suffix(n->in[0]->type.dtype));
	hole_name(h, "running_%lldx%lld%s", (long long)n->in[1]->type.dim[0], (long long)count,
		dtype_suffix(n->in[0]->type.dtype));
}

#define RATE AT_FLOAT(struct optim, lr, 0.01), AT_INT(struct optim, scheduled, 0), AT_INT(struct optim, part, 0)
#define MOMENT AT_FLOAT(struct optim, momentum, 0.9)
#define DECAY AT_FLOAT(struct optim, weight_decay, 0), AT_FLOAT(struct optim, ema, 0)
#define EPS(x) AT_FLOAT(struct optim, eps, x)
#define COUNTED AT_INT(struct optim, t0, 0)
#define BETAS AT_FLOAT(struct optim, beta1, 0.9), AT_FLOAT(struct optim, beta2, 0.999), EPS(1e-8)

static const AttrDef sgd_attrs[] = { RATE, DECAY, AT_END };
static const AttrDef momentum_attrs[] = { RATE, MOMENT, AT_FLOAT(struct optim, dampening, 0),
	AT_INT(struct optim, nesterov, 0), DECAY, COUNTED, AT_END };
static const AttrDef adam_attrs[] = { RATE, BETAS, DECAY, AT_FLOAT(struct optim, weight_decay_post, 0),
	AT_INT(struct optim, onnx, 0), COUNTED, AT_END };
static const AttrDef adamw_attrs[] = { RATE, BETAS, DECAY, AT_END };
static const AttrDef rmsprop_attrs[] = { RATE, AT_FLOAT(struct optim, alpha, 0.99), EPS(1e-8), DECAY, AT_END };
static const AttrDef smoothed_attrs[] = { RATE, MOMENT, AT_FLOAT(struct optim, alpha, 0.99), EPS(1e-8), DECAY, AT_END };
static const AttrDef adagrad_attrs[] = { RATE, AT_FLOAT(struct optim, lr_decay, 0), EPS(1e-10), DECAY, COUNTED,
	AT_END };
static const AttrDef running_attrs[] = { AT_FLOAT(struct running, momentum, 0.9), AT_END };

#define OPTIMIZER(op, operands, mask, table, statement) \
	const OpDef op_##op = { .name = #op, \
		.minin = operands, \
		.maxin = operands + 1, \
		.flags = OP_UPDATE, \
		.attrs = table, \
		.attrsize = sizeof(struct optim), \
		.writes = mask, \
		.shape = shape, \
		.shard = shard_same_shapes, \
		.holes = average_call, \
		.cpu = { .file = "optimizer.cpu.c", .call = statement ", $N);" }, \
		.cuda = { .file = "optimizer.cuda.cu" } }

OPTIMIZER(SGD, 3, 1, sgd_attrs, "$k($0, $1, $2");
OPTIMIZER(Momentum, 4, 3, momentum_attrs, "$k($0, $1, $2, $3");
OPTIMIZER(Adam, 5, 7, adam_attrs, "$k($0, $1, $2, $3, $4");
OPTIMIZER(AdamW, 5, 7, adamw_attrs, "$k($0, $1, $2, $3, $4");
OPTIMIZER(RMSProp, 4, 3, rmsprop_attrs, "$k($0, $1, $2, $3");
OPTIMIZER(RMSPropMomentum, 5, 7, smoothed_attrs, "$k($0, $1, $2, $3, $4");
OPTIMIZER(Adagrad, 4, 3, adagrad_attrs, "$k($0, $1, $2, $3");

const OpDef op_RunningStat = {
	.name = "RunningStat",
	.minin = 2,
	.maxin = 2,
	.flags = OP_UPDATE,
	.attrs = running_attrs,
	.attrsize = sizeof(struct running),
	.writes = 1,
	.shape = running_shape,
	.shard = running_shard,
	.holes = running_holes,
	.cpu = { .file = "running.cpu.c", .call = "$k($0, $1);" },
	.cuda = { .file = "running.cuda.cu", .call = "$k($rows);" },
};
