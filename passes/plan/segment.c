/* The forward graph as a row of segments.
 *
 * The main forward nodes (stages.c) in program order, or in another that keeps operands in front of their users (order.c), are
 * a sequence, and any prefix of it can be cut off: whatever is
 * made before the cut and used behind it is sent, once per stage that needs it. Between two library calls the
 * cheapest such place is taken (fewest live bytes, then the latest), so elementwise tails stay with the call they
 * follow. That leaves segments of one library call each, and a plan is a grouping of segments. */
#include "segment.h"
#include "stages.h"
#include "cuts.h"
#include "ir/analysis.h"

bool reads_weight(const Node *n)
{
	for (int i = 0; i < n->nin; i++) {
		const Value *v = n->in[i];
		while (v && v->kind == VAL_NODE && v->def->nin && v->def->mark == 0)
			v = v->def->in[0]; /* a transposed or reshaped weight */
		if (v && v->kind == VAL_PARAM && v->param->kind == PARAM_WEIGHT)
			return true;
	}
	return false;
}

const char *node_label(const Node *n)
{
	return n->loc.name && *n->loc.name ? n->loc.name : n->nout && n->out[0] ? n->out[0]->name : optab[n->op]->name;
}

/* Bytes that cross a cut before main node k, for every k: a value lives from behind its maker to its last user. */
static int64_t *live_bytes(Segments *g)
{
	int64_t *diff = NEWN(g->cx->scratch, int64_t, g->nnode + 2);

	for (int i = 0; i < g->nnode; i++)
		g->node[i]->stage = i; /* position, for the time being */
	for (int i = 0; i < g->nnode; i++)
		for (int o = 0; o < g->node[i]->nout; o++) {
			const Value *v = g->node[i]->out[o];
			int last = i;
			for (int u = 0; v && u < v->nuses; u++) {
				const Node *n = v->uses[u].node;
				if (n->phase == PHASE_FWD && n->mark && n->stage > last)
					last = n->stage;
			}
			if (v && last > i) {
				diff[i + 1] += value_bytes(v);
				diff[last + 1] -= value_bytes(v);
			}
		}
	for (int i = 1; i <= g->nnode; i++)
		diff[i] += diff[i - 1];
	for (int i = 0; i < g->nnode; i++)
		g->node[i]->stage = -1;
	return diff;
}

static int find_anchors(const Segments *g, int wanted, int *anchor)
{
	int n = 0;

	for (int i = 0; i < g->nnode; i++)
		if (optab[g->node[i]->op]->flags & OP_HEAVY)
			anchor[n++] = i;
	for (int i = 0; n < 2 && i < g->nnode; i++) { /* no library calls to speak of: what has weights */
		if (i == 0)
			n = 0;
		if (reads_weight(g->node[i]))
			anchor[n++] = i;
	}
	if (n >= wanted)
		return n;
	n = 0;
	for (int i = 0; i < g->nnode; i++)
		if (!(optab[g->node[i]->op]->flags & OP_VIEW))
			anchor[n++] = i;
	return n;
}

void segments_find(Segments *g, int wanted)
{
	segments_clear(g);
	g->nnode = main_nodes(g->m, g->cx->scratch, &g->node);
	order_nodes(g->cx->scratch, g->node, g->nnode, g->order);
	const int64_t *live = live_bytes(g);
	int *anchor = NEWN(g->cx->scratch, int, g->nnode);
	const int n = find_anchors(g, wanted, anchor);

	g->n = n > 0 ? n : 1;
	g->seg = NEWN(g->cx->scratch, Seg, g->n);
	for (int s = 0; s < g->n; s++)
		g->seg[s].name = n > 0 ? node_label(g->node[anchor[s]]) : "-";
	for (int s = 1; s < g->n; s++) {
		int at = anchor[s];
		for (int k = anchor[s] - 1; k > anchor[s - 1]; k--)
			if (live[k] < live[at])
				at = k;
		g->seg[s].first = g->seg[s - 1].end = at;
		g->seg[s].live = live[at];
	}
	g->seg[g->n - 1].end = g->nnode;
}

void segments_clear(const Segments *g)
{
	if (g->known)
		return;
	for (Node *k = g->m->graph->first; k; k = k->next)
		k->stage = -1;
}

void segments_known(Segments *g, int n)
{
	Node **main;
	int at = 0;

	g->known = true;
	spread_stages(g->m);
	g->nnode = main_nodes(g->m, g->cx->scratch, &main);
	g->node = NEWN(g->cx->scratch, Node *, g->nnode);
	g->n = n;
	g->seg = NEWN(g->cx->scratch, Seg, n);
	for (int s = 0; s < n; s++) {
		g->seg[s] = (Seg){ .first = at, .name = "-" };
		for (int i = 0; i < g->nnode; i++)
			if (main[i]->stage == s) {
				if (optab[main[i]->op]->flags & OP_HEAVY || g->seg[s].name[0] == '-')
					g->seg[s].name = node_label(main[i]);
				g->node[at++] = main[i];
			}
		g->seg[s].end = at;
	}
}

static void unmark(const Module *m)
{
	for (Node *n = m->graph->first; n; n = n->next)
		n->mark = 0;
}

void segments_assign(Segments *g, const int *cut, int n)
{
	Node **all;

	if (g->known) {
		unmark(g->m);
		return;
	}
	main_nodes(g->m, g->cx->scratch, &all); /* sets the marks again */
	for (int s = 0; s < n; s++) {
		const int end = s + 1 < n ? cut[s + 1] : g->n;
		for (int i = g->seg[cut[s]].first; i < g->seg[end - 1].end; i++)
			g->node[i]->stage = s;
	}
	spread_stages(g->m);
}

void segments_spread(Segments *g)
{
	int *each = NEWN(g->cx->scratch, int, g->n);

	for (int s = 0; s < g->n; s++)
		each[s] = s;
	segments_assign(g, each, g->n);
}

int list_cuts(Module *m, PassCx *cx, Cut **cut)
{
	Segments g = { .m = m, .cx = cx };
	double all = 0, time = 0;

	segments_find(&g, 0);
	segments_spread(&g);
	double *each = NEWN(cx->scratch, double, g.n);
	for (const Node *n = m->graph->first; n; n = n->next)
		if (n->phase != PHASE_UPDATE) {
			each[n->stage] += n->time;
			all += n->time;
		}
	segments_clear(&g);
	*cut = NEWN(m->arena, Cut, g.n);
	for (int s = 1; s < g.n; s++) {
		time += each[s - 1];
		(*cut)[s - 1] = (Cut){ g.node[g.seg[s].first], all > 0 ? time / all : 0, g.seg[s].live };
	}
	return g.n - 1;
}
