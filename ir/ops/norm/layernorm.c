/* LayerNormalization over the axes from `axis` on: y = (x - mean) / sqrt(var + epsilon) * scale + bias, and its
 * gradients. Results 1 and 2, mean and 1 / sqrt(var + epsilon) per row, are what the gradient reads.
 *     %dx, %dscale, %dbias = LayerNormGrad(%dy, %x, %scale, %mean, %inv) */
#include "../common/common.h"

struct layernorm { int64_t axis; double epsilon; };

/* Axis made non-negative; scale must be of the normalised shape. */
static bool check(const Node *n, const Type *x, const Value *scale, int *axis, Diag *d)
{
	const struct layernorm *at = n->attr;
	Type want = *x;

	if (!norm_axis(n, d, "axis", at->axis, x->rank, axis))
		return false;
	want.rank = x->rank - *axis;
	for (int i = 0; i < want.rank; i++)
		want.dim[i] = x->dim[*axis + i];
	if (!dtype_float(x->dtype))
		return diag_error(d, n->loc, 302, "%s takes floats, X is %s", optab[n->op]->name, str_type(d->scratch, x));
	if (!shape_eq(&want, &scale->type) && type_numel(&want) != type_numel(&scale->type))
		return diag_error(d, n->loc, 304, "%s: scale is %s, the normalised axes are %s", optab[n->op]->name,
			str_shape(d->scratch, &scale->type), str_shape(d->scratch, &want));
	return true;
}

static bool shape(Node *n, Diag *d)
{
	Type x = n->in[0]->type, row;
	int axis;

	if (!same_dtype(n, 0, d) || !check(n, &x, n->in[1], &axis, d))
		return false;
	if (n->nin > 2 && !shape_eq(&n->in[1]->type, &n->in[2]->type))
		return diag_error(d, n->loc, 304, "LayerNormalization: scale is %s, bias is %s",
			str_shape(d->scratch, &n->in[1]->type), str_shape(d->scratch, &n->in[2]->type));
	x.layout = LAYOUT_PLAIN;
	x.rows = 0;
	set_out(n, 0, x);
	row = x;
	for (int i = axis; i < row.rank; i++)
		row.dim[i] = 1;
	set_out(n, 1, row);
	set_out(n, 2, row);
	return true;
}

static bool grad_shape(Node *n, Diag *d)
{
	int axis;

	if (!check(n, &n->in[1]->type, n->in[2], &axis, d))
		return false;
	set_out(n, 0, n->in[1]->type);
	set_out(n, 1, n->in[2]->type);
	set_out(n, 2, n->in[2]->type);
	return true;
}

static void grad(Builder *b, const Node *n, Value *const *dy, Value **dx)
{
	if (!dy[0])
		return;
	Value *in[5] = { dy[0], n->in[0], n->in[1], n->out[1], n->out[2] };
	Node *g = build(b, OP_LayerNormGrad, n->attr, 5, in, NULL);
	dx[0] = g->out[0];
	dx[1] = g->out[1];
	if (n->nin > 2)
		dx[2] = g->out[2];
}

static void holes(const Node *n, Holes *h)
{
	const struct layernorm *at = n->attr;
	const bool back = n->op == OP_LayerNormGrad;
	const Type *x = &n->in[back ? 1 : 0]->type;
	const int axis = (int)(at->axis < 0 ? at->axis + x->rank : at->axis);
	int64_t rows = 1;

	for (int i = 0; i < axis; i++)
		rows *= x->dim[i];
	hole_text(h, "T", "%s", dtype_c(x->dtype));
	hole_int(h, "ROWS", rows);
	hole_int(h, "N", rows ? type_numel(x) / rows : 0);
	hole_text(h, "EPSILON", "%.17g", at->epsilon);
	hole_int(h, "BIAS", n->nin > 2);
	hole_int(h, "PAR", type_numel(x) >= 16384);
	hole_text(h, "CALL", back ? "$k($=0, $=1, $=2, $0, $1, $2, $3, $4);" : n->nin > 2 ?
		"$k($=0, $=1, $=2, $0, $1, $2);" : "$k($=0, $=1, $=2, $0, $1);");
	hole_name(h, "layernorm%s_%lldx%lld%s", back ? "_grad" : "", (long long)rows,
		(long long)(rows ? type_numel(x) / rows : 0), dtype_suffix(x->dtype));
}

static Cost cost(const Node *n)
{
	return cost_bytes(n, 12.0 * (double)type_numel(&n->out[0]->type));
}

static const AttrDef attrs[] = { AT_INT(struct layernorm, axis, -1), AT_FLOAT(struct layernorm, epsilon, 1e-5), AT_END };

const OpDef op_LayerNormalization = {
	.name = "LayerNormalization", .minin = 2, .maxin = 3, .nout = 3, .flags = OP_PURE, .attrs = attrs,
	.attrsize = sizeof(struct layernorm), .shape = shape, .grad = grad, .dgrad = { DENSE, DENSE, DENSE }, .cost = cost,
	.holes = holes, .cpu = { .file = "layernorm.cpu.c" },
};

const OpDef op_LayerNormGrad = {
	.name = "LayerNormGrad", .minin = 5, .maxin = 5, .nout = 3, .flags = OP_PURE, .attrs = attrs,
	.attrsize = sizeof(struct layernorm), .shape = grad_shape, .cost = cost, .holes = holes,
	.cpu = { .file = "layernorm_grad.cpu.c" },
};
