/* One direction of a GRU layer (ONNX GRU-14, its default activations); recurrent.h says what the operands are.
 *     %y, %h, %gates, %hn = GRU(%gx, %R, %rb, %h0, %lens) {linear_before_reset}      gates in ONNX's order z r n
 * rb [H]: the recurrent bias of n, only with linear_before_reset; else all biases are in gx. gates [T,B,3H] and hn
 * [T,B,H] are what the gradient reads; hn is h Rn' + rb with linear_before_reset, else r h.
 *     %dg, %dq, %hprev, %dh0 = GRUGrad(%R, %y, %gates, %hn, %dy, %dh, %h0, %lens)
 * dq: what flows into h R' [T,B,3H] with linear_before_reset, else into r h [T,B,H]. */
#include "recurrent.h"

enum { GX, R, RB, H0, LENS };
enum { BR, BY, BGATES, BHN, DY, DH, BH0, BLENS };

static bool linear(const Node *n) { return ((const struct recurrent *)n->attr)->linear_before_reset != 0; }

static bool check_state(const Node *n, RecSizes s, int rb, int h0, int lens, Diag *d)
{
	const int64_t state[2] = { s.batch, s.hidden };

	if (rec_opt(n, rb) && !linear(n))
		return diag_error(d, n->loc, 304, "%s: a recurrent bias of its own needs linear_before_reset",
			optab[n->op]->name);
	return rec_check(n, rb, "the recurrent bias", 1, &s.hidden, d) &&
	       rec_check(n, h0, "the initial h", 2, state, d) && rec_check_lens(n, lens, s.batch, d);
}

static bool shape(Node *n, Diag *d)
{
	if (!n->in[GX])
		return diag_error(d, n->loc, 301, "GRU: operand 0 is missing");
	if (!rec_check_gx(n, &n->in[GX]->type, n->in[R], 3, d))
		return false;
	const RecSizes s = rec_sizes(&n->in[GX]->type, 3);
	if (!check_state(n, s, RB, H0, LENS, d))
		return false;
	set_out(n, 0, rec_type(n, 3, s.steps, s.batch, s.hidden));
	set_out(n, 1, rec_type(n, 2, s.batch, s.hidden, 0));
	set_out(n, 2, rec_type(n, 3, s.steps, s.batch, 3 * s.hidden));
	set_out(n, 3, rec_type(n, 3, s.steps, s.batch, s.hidden));
	return true;
}

static bool grad_shape(Node *n, Diag *d)
{
	for (int i = 0; i <= BHN; i++)
		if (!n->in[i])
			return diag_error(d, n->loc, 301, "GRUGrad: operand %d is missing", i);
	if (!rec_check_gx(n, &n->in[BGATES]->type, n->in[BR], 3, d))
		return false;
	const RecSizes s = rec_sizes(&n->in[BGATES]->type, 3);
	const int64_t all[3] = { s.steps, s.batch, s.hidden };
	if (!check_state(n, s, MAXIN, BH0, BLENS, d) || !rec_check(n, DY, "dy", 3, all, d) ||
		!rec_check(n, DH, "dh", 2, all + 1, d) || !rec_check(n, BY, "y", 3, all, d) ||
		!rec_check(n, BHN, "hn", 3, all, d))
		return false;
	set_out(n, 0, rec_type(n, 3, s.steps, s.batch, 3 * s.hidden));
	set_out(n, 1, rec_type(n, 3, s.steps, s.batch, (linear(n) ? 3 : 1) * s.hidden));
	set_out(n, 2, rec_type(n, 3, s.steps, s.batch, s.hidden));
	set_out(n, 3, rec_type(n, 2, s.batch, s.hidden, 0));
	return true;
}

/* dR: the rows of z and r meet h, those of n meet h (linear_before_reset) or r h. */
static Value *weight_gradient(Builder *b, const Node *n, const Node *g)
{
	const int64_t h = n->out[0]->type.dim[2], axis0 = 0;
	Value *hprev = rec_rows(b, g->out[2]);

	if (linear(n))
		return rec_product(b, rec_rows(b, g->out[1]), hprev);
	Value *dg = rec_rows(b, g->out[0]), *part[2];
	part[0] = rec_product(b, rec_columns(b, dg, 0, 2 * h), hprev);
	part[1] = rec_product(b, rec_columns(b, dg, 2 * h, 3 * h), rec_rows(b, n->out[3]));
	void *at = attr_new(b->m->arena, OP_Concat);
	attr_put_int(OP_Concat, at, "axis", axis0);
	return build(b, OP_Concat, at, 2, part, NULL)->out[0];
}

static void grad(Builder *b, const Node *n, Value *const *dy, Value **dx)
{
	Value *in[] = { n->in[R], n->out[0], n->out[2], n->out[3], dy[0], dy[1], rec_opt(n, H0), rec_opt(n, LENS) };

	if (!dy[0] && !dy[1])
		return;
	Node *g = build(b, OP_GRUGrad, n->attr, BLENS + 1, in, NULL);
	dx[GX] = g->out[0];
	dx[R] = weight_gradient(b, n, g);
	if (rec_opt(n, RB)) {
		const int64_t h = n->out[0]->type.dim[2];
		dx[RB] = reduce_to(b, rec_columns(b, rec_rows(b, g->out[1]), 2 * h, 3 * h), &n->in[RB]->type);
	}
	if (rec_opt(n, H0))
		dx[H0] = g->out[3];
}

static void holes(const Node *n, Holes *h)
{
	const bool back = n->op == OP_GRUGrad;
	const RecSizes s = rec_sizes(&n->in[back ? BGATES : GX]->type, 3);
	const Value *rb = back ? NULL : rec_opt(n, RB), *lens = rec_opt(n, back ? BLENS : LENS);
	const Value *h0 = rec_opt(n, back ? BH0 : H0);

	rec_holes(n, h, s, lens);
	hole_int(h, "LINEAR", linear(n));
	hole_int(h, "HAS_RB", rb != NULL);
	hole_int(h, "HAS_H0", h0 != NULL);
	hole_int(h, "HAS_DY", back && rec_opt(n, DY));
	hole_int(h, "HAS_DH", back && rec_opt(n, DH));
	rec_call(n, h, "$=0, $=1, $=2, $=3", back ? BLENS : LENS, !back && rec_transposed(&n->in[GX]->type, 3));
	hole_name(h, "gru%s_%lldx%lldx%lld%s%s%s%s%s%s%s", back ? "_grad" : "", (long long)s.steps, (long long)s.batch,
		(long long)s.hidden, linear(n) ? "_linear" : "",
		((const struct recurrent *)n->attr)->reverse ? "_reverse" : "", rb ? "_rb" : "", h0 ? "_h0" : "",
		lens ? "_lens" : "",
		back ? arena_printf(h->arena, "_d%s%s", rec_opt(n, DY) ? "y" : "", rec_opt(n, DH) ? "h" : "") : "",
		dtype_suffix(rec_type(n, 0, 0, 0, 0).dtype));
}

static Cost cost(const Node *n)
{
	return rec_cost(n, rec_sizes(&n->in[n->op == OP_GRUGrad ? BGATES : GX]->type, 3), 3);
}

static void lib(const Node *n, Lib *l) { rec_lib(n, l, 3); }

const OpDef op_GRU = {
	.name = "GRU",
	.outputs = (const char *const[]){ NULL, "h", "gates", "linear" },
	.minin = 2,
	.maxin = 5,
	.nout = 4,
	.flags = OP_PURE | OP_HEAVY,
	.attrs = rec_attrs,
	.attrsize = sizeof(struct recurrent),
	.shape = shape,
	.grad = grad,
	.dgrad = { DENSE, DENSE, DENSE, DENSE },
	.cost = cost,
	.holes = holes,
	.lib = lib,
	.cpu = { .file = "gru.cpu.c" },
	.cuda = { .file = "gru.cuda.cu", .products = true },
};

const OpDef op_GRUGrad = {
	.name = "GRUGrad",
	.minin = 4,
	.maxin = 8,
	.nout = 4,
	.flags = OP_PURE | OP_HEAVY,
	.attrs = rec_attrs,
	.attrsize = sizeof(struct recurrent),
	.shape = grad_shape,
	.cost = cost,
	.holes = holes,
	.cpu = { .file = "gru_grad.cpu.c" },
	.cuda = { .file = "gru_grad.cuda.cu", .products = true },
};
