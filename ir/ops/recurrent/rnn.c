/* One direction of a simple recurrent layer (ONNX RNN-14) with Tanh or Relu; recurrent.h says what the operands are.
 *     %y, %h = RNN(%gx, %R, %h0, %lens) {activation}
 *     %dg, %hprev, %dh0 = RNNGrad(%R, %y, %dy, %dh, %h0, %lens) {activation} */
#include <string.h>
#include "recurrent.h"

enum { GX, R, H0, LENS };
enum { BR, BY, DY, DH, BH0, BLENS };

static bool check_state(const Node *n, RecSizes s, int h0, int lens, Diag *d)
{
	const struct recurrent *at = n->attr;
	const int64_t state[2] = { s.batch, s.hidden };

	if (!at->activation || (strcmp(at->activation, "Tanh") && strcmp(at->activation, "Relu")))
		return diag_error(d, n->loc, 302, "%s: activation %s; Tanh and Relu are supported", optab[n->op]->name,
			at->activation ? at->activation : "(none)");
	return rec_check(n, h0, "the initial h", 2, state, d) && rec_check_lens(n, lens, s.batch, d);
}

static bool shape(Node *n, Diag *d)
{
	if (!n->in[GX])
		return diag_error(d, n->loc, 301, "RNN: operand 0 is missing");
	if (!rec_check_gx(n, &n->in[GX]->type, n->in[R], 1, d))
		return false;
	const RecSizes s = rec_sizes(&n->in[GX]->type, 1);
	if (!check_state(n, s, H0, LENS, d))
		return false;
	set_out(n, 0, rec_type(n, 3, s.steps, s.batch, s.hidden));
	set_out(n, 1, rec_type(n, 2, s.batch, s.hidden, 0));
	return true;
}

static bool grad_shape(Node *n, Diag *d)
{
	if (!n->in[BR] || !n->in[BY])
		return diag_error(d, n->loc, 301, "RNNGrad: operand %d is missing", n->in[BR] ? BY : BR);
	if (!rec_check_gx(n, &n->in[BY]->type, n->in[BR], 1, d))
		return false;
	const RecSizes s = rec_sizes(&n->in[BY]->type, 1);
	const int64_t all[3] = { s.steps, s.batch, s.hidden };
	if (!check_state(n, s, BH0, BLENS, d) || !rec_check(n, DY, "dy", 3, all, d) ||
		!rec_check(n, DH, "dh", 2, all + 1, d))
		return false;
	set_out(n, 0, rec_type(n, 3, s.steps, s.batch, s.hidden));
	set_out(n, 1, rec_type(n, 3, s.steps, s.batch, s.hidden));
	set_out(n, 2, rec_type(n, 2, s.batch, s.hidden, 0));
	return true;
}

static void grad(Builder *b, const Node *n, Value *const *dy, Value **dx)
{
	Value *in[] = { n->in[R], n->out[0], dy[0], dy[1], rec_opt(n, H0), rec_opt(n, LENS) };

	if (!dy[0] && !dy[1])
		return;
	Node *g = build(b, OP_RNNGrad, n->attr, BLENS + 1, in, NULL);
	dx[GX] = g->out[0];
	dx[R] = rec_product(b, rec_rows(b, g->out[0]), rec_rows(b, g->out[1]));
	if (rec_opt(n, H0))
		dx[H0] = g->out[2];
}

static void holes(const Node *n, Holes *h)
{
	const struct recurrent *at = n->attr;
	const bool back = n->op == OP_RNNGrad, relu = strcmp(at->activation, "Relu") == 0;
	const RecSizes s = rec_sizes(&n->in[back ? BY : GX]->type, 1);
	const Value *lens = rec_opt(n, back ? BLENS : LENS), *h0 = rec_opt(n, back ? BH0 : H0);

	rec_holes(n, h, s, lens);
	hole_int(h, "BACK", back);
	hole_int(h, "RELU", relu);
	hole_int(h, "HAS_H0", h0 != NULL);
	hole_int(h, "HAS_DY", back && rec_opt(n, DY));
	hole_int(h, "HAS_DH", back && rec_opt(n, DH));
	rec_call(n, h, back ? "$=0, $=1, $=2" : "$=0, $=1", back ? BLENS : LENS,
		!back && rec_transposed(&n->in[GX]->type, 1));
	hole_name(h, "rnn%s_%lldx%lldx%lld%s%s%s%s%s%s", back ? "_grad" : "", (long long)s.steps, (long long)s.batch,
		(long long)s.hidden, relu ? "_relu" : "", at->reverse ? "_reverse" : "", h0 ? "_h0" : "",
		lens ? "_lens" : "",
		back ? arena_printf(h->arena, "_d%s%s", rec_opt(n, DY) ? "y" : "", rec_opt(n, DH) ? "h" : "") : "",
		dtype_suffix(rec_type(n, 0, 0, 0, 0).dtype));
}

static Cost cost(const Node *n) { return rec_cost(n, rec_sizes(&n->in[n->op == OP_RNNGrad ? BY : GX]->type, 1), 1); }

static void lib(const Node *n, Lib *l) { rec_lib(n, l, 1); }

const OpDef op_RNN = {
	.name = "RNN",
	.outputs = (const char *const[]){ NULL, "h" },
	.minin = 2,
	.maxin = 4,
	.nout = 2,
	.flags = OP_PURE | OP_HEAVY,
	.attrs = rec_attrs,
	.attrsize = sizeof(struct recurrent),
	.shape = shape,
	.grad = grad,
	.dgrad = { DENSE, DENSE, DENSE },
	.cost = cost,
	.holes = holes,
	.lib = lib,
	.cpu = { .file = "rnn.cpu.c" },
	.cuda = { .file = "rnn.cuda.cu", .products = true },
};

const OpDef op_RNNGrad = {
	.name = "RNNGrad",
	.minin = 2,
	.maxin = 6,
	.nout = 3,
	.flags = OP_PURE | OP_HEAVY,
	.attrs = rec_attrs,
	.attrsize = sizeof(struct recurrent),
	.shape = grad_shape,
	.cost = cost,
	.holes = holes,
	.cpu = { .file = "rnn.cpu.c" },
	.cuda = { .file = "rnn.cuda.cu", .products = true },
};
