/* Orders of the main forward nodes (stages.h) in which partition looks for cuts.
 *
 * A cut takes a set of nodes that holds all operands of its nodes (a down-set), and a plan is a chain of such sets. A chain is
 * the largest there is where the graph has no branches; where it has, prefixes of the file's order are few of the down-sets.
 * Each order here is a linear extension of the graph, so its prefixes are down-sets, and other ones: branch after branch, from the
 * first operand or from the last, all branches at one pace from the front or from the back, or what leaves the fewest bytes
 * alive next. Reads Node.mark (main_nodes) and Node.time; uses Node.stage for positions and leaves -1 there. */
#include <stdlib.h>
#include <string.h>
#include "segment.h"
#include "cuts.h"
#include "ir/analysis.h"

const char *const order_name[ORDERS] = { "file", "depth-first", "depth-last", "level", "late", "lean" };

static Node *maker(const Value *v)
{
	return v && v->kind == VAL_NODE && v->def->phase == PHASE_FWD && v->def->mark ? v->def : NULL;
}

static bool main_user(const Use *u) { return u->node->phase == PHASE_FWD && u->node->mark; }

/* ---- branch after branch: operands before their users, from every node that has no user, without recursion ---- */

typedef struct Depth {
	Node **to;
	int n;
	bool last;
	bool *done;
	Node **stack;
	int *at, top;
} Depth;

static void visit(Depth *d, Node *from)
{
	if (d->done[from->stage])
		return;
	d->done[from->stage] = true;
	d->stack[0] = from;
	d->at[0] = 0;
	for (d->top = 1; d->top;) {
		Node *n = d->stack[d->top - 1];
		const int i = d->at[d->top - 1]++;
		if (i == n->nin) {
			d->to[d->n++] = n;
			d->top--;
			continue;
		}
		Node *x = maker(n->in[d->last ? n->nin - 1 - i : i]);
		if (!x || d->done[x->stage])
			continue;
		d->done[x->stage] = true;
		d->stack[d->top] = x;
		d->at[d->top++] = 0;
	}
}

static bool ends(const Node *n)
{
	for (int o = 0; o < n->nout; o++)
		for (int u = 0; n->out[o] && u < n->out[o]->nuses; u++)
			if (main_user(&n->out[o]->uses[u]))
				return false;
	return true;
}

static void by_depth(Arena *a, Node **node, int n, bool last)
{
	Depth d = { NEWN(a, Node *, n), 0, last, NEWN(a, bool, n), NEWN(a, Node *, n), NEWN(a, int, n), 0 };

	for (int i = 0; i < n; i++) {
		Node *x = node[last ? n - 1 - i : i];
		if (ends(x))
			visit(&d, x);
	}
	memcpy(node, d.to, sizeof *node * (size_t)n);
}

/* ---- all branches at one pace: by the longest way of seconds from the front, or to the end ---- */

typedef struct Paced {
	double time;
	Node *node;
	int at;
} Paced;

static int sooner(const void *x, const void *y)
{
	const Paced *a = x, *b = y;

	return a->time < b->time ? -1 : a->time > b->time ? 1 : (a->at > b->at) - (a->at < b->at);
}

static void by_pace(Arena *a, Node **node, int n, bool late)
{
	Paced *p = NEWN(a, Paced, n);

	for (int k = 0; k < n; k++) {
		const int at = late ? n - 1 - k : k;
		const Node *x = node[at];
		double longest = 0;
		for (int i = 0; i < x->nin && !late; i++) {
			const Node *from = maker(x->in[i]);
			longest = from && p[from->stage].time > longest ? p[from->stage].time : longest;
		}
		for (int o = 0; o < x->nout && late; o++)
			for (int u = 0; x->out[o] && u < x->out[o]->nuses; u++) {
				const Use *to = &x->out[o]->uses[u];
				if (main_user(to) && -p[to->node->stage].time > longest)
					longest = -p[to->node->stage].time;
			}
		longest += x->time;
		p[at] = (Paced){ late ? -longest : longest, node[at], at };
	}
	qsort(p, (size_t)n, sizeof *p, sooner);
	for (int i = 0; i < n; i++)
		node[i] = p[i].node;
}

/* ---- the fewest bytes alive next; among equals what became ready last, so that branches are followed ---- */

typedef struct Lean {
	int *operands, *users;
	Node **ready;
	int nready;
} Lean;

/* What x adds to the bytes alive: its results, less the operands that it is the last to read. */
static int64_t adds(const Lean *l, const Node *x)
{
	int64_t bytes = 0;

	for (int o = 0; o < x->nout; o++)
		for (int u = 0; x->out[o] && u < x->out[o]->nuses; u++)
			if (main_user(&x->out[o]->uses[u])) {
				bytes += value_bytes(x->out[o]);
				break;
			}
	for (int i = 0; i < x->nin; i++) {
		const Node *from = maker(x->in[i]);
		bool again = false;
		for (int k = 0; k < i; k++)
			again |= x->in[k] == x->in[i];
		if (from && !again && l->users[from->stage] == 1)
			bytes -= value_bytes(x->in[i]);
	}
	return bytes;
}

static void take(Lean *l, const Node *x)
{
	for (int i = 0; i < x->nin; i++)
		if (maker(x->in[i]))
			l->users[x->in[i]->def->stage]--;
	for (int o = 0; o < x->nout; o++)
		for (int u = 0; x->out[o] && u < x->out[o]->nuses; u++) {
			const Use *to = &x->out[o]->uses[u];
			if (main_user(to) && --l->operands[to->node->stage] == 0)
				l->ready[l->nready++] = to->node;
		}
}

static void by_bytes(Arena *a, Node **node, int n)
{
	Lean l = { NEWN(a, int, n), NEWN(a, int, n), NEWN(a, Node *, n), 0 };
	Node **to = NEWN(a, Node *, n);

	for (int k = 0; k < n; k++)
		for (int i = 0; i < node[k]->nin; i++)
			if (maker(node[k]->in[i])) {
				l.operands[k]++;
				l.users[maker(node[k]->in[i])->stage]++;
			}
	for (int k = n - 1; k >= 0; k--)
		if (!l.operands[k])
			l.ready[l.nready++] = node[k];
	for (int k = 0; k < n; k++) {
		int best = l.nready - 1;
		int64_t least = adds(&l, l.ready[best]);
		for (int i = best - 1; i >= 0 && l.nready > 1; i--) {
			const int64_t bytes = adds(&l, l.ready[i]);
			if (bytes < least) {
				least = bytes;
				best = i;
			}
		}
		to[k] = l.ready[best];
		memmove(l.ready + best, l.ready + best + 1, sizeof *l.ready * (size_t)(l.nready - best - 1));
		l.nready--;
		take(&l, to[k]);
	}
	memcpy(node, to, sizeof *node * (size_t)n);
}

void order_nodes(Arena *a, Node **node, int n, Order order)
{
	for (int i = 0; i < n; i++)
		node[i]->stage = i;
	if (order == ORDER_DEPTH || order == ORDER_DEPTH_LAST)
		by_depth(a, node, n, order == ORDER_DEPTH_LAST);
	else if (order == ORDER_LEVEL || order == ORDER_LATE)
		by_pace(a, node, n, order == ORDER_LATE);
	else if (order == ORDER_LEAN)
		by_bytes(a, node, n);
	for (int i = 0; i < n; i++)
		node[i]->stage = -1;
}
