/* pad: --tensor N. The classes of a loss that are no multiple of N get some more that are never right, so that its group divides
 * them (Shoeybi 2019, section 3): the weights that give their scores grow by zeros, which no file has, and the loss leaves
 * those scores out. Their gradient is 0, so that every optimizer leaves the zeros as they are.
 *
 * Reads the graph in front of autodiff; writes types, shapes in attributes, Param.pad, the loss's `classes`. */
#include "shard.h"

enum { MANY = 1024, LINE = 16 }; /* classes; of as many a device's part is a multiple of LINE, as products like it */

/* A node, and the axis of its result that is of the classes. */
typedef struct Step {
	Node *node;
	int axis;
} Step;

/* From the scores of a loss up to the product that makes them. */
typedef struct Chain {
	Step *step; /* the last first */
	int n, cap;
	Value *grown[2]; /* the matrix, and the bias that is added */
	int at[2], ngrown;
	int64_t classes;
} Chain;

/* Nothing but `reader` reads v. */
static bool only_read(const Value *v, const Node *reader)
{
	return v->nuses == 1 && v->uses[0].node == reader && !value_is_output(v);
}

static bool grows(Chain *c, Value *v, int axis)
{
	if (c->ngrown == 2 || v->kind != VAL_PARAM || v->param->kind != PARAM_WEIGHT || axis < 0)
		return false;
	c->at[c->ngrown] = axis;
	c->grown[c->ngrown++] = v;
	return v->type.dim[axis] == c->classes;
}

/* An id below 0 would count from the end, where rows are new: those of an input are at least 0, which the program checks. */
static bool looked_up_from_the_front(const Node *gather)
{
	const Value *ids = value_root(gather->in[1]);

	return !attr_int(gather, "axis") && ids->kind == VAL_INPUT && ids->index_range > 0;
}

/* A table of as many rows may be looked up too: nobody asks for the new ones. */
static bool matrix_grows(Chain *c, Node *product, Value *w)
{
	const int axis = attr_int(product, "transB") ? 0 : 1;

	if (w->kind != VAL_PARAM || w->type.rank != 2 || value_is_output(w) || !grows(c, w, axis))
		return false;
	for (int i = 0; i < w->nuses; i++) {
		const Use *u = &w->uses[i];

		if (u->node != product &&
			(axis || u->node->op != OP_Gather || u->index || !looked_up_from_the_front(u->node)))
			return false;
	}
	return true;
}

static bool bias_grows(Chain *c, Value *bias, const Node *reader)
{
	return bias->kind == VAL_PARAM && bias->type.rank == 1 && only_read(bias, reader) && grows(c, bias, 0);
}

/* The axis of a Reshape's operand that axis `to` of its result is; -1: none. */
static int reshaped_from(const Type *from, const Type *y, int to)
{
	int64_t behind = 1, have = 1;

	for (int i = to + 1; i < y->rank; i++)
		behind *= y->dim[i];
	for (int i = from->rank - 1; i >= 0; have *= from->dim[i--])
		if (have == behind && from->dim[i] == y->dim[to])
			return i;
	return -1;
}

/* The operand of n that has the classes, along *axis, where n only lets them through. */
static Value *through(Chain *c, Node *n, int *axis)
{
	Value *x = n->in[0], *other = n->nin > 1 ? n->in[1] : NULL;

	switch (n->op) {
	case OP_Reshape: *axis = reshaped_from(&x->type, &n->out[0]->type, *axis); return *axis < 0 ? NULL : x;
	case OP_Transpose: *axis = (int)attr_ints(n, "perm").v[*axis]; return x;
	case OP_Cast:
	case OP_Tanh: return x;
	case OP_Add:
		if (x->kind != VAL_NODE) {
			other = x;
			x = n->in[1];
		}
		if (*axis == n->out[0]->type.rank - 1 && bias_grows(c, other, n))
			return shape_eq(&x->type, &n->out[0]->type) ? x : NULL;
		return NULL;
	case OP_Mul:
	case OP_Div: return other->kind == VAL_CONST && type_numel(&other->type) == 1 ? x : NULL;
	default: return NULL;
	}
}

static bool ends(Chain *c, Node *product, int axis)
{
	if (axis != product->out[0]->type.rank - 1 || !matrix_grows(c, product, product->in[1]))
		return false;
	return product->nin < 3 || !product->in[2] || bias_grows(c, product->in[2], product);
}

/* The scores are read by the loss, and where hits are counted. */
static bool scores_only(const Value *scores, const Node *loss)
{
	for (int i = 0; i < scores->nuses; i++) {
		const Use *u = &scores->uses[i];

		if (u->node != loss && (u->node->op != OP_CountHits || u->index))
			return false;
	}
	return !value_is_output(scores);
}

static bool follow(Arena *a, Chain *c, const Node *loss)
{
	const Node *reader = loss;
	Value *v = loss->in[0];
	int axis = 1;

	c->classes = v->type.dim[1];
	while (v && v->kind == VAL_NODE && (reader == loss ? scores_only(v, loss) : only_read(v, reader))) {
		Node *n = v->def;

		PUSH(a, c->step, c->n, c->cap) = (Step){ n, axis };
		if (n->op == OP_MatMul || n->op == OP_Gemm)
			return ends(c, n, axis);
		v = through(c, n, &axis);
		reader = n;
	}
	return false;
}

static int64_t padded(int64_t classes, int degree)
{
	const int64_t unit = classes < MANY ? degree : (int64_t)degree * LINE;

	return classes % degree ? (classes + unit - 1) / unit * unit : classes;
}

static void grow(Chain *c, Node *loss, int64_t to, Diag *d)
{
	for (int i = 0; i < c->ngrown; i++) {
		c->grown[i]->type.dim[c->at[i]] = to;
		c->grown[i]->param->pad = to - c->classes;
		c->grown[i]->param->pad_axis = c->at[i];
	}
	for (int i = c->n - 1; i >= 0; i--) {
		Node *n = c->step[i].node;

		if (n->op == OP_Reshape) {
			Type t = n->out[0]->type;

			t.dim[c->step[i].axis] = to;
			attr_set_ints(n, "shape", t.rank, t.dim);
		}
		if (!node_infer(n, d))
			bug("pad: %s does not grow", optab[n->op]->name);
	}
	for (int i = 0; i < loss->in[0]->nuses; i++) {
		Node *n = loss->in[0]->uses[i].node;

		attr_set_int(n, "classes", c->classes);
		if (!node_infer(n, d))
			bug("pad: %s does not grow", optab[n->op]->name);
	}
}

bool pass_pad(Module *m, PassCx *cx)
{
	const PlanSettings *p = cx->train ? &cx->train->plan : NULL;
	const int degree = !p             ? 0
	                   : p->tensor_of ? p->tensor_of[p->ntensor_of - 1]
	                                  : (int)p->tensor; /* losses are in the last stage */

	for (Node *n = m->graph->first; n && degree > 1; n = n->next) {
		Chain c = { 0 };

		if (n->op != OP_SoftmaxCrossEntropyLoss || n->nin > 2 || n->out[1]->nuses || value_is_output(n->out[1]))
			continue;
		const int64_t to = padded(n->in[0]->type.dim[1], degree);
		if (to == n->in[0]->type.dim[1] || !follow(cx->scratch, &c, n))
			continue;
		grow(&c, n, to, cx->d);
		if (cx->explain)
			buf_printf(cx->explain, "  %lld classes of %s become %lld, %lld for each device of a group\n",
				(long long)c.classes, c.grown[0]->name, (long long)to, (long long)(to / degree));
	}
	return true;
}
