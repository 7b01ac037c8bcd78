/* products: for GPUs. Products of matrices become Product nodes, as cuBLASLt takes them, with what it does on the way (its
 * epilogues), so that what lies between is read and written once less:
 *
 *     MatMul, Add of a bias                  the bias is added before the result is written
 *     ... Relu                               so is max(0, x); a bit per element is kept where a backward asks for it
 *     ... Gelu by tanh                       so is that; what went in is the second result where the backward reads it
 *     the product of a gradient, ReluGrad    times the derivative, by the bits that were kept
 *     ... the gradient of Gelu               likewise, by what went in
 *     Conv with a bias, Relu                 ConvRelu, by cuDNN; ReluGrad reads its result as before
 *     the product of weights' gradient, and ReduceSum over its rows: the bias's gradient is added up while the product reads
 * and what products_between.c does with what lies between them, sums.c and norms.c with what goes round normalisations, packed.c
 * with queries, keys and values; at the end f8.c has products read 8 bits, whose library adds up no rows.
 *
 * Behind split, recompute and defer: what they cut apart stays apart. With --reproducible nodes only change their name, for
 * where a plan cuts must not change a bit. What cuBLASLt has no form for (a bias that is a matrix, matrices at uneven
 * distances) stays MatMul or Gemm. Reads and writes the stages' graphs, Stage.keep. */
#include <string.h>
#include "products.h"
#include "ir/analysis.h"

bool prod_view(const Node *n) { return n && n->op == OP_Reshape; }

/* v, or the view that is all that reads it. */
Value *prod_seen(Value *v)
{
	while (v->nuses == 1 && prod_view(v->uses[0].node) && !value_is_output(v))
		v = v->uses[0].node->out[0];
	return v;
}

/* The only node that reads v or its view. */
Node *prod_user(Value *v)
{
	v = prod_seen(v);
	return v->nuses == 1 && !value_is_output(v) ? v->uses[0].node : NULL;
}

Builder prod_at(Products *p, Node *n)
{
	return (Builder){ .m = p->m,
		.g = n->graph,
		.before = n,
		.loc = n->loc,
		.phase = n->phase,
		.stage = n->stage,
		.d = p->cx->d };
}

Node *prod_make(Products *p, const ProductForm *f, Node *before, const Node *old)
{
	Builder b = prod_at(p, before);
	Node *n = product_make(&b, f);

	n->fwd = old->fwd;
	n->time = old->time;
	return n;
}

/* v is called so, where nothing else is. */
void prod_named(Value *v, const char *name)
{
	if (!map_get(v->def->graph->names, name))
		value_rename(v->def->graph, v, name);
}

/* v is y, seen in v's shape, from now on. */
void prod_becomes(Products *p, Value *v, Value *y)
{
	const char *name = v->name;
	Node *was = v->def, *made = y->def;
	Builder b = prod_at(p, made);

	if (v->type.layout != y->type.layout)
		bug("%s lies in another order than %s, which stands for it", v->name, y->name);
	b.before = made->next;
	Value *view = mk_reshape(&b, y, &v->type);
	value_replace(v, view);
	node_drop(was);
	prod_named(view, name);
}

/* ---- products as they are ---- */

/* A row of n numbers that every row of v gets. */
static bool is_row(const Value *c, int64_t n)
{
	return c->type.rank > 0 && c->type.dim[c->type.rank - 1] == n && type_numel(&c->type) == n;
}

int64_t prod_width(const Value *v) { return v->type.dim[v->type.rank - 1]; }

static bool has_form(const Node *n)
{
	const Value *c = node_input(n, 2), *y = n->out[0];

	if (n->in[0]->type.rank < 2 || n->in[1]->type.rank < 2 || n->in[0]->type.dtype == DT_f64 ||
		!type_numel(&y->type) || !type_numel(&n->in[0]->type))
		return false;
	return (!c || is_row(c, prod_width(y))) && product_even(n);
}

Value *prod_cast(Products *p, Node *n, Value *v, DType t)
{
	Builder b = prod_at(p, n);

	if (v->type.dtype == t)
		return v;
	Node *c = build(&b, OP_Cast, NULL, 1, &v, arena_printf(p->cx->scratch, "%s.%s", v->name, dtype_name(t)));
	attr_set_int(c, "to", dtype_onnx(t));
	optab[OP_Cast]->shape(c, p->cx->d);
	c->fwd = n->fwd;
	return c->out[0];
}

static void convert(Products *p, Node *n)
{
	ProductForm r = product_form(n);
	const DType t = n->out[0]->type.dtype;

	if (r.in[2])
		r.in[2] = prod_cast(p, n, r.in[2], t); /* the library adds a bias of the result's type */
	prod_becomes(p, n->out[0], prod_make(p, &r, n, n)->out[0]);
}

/* ---- what follows ---- */

/* One matrix, or rows of all in one, of no longer rows. */
bool prod_plain(const Node *n)
{
	return n && n->op == OP_Product && !*attr_str(n, "end") && !attr_int(n, "sum") && !attr_int(n, "wide") &&
	       product_rows(n) > 0;
}

static void add_bias(Products *p, Node *n)
{
	Node *add = prod_user(n->out[0]);
	Value *seen = prod_seen(n->out[0]);

	if (!prod_plain(n) || node_input(n, 2) || !add || add->op != OP_Add || add->graph != n->graph)
		return;
	Value *bias = add->in[0] == seen ? add->in[1] : add->in[0];
	if (bias == seen || !is_row(bias, prod_width(n->out[0])) || bias->type.dtype != n->out[0]->type.dtype ||
		prod_width(seen) != prod_width(n->out[0]) || !shape_eq(&seen->type, &add->out[0]->type))
		return;
	ProductForm r = product_form(n);
	r.in[2] = bias;
	prod_becomes(p, add->out[0], prod_make(p, &r, add, n)->out[0]);
}

/* The one of v's readers that has this op and lies in the graph where v is made; the others lie elsewhere, or there is none. */
static Node *reader(const Value *v, OpKind op, bool others)
{
	Node *found = NULL;

	for (int i = 0; i < v->nuses; i++)
		if (v->uses[i].node->op == op && v->uses[i].node->graph == v->def->graph && !found)
			found = v->uses[i].node;
	return found && !value_is_output(v) && (others || v->nuses == 1) ? found : NULL;
}

/* What is kept is called by whose it is. */
static void name_kept(Node *n, const Value *of)
{
	value_rename(n->graph, n->out[1], arena_printf(n->graph->module->arena, "%s.kept", of->name));
}

static void add_relu(Products *p, Node *n)
{
	Value *seen = prod_seen(n->out[0]);
	Node *act = prod_plain(n) ? reader(seen, OP_Relu, false) : NULL;

	if (!act)
		return;
	ProductForm r = product_form(n);
	r.end = "relu";
	prod_becomes(p, act->out[0], prod_make(p, &r, n, n)->out[0]);
}

static void add_gelu(Products *p, Node *n)
{
	Value *seen = prod_seen(n->out[0]);
	Node *act = prod_plain(n) ? reader(seen, OP_GeluTanh, true) : NULL;
	const bool keep = seen->nuses > 1;

	if (!act || (keep && prod_width(n->out[0]) % 8)) /* rows of what is kept begin at multiples of 8 numbers */
		return;
	ProductForm r = product_form(n);
	r.end = "gelu";
	r.keep = keep;
	Node *made = prod_make(p, &r, n, n);
	prod_becomes(p, act->out[0], made->out[0]);
	if (!keep)
		return;
	prod_becomes(p, seen, made->out[1]);
	name_kept(made, act->out[0]);
}

static void conv_relu(Products *p, Node *n)
{
	Node *act = node_input(n, 2) && n->out[0]->type.dtype != DT_f64 ? reader(n->out[0], OP_Relu, false) : NULL;
	Builder b = prod_at(p, n);

	if (!act)
		return;
	Node *made = build(&b, OP_ConvRelu, n->attr, n->nin, n->in, NULL);
	made->fwd = n->fwd;
	made->time = n->time;
	prod_becomes(p, act->out[0], made->out[0]);
}

/* ---- backwards ---- */

/* The plain Product whose result, read by one node and nothing else, is v. */
static Node *product_behind(Value *v)
{
	if (v->nuses != 1 || value_is_output(v))
		return NULL;
	while (v->kind == VAL_NODE && prod_view(v->def)) {
		v = v->def->in[0];
		if (v->nuses != 1 || value_is_output(v))
			return NULL;
	}
	return v->kind == VAL_NODE && prod_plain(v->def) && !node_input(v->def, 2) ? v->def : NULL;
}

static bool same_rows(const Node *a, const Node *b)
{
	return product_rows(a) == product_rows(b) && prod_width(a->out[0]) == prod_width(b->out[0]);
}

static void gradient_end(Products *p, Node *product, Node *last, const char *end, Value *kept)
{
	ProductForm r = product_form(product);

	r.end = end;
	r.in[3] = kept;
	prod_becomes(p, last->out[0], prod_make(p, &r, last, product)->out[0]);
}

static void relu_gradient(Products *p, Node *n)
{
	Node *product = product_behind(n->in[0]);
	Value *y = value_root(n->in[1]);
	Node *made = y->kind == VAL_NODE ? y->def : NULL;

	if (!product || product->graph != n->graph || !made || made->op != OP_Product ||
		strcmp(attr_str(made, "end"), "relu") || !same_rows(product, made))
		return;
	if (!attr_int(made, "keep")) {
		ProductForm r = product_form(made);
		r.keep = true;
		Node *keeps = prod_make(p, &r, made, made);
		prod_becomes(p, made->out[0], keeps->out[0]);
		made = keeps;
		name_kept(made, made->out[0]);
	}
	gradient_end(p, product, n, "relu_grad", made->out[1]);
}

static void gelu_gradient(Products *p, Node *n)
{
	Node *product = product_behind(n->in[0]);
	Value *kept = product ? value_root(n->in[1]) : NULL;

	if (!product || product->graph != n->graph || kept->kind != VAL_NODE || kept->def->op != OP_Product ||
		kept->index != 1 || strcmp(attr_str(kept->def, "end"), "gelu") || !same_rows(product, kept->def) ||
		kept->type.dtype != n->out[0]->type.dtype)
		return;
	gradient_end(p, product, n, "gelu_grad", kept);
}

/* What ReduceSum adds up, widened or not. */
static Value *summed(const Node *n)
{
	Value *v = value_root(n->in[0]);

	if (v->kind == VAL_NODE && v->def->op == OP_Cast && v->type.dtype == DT_f32 &&
		dtype_half(v->def->in[0]->type.dtype) && v->def->in[0]->type.layout == v->type.layout)
		v = value_root(v->def->in[0]);
	return v;
}

/* All axes but the last, which stays, or what is left of the shape has that many numbers. */
static bool sums_rows(const Node *n)
{
	const Type *t = &n->in[0]->type;
	const Ints axes = attr_ints(n, "axes");
	bool seen[MAXRANK] = { false };

	for (int i = 0; i < axes.n; i++)
		seen[axes.v[i] < 0 ? axes.v[i] + t->rank : axes.v[i]] = true;
	for (int i = 0; i < t->rank; i++)
		if (seen[i] == (i == t->rank - 1) && t->dim[i] > 1)
			return false;
	return axes.n > 0 && t->rank > 1;
}

bool prod_precedes(const Node *a, const Node *b)
{
	while (a && a != b)
		a = a->next;
	return a != NULL;
}

/* Whoever reads v where it is made comes behind n. */
bool prod_read_behind(const Value *v, const Node *n)
{
	for (int i = 0; i < v->nuses; i++) {
		const Node *u = v->uses[i].node;
		if (u->graph == n->graph && !prod_precedes(n, u))
			return false;
	}
	return true;
}

/* n is a view, or rounds to 16 bits, which a sum over rows may as well read. */
static bool read_through(const Node *n)
{
	return prod_view(n) ||
	       (n->op == OP_Cast && n->in[0]->type.dtype == DT_f32 && dtype_half(n->out[0]->type.dtype) &&
		       n->in[0]->type.layout == n->out[0]->type.layout);
}

/* The gradient of weights that reads v, or a view of it, which `sum` adds up; *side: as which operand. */
static Node *reads_too(const Node *sum, const Value *v, int *side)
{
	Node *found = NULL;

	for (int i = 0; i < v->nuses && !found; i++) {
		Node *n = v->uses[i].node;
		if (read_through(n) && n->graph == sum->graph)
			found = reads_too(sum, n->out[0], side);
		if (found || !prod_plain(n) || prod_f8(n) || n->graph != sum->graph || node_input(n, 2) ||
			n->out[0]->type.dtype != sum->out[0]->type.dtype)
			continue;
		*side = v->uses[i].index == 0 && attr_int(n, "transA")    ? 1
		        : v->uses[i].index == 1 && !attr_int(n, "transB") ? 2
		                                                          : 0;
		const int64_t count = *side == 1 ? product_rows(n) : prod_width(n->out[0]);
		if (*side && type_numel(&sum->out[0]->type) == count && prod_read_behind(sum->out[0], n))
			found = n;
	}
	return found;
}

static void add_sum(Products *p, Node *n)
{
	int side = 0;
	Node *product = sums_rows(n) ? reads_too(n, summed(n), &side) : NULL;

	if (!product)
		return;
	ProductForm r = product_form(product);
	r.sum = side;
	Node *made = prod_make(p, &r, product, product);
	prod_becomes(p, n->out[0], made->out[1]);
	prod_becomes(p, product->out[0], made->out[0]);
}

/* ---- the walk ---- */

/* Every node of g once, whatever the step takes away or puts before the next. */
static void each(Products *p, Graph *g, OpKind a, OpKind b, void (*step)(Products *p, Node *n))
{
	Node **all = NEWN(p->cx->scratch, Node *, g->nnodes + 1);
	int n = 0;

	for (Node *k = g->first; k; k = k->next)
		if (k->op == a || k->op == b)
			all[n++] = k;
	for (int i = 0; i < n; i++)
		if (all[i]->in[0]) /* still there */
			step(p, all[i]);
}

static void convert_fit(Products *p, Node *n)
{
	if (has_form(n))
		convert(p, n);
}

static void stage_products(Products *p, Stage *s)
{
	Graph *g[4];
	const int n = stage_graphs(s, g);
	const bool whole = !p->cx->train->loop.reproducible;

	for (int i = 0; i < n; i++) {
		if (g[i] == s->update)
			continue;
		each(p, g[i], OP_MatMul, OP_Gemm, convert_fit);
		if (!whole)
			continue;
		each(p, g[i], OP_Product, OP_Product, add_bias);
		each(p, g[i], OP_Product, OP_Product, add_relu);
		each(p, g[i], OP_Product, OP_Product, add_gelu);
		each(p, g[i], OP_Conv, OP_Conv, conv_relu);
		each(p, g[i], OP_BatchNorm, OP_BatchNorm, prod_batchnorm_relu);
	}
	for (int i = 0; whole && i < n; i++) {
		if (g[i] == s->update)
			continue;
		each(p, g[i], OP_SoftmaxCrossEntropyLoss, OP_SoftmaxCrossEntropyLoss, prod_score_loss);
		each(p, g[i], OP_LayerNormalization, OP_RMSNormalization, prod_norm_in_half);
		each(p, g[i], OP_Dropout, OP_Dropout, prod_dropout_ends);
		each(p, g[i], OP_DropoutGrad, OP_DropoutGrad, prod_dropout_in_half);
		each(p, g[i], OP_LayerNormGrad, OP_RMSNormGrad, prod_norm_gradient);
		each(p, g[i], OP_DropoutGrad, OP_DropoutGrad, prod_norm_past);
		each(p, g[i], OP_ReluGrad, OP_ReluGrad, relu_gradient);
		each(p, g[i], OP_ReluGrad, OP_ReluGrad, prod_batchnorm_relu_gradient);
		each(p, g[i], OP_GeluTanhGrad, OP_GeluTanhGrad, gelu_gradient);
		each(p, g[i], OP_ReduceSum, OP_ReduceSum, add_sum);
		each(p, g[i], OP_Cast, OP_Cast, prod_norm_rounded);
		each(p, g[i], OP_Split, OP_Split, prod_packed);
	}
	for (int i = 0; whole && i < n; i++) /* no gradient reads a mask any more that it can do without */
		if (g[i] != s->update)
			each(p, g[i], OP_LayerNormalization, OP_RMSNormalization, prod_norm_sum);
	if (whole)
		prod_in_8_bits(p, s);
	find_loss(p->m, s->forward);
	list_kept(p->m, s);
}

bool pass_products(Module *m, PassCx *cx)
{
	Products p = { m, cx };

	for (int i = 0; target_cuda(cx->train) && i < m->nstage; i++)
		if (!m->stage[i]->server)
			stage_products(&p, m->stage[i]);
	return true;
}
