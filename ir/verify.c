/* The invariants of a module, one short function each. Each breach is reported with the node or value it is at. */
#include <stdlib.h>
#include <string.h>
#include "op.h"

typedef struct Check {
	const Module *m;
	Diag *d;
	bool ok;
	Arena *node; /* what one node's check needs; empty again before the next */
	Map sorted;  /* values of many uses -> their uses by node and operand */
} Check;

static bool breach(Check *c, const Node *n, const char *what, const char *name)
{
	c->ok = false;
	return diag_error(c->d, n ? n->loc : NOLOC, 901, "%s%s%s: %s", n ? optab[n->op]->name : "module",
		name ? " " : "", name ? name : "", what);
}

/* ---- use lists and links ---- */

static int by_place(const void *x, const void *y)
{
	const Use *a = x, *b = y;
	const uintptr_t p = (uintptr_t)a->node, q = (uintptr_t)b->node;

	return p != q ? (p > q) - (p < q) : (a->index > b->index) - (a->index < b->index);
}

/* How often operand i of n stands among the uses of v. A list that is long is sorted once, so that a value read by every
 * node of a graph does not cost the square of them. */
static int listed(Check *c, const Value *v, const Node *n, int i)
{
	enum { LONG = 32 };
	Use *u = v->uses;
	int lo = 0, hi = v->nuses, found = 0;

	if (v->nuses > LONG) {
		const Use want = { .node = (Node *)(uintptr_t)n, .index = i };

		u = map_get(&c->sorted, v);
		if (!u) {
			u = arena_dup(c->d->scratch, v->uses, sizeof *u * (size_t)v->nuses);
			qsort(u, (size_t)v->nuses, sizeof *u, by_place);
			map_put(&c->sorted, v, u);
		}
		while (lo < hi) {
			const int mid = lo + (hi - lo) / 2;
			if (by_place(&u[mid], &want) < 0)
				lo = mid + 1;
			else
				hi = mid;
		}
		hi = lo + 2 < v->nuses ? lo + 2 : v->nuses;
	}
	for (int k = lo; k < hi; k++)
		found += u[k].node == n && u[k].index == i;
	return found;
}

static void check_uses(Check *c, const Node *n)
{
	for (int i = 0; i < n->nin; i++)
		if (n->in[i] && listed(c, n->in[i], n, i) != 1)
			breach(c, n, "its use list and the operands disagree", n->in[i]->name);
}

static void check_outputs(Check *c, const Node *n)
{
	for (int i = 0; i < n->nout; i++) {
		const Value *v = n->out[i];

		if (!v)
			continue;
		if (v->def != n || v->index != i || v->kind != VAL_NODE)
			breach(c, n, "an output does not know its node", v->name);
		if (map_get(n->graph->names, v->name) != v)
			breach(c, n, "the name is not unique", v->name);
	}
}

/* ---- order and phases ---- */

/* Values that may be read here carry the mark of a definition seen before. */
static void check_order(Check *c, const Node *n)
{
	for (int i = 0; i < n->nin; i++) {
		const Value *v = n->in[i];

		if (v && (v->kind == VAL_NODE || v->kind == VAL_INPUT) && !v->mark)
			breach(c, n, "is read before it is made", v->name);
	}
}

static void check_phase(Check *c, const Node *n)
{
	for (int i = 0; i < n->nin; i++) {
		const Value *v = n->in[i];

		if (!v || v->kind != VAL_NODE)
			continue;
		if (v->def->phase > n->phase)
			breach(c, n, "reads what a later phase makes", v->name);
		if (n->phase == PHASE_UPDATE && v->def->phase != PHASE_UPDATE && n->op != OP_Accumulate &&
			n->op != OP_Stack)
			breach(c, n, "the update reads a value of one microbatch; only Accumulate and Stack may",
				v->name);
	}
	if (optab[n->op]->writes && n->phase != PHASE_UPDATE)
		breach(c, n, "params are written in the update phase only", NULL);
}

static void check_stage_order(Check *c, const Node *n)
{
	for (int i = 0; i < n->nin; i++) {
		const Value *v = n->in[i];

		if (v && v->kind == VAL_NODE && n->phase == PHASE_FWD && v->def->phase == PHASE_FWD &&
			v->def->stage > n->stage && n->stage >= 0)
			breach(c, n, "reads forward from a later stage", v->name);
	}
}

static void check_writes(Check *c, const Node *n)
{
	unsigned w = node_writes(n);

	for (int i = 0; i < n->nin && i < 32; i++)
		if (w >> i & 1 && (!n->in[i] || n->in[i]->kind != VAL_PARAM))
			breach(c, n, "writes an operand that is no param", n->in[i] ? n->in[i]->name : NULL);
}

/* ---- types: what the rule gives is what is written ---- */

/* The rule may fill scratch memory for every node of a graph: it gets memory of this node's own, unless it has said
 * something, which is printed from there. */
static bool rule_holds(Check *c, Node *n)
{
	Arena *scratch = c->d->scratch;

	c->d->scratch = c->node;
	const bool ok = optab[n->op]->shape(n, c->d);
	c->d->scratch = scratch;
	return ok;
}

static void check_type(Check *c, Node *n)
{
	const OpDef *d = optab[n->op];
	Type *was = NEWN(c->node, Type, n->nout + 1);

	for (int i = 0; i < n->nin; i++)
		if (!n->in[i] && i < d->minin) {
			breach(c, n, "an operand is missing", NULL);
			return;
		}
	if (n->nin < d->minin) {
		breach(c, n, "too few operands", NULL);
		return;
	}
	if (!d->shape)
		return;
	for (int i = 0; i < n->nout; i++)
		if (n->out[i])
			was[i] = n->out[i]->type;
	Node copy = *n;
	copy.out = NEWN(c->node, Value *, n->nout);
	memcpy(copy.out, n->out, sizeof *n->out * (size_t)n->nout);
	if (!rule_holds(c, &copy)) {
		c->ok = false;
		return;
	}
	for (int i = 0; i < n->nout; i++)
		if (n->out[i] && !type_eq(&was[i], &n->out[i]->type)) {
			breach(c, n,
				arena_printf(c->d->scratch, "is %s, the rule of the op gives %s",
					str_type(c->d->scratch, &was[i]), str_type(c->d->scratch, &n->out[i]->type)),
				n->out[i]->name);
			n->out[i]->type = was[i];
		}
}

/* ---- a graph ---- */

static void mark_values(const Graph *g, int to)
{
	for (int i = 0; i < g->nin; i++)
		g->in[i]->mark = to;
	for (const Node *n = g->first; n; n = n->next)
		for (int i = 0; i < n->nout; i++)
			if (n->out[i])
				n->out[i]->mark = to;
}

static void check_graph(Check *c, const Graph *g)
{
	for (int i = 0; i < g->nin; i++)
		g->in[i]->mark = 1;
	for (Node *n = g->first; n; n = n->next) {
		if ((n->next && n->next->prev != n) || n->graph != g)
			breach(c, n, "the links of the node list are broken", NULL);
		check_uses(c, n);
		check_outputs(c, n);
		check_order(c, n);
		check_phase(c, n);
		check_stage_order(c, n);
		check_writes(c, n);
		check_type(c, n);
		if (c->ok)
			arena_reset(c->node);
		for (int i = 0; i < n->nout; i++)
			if (n->out[i])
				n->out[i]->mark = 1;
	}
}

/* ---- stages ---- */

static bool kept(const Stage *s, const Value *v)
{
	for (int i = 0; i < s->nkeep; i++)
		if (s->keep[i] == v)
			return true;
	return false;
}

static void check_kept(Check *c, const Stage *s)
{
	for (int i = 0; i < s->nkeep; i++)
		s->keep[i]->mark = 2;
	for (int k = 0; k < 2; k++) {
		const Graph *g = k ? s->weight : s->backward;
		for (const Node *n = g ? g->first : NULL; n; n = n->next)
			for (int i = 0; i < n->nin; i++) {
				const Value *v = n->in[i];

				if (v && v->mark != 2 &&
					((v->kind == VAL_NODE && v->def->graph != g) ||
						(v->kind == VAL_INPUT && !kept(s, v))))
					breach(c, n, "a backward reads it, but its stage does not keep it", v->name);
			}
	}
}

static const Node *partner(const Module *m, const Node *send, int64_t channel)
{
	for (int i = 0; i < m->nstage; i++) {
		const Graph *g[2] = { m->stage[i]->forward, m->stage[i]->backward };

		for (int k = 0; k < 2; k++)
			for (const Node *n = g[k] ? g[k]->first : NULL; n; n = n->next)
				if (n->op == (send->op == OP_Send ? OP_Recv : OP_Send) &&
					attr_int(n, "channel") == channel)
					return n;
	}
	return NULL;
}

static void check_messages(Check *c, const Graph *g)
{
	for (const Node *n = g ? g->first : NULL; n; n = n->next) {
		if (n->op != OP_Send && n->op != OP_Recv)
			continue;
		const Node *o = partner(c->m, n, attr_int(n, "channel"));
		if (!o)
			breach(c, n, n->op == OP_Send ? "nobody receives it" : "nobody sends it", NULL);
		else if (n->op == OP_Send && !type_eq(&n->in[0]->type, &o->out[0]->type))
			breach(c, n, "it is sent as one type and received as another", n->in[0]->name);
	}
}

/* ---- servers ---- */

static const Node *counterpart(const Module *m, const Node *n)
{
	const OpKind want = n->op == OP_Push ? OP_Collect : OP_Push;

	for (int t = 0; t < m->nstage; t++)
		for (const Node *k = m->stage[t]->update->first; k; k = k->next)
			if (k->op == want && attr_int(k, "key") == attr_int(n, "key") &&
				attr_int(k, "part") == attr_int(n, "part"))
				return k;
	return NULL;
}

/* What is pushed is collected, and the other way round; a parameter at a server is updated there and nowhere else. */
static void check_servers(Check *c, const Stage *s)
{
	for (const Node *n = s->update->first; n; n = n->next) {
		if (n->op == OP_Push && !counterpart(c->m, n))
			breach(c, n, "no server collects it", n->in[0]->name);
		if (n->op == OP_Collect && !counterpart(c->m, n))
			breach(c, n, "no stage pushes it", n->out[0]->name);
		if (optab[n->op]->writes && !s->server && n->in[0] && n->in[0]->param &&
			n->in[0]->param->sync == SYNC_PS && c->m->stage[c->m->nstage - 1]->server)
			breach(c, n, "a server holds it, but a stage updates it", n->in[0]->name);
	}
	if (s->server && (s->forward->first || s->backward->first))
		breach(c, s->forward->first ? s->forward->first : s->backward->first,
			"a server computes no microbatches", NULL);
}

bool module_verify(const Module *m, Diag *d)
{
	Check c = { .m = m, .d = d, .ok = true, .node = arena_new() };

	map_init(&c.sorted, d->scratch, false);
	if (m->graph) {
		check_graph(&c, m->graph);
		mark_values(m->graph, 0);
	}
	for (int i = 0; i < m->nstage; i++) {
		const Stage *s = m->stage[i];
		Graph *g[4];
		const int n = stage_graphs(s, g);

		for (int k = 0; k < n; k++)
			check_graph(&c, g[k]);
		check_kept(&c, s);
		for (int k = 0; k < n; k++)
			mark_values(g[k], 0);
		for (int k = 0; k < s->nkeep; k++)
			s->keep[k]->mark = 0;
		check_messages(&c, s->forward);
		check_messages(&c, s->backward);
		if (s->update)
			check_servers(&c, s);
	}
	if (!c.ok)
		d->last_text = arena_str(d->scratch, d->last_text);
	arena_free(c.node);
	return c.ok;
}
