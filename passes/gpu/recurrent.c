/* recurrent: for GPUs. A recurrent layer becomes nodes that cuDNN computes as a whole (ir/ops/recurrent/layer.c):
 *
 *     Gemm of x and W with the biases, LSTM, GRU or RNN over the steps          Recurrent
 *     their gradients by x and by the initial states                            RecurrentGradData
 *     their gradients by W, R and the biases                                    RecurrentGradWeights
 *
 * so that gates and cells are the library's to keep, in its reserve. A layer stays as it is where the library has no form for it
 * (peepholes, a GRU that resets before its product, halves of floats), where somebody else reads what lies inside, where
 * sequences have lengths and the last c is read or Relu may grow behind their ends (the library would have to know the
 * lengths on the host; it computes all steps, what lies behind an end is cut away), where nothing is trained through it, and
 * with --reproducible, or in a tensor group, whose members compute these layers alike: NVIDIA promises no order of additions for these
 * calls, ours is fixed.
 *
 * Behind layout, with the gradients there: what passes up to it see is the same for all targets. Reads and writes the graph. */
#include <string.h>
#include "passes/common/pass.h"

/* Places of operands and results; -1: there is none. */
typedef struct Form {
	OpKind op, grad;
	int rb, h0, c0, p, lens;   /* of the forward */
	int inner;                 /* its first result that is nobody's but the gradient's */
	int dy, dh, dc;            /* operands of the gradient */
	int hprev, by_r, dh0, dc0; /* its results; by_r: what multiplies hprev for the gradient by R */
} Form;

static const Form forms[] = {
	{ OP_LSTM, OP_LSTMGrad, -1, 2, 3, 4, 5, 3, 4, 5, 6, 1, 0, 2, 3 },
	{ OP_GRU, OP_GRUGrad, 2, 3, -1, -1, 4, 2, 4, 5, -1, 2, 1, 3, -1 },
	{ OP_RNN, OP_RNNGrad, -1, 2, -1, -1, 3, 2, 2, 3, -1, 1, 0, 2, -1 },
};

typedef struct Layer {
	Module *m;
	PassCx *cx;
	const Form *k;
	Node *f, *g, *product; /* forward, gradient, the input's product */
	Value *x, *w, *r, *b;
	Value *dx, *dw, *dr, *db, *drb; /* as they are; NULL: nobody asked */
} Layer;

/* ---- what a layer is made of ---- */

/* The input's product, which nobody else reads. */
static bool find_product(Layer *l)
{
	Value *v = l->f->in[0];

	while (v->kind == VAL_NODE && v->nuses == 1 && !value_is_output(v) && (optab[v->def->op]->flags & OP_VIEW))
		v = v->def->in[0];
	Node *n = v->kind == VAL_NODE && v->nuses == 1 && !value_is_output(v) ? v->def : NULL;
	if (!n || n->op != OP_Gemm || attr_int(n, "transA") || !attr_int(n, "transB") || v->type.dtype != DT_f32 ||
		n->in[0]->type.dtype != DT_f32 || n->in[0]->type.rank != 2 || n->in[1]->type.rank != 2)
		return false;
	l->product = n;
	l->x = n->in[0];
	l->w = n->in[1];
	l->b = node_input(n, 2);
	return !l->b || (l->b->type.rank == 1 && l->b->type.dim[0] == l->w->type.dim[0] && l->b->type.dtype == DT_f32);
}

static bool find_gradient(Layer *l)
{
	const Value *y = l->f->out[0];

	for (int i = 0; i < y->nuses; i++)
		if (y->uses[i].node->op == l->k->grad && y->uses[i].index == 1)
			l->g = y->uses[i].node;
	for (int o = l->k->inner; l->g && o < l->f->nout; o++)
		for (int i = 0; i < l->f->out[o]->nuses; i++)
			if (l->f->out[o]->uses[i].node != l->g || value_is_output(l->f->out[o]))
				return false;
	return l->g != NULL;
}

static bool has_form(const Layer *l)
{
	const Node *f = l->f;
	const bool lens = node_input(f, l->k->lens) != NULL;

	if (f->out[0]->type.dtype != DT_f32 || node_input(f, l->k->p))
		return false;
	if (f->op == OP_GRU)
		return attr_int(f, "linear_before_reset") != 0;
	if (f->op == OP_RNN)
		return !lens || !strcmp(attr_str(f, "activation"), "Tanh");
	return !lens || (value_dead(f->out[2]) && !node_input(l->g, l->k->dc));
}

/* ---- what is made of the gradient by the gates ---- */

static bool is_the(Value **found, Value *v)
{
	if (*found)
		return false;
	*found = v;
	return true;
}

static bool sums_columns(const Node *n)
{
	const Ints axes = attr_ints(n, "axes");

	return n->op == OP_ReduceSum && n->in[0]->type.rank == 2 && axes.n == 1 && (axes.v[0] == 0 || axes.v[0] == -2);
}

/* The part of a GRU's recurrent bias: columns 2H to 3H, added up. */
static bool sums_part(Layer *l, const Node *n)
{
	const Ints from = attr_ints(n, "starts"), to = attr_ints(n, "ends"), axes = attr_ints(n, "axes"),
		   steps = attr_ints(n, "steps");
	const int64_t h = l->r->type.dim[1];
	Value *v = n->out[0];

	return from.n == 1 && axes.n == 1 && axes.v[0] == 1 && from.v[0] == 2 * h && to.v[0] == 3 * h &&
	       (!steps.n || steps.v[0] == 1) && v->nuses == 1 && !value_is_output(v) && sums_columns(v->uses[0].node) &&
	       is_the(&l->drb, v->uses[0].node->out[0]);
}

/* A product of the gradient by the gates (left) and x, W or hprev. */
static bool known_product(Layer *l, const Node *n, bool by_x, bool by_r)
{
	const bool turned = attr_int(n, "transA") != 0;
	Value *other = n->in[1], *y = n->out[0];

	if (attr_int(n, "transB") || node_input(n, 2) || y->type.dtype != DT_f32)
		return false;
	if (turned && by_r && value_root(other) == l->g->out[l->k->hprev])
		return is_the(&l->dr, y);
	if (turned && by_x && value_root(other) == value_root(l->x) && shape_eq(&other->type, &l->x->type))
		return is_the(&l->dw, y);
	return !turned && by_x && other == l->w && is_the(&l->dx, y);
}

/* Everybody who reads v, or views of it, makes one of the gradients. */
static bool known_readers(Layer *l, const Value *v, bool by_x, bool by_r)
{
	if (value_is_output(v))
		return false;
	for (int i = 0; i < v->nuses; i++) {
		const Node *u = v->uses[i].node;
		bool known = false;

		if (v->uses[i].index)
			return false;
		if (optab[u->op]->flags & OP_VIEW)
			known = known_readers(l, u->out[0], by_x, by_r);
		else if (u->op == OP_Gemm)
			known = known_product(l, u, by_x, by_r);
		else if (by_x && sums_columns(u))
			known = l->b && is_the(&l->db, u->out[0]);
		else if (by_r && u->op == OP_Slice)
			known = node_input(l->f, l->k->rb) && sums_part(l, u);
		if (!known)
			return false;
	}
	return true;
}

/* hprev is read for the gradient by R and nothing else. */
static bool only_by_r(const Layer *l, const Value *v)
{
	for (int i = 0; i < v->nuses; i++) {
		const Node *u = v->uses[i].node;
		if (optab[u->op]->flags & OP_VIEW ? !only_by_r(l, u->out[0]) : !l->dr || u != l->dr->def)
			return false;
	}
	return !value_is_output(v);
}

static bool gradients(Layer *l)
{
	const Form *k = l->k;
	Node *g = l->g;

	return known_readers(l, g->out[0], true, k->by_r == 0) &&
	       (k->by_r == 0 || known_readers(l, g->out[k->by_r], false, true)) && only_by_r(l, g->out[k->hprev]);
}

/* ---- the nodes of the library ---- */

static Node *make(Layer *l, OpKind op, const Node *old, Node *before, int nin, Value *const *in)
{
	Builder b = { .m = l->m,
		.g = old->graph,
		.before = before,
		.loc = old->loc,
		.phase = old->phase,
		.stage = old->stage,
		.d = l->cx->d };

	return recurrent_make(&b, op, l->f, node_input(l->f, l->k->rb) ? 2 : l->b != NULL, nin, in);
}

/* v is y from now on, under its name. */
static void becomes(Layer *l, Value *v, Value *y, Node *before)
{
	if (!v || value_dead(v))
		return;
	Node *was = v->def;
	const char *name = v->name;
	Builder b = { .m = l->m,
		.g = was->graph,
		.before = before,
		.loc = was->loc,
		.phase = was->phase,
		.stage = was->stage,
		.d = l->cx->d };
	Value *view = mk_reshape(&b, y, &v->type);
	if (view != y)
		view->def->fwd = was->fwd;
	value_replace(v, view);
	node_drop(was);
	if (!map_get(b.g->names, name))
		value_rename(b.g, view, name);
}

/* Who is the gradient of a part is that of the whole. */
static void belongs(const Layer *l, Node *whole)
{
	for (Node *n = whole->graph->first; n; n = n->next)
		if (n->fwd == l->f || n->fwd == l->product)
			n->fwd = whole;
}

static void replace(Layer *l)
{
	const Form *k = l->k;
	Node *f = l->f, *g = l->g;
	Value *h0 = node_input(f, k->h0), *c0 = node_input(f, k->c0), *lens = node_input(f, k->lens),
	      *rb = node_input(f, k->rb);
	Value *in[] = { l->x, l->w, l->r, l->b, rb, h0, c0, lens };
	Node *made = make(l, OP_Recurrent, f, f, 8, in);
	Value *reserve = made->out[2];
	Value *of[] = { reserve, made->out[0], l->w, l->r, l->b, rb, node_input(g, k->dy), node_input(g, k->dh),
		node_input(g, k->dc), h0, c0, lens };
	Node *data = make(l, OP_RecurrentGradData, g, g, 12, of);
	Value *by[] = { reserve, data->out[1], l->x, made->out[0], h0, lens };
	Node *weights = l->dw || l->dr || l->db || l->drb ? make(l, OP_RecurrentGradWeights, g, g, 6, by) : NULL;

	data->fwd = made;
	if (weights)
		weights->fwd = made;
	belongs(l, made);
	becomes(l, g->out[k->dh0], data->out[1], g);
	if (k->dc0 >= 0 && data->nout > 2)
		becomes(l, g->out[k->dc0], data->out[2], g);
	becomes(l, l->dx, data->out[0], g);
	if (weights) {
		becomes(l, l->dw, weights->out[0], g);
		becomes(l, l->dr, weights->out[1], g);
		becomes(l, l->db, weights->nout > 2 ? weights->out[2] : NULL, g);
		becomes(l, l->drb, weights->nout > 3 ? weights->out[3] : NULL, g);
	}
	if (g->in[0])
		node_drop(g);
	becomes(l, f->out[1], made->out[1], f);
	if (made->nout > 3)
		becomes(l, f->out[2], made->out[3], f);
	becomes(l, f->out[0], made->out[0], f);
}

static const Form *form_of(const Node *n)
{
	for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
		if (n->op == forms[i].op)
			return &forms[i];
	return NULL;
}

bool pass_recurrent(Module *m, PassCx *cx)
{
	if (!m->graph)
		return diag_error(
			cx->d, FILELOC(m->file), 410, "recurrent runs before split; this module has stages already");
	if (!target_cuda(cx->train) || cx->train->loop.reproducible || m->tensor > 1)
		return true;
	Node **all = NEWN(cx->scratch, Node *, m->graph->nnodes + 1);
	int count = 0;
	for (Node *n = m->graph->first; n; n = n->next)
		if (form_of(n))
			all[count++] = n;
	for (int i = 0; i < count; i++) {
		Layer l = { .m = m, .cx = cx, .k = form_of(all[i]), .f = all[i], .r = all[i]->in[1] };
		if (find_product(&l) && find_gradient(&l) && has_form(&l) && gradients(&l))
			replace(&l);
	}
	return true;
}
