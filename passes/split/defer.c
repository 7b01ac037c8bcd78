/* defer: splits backwards for schedules that do so. B keeps what the gradients that
 * are sent to earlier stages need; everything else, above all the gradients of weights, becomes a graph of its own,
 * W, which runs when the schedule has time for it (Qi et al. 2023, "Zero bubble pipeline parallelism", section 2). The
 * first stage sends nothing back: its B waits for its messages, its W does the rest.
 *
 * What W reads of the forward or of B stays in the microbatch's slot until W. The gradient of a microbatch is made by W
 * alone, so that it can be added at once: where B makes one, W copies it.
 *
 * Reads the stages; writes Stage.weight, Stage.keep. */
#include <string.h>
#include "passes/common/plan.h"
#include "ir/analysis.h"
#include "passes/schedule/placement.h"
#include "split.h"

static void want(const Graph *g, const Node *n)
{
	for (int i = 0; i < n->nin; i++) {
		const Value *v = n->in[i];
		if (!v || v->kind != VAL_NODE || v->def->graph != g || v->def->mark)
			continue;
		v->def->mark = 1;
		want(g, v->def);
	}
}

/* Operands of Accumulate are values that W makes. */
static void own_gradients(Module *m, PassCx *cx, Stage *s)
{
	for (Node *n = s->update->first; n; n = n->next) {
		if (n->op != OP_Accumulate || value_root(n->in[0])->def->graph == s->weight)
			continue;
		Builder b = { .m = m, .g = s->weight, .loc = n->loc, .phase = PHASE_BWD, .stage = s->id, .d = cx->d };
		Node *copy = build(&b, OP_Sum, NULL, 1, &n->in[0], n->in[0]->name);
		node_set_input(n, 0, copy->out[0]);
	}
}

/* Marks what stays in B. */
static void mark_first_part(const Graph *g)
{
	for (Node *n = g->first; n; n = n->next)
		n->mark = n->op == OP_Send || n->op == OP_Recv;
	for (Node *n = g->first; n; n = n->next)
		if (n->op == OP_Send)
			want(g, n);
}

static bool read_later(const Value *v)
{
	for (int i = 0; i < v->nuses; i++) {
		const Node *u = v->uses[i].node;
		if (u->phase == PHASE_BWD && !u->mark)
			return true;
		if (u->mark && v->uses[i].index == 0 && (optab[u->op]->flags & OP_VIEW) && read_later(u->out[0]))
			return true;
	}
	return false;
}

int64_t deferred_bytes(const Stage *s)
{
	int64_t bytes = 0;

	mark_first_part(s->backward);
	for (const Node *n = s->backward->first; n; n = n->next)
		for (int i = 0; i < n->nout; i++)
			if (n->mark && n->op != OP_Recv && n->out[i] && !(optab[n->op]->flags & OP_VIEW) &&
				read_later(n->out[i]))
				bytes += (value_bytes(n->out[i]) + 63) / 64 * 64;
	for (Node *n = s->backward->first; n; n = n->next)
		n->mark = 0;
	return bytes;
}

static void defer(Module *m, PassCx *cx, Stage *s)
{
	Graph *g = s->backward;

	mark_first_part(g);
	s->weight = stage_graph_new(m, s, "weight");
	for (Node *n = g->first, *next; n; n = next) {
		next = n->next;
		if (!n->mark)
			node_move(n, s->weight, NULL);
		n->mark = 0;
	}
	own_gradients(m, cx, s);
	list_kept(m, s);
}

bool pass_defer(Module *m, PassCx *cx)
{
	const bool splits = schedule_splits(schedule_asked(m, cx));

	for (int i = 0; i < m->nstage && splits; i++)
		if (!m->stage[i]->weight)
			defer(m, cx, m->stage[i]);
	return true;
}
