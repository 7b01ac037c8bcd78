/* LSTMCell: a step of an LSTM that was written out behind its matrix products,
 *     s = sigmoid(f [+ forget_bias]) c + sigmoid(i) tanh(g)       h = sigmoid(o) tanh(s)
 * where i, f, g, o are the quarters of one value's last axis, in any order, by Slice or Split. h and s are results. */
#include "patterns.h"

enum { I, F, G, O, GATES };

typedef struct Cell {
	Value *gates, *c;
	int64_t slot[GATES];
	double bias; /* of the forget gate */
} Cell;

/* v is a quarter of the gates' last axis. */
static bool quarter(Match *p, const Value *v, int which, Cell *t)
{
	Node *n = v->kind == VAL_NODE ? v->def : NULL;

	if (!n || (n->op != OP_Slice && n->op != OP_Split) || n->phase != PHASE_FWD)
		return false;
	Value *x = n->in[0];
	const int rank = x->type.rank, last = rank - 1;
	if (rank < 1 || v->type.rank != rank || x->type.dim[last] / 4 * 4 != x->type.dim[last] ||
		v->type.dim[last] != x->type.dim[last] / 4 || v->type.dim[last] < 1 || (t->gates && t->gates != x))
		return false;
	for (int i = 0; i < last; i++)
		if (v->type.dim[i] != x->type.dim[i])
			return false;
	int64_t at = v->index;
	if (n->op == OP_Slice) {
		const Ints starts = attr_ints(n, "starts"), axes = attr_ints(n, "axes"), steps = attr_ints(n, "steps");
		if (starts.n != 1 || axes.n != 1 || (axes.v[0] != last && axes.v[0] != -1) ||
			(steps.n && steps.v[0] != 1))
			return false;
		at = starts.v[0] < 0 ? starts.v[0] + x->type.dim[last] : starts.v[0];
		if (at % v->type.dim[last])
			return false;
		at /= v->type.dim[last];
	} else if (n->nout != 4 || (attr_int(n, "axis") != last && attr_int(n, "axis") != -1)) {
		return false;
	}
	if (at < 0 || at > 3)
		return false;
	t->gates = x;
	t->slot[which] = at;
	return match_cover(p, n);
}

/* v = sigmoid of a gate */
static bool gate(Match *p, const Value *v, int which, Cell *t)
{
	const Node *n = match_def(p, v, OP_Sigmoid);
	const Node *add = n && which == F ? match_def(p, n->in[0], OP_Add) : NULL;

	if (!n)
		return false;
	if (!add)
		return quarter(p, n->in[0], which, t);
	const int k = match_scalar(add->in[0], &t->bias);
	return match_scalar(add->in[1 - k], &t->bias) && quarter(p, add->in[k], which, t);
}

/* v = sigmoid(i) tanh(g), or sigmoid(f) c */
static bool product(Match *p, const Value *v, bool forget, Cell *t)
{
	const Node *n = match_def(p, v, OP_Mul);
	const Cell was = *t;
	const int before = p->n;

	for (int k = 0; n && k < 2; k++) {
		*t = was;
		p->n = before;
		if (!gate(p, n->in[k], forget ? F : I, t))
			continue;
		t->c = forget ? n->in[1 - k] : t->c;
		if (forget)
			return true;
		const Node *g = match_def(p, n->in[1 - k], OP_Tanh);
		if (g && quarter(p, g->in[0], G, t))
			return true;
	}
	return false;
}

/* v = tanh of the sum; gives the sum. */
static Value *state(Match *p, const Value *v, Cell *t)
{
	const Node *n = match_def(p, v, OP_Tanh), *add = n ? match_def(p, n->in[0], OP_Add) : NULL;
	const Cell was = *t;
	const int before = p->n;

	for (int k = 0; add && k < 2; k++) {
		*t = was;
		p->n = before;
		if (product(p, add->in[k], true, t) && product(p, add->in[1 - k], false, t))
			return add->out[0];
	}
	return NULL;
}

Node *pattern_lstm(Match *p, Node *n)
{
	Value *last = n->out[0];
	int seen = 0;
	Cell t;

	if (n->op != OP_Mul)
		return NULL;
	for (int k = 0; k < 2 && !p->also; k++) {
		t = (Cell){ 0 };
		p->n = 0;
		if (match_def(p, last, OP_Mul) && gate(p, n->in[k], O, &t))
			p->also = state(p, n->in[1 - k], &t);
	}
	if (!p->also || !type_eq(&last->type, &p->also->type) || !type_eq(&last->type, &t.c->type) ||
		t.gates->type.rank != last->type.rank ||
		t.gates->type.dim[last->type.rank - 1] != 4 * last->type.dim[last->type.rank - 1] ||
		(last->type.dtype != DT_f32 && last->type.dtype != DT_f64) || !match_closed(p, last))
		return NULL;
	for (int i = 0; i < GATES; i++)
		seen |= 1 << t.slot[i];
	if (seen != 15)
		return NULL;
	Builder b = match_builder(p, p->also);
	void *at = attr_new(p->m->arena, OP_LSTMCell);
	static const char *const name[GATES] = { "i", "f", "g", "o" };
	for (int i = 0; i < GATES; i++)
		*(int64_t *)match_field(OP_LSTMCell, at, name[i]) = t.slot[i];
	*(double *)match_field(OP_LSTMCell, at, "forget_bias") = t.bias;
	return match_finish(p, last, build(&b, OP_LSTMCell, at, 2, (Value *[]){ t.gates, t.c }, last->name));
}
