/* A recurrent layer in one direction as cuDNN takes it: the input's product, the steps and the products of the weights'
 * gradients belong to the library. Made by passes/gpu/recurrent.c, for GPUs, of an LSTM, GRU or RNN and what lies around it.
 *     %y, %h, %reserve[, %c] = Recurrent(%x, %W, %R, %b, %rb, %h0, %c0, %lens) {cell, activation, steps, reverse}
 *     %dx, %dh0[, %dc0] = RecurrentGradData(%reserve, %y, %W, %R, %b, %rb, %dy, %dh, %dc, %h0, %c0, %lens)
 *     %dW, %dR[, %db[, %drb]] = RecurrentGradWeights(%reserve, %dh0, %x, %y, %h0, %lens) {bias}
 * x [T*B,I], W [G*H,I], R [G*H,H], b [G*H] the sum of all biases that may be added, rb [H] that of a GRU's n (which is
 * always linear_before_reset here); y, states, lens and the order of gates as in recurrent.h. c is that of an LSTM without
 * lens, dc0 of an LSTM.
 * reserve is what the library keeps for its gradients. RecurrentGradData changes it and RecurrentGradWeights reads what
 * it left there: that is why the latter has dh0, which it does not read, as an operand. */
#include <string.h>
#include "recurrent.h"

struct layer {
	const char *cell, *activation;
	int64_t steps, reverse, bias;
};

enum { X, W, R, B, RB, H0, C0, LENS };
enum { DRESERVE, DY_, DW, DR, DB, DRB, DDY, DDH, DDC, DH0, DC0, DLENS };
enum { WRESERVE, WAFTER, WX, WY, WH0, WLENS };

static int gates(const Node *n)
{
	const char *cell = ((const struct layer *)n->attr)->cell;

	return !strcmp(cell, "LSTM") ? 4 : !strcmp(cell, "GRU") ? 3 : 1;
}

typedef struct Sizes {
	int64_t steps, batch, input, hidden;
} Sizes;

static Sizes sizes(const Node *n)
{
	const struct layer *at = n->attr;
	const bool w = n->op == OP_RecurrentGradWeights, d = n->op == OP_RecurrentGradData;
	const Type *x = &n->in[w ? WX : X]->type;

	if (d)
		return (Sizes){ at->steps, n->in[DY_]->type.dim[1], n->in[DW]->type.dim[1], n->in[DR]->type.dim[1] };
	return (Sizes){ at->steps, at->steps ? x->dim[0] / at->steps : 0, x->dim[1],
		w ? n->in[WY]->type.dim[2] : n->in[R]->type.dim[1] };
}

/* What the formulas have a backward remember: the gates, cells and their tanh, of every step. Where the library wants more
 * it gets it before step 0 (runtime/gpu/gpu_recurrent.c). */
static int64_t reserved(const Node *n, Sizes s) { return s.steps * s.batch * s.hidden * (gates(n) + 2) + 1024; }

/* An operand that must have this shape, in f32. */
static bool check(const Node *n, int i, const char *what, bool must, int rank, int64_t a, int64_t b, int64_t c, Diag *d)
{
	const Value *v = rec_opt(n, i);
	const Type want = type_make(DT_f32, rank, (int64_t[]){ a, b, c });

	if (!v ? !must : v->type.dtype == DT_f32 && shape_eq(&v->type, &want))
		return true;
	return diag_error(d, n->loc, 304, "%s: %s is %s, it must be %s", optab[n->op]->name, what,
		v ? str_type(d->scratch, &v->type) : "absent", str_type(d->scratch, &want));
}

static bool cell_known(const Node *n, Diag *d)
{
	const struct layer *at = n->attr;
	const bool rnn = !strcmp(at->cell, "RNN");

	if ((!rnn && strcmp(at->cell, "LSTM") && strcmp(at->cell, "GRU")) || at->steps < 1 ||
		(rnn && strcmp(at->activation, "Tanh") && strcmp(at->activation, "Relu")))
		return diag_error(d, n->loc, 302, "%s: cell %s, activation %s, %lld steps have no meaning",
			optab[n->op]->name, at->cell, at->activation, (long long)at->steps);
	return true;
}

static bool weights(const Node *n, Sizes s, int w, int b, int h0, int c0, int lens, Diag *d)
{
	const int64_t gh = gates(n) * s.hidden;

	if ((rec_opt(n, c0) && gates(n) != 4) || (rec_opt(n, b + 1) && gates(n) != 3))
		return diag_error(d, n->loc, 304, "%s: %s has no %s", optab[n->op]->name,
			((const struct layer *)n->attr)->cell,
			rec_opt(n, c0) ? "initial c" : "recurrent bias of its own");
	return check(n, w, "W", true, 2, gh, s.input, 0, d) && check(n, w + 1, "R", true, 2, gh, s.hidden, 0, d) &&
	       check(n, b, "the bias", false, 1, gh, 0, 0, d) &&
	       check(n, b + 1, "the recurrent bias", false, 1, s.hidden, 0, 0, d) &&
	       check(n, h0, "the initial h", false, 2, s.batch, s.hidden, 0, d) &&
	       check(n, c0, "the initial c", false, 2, s.batch, s.hidden, 0, d) && rec_check_lens(n, lens, s.batch, d);
}

/* Operands `from` to `to` are there, with so many axes each. */
static bool ranks(const Node *n, int from, int to, const int *rank, Diag *d)
{
	for (int i = from; i <= to; i++)
		if (!n->in[i] || n->in[i]->type.rank != rank[i - from])
			return diag_error(d, n->loc, 304, "%s: operand %d is %s, it must have %d axes",
				optab[n->op]->name, i, n->in[i] ? str_type(d->scratch, &n->in[i]->type) : "absent",
				rank[i - from]);
	return true;
}

static bool shape(Node *n, Diag *d)
{
	if (!cell_known(n, d) || !ranks(n, X, R, (const int[]){ 2, 2, 2 }, d))
		return false;
	const Sizes s = sizes(n);
	if (!check(n, X, "x", true, 2, s.steps * s.batch, s.input, 0, d) || !weights(n, s, W, B, H0, C0, LENS, d))
		return false;
	const Type state = type_make(DT_f32, 2, (int64_t[]){ s.batch, s.hidden });
	const int64_t room = reserved(n, s);
	set_out(n, 0, type_make(DT_f32, 3, (int64_t[]){ s.steps, s.batch, s.hidden }));
	set_out(n, 1, state);
	set_out(n, 2, type_make(DT_f32, 1, &room));
	if (gates(n) == 4 && !rec_opt(n, LENS))
		set_out(n, 3, state);
	else
		trim_outs(n, 3);
	return true;
}

static bool data_shape(Node *n, Diag *d)
{
	if (!cell_known(n, d) || !ranks(n, DRESERVE, DR, (const int[]){ 1, 3, 2, 2 }, d))
		return false;
	const Sizes s = sizes(n);
	if (!check(n, DRESERVE, "the reserve", true, 1, reserved(n, s), 0, 0, d) ||
		!check(n, DY_, "y", true, 3, s.steps, s.batch, s.hidden, d) ||
		!check(n, DDY, "dy", false, 3, s.steps, s.batch, s.hidden, d) ||
		!check(n, DDH, "dh", false, 2, s.batch, s.hidden, 0, d) ||
		!check(n, DDC, "dc", false, 2, s.batch, s.hidden, 0, d) || !weights(n, s, DW, DB, DH0, DC0, DLENS, d))
		return false;
	const Type state = type_make(DT_f32, 2, (int64_t[]){ s.batch, s.hidden });
	set_out(n, 0, type_make(DT_f32, 2, (int64_t[]){ s.steps * s.batch, s.input }));
	set_out(n, 1, state);
	if (gates(n) == 4)
		set_out(n, 2, state);
	else
		trim_outs(n, 2);
	return true;
}

static bool weights_shape(Node *n, Diag *d)
{
	const struct layer *at = n->attr;

	if (!cell_known(n, d) || !ranks(n, WRESERVE, WY, (const int[]){ 1, 2, 2, 3 }, d))
		return false;
	const Sizes s = sizes(n);
	const int64_t gh = gates(n) * s.hidden;
	if (!check(n, WRESERVE, "the reserve", true, 1, reserved(n, s), 0, 0, d) ||
		!check(n, WX, "x", true, 2, s.steps * s.batch, s.input, 0, d) ||
		!check(n, WY, "y", true, 3, s.steps, s.batch, s.hidden, d) ||
		!check(n, WH0, "the initial h", false, 2, s.batch, s.hidden, 0, d) ||
		!rec_check_lens(n, WLENS, s.batch, d))
		return false;
	set_out(n, 0, type_make(DT_f32, 2, (int64_t[]){ gh, s.input }));
	set_out(n, 1, type_make(DT_f32, 2, (int64_t[]){ gh, s.hidden }));
	trim_outs(n, 2 + (int)at->bias);
	if (at->bias > 0)
		set_out(n, 2, type_make(DT_f32, 1, &gh));
	if (at->bias > 1)
		set_out(n, 3, type_make(DT_f32, 1, &s.hidden));
	return true;
}

/* Of the three every one does the work of the input's product and that of the steps once. */
static Cost cost(const Node *n)
{
	const Sizes s = sizes(n);
	const double units = (double)s.steps * (double)s.batch * (double)s.hidden;

	return cost_bytes(n, units * gates(n) * (2.0 * (double)s.hidden + 2.0 * (double)s.input + 15));
}

/* What a call works on beside its operands (runtime/gpu/gpu_recurrent.c): the weights in the library's order, matrix by matrix, and sequences
 * turned round; each begins at a multiple of 256 bytes. */
static void scratch(const Node *n, Lib *l)
{
	enum { EACH = 256 };
	const int lens = n->op == OP_Recurrent ? LENS : n->op == OP_RecurrentGradData ? DLENS : WLENS;
	const bool turned = ((const struct layer *)n->attr)->reverse || rec_opt(n, lens);
	const Sizes s = sizes(n);
	const int64_t x = s.steps * s.batch * s.input, y = s.steps * s.batch * s.hidden;
	const int64_t part[] = { s.hidden * s.input, s.hidden * s.hidden, s.hidden, s.hidden };
	int64_t bytes = EACH;

	for (int i = 0; i < 4; i++)
		bytes += gates(n) * ((4 * part[i] + EACH - 1) / EACH * EACH);
	const int64_t more[] = { turned ? x : 0, turned ? y : 0, n->op == OP_RecurrentGradData ? y : 0 };
	for (int i = 0; i < 3; i++)
		bytes += (4 * more[i] + EACH - 1) / EACH * EACH;
	*l = (Lib){ .kind = LIB_RECURRENT, .bytes = bytes };
}

/* The library wants to know what a layer's biases are in all three calls. */
static int biases(const Node *n)
{
	const int b = n->op == OP_Recurrent ? B : DB;

	return n->op == OP_RecurrentGradWeights ? (int)((const struct layer *)n->attr)->bias
	       : rec_opt(n, b + 1)              ? 2
	                                        : rec_opt(n, b) != NULL;
}

static void holes(const Node *n, Holes *h)
{
	static const char *const what[] = { "PD_FORWARD", "PD_BACKWARD_DATA", "PD_BACKWARD_WEIGHTS" };
	const struct layer *at = n->attr;
	const int k = n->op == OP_Recurrent ? 0 : n->op == OP_RecurrentGradData ? 1 : 2;
	const int lens = k == 0 ? LENS : k == 1 ? DLENS : WLENS;
	const Sizes s = sizes(n);
	const Stage *stage = n->graph->stage;

	hole_text(h, "DESC",
		"(pd_recurrent_desc){ .what = %s, .cell = PD_%s%s, .steps = %lld, .batch = %lld, .input = %lld, "
		".hidden = %lld, .reverse = %d, .lens = %d, .bias = %d, .reserve = %lld, .slots = %d, .scratch = %lld }",
		what[k], at->cell,
		gates(n) > 1                     ? ""
		: strcmp(at->activation, "Relu") ? "_TANH"
						 : "_RELU",
		(long long)s.steps, (long long)s.batch, (long long)s.input, (long long)s.hidden, at->reverse != 0,
		rec_opt(n, lens) != NULL, biases(n), (long long)reserved(n, s) * 4,
		stage && stage->inflight > 1 ? stage->inflight : 1, (long long)n->scratch);
	if (k == 0)
		hole_text(h, "CALL", "pd_recurrent_forward(&$o, $=, $=1, %s, $=2%s, $scratch);",
			n->nout > 3 ? "$=3" : "NULL", rec_args(n, h->arena, X, LENS));
	else if (k == 1)
		hole_text(h, "CALL", "pd_recurrent_backward_data(&$o, $=, $=1, %s%s, $scratch);",
			n->nout > 2 ? "$=2" : "NULL", rec_args(n, h->arena, DRESERVE, DLENS));
	else
		hole_text(h, "CALL", "pd_recurrent_backward_weights(&$o, $=, $=1, %s, %s, $0%s, $scratch);",
			n->nout > 2 ? "$=2" : "NULL", n->nout > 3 ? "$=3" : "NULL", rec_args(n, h->arena, WX, WLENS));
}

static const AttrDef attrs[] = { AT_STR(struct layer, cell, "LSTM"), AT_STR(struct layer, activation, "Tanh"),
	AT_INT(struct layer, steps, 1), AT_INT(struct layer, reverse, 0), AT_INT(struct layer, bias, 0), AT_END };

#define LAYER(op, least, most, outs, rule) \
	const OpDef op_##op = { \
		.name = #op, \
		.minin = least, \
		.maxin = most, \
		.nout = outs, \
		.flags = OP_PURE | OP_HEAVY, \
		.attrs = attrs, \
		.attrsize = sizeof(struct layer), \
		.shape = rule, \
		.cost = cost, \
		.holes = holes, \
		.lib = scratch, \
		.cuda = { .object = "pd_recurrent", .init = "pd_recurrent_init(&$o, &$DESC);", .call = "" }, \
	}

LAYER(Recurrent, 3, 8, 4, shape);
LAYER(RecurrentGradData, 4, 12, 3, data_shape);
LAYER(RecurrentGradWeights, 4, 6, 4, weights_shape);

Node *recurrent_make(Builder *b, OpKind op, const Node *of, int bias, int nin, Value *const *in)
{
	const struct recurrent *from = of->attr;
	struct layer *at = attr_new(b->m->arena, op);

	*at = (struct layer){ optab[of->op]->name, from->activation, of->out[0]->type.dim[0], from->reverse, bias };
	return build(b, op, at, nin, in, NULL);
}
