/* simplify, cleanup: fold what is constant, merge equal nodes, drop the dead.
 *
 * Reads the whole graph. A node is folded when all it reads is constant and its op can be evaluated; two pure nodes of
 * one phase with the same operands and attributes are one; a node without effect whose outputs nobody reads goes. Names
 * that a user could ask for stay: graph inputs and outputs are never renamed or removed. cleanup is the same after
 * autodiff, which builds more than is used. */
#include <string.h>
#include "passes/common/pass.h"

static bool has_effect(const Node *n)
{
	return optab[n->op]->flags & (OP_UPDATE | OP_COMM) || n->op == OP_Report || n->op == OP_ReportHits;
}

static bool dead(const Node *n)
{
	if (has_effect(n))
		return false;
	for (int i = 0; i < n->nout; i++)
		if (n->out[i] && !value_dead(n->out[i]))
			return false;
	return true;
}

static void drop_dead(Graph *g)
{
	for (Node *n = g->last, *prev; n; n = prev) {
		prev = n->prev;
		if (dead(n))
			node_remove(n);
	}
}

/* ---- folding ---- */

enum { FOLD_LIMIT = 1 << 24 }; /* bytes; larger results stay computed */

static bool foldable(const Node *n)
{
	const OpDef *d = optab[n->op];

	if (!d->eval || !(d->flags & OP_PURE) || n->nin > MAXIN || n->nout > MAXIN)
		return false;
	for (int i = 0; i < n->nin; i++)
		if (n->in[i] && (n->in[i]->kind != VAL_CONST || !n->in[i]->data))
			return false;
	for (int i = 0; i < n->nout; i++)
		if (n->out[i] && (type_bytes(&n->out[i]->type) > FOLD_LIMIT || n->out[i]->type.layout != LAYOUT_PLAIN))
			return false;
	const Graph *g = n->graph;
	for (int k = 0; k < g->nout; k++)
		for (int i = 0; i < n->nout; i++)
			if (g->out[k] == n->out[i])
				return false; /* an output is a node's */
	return true;
}

static void fold(Module *m, Node *n, Arena *scratch)
{
	Tensor in[MAXIN] = { 0 }, out[MAXIN] = { 0 };

	for (int i = 0; i < n->nin; i++)
		if (n->in[i])
			in[i] = (Tensor){ n->in[i]->type, (void *)(uintptr_t)n->in[i]->data };
	if (!module_may_fold(m, n) || !optab[n->op]->eval(n, in, out, scratch))
		return;
	for (int i = 0; i < n->nout; i++)
		if (n->out[i])
			value_replace(n->out[i], module_const(m, n->out[i]->name, n->out[i]->type, out[i].data));
	node_remove(n);
}

/* ---- equal nodes ---- */

static bool same_attrs(const Node *a, const Node *b)
{
	for (const AttrDef *d = optab[a->op]->attrs; d && d->name; d++) {
		const char *p = (const char *)a->attr + d->offset, *q = (const char *)b->attr + d->offset;
		const Ints *x = (const void *)p, *y = (const void *)q;
		const Floats *f = (const void *)p, *h = (const void *)q;
		const char *s, *t;

		switch (d->kind) {
		case A_INT:
			if (memcmp(p, q, sizeof(int64_t)))
				return false;
			break;
		case A_FLOAT:
			if (memcmp(p, q, sizeof(double)))
				return false;
			break;
		case A_STR:
			s = *(const char *const *)(const void *)p;
			t = *(const char *const *)(const void *)q;
			if (strcmp(s ? s : "", t ? t : ""))
				return false;
			break;
		case A_INTS:
			if (x->n != y->n || (x->n && memcmp(x->v, y->v, sizeof *x->v * (size_t)x->n)))
				return false;
			break;
		case A_FLOATS:
			if (f->n != h->n || (f->n && memcmp(f->v, h->v, sizeof *f->v * (size_t)f->n)))
				return false;
			break;
		case A_END: break;
		}
	}
	return true;
}

static bool equal(const Node *a, const Node *b)
{
	if (a->op != b->op || a->phase != b->phase || a->nin != b->nin || a->nout != b->nout || a->stage != b->stage)
		return false;
	for (int i = 0; i < a->nin; i++)
		if (a->in[i] != b->in[i])
			return false;
	for (int i = 0; i < a->nout; i++)
		if (!a->out[i] != !b->out[i] || (a->out[i] && !type_eq(&a->out[i]->type, &b->out[i]->type)))
			return false;
	return same_attrs(a, b);
}

/* An earlier node equal to n: it reads the same first operand, so it is among that value's users. */
static Node *twin(const Node *n)
{
	if (!n->nin || !n->in[0] || !(optab[n->op]->flags & OP_PURE) || optab[n->op]->flags & OP_RANDOM)
		return NULL;
	for (int i = 0; i < n->in[0]->nuses; i++) {
		Node *o = n->in[0]->uses[i].node;

		if (o != n && o->mark && o->graph == n->graph && equal(o, n))
			return o;
	}
	return NULL;
}

static bool is_output(const Node *n)
{
	for (int i = 0; i < n->graph->nout; i++)
		if (n->graph->out[i]->kind == VAL_NODE && n->graph->out[i]->def == n)
			return true;
	return false;
}

static void merge_equal(Graph *g)
{
	for (Node *n = g->first, *next; n; n = next) {
		Node *o = twin(n);

		next = n->next;
		n->mark = 1; /* seen: comes before what follows */
		if (!o || is_output(n))
			continue;
		for (int i = 0; i < n->nout; i++)
			if (n->out[i])
				value_replace(n->out[i], o->out[i]);
		node_remove(n);
	}
	for (Node *n = g->first; n; n = n->next)
		n->mark = 0;
}

static void simplify(Module *m, Arena *scratch)
{
	if (!m->graph)
		return;
	for (Node *n = m->graph->first, *next; n; n = next) {
		next = n->next;
		if (foldable(n))
			fold(m, n, scratch);
	}
	merge_equal(m->graph);
	drop_dead(m->graph);
}

bool pass_simplify(Module *m, PassCx *cx)
{
	simplify(m, cx->scratch);
	return true;
}

bool pass_cleanup(Module *m, PassCx *cx)
{
	simplify(m, cx->scratch);
	return true;
}
