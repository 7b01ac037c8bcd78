/* Optimizers and running statistics: they write parameters in place, once per step. The gradient operand is a sum over
 * the global batch; %n is what it is divided by. Formulas are PyTorch's (torch.optim); g stands for gradient / n:
 *     SGD        w -= lr g
 *     Momentum   v = momentum v + g;  w -= lr v
 *     Adam       m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g g;
 *                w -= lr / (1 - b1^t) m / (sqrt(v) / sqrt(1 - b2^t) + eps),  t = 1, 2, ...
 *     AdamW      w -= lr decay w before that
 * weight_decay of the others adds decay w to g. RunningStat takes the rows of a Stack in order: r = momentum r +
 * (1 - momentum) row, as ONNX has it (population variance). */
#include "../common/common.h"

struct optim { double lr, momentum, beta1, beta2, eps, weight_decay; };
struct running { double momentum; };

/* Params and states of one shape, then the gradient of that shape, then a scalar. */
static bool shape(Node *n, Diag *d)
{
	const int g = n->nin - 2;

	for (int i = 0; i < n->nin; i++)
		if (!n->in[i])
			return diag_error(d, n->loc, 301, "%s: operand %d is missing", optab[n->op]->name, i);
	for (int i = 0; i <= g; i++)
		if (!shape_eq(&n->in[0]->type, &n->in[i]->type) || n->in[0]->type.dtype != n->in[i]->type.dtype)
			return diag_error(d, n->loc, 304, "%s: %s is %s, %s is %s", optab[n->op]->name, n->in[0]->name,
				str_type(d->scratch, &n->in[0]->type), n->in[i]->name, str_type(d->scratch, &n->in[i]->type));
	if (type_numel(&n->in[g + 1]->type) != 1 || n->in[g + 1]->type.dtype != n->in[0]->type.dtype)
		return diag_error(d, n->loc, 304, "%s: %s is %s, not one %s", optab[n->op]->name, n->in[g + 1]->name,
			str_type(d->scratch, &n->in[g + 1]->type), dtype_name(n->in[0]->type.dtype));
	return true;
}

static void common_holes(const Node *n, Holes *h, int64_t count)
{
	hole_text(h, "T", "%s", dtype_c(n->in[0]->type.dtype));
	hole_text(h, "IX", "%s", count < INT32_MAX ? "int" : "int64_t");
	hole_int(h, "N", count);
	hole_int(h, "PAR", count >= 32768);
}

static void holes(const Node *n, Holes *h)
{
	const struct optim *at = n->attr;
	const bool adam = n->op == OP_Adam || n->op == OP_AdamW;
	const int64_t count = type_numel(&n->in[0]->type);

	common_holes(n, h, count);
	hole_int(h, "ADAM", adam);
	hole_int(h, "HEAVYBALL", n->op == OP_Momentum);
	hole_int(h, "DECOUPLED", n->op == OP_AdamW && at->weight_decay != 0);
	hole_int(h, "COUPLED", n->op != OP_AdamW && at->weight_decay != 0);
	hole_text(h, "LR", "%.17g", at->lr);
	hole_text(h, "MOMENTUM", "%.17g", at->momentum);
	hole_text(h, "BETA1", "%.17g", at->beta1);
	hole_text(h, "BETA2", "%.17g", at->beta2);
	hole_text(h, "EPS", "%.17g", at->eps);
	hole_text(h, "DECAY", "%.17g", at->weight_decay);
	hole_name(h, "%s_%lld%s", n->op == OP_SGD ? "sgd" : n->op == OP_Momentum ? "momentum" : adam && n->op == OP_Adam ?
		"adam" : "adamw", (long long)count, dtype_suffix(n->in[0]->type.dtype));
}

static bool running_shape(Node *n, Diag *d)
{
	const Type *r = &n->in[0]->type, *s = &n->in[1]->type;

	if (s->rank != r->rank + 1 || type_numel(s) != s->dim[0] * type_numel(r))
		return diag_error(d, n->loc, 304, "RunningStat: %s is %s, its rows are %s", n->in[0]->name,
			str_type(d->scratch, r), str_type(d->scratch, s));
	return true;
}

static void running_holes(const Node *n, Holes *h)
{
	const struct running *at = n->attr;
	const int64_t count = type_numel(&n->in[0]->type);

	common_holes(n, h, count);
	hole_int(h, "ROWS", n->in[1]->type.dim[0]);
	hole_text(h, "MOMENTUM", "%.17g", at->momentum);
	hole_name(h, "running_%lldx%lld%s", (long long)n->in[1]->type.dim[0], (long long)count,
		dtype_suffix(n->in[0]->type.dtype));
}

#define RATE AT_FLOAT(struct optim, lr, 0.01)
#define MOMENT AT_FLOAT(struct optim, momentum, 0.9)
#define DECAY AT_FLOAT(struct optim, weight_decay, 0)
#define BETAS AT_FLOAT(struct optim, beta1, 0.9), AT_FLOAT(struct optim, beta2, 0.999), AT_FLOAT(struct optim, eps, 1e-8)

static const AttrDef sgd_attrs[] = { RATE, DECAY, AT_END };
static const AttrDef momentum_attrs[] = { RATE, MOMENT, DECAY, AT_END };
static const AttrDef adam_attrs[] = { RATE, BETAS, DECAY, AT_END };
static const AttrDef running_attrs[] = { AT_FLOAT(struct running, momentum, 0.9), AT_END };

#define OPTIMIZER(op, operands, mask, table, statement) \
	const OpDef op_##op = { \
		.name = #op, .minin = operands, .maxin = operands, .flags = OP_UPDATE, .attrs = table, \
		.attrsize = sizeof(struct optim), .writes = mask, .shape = shape, .holes = holes, \
		.cpu = { .file = "optimizer.cpu.c", .call = statement } \
	}

OPTIMIZER(SGD, 3, 1, sgd_attrs, "$k($0, $1, $2);");
OPTIMIZER(Momentum, 4, 3, momentum_attrs, "$k($0, $1, $2, $3);");
OPTIMIZER(Adam, 5, 7, adam_attrs, "$k($0, $1, $2, $3, $4);");
OPTIMIZER(AdamW, 5, 7, adam_attrs, "$k($0, $1, $2, $3, $4);");

const OpDef op_RunningStat = {
	.name = "RunningStat", .minin = 2, .maxin = 2, .flags = OP_UPDATE, .attrs = running_attrs,
	.attrsize = sizeof(struct running), .writes = 1, .shape = running_shape, .holes = running_holes,
	.cpu = { .file = "running.cpu.c", .call = "$k($0, $1);" },
};
