/* LSTMCell, one step of an LSTM behind its matrix products, and its gradient:
 *     %h, %s = LSTMCell(%gates, %c)     s = sigmoid(f + forget_bias) c + sigmoid(i) tanh(g)   h = sigmoid(o) tanh(s)
 *     %dgates, %dc = LSTMCellGrad(%gates, %c, %dh, %ds)       dh or ds may be absent
 * gates [.., 4 N] holds i, f, g, o side by side, each where its attribute says (0 to 3); c, h, s are [.., N]. Gates are
 * computed again in the backward. */
#include "../common/common.h"

struct cell {
	int64_t i, f, g, o;
	double forget_bias;
};

static bool shape(Node *n, Diag *d)
{
	const struct cell *at = n->attr;
	const char *name = optab[n->op]->name;
	const bool back = n->op == OP_LSTMCellGrad;
	const int64_t slot[4] = { at->i, at->f, at->g, at->o };
	int seen = 0;

	for (int i = 0; i < 4; i++)
		seen |= slot[i] >= 0 && slot[i] < 4 ? 1 << slot[i] : 0;
	if (seen != 15)
		return diag_error(d, n->loc, 304,
			"%s: i, f, g, o are %lld, %lld, %lld, %lld; they must be 0 to 3, each once", name,
			(long long)at->i, (long long)at->f, (long long)at->g, (long long)at->o);
	if (!n->in[0] || !n->in[1])
		return diag_error(d, n->loc, 301, "%s: operand %d is missing", name, !n->in[0] ? 0 : 1);
	const Type *x = &n->in[0]->type, *c = &n->in[1]->type;
	Type want = *c;
	if (!dtype_float(x->dtype) || x->dtype != c->dtype)
		return diag_error(d, n->loc, 302, "%s takes floats of one type: %s, %s", name, str_type(d->scratch, x),
			str_type(d->scratch, c));
	if (c->rank > 0 && c->dim[c->rank - 1] <= EXTENT_MOST)
		want.dim[c->rank - 1] *= 4;
	if (c->rank < 1 || !shape_eq(&want, x))
		return diag_error(d, n->loc, 304, "%s: the gates are %s, c is %s; they must be [.., 4 N] and [.., N]",
			name, str_shape(d->scratch, x), str_shape(d->scratch, c));
	for (int i = 2; i < n->nin; i++)
		if (n->in[i] && !need_same_shape(n, d, n->in[i], c))
			return false;
	want = *c;
	want.rows = 0;
	want.layout = LAYOUT_PLAIN;
	set_out(n, 1, want);
	if (back) {
		want = *x;
		want.rows = 0;
		want.layout = LAYOUT_PLAIN;
	}
	set_out(n, 0, want);
	return true;
}

static void grad(Builder *b, const Node *n, Value *const *dy, Value **dx)
{
	Value *in[4] = { n->in[0], n->in[1], dy[0], dy[1] };
	const Node *g = build(b, OP_LSTMCellGrad, n->attr, dy[1] ? 4 : 3, in, NULL);

	dx[0] = g->out[0];
	dx[1] = g->out[1];
}

static void holes(const Node *n, Holes *h)
{
	const struct cell *at = n->attr;
	const Type *c = &n->in[1]->type;
	const int64_t size = c->dim[c->rank - 1], rows = size ? type_numel(c) / size : 0;
	const bool back = n->op == OP_LSTMCellGrad, dh = n->nin > 2 && n->in[2], ds = n->nin > 3 && n->in[3];

	hole_text(h, "T", "%s", dtype_c(c->dtype));
	hole_int(h, "ROWS", rows);
	hole_int(h, "N", size);
	hole_int(h, "IAT", at->i * size);
	hole_int(h, "FAT", at->f * size);
	hole_int(h, "GAT", at->g * size);
	hole_int(h, "OAT", at->o * size);
	hole_text(h, "FORGET", "%s", c_literal(h->arena, c->dtype, at->forget_bias, 0));
	hole_int(h, "SHIFT", at->forget_bias != 0);
	hole_int(h, "DH", dh);
	hole_int(h, "DS", ds);
	hole_int(h, "PAR", type_numel(c) >= 4096);
	hole_text(h, "CALL",
		!back      ? "$k($=0, $=1, $0, $1);"
		: dh && ds ? "$k($=0, $=1, $0, $1, $2, $3);"
		: dh       ? "$k($=0, $=1, $0, $1, $2);"
			   : "$k($=0, $=1, $0, $1, $3);");
	hole_name(h, "lstm_cell%s_%lldx%lld%s%s%s", back ? "_grad" : "", (long long)rows, (long long)size,
		back && !dh ? "_last" : "", back && !ds ? "_out" : "", dtype_suffix(c->dtype));
}

static Cost cost(const Node *n)
{
	return cost_bytes(n, (n->op == OP_LSTMCell ? 75.0 : 95.0) * (double)type_numel(&n->in[1]->type));
}

static const AttrDef attrs[] = { AT_INT(struct cell, i, 0), AT_INT(struct cell, f, 1), AT_INT(struct cell, g, 2),
	AT_INT(struct cell, o, 3), AT_FLOAT(struct cell, forget_bias, 0), AT_END };

const OpDef op_LSTMCell = {
	.name = "LSTMCell",
	.minin = 2,
	.maxin = 2,
	.nout = 2,
	.flags = OP_PURE,
	.attrs = attrs,
	.attrsize = sizeof(struct cell),
	.shape = shape,
	.grad = grad,
	.dgrad = { DENSE, DENSE },
	.cost = cost,
	.holes = holes,
	.cpu = { .file = "lstm_cell.cpu.c" },
	.cuda = { .file = "lstm_cell.cuda.cu" },
};

const OpDef op_LSTMCellGrad = {
	.name = "LSTMCellGrad",
	.minin = 2,
	.maxin = 4,
	.nout = 2,
	.flags = OP_PURE,
	.attrs = attrs,
	.attrsize = sizeof(struct cell),
	.shape = shape,
	.cost = cost,
	.holes = holes,
	.cpu = { .file = "lstm_cell_grad.cpu.c" },
	.cuda = { .file = "lstm_cell_grad.cuda.cu" },
};
