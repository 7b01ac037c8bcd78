/* fuse: chains of elementwise nodes become one loop, so that what lies between them never sees memory.
 *
 * In each forward and backward graph, from front to back: a node starts a group; later nodes of the same shape and
 * layout join when they read a result of the group. The loop will stand where the group's last node stands, so the
 * search ends at the first node outside of the group that reads one of its results. A node that reads nothing of the
 * group may be passed, for a while. ew_fuse (ir/ops/elementwise) makes the node and knows what fits one loop.
 *
 * A Cast that a Reshape keeps from its chain is put in front of it first. What a value is called stays; Stage.keep and Module.loss are found again. Nothing to do: nothing done. */
#include "passes/common/plan.h"
#include "ir/analysis.h"
#include "passes/cost/cost.h"

enum { WINDOW = 32, GROUP = 24 }; /* nodes that are looked at behind a group's first; nodes of a group */

typedef struct Group {
	Node *node[GROUP];
	int n;
} Group;

/* Of no more operands than a step of a loop has: a Sum adds up any number. */
static bool elementwise(const Node *n)
{
	return (optab[n->op]->flags & OP_EW) && n->nout == 1 && n->out[0] && n->nin <= MAXIN;
}

static bool same_loop(const Node *x, const Node *y)
{
	return shape_eq(&x->out[0]->type, &y->out[0]->type) && x->out[0]->type.layout == y->out[0]->type.layout;
}

static bool reads_group(const Node *n, const Group *g)
{
	for (int i = 0; i < n->nin; i++)
		for (int k = 0; n->in[i] && k < g->n; k++)
			if (n->in[i]->def == g->node[k])
				return true;
	return false;
}

/* Programs tell of it: it must lie in memory. */
static bool told(const PassCx *cx, const Node *n)
{
	return cx->train && cx->train->target.told && map_has(cx->train->target.told, n->out[0]->name);
}

static void collect(const PassCx *cx, Node *first, Group *g)
{
	int looked = 0;

	g->n = 0;
	g->node[g->n++] = first;
	for (Node *n = first->next; n && !told(cx, g->node[g->n - 1]) && looked < WINDOW && g->n < GROUP;
		n = n->next, looked++) {
		if (!reads_group(n, g))
			continue;
		if (!elementwise(n) || !same_loop(n, first))
			return;
		g->node[g->n++] = n;
	}
}

/* Gives the node to go on behind. */
static Node *fuse_from(Module *m, PassCx *cx, Node *first, int *made)
{
	Group g;

	collect(cx, first, &g);
	for (; g.n > 1; g.n--) {
		Node *last = g.node[g.n - 1];
		Builder b = { .m = m,
			.g = first->graph,
			.before = last->next,
			.loc = last->loc,
			.phase = first->phase,
			.stage = first->stage,
			.d = cx->d };
		Node *next = first->next;
		while (next) { /* the first node behind `first` that will still be there */
			bool inside = false;
			for (int i = 0; i < g.n; i++)
				inside |= g.node[i] == next;
			if (!inside)
				break;
			next = next->next;
		}
		double time = 0;
		for (int i = 0; i < g.n; i++)
			time += g.node[i]->time;
		Node *f = ew_fuse(&b, g.node, g.n);
		if (!f)
			continue;
		f->time = cx->profile ? time : 0; /* one loop costs less than its parts: cost_again estimates it */
		(*made)++;
		return next && next->graph == f->graph && next != b.before ? next : f->next;
	}
	return first->next;
}

static bool read_once(const Value *v) { return v->nuses == 1 && !value_is_output(v); }

/* A Cast behind a Reshape of what an elementwise node made (scores of 16 bits, for a loss) goes in front of the Reshape, where it is in
 * the node's loop. */
static int lift_casts(const PassCx *cx, Graph *g)
{
	int lifted = 0;

	for (Node *n = g->first; n; n = n->next) {
		if (n->op != OP_Reshape || !read_once(n->in[0]) || !read_once(n->out[0]) || told(cx, n))
			continue;
		Value *x = n->in[0], *y = n->out[0];
		Node *cast = y->uses[0].node;
		if (x->kind != VAL_NODE || x->def->graph != g || !elementwise(x->def) || cast->op != OP_Cast ||
			cast->graph != g || value_is_output(cast->out[0]) || x->type.layout != LAYOUT_PLAIN)
			continue;
		Value *wide = cast->out[0];
		value_replace(wide, y);
		y->type.dtype = wide->type.dtype;
		wide->type = x->type;
		wide->type.dtype = y->type.dtype;
		node_set_input(cast, 0, x);
		node_set_input(n, 0, wide);
		node_move(cast, g, n);
		lifted++;
	}
	return lifted;
}

static int fuse_graph(Module *m, PassCx *cx, Graph *g)
{
	int made = lift_casts(cx, g);

	for (Node *n = g->first; n;)
		n = elementwise(n) ? fuse_from(m, cx, n, &made) : n->next;
	return made;
}

bool pass_fuse(Module *m, PassCx *cx)
{
	for (int i = 0; i < m->nstage; i++) {
		Stage *s = m->stage[i];
		int made = fuse_graph(m, cx, s->forward) + fuse_graph(m, cx, s->backward);
		made += s->weight ? fuse_graph(m, cx, s->weight) : 0;
		if (!made)
			continue;
		find_loss(m, s->forward);
		list_kept(m, s);
	}
	cost_again(m, cx);
	return true;
}
