/* Which stage every node belongs to, once partition has cut the forward graph. Called by partition only.
 *
 * Forward nodes that compute something from activations ("main" nodes) are cut as a sequence. What depends only on
 * inputs, parameters and constants (masks, embeddings, reshaped labels, transposed weights) is computed where it is
 * first needed, so it never crosses a cut without need. Where no node is a call of the library (tables that are looked
 * up and joined), activations begin with what reads a parameter.
 *
 * A backward node goes where its forward node is. Sums of gradients go to the earliest stage that has a summand, so
 * one tensor crosses instead of several. At the end data must flow forwards in the forward phase and backwards in
 * the backward phase: a node that merging of equal nodes left in too early a stage moves to the later one. */
#include "stages.h"

static bool activation(const Value *v) { return v && v->def && v->def->phase == PHASE_FWD && v->def->mark; }

static bool reads_parameter(const Node *n)
{
	for (int i = 0; i < n->nin; i++)
		if (n->in[i] && n->in[i]->kind == VAL_PARAM && n->in[i]->param->kind == PARAM_WEIGHT)
			return true;
	return false;
}

int main_nodes(Module *m, Arena *a, Node ***list)
{
	int n = 0, cap = 0;
	bool heavy = false;

	*list = NULL;
	for (const Node *k = m->graph->first; k; k = k->next)
		heavy |= k->phase == PHASE_FWD && optab[k->op]->flags & OP_HEAVY;
	for (Node *k = m->graph->first; k; k = k->next) {
		if (k->phase != PHASE_FWD)
			continue;
		k->mark = heavy ? (optab[k->op]->flags & OP_HEAVY) != 0 : reads_parameter(k);
		for (int i = 0; i < k->nin; i++)
			k->mark |= activation(k->in[i]);
		if (k->mark)
			PUSH(a, *list, n, cap) = k;
	}
	return n;
}

static int max(int x, int y) { return x > y ? x : y; }
static int min(int x, int y) { return x < y ? x : y; }

/* The smallest stage among the users of n's outputs in the given phase; none: -1. */
static int first_user(const Node *n, Phase phase)
{
	int s = -1;

	for (int i = 0; i < n->nout; i++)
		for (int k = 0; n->out[i] && k < n->out[i]->nuses; k++) {
			const Node *u = n->out[i]->uses[k].node;
			if (u->phase == phase && u->stage >= 0)
				s = s < 0 ? u->stage : min(s, u->stage);
		}
	return s;
}

static int last_user(const Node *n, Phase phase)
{
	int s = -1;

	for (int i = 0; i < n->nout; i++)
		for (int k = 0; n->out[i] && k < n->out[i]->nuses; k++)
			if (n->out[i]->uses[k].node->phase == phase)
				s = max(s, n->out[i]->uses[k].node->stage);
	return s;
}

static int last_operand(const Node *n, Phase phase)
{
	int s = -1;

	for (int i = 0; i < n->nin; i++)
		if (n->in[i] && n->in[i]->def && n->in[i]->def->phase == phase)
			s = max(s, n->in[i]->def->stage);
	return s;
}

static int first_operand(const Node *n, Phase phase)
{
	int s = -1;

	for (int i = 0; i < n->nin; i++)
		if (n->in[i] && n->in[i]->def && n->in[i]->def->phase == phase)
			s = s < 0 ? n->in[i]->def->stage : min(s, n->in[i]->def->stage);
	return s;
}

static void place_forward(Graph *g)
{
	for (Node *n = g->last; n; n = n->prev)
		if (n->phase == PHASE_FWD && n->stage < 0)
			n->stage = first_user(n, PHASE_FWD);
	for (Node *n = g->first; n; n = n->next)
		if (n->phase == PHASE_FWD && n->stage >= 0)
			n->stage = max(n->stage, last_operand(n, PHASE_FWD));
}

static bool same_place(const Loc *x, const Loc *y)
{
	return x->node >= 0 ? x->node == y->node : x->node == y->node && x->name && x->name == y->name;
}

/* Text files say only from which ONNX node a backward node stems. */
static int stage_by_location(const Node *n)
{
	int s = -1;

	for (const Node *k = n->graph->first; k; k = k->next)
		if (k->phase == PHASE_FWD && same_place(&k->loc, &n->loc))
			s = max(s, k->stage);
	return s;
}

static void place_backward(Graph *g)
{
	for (Node *n = g->first; n; n = n->next) {
		if (n->phase != PHASE_BWD || n->stage >= 0)
			continue;
		const int dy = first_operand(n, PHASE_BWD);
		n->stage = n->fwd ? n->fwd->stage : -1;
		if (n->stage < 0) /* from text, or its forward node was merged with an equal one */
			n->stage = stage_by_location(n);
		if (n->stage < 0)
			n->stage = dy >= 0 ? dy : last_operand(n, PHASE_FWD);
		if ((n->op == OP_Add || n->op == OP_Sum) && dy > n->stage)
			n->stage = dy;
		n->stage = max(n->stage, 0);
	}
	for (Node *n = g->first; n; n = n->next) /* forward work that only a backward wants */
		if (n->phase == PHASE_FWD && n->stage < 0)
			n->stage = max(max(first_user(n, PHASE_BWD), last_operand(n, PHASE_FWD)), 0);
	for (Node *n = g->last; n; n = n->prev)
		if (n->phase == PHASE_BWD)
			n->stage = max(n->stage, max(last_user(n, PHASE_BWD), last_operand(n, PHASE_FWD)));
}

int first_holder(const Value *param)
{
	int s = -1;

	for (int i = 0; i < param->nuses; i++) {
		const Node *u = param->uses[i].node;
		if (u->phase != PHASE_UPDATE)
			s = s < 0 ? u->stage : min(s, u->stage);
	}
	return max(s, 0);
}

static void place_update(Graph *g)
{
	for (Node *n = g->first; n; n = n->next) {
		if (n->phase != PHASE_UPDATE || n->stage >= 0)
			continue;
		if (n->op == OP_RunningStat)
			n->stage = first_operand(n, PHASE_UPDATE);
		else if (optab[n->op]->flags & OP_UPDATE)
			n->stage = first_holder(n->in[0]);
		else
			n->stage = max(max(last_operand(n, PHASE_FWD), last_operand(n, PHASE_BWD)),
				first_operand(n, PHASE_UPDATE));
		n->stage = max(n->stage, 0);
	}
}

void spread_stages(Module *m)
{
	place_forward(m->graph);
	place_backward(m->graph);
	place_update(m->graph);
	for (Node *n = m->graph->first; n; n = n->next)
		n->mark = 0;
}
