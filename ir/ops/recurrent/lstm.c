/* One direction of an LSTM layer (ONNX LSTM-14, its default activations); recurrent.h says what the operands are.
 *     %y, %h, %c, %gates, %cells = LSTM(%gx, %R, %h0, %c0, %P, %lens)      gates in ONNX's order i o f c
 * y [T,B,H], the last h and c [B,H]; gates [T,B,4H] and cells [T,B,H] are what the gradient reads. P [3H]: peepholes
 * i o f.
 *     %dg, %hprev, %dh0, %dc0, %dP = LSTMGrad(%R, %y, %gates, %cells, %dy, %dh, %dc, %h0, %c0, %P, %lens) */
#include "recurrent.h"

enum { GX, R, H0, C0, P, LENS };
enum { BR, BY, BGATES, BCELLS, DY, DH, DC, BH0, BC0, BP, BLENS };

static bool check_state(const Node *n, RecSizes s, int h0, int c0, int p, int lens, Diag *d)
{
	const int64_t state[2] = { s.batch, s.hidden }, peep = 3 * s.hidden;

	return rec_check(n, h0, "the initial h", 2, state, d) && rec_check(n, c0, "the initial c", 2, state, d) &&
	       rec_check(n, p, "the peephole weights", 1, &peep, d) && rec_check_lens(n, lens, s.batch, d);
}

static bool shape(Node *n, Diag *d)
{
	if (!n->in[GX] || !rec_check_gx(n, &n->in[GX]->type, n->in[R], 4, d))
		return n->in[GX] ? false : diag_error(d, n->loc, 301, "LSTM: operand 0 is missing");
	const RecSizes s = rec_sizes(&n->in[GX]->type, 4);
	if (!check_state(n, s, H0, C0, P, LENS, d))
		return false;
	set_out(n, 0, rec_type(n, 3, s.steps, s.batch, s.hidden));
	set_out(n, 1, rec_type(n, 2, s.batch, s.hidden, 0));
	set_out(n, 2, rec_type(n, 2, s.batch, s.hidden, 0));
	set_out(n, 3, rec_type(n, 3, s.steps, s.batch, 4 * s.hidden));
	set_out(n, 4, rec_type(n, 3, s.steps, s.batch, s.hidden));
	return true;
}

static bool grad_shape(Node *n, Diag *d)
{
	for (int i = 0; i <= BCELLS; i++)
		if (!n->in[i])
			return diag_error(d, n->loc, 301, "LSTMGrad: operand %d is missing", i);
	if (!rec_check_gx(n, &n->in[BGATES]->type, n->in[BR], 4, d))
		return false;
	const RecSizes s = rec_sizes(&n->in[BGATES]->type, 4);
	const int64_t all[3] = { s.steps, s.batch, s.hidden }, state[2] = { s.batch, s.hidden };
	if (!check_state(n, s, BH0, BC0, BP, BLENS, d) || !rec_check(n, DY, "dy", 3, all, d) ||
		!rec_check(n, DH, "dh", 2, state, d) || !rec_check(n, DC, "dc", 2, state, d) ||
		!rec_check(n, BY, "y", 3, all, d) || !rec_check(n, BCELLS, "cells", 3, all, d))
		return false;
	set_out(n, 0, rec_type(n, 3, s.steps, s.batch, 4 * s.hidden));
	set_out(n, 1, rec_type(n, 3, s.steps, s.batch, s.hidden));
	set_out(n, 2, rec_type(n, 2, s.batch, s.hidden, 0));
	set_out(n, 3, rec_type(n, 2, s.batch, s.hidden, 0));
	if (rec_opt(n, BP))
		set_out(n, 4, n->in[BP]->type);
	else
		trim_outs(n, 4);
	return true;
}

static void grad(Builder *b, const Node *n, Value *const *dy, Value **dx)
{
	Value *in[] = { n->in[R], n->out[0], n->out[3], n->out[4], dy[0], dy[1], dy[2], rec_opt(n, H0), rec_opt(n, C0),
		rec_opt(n, P), rec_opt(n, LENS) };

	if (!dy[0] && !dy[1] && !dy[2])
		return;
	Node *g = build(b, OP_LSTMGrad, n->attr, BLENS + 1, in, NULL);
	dx[GX] = g->out[0];
	dx[R] = rec_product(b, rec_rows(b, g->out[0]), rec_rows(b, g->out[1]));
	if (rec_opt(n, H0))
		dx[H0] = g->out[2];
	if (rec_opt(n, C0))
		dx[C0] = g->out[3];
	if (rec_opt(n, P))
		dx[P] = g->out[4];
}

static void holes(const Node *n, Holes *h)
{
	const bool back = n->op == OP_LSTMGrad;
	const RecSizes s = rec_sizes(&n->in[back ? BGATES : GX]->type, 4);
	const Value *p = rec_opt(n, back ? BP : P), *lens = rec_opt(n, back ? BLENS : LENS);
	const Value *h0 = rec_opt(n, back ? BH0 : H0), *c0 = rec_opt(n, back ? BC0 : C0);

	rec_holes(n, h, s, lens);
	hole_int(h, "HAS_H0", h0 != NULL);
	hole_int(h, "HAS_C0", c0 != NULL);
	hole_int(h, "PEEP", p != NULL);
	hole_int(h, "HAS_DY", back && rec_opt(n, DY));
	hole_int(h, "HAS_DH", back && rec_opt(n, DH));
	hole_int(h, "HAS_DC", back && rec_opt(n, DC));
	rec_call(n, h, back && !p ? "$=0, $=1, $=2, $=3" : "$=0, $=1, $=2, $=3, $=4", back ? BLENS : LENS,
		!back && rec_transposed(&n->in[GX]->type, 4));
	hole_name(h, "lstm%s_%lldx%lldx%lld%s%s%s%s%s%s%s", back ? "_grad" : "", (long long)s.steps, (long long)s.batch,
		(long long)s.hidden, ((const struct recurrent *)n->attr)->reverse ? "_reverse" : "", h0 ? "_h0" : "",
		c0 ? "_c0" : "", p ? "_p" : "", lens ? "_lens" : "",
		back ? arena_printf(h->arena, "_d%s%s%s", rec_opt(n, DY) ? "y" : "", rec_opt(n, DH) ? "h" : "",
			       rec_opt(n, DC) ? "c" : "")
		     : "",
		dtype_suffix(rec_type(n, 0, 0, 0, 0).dtype));
}

static Cost cost(const Node *n)
{
	return rec_cost(n, rec_sizes(&n->in[n->op == OP_LSTMGrad ? BGATES : GX]->type, 4), 4);
}

static void lib(const Node *n, Lib *l) { rec_lib(n, l, 4); }

const OpDef op_LSTM = {
	.name = "LSTM",
	.outputs = (const char *const[]){ NULL, "h", "c", "gates", "cells" },
	.minin = 2,
	.maxin = 6,
	.nout = 5,
	.flags = OP_PURE | OP_HEAVY,
	.attrs = rec_attrs,
	.attrsize = sizeof(struct recurrent),
	.shape = shape,
	.grad = grad,
	.dgrad = { DENSE, DENSE, DENSE, DENSE, DENSE },
	.cost = cost,
	.holes = holes,
	.lib = lib,
	.cpu = { .file = "lstm.cpu.c" },
	.cuda = { .file = "lstm.cuda.cu", .products = true },
};

const OpDef op_LSTMGrad = {
	.name = "LSTMGrad",
	.minin = 4,
	.maxin = 11,
	.nout = 5,
	.flags = OP_PURE | OP_HEAVY,
	.attrs = rec_attrs,
	.attrsize = sizeof(struct recurrent),
	.shape = grad_shape,
	.cost = cost,
	.holes = holes,
	.cpu = { .file = "lstm_grad.cpu.c" },
	.cuda = { .file = "lstm_grad.cuda.cu", .products = true },
};
