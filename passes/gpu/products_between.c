/* products: what lies between products on GPUs reads and writes less (passes/gpu/products.c calls it, not with --reproducible):
 *
 *     SoftmaxCrossEntropyLoss of rows        ScoreLoss, which keeps a number of each row in place of all logarithms; scores come in 16 bits
 *                                            where their product has such operands, and their gradient where it goes to such products. Rows of
 *                                            16-bit scores that do not begin at multiples of 16 bytes, which the library multiplies
 *                                            slowly, are made longer. Where the backward has nothing else of them and multiplies
 *                                            by a constant, ScoreLossAndGrad: the gradient is made with the loss, in their memory
 *     LayerNormalization, Cast to 16 bits    written so at once, as is the gradient of Dropout
 *     a product, Dropout, Add                Dropout reads 16 bits and adds, as the gradient of LayerNormalization does with what
 *                                            goes round it */
#include <string.h>
#include "products.h"

/* All that reads v are nodes of this op. */
static bool read_by(const Value *v, OpKind op)
{
	for (int i = 0; i < v->nuses; i++)
		if (v->uses[i].node->op != op)
			return false;
	return !value_is_output(v);
}

/* A Cast that leaves what it reads in its order (passes/graph/layout.c has some turn it as well). */
static bool in_order(const Node *n) { return n->op == OP_Cast && n->out[0]->type.layout == n->in[0]->type.layout; }

/* Whether all that reads v, or views of it, are casts to t, t being DT_f32 until one is met; `sums`: or sums of its rows. */
static bool only_cast(const Value *v, DType *t, bool sums)
{
	for (int i = 0; i < v->nuses; i++) {
		const Node *u = v->uses[i].node;
		const DType to = in_order(u) ? u->out[0]->type.dtype : DT_f32;
		if (dtype_half(to) && (*t == DT_f32 || *t == to))
			*t = to;
		else if (!(prod_view(u) && only_cast(u->out[0], t, sums)) && !(sums && u->op == OP_ReduceSum))
			return false;
	}
	return !value_is_output(v);
}

/* The type of 16 bits that v is rounded to wherever it is read; else v's own. */
static DType rounded_to(const Value *v, bool sums)
{
	DType t = DT_f32;

	return v->type.dtype == DT_f32 && only_cast(v, &t, sums) ? t : v->type.dtype;
}

/* The casts and sums among what reads v or its views, `count` more of them behind those in list (NULL: they are counted). */
static int readers_of(const Value *v, Node **list, int count)
{
	for (int i = 0; i < v->nuses; i++) {
		Node *u = v->uses[i].node;
		if (prod_view(u))
			count = readers_of(u->out[0], list, count);
		else if (list)
			list[count++] = u;
		else
			count++;
	}
	return count;
}

/* v is y, whose type it is rounded to: its casts are y, and sums read a cast of it back. */
static void instead_of_casts(Products *p, Value *v, Value *y)
{
	const int n = readers_of(v, NULL, 0);
	Node **list = NEWN(p->cx->scratch, Node *, n + 1);

	readers_of(v, list, 0);
	for (int i = 0; i < n; i++) {
		Node *u = list[i];
		if (u->op == OP_Cast) {
			prod_becomes(p, u->out[0], y);
			continue;
		}
		Value *was = u->in[0];
		Builder b = prod_at(p, u);
		node_set_input(u, 0, mk_reshape(&b, prod_cast(p, u, y, DT_f32), &was->type));
		if (was != y && value_dead(was))
			node_drop(was->def);
	}
}

typedef struct Reader {
	Node *n;
	int side;
} Reader;
enum { READERS = 8 };

/* The Products of one matrix that read v, of rows of n elements, views or casts of it, and nothing else does; -1: something else does. */
static int products_of(const Value *v, int64_t n, Reader *list, int count)
{
	for (int i = 0; i < v->nuses && count >= 0; i++) {
		Node *u = v->uses[i].node;
		const int side = v->uses[i].index;
		if ((prod_view(u) || in_order(u)) && prod_width(u->out[0]) == n)
			count = products_of(u->out[0], n, list, count);
		else if (count < READERS && prod_plain(u) && !node_input(u, 2) && side < 2 && u->in[0] != u->in[1])
			list[count++] = (Reader){ u, side };
		else
			return -1;
	}
	return value_is_output(v) ? -1 : count;
}

/* Of x, which one node reads, the Product of 16-bit operands that gives it, in f32 or rounded; NULL: there is none. */
static Node *rounded_product(Value *x)
{
	for (Value *v = x;
		v->nuses == 1 && !value_is_output(v) && v->kind == VAL_NODE && prod_width(v) == prod_width(x);
		v = v->def->in[0]) {
		if (prod_view(v->def) || (in_order(v->def) && dtype_half(v->def->in[0]->type.dtype)))
			continue;
		return prod_plain(v->def) && dtype_half(v->def->in[0]->type.dtype) ? v->def : NULL;
	}
	return NULL;
}

/* What the Product gave in f32 is given in 16 bits, in rows of `wide` elements. */
static Value *in_half(Products *p, Node *made, int64_t wide)
{
	ProductForm r = product_form(made);

	r.to = 0;
	if (r.in[2])
		r.in[2] = prod_cast(p, made, r.in[2], made->in[0]->type.dtype);
	if (wide != prod_width(made->out[0])) {
		r.wide = 3;
		r.columns = wide;
	}
	return prod_make(p, &r, made, made)->out[0];
}

/* v as a matrix or tensor of this shape, and of its own type, behind the node that makes it. */
static Value *shaped(Products *p, Value *v, Type t)
{
	Builder b = prod_at(p, v->def);

	b.before = v->def->next;
	t.dtype = v->type.dtype;
	return mk_reshape(&b, v, &t);
}

/* A gradient of scores goes to these products, in rows of `wide` elements of which n count. */
static void read_wide(Products *p, Value *dx, const Reader *list, int count, int64_t n)
{
	for (int i = 0; i < count; i++) {
		Node *u = list[i].n;
		Type t = u->in[list[i].side]->type;
		Builder b = prod_at(p, u);
		ProductForm r = product_form(u);
		t.dim[t.rank - 1] = prod_width(dx);
		r.in[list[i].side] = mk_reshape(&b, dx, &t);
		r.wide = list[i].side + 1;
		r.columns = n;
		prod_becomes(p, u->out[0], prod_make(p, &r, u, u)->out[0]);
	}
}

/* What g, the gradient of a loss over so many classes, gives is dx, in rows as wide as the scores. */
static void score_gradient_is(Products *p, Node *g, Value *dx, int64_t classes)
{
	Reader list[READERS];

	if (prod_width(dx) != classes)
		read_wide(p, dx, list, products_of(g->out[0], classes, list, 0), classes);
	else if (dx->type.dtype != DT_f32)
		instead_of_casts(p, g->out[0], dx);
	else
		prod_becomes(p, g->out[0], dx);
	if (g->in[0]) /* still there: nothing read it */
		node_drop(g);
}

static void score_gradient(Products *p, Node *g, Node *loss, int64_t classes)
{
	Value *in[5] = { g->in[0], loss->in[0], loss->out[1], g->in[2], node_input(g, 3) };
	Builder b = prod_at(p, g);
	Node *made =
		score_loss_make(&b, OP_ScoreLossGrad, loss, in[4] ? 5 : 4, in, classes, rounded_to(g->out[0], false));

	made->fwd = loss;
	made->time = g->time;
	score_gradient_is(p, g, made->out[0], classes);
}

/* All that reads v, or a view of it, does so in g. */
static bool read_in(const Value *v, const Graph *g)
{
	for (int i = 0; i < v->nuses; i++) {
		const Node *u = v->uses[i].node;
		if (u->graph != g || (prod_view(u) && !read_in(u->out[0], g)))
			return false;
	}
	return !value_is_output(v);
}

/* v, or a view of it, is summed over microbatches or sent to another device, which wants it where a backward makes it. */
static bool travels(const Value *v)
{
	for (int i = 0; i < v->nuses; i++) {
		const Node *u = v->uses[i].node;
		if (u->op == OP_Accumulate || u->op == OP_Send || (prod_view(u) && travels(u->out[0])))
			return true;
	}
	return value_is_output(v);
}

/* The gradient that can be made where n makes the loss: the only one, of a loss that is multiplied by a constant, and without
 * it the backward reads no scores, so that no more is kept than before. */
static Node *gradient_with(const Node *n)
{
	Node *g = n->out[1]->nuses == 1 ? n->out[1]->uses[0].node : NULL;

	return g && g->in[0]->kind == VAL_CONST && read_in(value_root(n->in[0]), n->graph) && !travels(g->out[0])
	               ? g
	               : NULL;
}

/* The loss of n, of scores x, and its gradient g by one node. */
static Node *score_both(Products *p, Node *n, Node *g, Value *x, int64_t classes)
{
	Value *in[4] = { x, g->in[0], n->in[1], node_input(n, 2) };
	const char *name = g->out[0]->name;
	Builder b = prod_at(p, n);
	Node *made =
		score_loss_make(&b, OP_ScoreLossAndGrad, n, in[3] ? 4 : 3, in, classes, rounded_to(g->out[0], false));

	made->time = n->time;
	score_gradient_is(p, g, made->out[0], classes);
	prod_named(made->out[0], name);
	return made;
}

/* All that reads a gradient of these scores are products that may read longer rows. */
static bool may_widen(const Value *logp, int64_t n)
{
	Reader list[READERS];

	for (int i = 0; i < logp->nuses; i++) {
		const Value *dx = logp->uses[i].node->out[0];
		if (!dtype_half(rounded_to(dx, false)) || products_of(dx, n, list, 0) <= 0)
			return false;
	}
	return true;
}

void prod_score_loss(Products *p, Node *n)
{
	enum { EACH = 8 }; /* elements of 16 bits in 16 bytes */
	Value *x = n->in[0], *logp = n->out[1];
	const int64_t classes = x->type.rank == 2 ? x->type.dim[1] : 0, wide = (classes + EACH - 1) / EACH * EACH;

	const bool padded = attr_int(n, "classes") && attr_int(n, "parts") < 2;

	if (!classes || padded || x->type.dtype != DT_f32 || !strcmp(attr_str(n, "reduction"), "none") ||
		!read_by(logp, OP_SoftmaxCrossEntropyLossGrad))
		return;
	Node *from = rounded_product(x), *g = gradient_with(n);
	Value *in[3] = { x, n->in[1], node_input(n, 2) };
	Type rows = x->type;
	if (from) {
		rows.dim[1] = !node_input(from, 2) && may_widen(logp, classes) ? wide : classes;
		in[0] = shaped(p, in_half(p, from, rows.dim[1]), rows);
	}
	if (g) {
		Node *both = score_both(p, n, g, in[0], classes);
		if (n->in[0]) /* a backward that computes the scores again reads no loss: n went with its gradient */
			prod_becomes(p, n->out[0], both->out[1]);
		return;
	}
	Builder b = prod_at(p, n);
	Node *made = score_loss_make(&b, OP_ScoreLoss, n, in[2] ? 3 : 2, in, classes, DT_f32);

	made->time = n->time;
	made->fwd = n->fwd;
	while (logp->nuses)
		score_gradient(p, logp->uses[0].node, made, classes);
	if (n->in[0]) /* as above */
		prod_becomes(p, n->out[0], made->out[0]);
	value_rename(made->graph, made->out[1], arena_printf(p->m->arena, "%s.sums", made->in[0]->name));
}

/* ---- what lies between products, normalisations and sums ---- */

void prod_norm_in_half(Products *p, Node *n)
{
	Value *y = n->out[0];
	const DType t = rounded_to(y, false);

	if (t == y->type.dtype)
		return;
	attr_set_int(n, "to", dtype_onnx(t));
	optab[n->op]->shape(n, p->cx->d);
	instead_of_casts(p, y, y);
}

/* The Add of as many elements that alone reads v, in the graph where v is made, and what it adds; NULL: there is none. */
static Node *added(Value *v, Value **other)
{
	Value *seen = prod_seen(v);
	Node *add = prod_user(v);
	const int64_t count = type_numel(&v->type);

	if (!add || add->op != OP_Add || add->graph != v->def->graph)
		return NULL;
	*other = add->in[0] == seen ? add->in[1] : add->in[0];
	return type_numel(&(*other)->type) == count && type_numel(&add->out[0]->type) == count &&
	                       (*other)->type.dtype == v->type.dtype && (*other)->type.layout == v->type.layout &&
	                       add->out[0]->type.layout == v->type.layout
	               ? add
	               : NULL;
}

void prod_dropout_ends(Products *p, Node *n)
{
	Value *in[2] = { n->in[0], NULL }, *other = NULL;
	Node *from = n->in[0]->type.dtype == DT_f32 ? rounded_product(n->in[0]) : NULL, *add = added(n->out[0], &other);
	const Type t = n->in[0]->type;

	if (add && !prod_read_behind(n->out[1], add))
		add = NULL;
	if (!from && !add)
		return;
	attr_set_int(n, "to", dtype_onnx(n->out[0]->type.dtype));
	if (from)
		in[0] = shaped(p, in_half(p, from, prod_width(from->out[0])), t);
	Builder b = prod_at(p, add ? add : n);
	if (add)
		in[1] = mk_reshape(&b, other, &t);
	Node *made = build(&b, OP_Dropout, n->attr, add ? 2 : 1, in, NULL);
	made->fwd = n->fwd;
	made->time = n->time;
	const char *mask = n->out[1]->name;
	prod_becomes(p, n->out[1], made->out[1]);
	prod_becomes(p, add ? add->out[0] : n->out[0], made->out[0]);
	prod_named(made->out[1], mask);
}

void prod_dropout_in_half(Products *p, Node *n)
{
	const DType t = rounded_to(n->out[0], true);

	if (t == n->out[0]->type.dtype)
		return;
	attr_set_int(n, "to", dtype_onnx(t));
	optab[OP_DropoutGrad]->shape(n, p->cx->d);
	instead_of_casts(p, n->out[0], n->out[0]);
}

void prod_norm_gradient(Products *p, Node *n)
{
	const int scaled = n->op == OP_LayerNormGrad ? 5 : 4; /* operands up to the scale */
	Value *other = NULL, *in[6], *dy = n->in[0];

	if (dy->nuses == 1 && !value_is_output(dy) && dy->kind == VAL_NODE && in_order(dy->def) &&
		dtype_half(dy->def->in[0]->type.dtype)) {
		node_set_input(n, 0, dy->def->in[0]);
		node_remove(dy->def);
	}
	Node *add = n->nin == scaled ? added(n->out[0], &other) : NULL;

	for (int i = 1; add && i < n->nout; i++)
		if (!prod_read_behind(n->out[i], add))
			return;
	if (!add)
		return;
	Builder b = prod_at(p, add);
	memcpy(in, n->in, (size_t)scaled * sizeof *in);
	in[scaled] = mk_reshape(&b, other, &n->out[0]->type);
	Node *made = build(&b, n->op, n->attr, scaled + 1, in, NULL);
	made->fwd = n->fwd;
	made->time = n->time;
	for (int i = 1; i < n->nout; i++)
		if (!value_dead(n->out[i]))
			prod_becomes(p, n->out[i], made->out[i]);
	const char *name[3] = { NULL };
	for (int i = 1; i < n->nout; i++)
		name[i] = n->out[i]->name;
	prod_becomes(p, add->out[0], made->out[0]); /* n is gone, and its results' names are free */
	for (int i = 1; i < made->nout; i++)
		prod_named(made->out[i], name[i]);
}
