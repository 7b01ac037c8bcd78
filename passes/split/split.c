/* split: takes the one graph apart into a forward, a backward and an update graph per stage.
 *
 * A value that another stage needs is sent once to each such stage, straight there, whatever lies between (skip
 * connections): Send at the end of the maker's graph, Recv at the start of the user's graph, joined by a channel
 * number that is unique in the plan. Activations go to later stages in the forward graphs, gradients to earlier
 * ones in the backward graphs. Graph inputs are not sent; each stage reads those that it needs.
 *
 * A tied parameter has a copy in every stage that uses it, and its update is repeated there. The stages' gradient
 * parts meet through Broadcast in the update graphs: pure copying, so that each holder adds the same parts in the same
 * order as one device would.
 *
 * Reads Node.stage and the plan; writes Module.stage. Forward values that a backward of the same stage reads are
 * listed in Stage.keep. */
#include <string.h>
#include "passes/common/plan.h"
#include "ir/analysis.h"
#include "passes/schedule/placement.h"
#include "split.h"

typedef struct Splitter {
	Module *m;
	PassCx *cx;
	int n;       /* stages */
	int channel; /* next free number */
	int nrank;
	int shared;      /* broadcasts so far */
	int *first_rank; /* by stage: rank of its replica 0 */
	Map *repeated;   /* by stage: update values that have a copy there */
} Splitter;

static Builder builder(Splitter *sp, Graph *g, Node *before, Phase phase, int stage, Loc loc)
{
	return (Builder){
		.m = sp->m, .g = g, .before = before, .loc = loc, .phase = phase, .stage = stage, .d = sp->cx->d
	};
}

static Graph *graph_of(const Stage *s, Phase p)
{
	return p == PHASE_FWD ? s->forward : p == PHASE_BWD ? s->backward : s->update;
}

/* ---- stages ---- */

/* Text files do not carry the plan: then the replicas, and devices by rank, are those of --plan, a file's too, or one per
 * stage. */
static bool asked_for(Splitter *sp, int **replicas, int *n, const int **device)
{
	const Training *t = sp->cx->train;
	const GivenPlan *given = t ? t->plan.given : NULL;

	*device = NULL;
	if (!given)
		return plan_parse(sp->cx->scratch, t ? t->plan.replicas : NULL, replicas, n, sp->cx->d);
	*replicas = given->replicas;
	*n = given->n;
	*device = given->n == sp->n ? given->device : NULL;
	return true;
}

static bool make_stages(Splitter *sp)
{
	Module *m = sp->m;
	const Plan *plan = sp->cx->plan && sp->cx->plan->nstage ? sp->cx->plan : NULL;
	Placement at;
	int *asked = NULL, nasked = 0;
	const int *device = plan ? plan->device : NULL;

	for (Node *n = m->graph->first; n; n = n->next)
		sp->n = n->stage >= sp->n ? n->stage + 1 : sp->n;
	if (plan && plan->nstage > sp->n)
		sp->n = plan->nstage;
	if (!plan && !asked_for(sp, &asked, &nasked, &device))
		return false;
	m->nstage = sp->n;
	m->stage = NEWN(m->arena, Stage *, sp->n);
	int *replicas = NEWN(sp->cx->scratch, int, sp->n);
	for (int i = 0; i < sp->n; i++)
		replicas[i] = plan ? plan->stage[i].replicas : nasked == sp->n ? asked[i] : 1;
	if (!plan_place(sp->cx->scratch, schedule_asked(m, sp->cx), sp->n, replicas, &at, sp->cx->d))
		return false;
	sp->nrank = plan && plan->rank ? plan->ndevice : at.ndevice;
	sp->first_rank = plan && plan->rank ? plan->rank : at.rank;
	for (int i = 0; i < sp->n; i++) {
		Stage *s = m->stage[i] = NEW(m->arena, Stage);
		s->id = i;
		s->replicas = replicas[i];
		s->rank = sp->first_rank[i];
		s->device = NEWN(m->arena, int, s->replicas);
		for (int r = 0; r < s->replicas; r++)
			s->device[r] = device ? device[sp->first_rank[i] + r] : sp->first_rank[i] + r;
		s->inflight = s->entries = 1;
		s->forward = stage_graph_new(m, s, "forward");
		s->backward = stage_graph_new(m, s, "backward");
		s->update = stage_graph_new(m, s, "update");
	}
	return true;
}

/* Moves the uses of v in stage t to neu (only those of nodes that already lie in their stage's graphs). */
static void redirect(Value *v, int t, Value *neu)
{
	for (int i = v->nuses - 1; i >= 0; i--) {
		const Use u = v->uses[i];
		if (u.node->stage == t && u.node->op != OP_Send)
			node_set_input(u.node, u.index, neu);
	}
}

static bool needed_in(const Value *v, int t)
{
	for (int i = 0; i < v->nuses; i++)
		if (v->uses[i].node->stage == t && v->uses[i].node->op != OP_Send)
			return true;
	return false;
}

static void give_inputs(Splitter *sp, const Graph *g)
{
	for (int i = 0; i < g->nin; i++)
		for (int t = 0; t < sp->n; t++) {
			Value *v = g->in[i];
			if (!needed_in(v, t))
				continue;
			Value *in = graph_input(sp->m->stage[t]->forward, v->name, v->type);
			in->batch_axis = v->batch_axis;
			in->index_range = v->index_range;
			in->is_label = v->is_label;
			in->ignore_index = v->ignore_index;
			in->masked = v->masked;
			in->presence = v->presence;
			redirect(v, t, in);
		}
}

/* ---- crossing values ---- */

static void cross(Splitter *sp, Value *v, Node *maker, int t)
{
	const Phase phase = maker->phase;
	Stage *from = sp->m->stage[maker->stage], *to = sp->m->stage[t];
	Builder bs = builder(sp, graph_of(from, phase), NULL, phase, from->id, maker->loc);
	Node *at = graph_of(to, phase)->first;

	while (at && at->op == OP_Recv) /* receives stand first, in the order of their channels */
		at = at->next;
	Builder br = builder(sp, graph_of(to, phase), at, phase, t, maker->loc);
	Node *s = build(&bs, OP_Send, NULL, 1, &v, NULL);
	attr_set_int(s, "to", t);
	attr_set_int(s, "channel", sp->channel);
	Node *r = build(&br, OP_Recv, NULL, 0, NULL, v->name);
	attr_set_int(r, "from", from->id);
	attr_set_int(r, "channel", sp->channel++);
	r->out[0]->type = v->type;
	redirect(v, t, r->out[0]);
}

static bool cross_values(Splitter *sp, Phase phase)
{
	for (int s = 0; s < sp->n; s++) {
		const Graph *g = graph_of(sp->m->stage[s], phase);
		for (Node *n = g->first; n; n = n->next)
			for (int o = 0; o < n->nout; o++)
				for (int t = 0; t < sp->n; t++) {
					if (t == s || !n->out[o] || n->op == OP_Recv || !needed_in(n->out[o], t))
						continue;
					if (phase == PHASE_FWD ? t < s : t > s)
						return diag_error(sp->cx->d, n->loc, 411,
							"value '%s' of stage %d is needed by stage %d: data would flow against the pipeline",
							n->out[o]->name, s, t);
					cross(sp, n->out[o], n, t);
				}
	}
	return true;
}

/* ---- the update ---- */

static bool holds(const Value *param, int t)
{
	for (int i = 0; i < param->nuses; i++)
		if (param->uses[i].node->phase != PHASE_UPDATE && param->uses[i].node->stage == t)
			return true;
	return false;
}

/* What stage t's copy of an update reads in place of v: sums and the total are repeated there, accumulated parts are
 * read as they are (share_parts sends them). */
static Value *repeat_value(Splitter *sp, Value *v, int t, Node *before)
{
	Node *n = v->def;
	Value *got = map_get(&sp->repeated[t], v);

	if (got)
		return got;
	if (!n || n->phase != PHASE_UPDATE || n->stage == t || n->op == OP_Accumulate)
		return v;
	Value **in = NEWN(sp->cx->scratch, Value *, n->nin);
	for (int i = 0; i < n->nin; i++)
		in[i] = repeat_value(sp, n->in[i], t, before);
	Builder b = builder(sp, sp->m->graph, before, PHASE_UPDATE, t, n->loc);
	got = build(&b, n->op, n->attr, n->nin, in, v->name)->out[0];
	map_put(&sp->repeated[t], v, got);
	return got;
}

/* Every stage has its own Total, and its own update of each parameter that it holds. */
static void repeat_updates(Splitter *sp)
{
	sp->repeated = NEWN(sp->cx->scratch, Map, sp->n);
	for (int t = 0; t < sp->n; t++)
		map_init(&sp->repeated[t], sp->cx->scratch, false);
	for (Node *n = sp->m->graph->first, *next; n; n = next) {
		next = n->next;
		if (!(optab[n->op]->flags & OP_UPDATE))
			continue;
		for (int t = sp->n - 1; t >= 0; t--) {
			if (t != n->stage && !holds(n->in[0], t))
				continue;
			Node *before = t == n->stage ? n : next;
			Value **in = NEWN(sp->cx->scratch, Value *, n->nin);
			for (int i = 0; i < n->nin; i++)
				in[i] = n->in[i] ? repeat_value(sp, n->in[i], t, before) : NULL;
			if (t != n->stage) {
				Builder b = builder(sp, sp->m->graph, before, PHASE_UPDATE, t, n->loc);
				build(&b, n->op, n->attr, n->nin, in, NULL);
				continue;
			}
			for (int i = 0; i < n->nin; i++)
				if (n->in[i] != in[i])
					node_set_input(n, i, in[i]);
		}
	}
}

/* Operations that begin an update graph: what the microbatches left, and what all stages have in common. */
static bool begins_update(const Node *n)
{
	return n->op == OP_Accumulate || n->op == OP_Stack || n->op == OP_Total || n->op == OP_AllReduce ||
	       n->op == OP_Broadcast;
}

static Node *broadcast(Splitter *sp, Value *v, int owner, int t, Ints ranks)
{
	int root = 0;

	Graph *g = sp->m->stage[t]->update;
	Node *at = g->first;

	while (at && begins_update(at))
		at = at->next;
	Builder b = builder(sp, g, at, PHASE_UPDATE, t, v->def->loc);
	Node *n = build(&b, OP_Broadcast, NULL, t == owner, &v, v->name);
	while (ranks.v[root] != sp->first_rank[owner])
		root++;
	attr_set_int(n, "root", root);
	attr_set_int(n, "number", sp->shared);
	attr_set_ints(n, "ranks", ranks.n, ranks.v);
	n->out[0]->type = v->type;
	return n;
}

/* The parts of a tied parameter's gradient, in the module's order: all stages do their collectives in one order. */
static void share_part(Splitter *sp, Value *v)
{
	const int owner = v->def->stage;
	int64_t *rank = NEWN(sp->cx->scratch, int64_t, sp->nrank);
	bool *takes = NEWN(sp->cx->scratch, bool, sp->nrank);
	Ints ranks = { 0, rank };
	bool shared = false;

	for (int t = 0; t < sp->n; t++)
		shared |= t != owner && needed_in(v, t);
	if (!shared)
		return;
	for (int t = 0; t < sp->n; t++)
		for (int r = 0; (t == owner || needed_in(v, t)) && r < sp->m->stage[t]->replicas; r++)
			takes[sp->first_rank[t] + r] = true;
	for (int r = 0; r < sp->nrank; r++)
		if (takes[r])
			rank[ranks.n++] = r;
	for (int t = 0; t < sp->n; t++) {
		if (t != owner && !needed_in(v, t))
			continue;
		Node *n = broadcast(sp, v, owner, t, ranks);
		for (int i = v->nuses - 1; i >= 0; i--)
			if (v->uses[i].node->stage == t && v->uses[i].node != n)
				node_set_input(v->uses[i].node, v->uses[i].index, n->out[0]);
	}
	sp->shared++;
}

/* An Accumulate's operand lies in the struct of gradients, so it must be a value of the backward graph that nothing
 * else keeps elsewhere: not received, sent, made by the forward, a constant, or summed under another name. */
static void own_operand(Splitter *sp, Node *acc)
{
	Value *root = acc->in[0];
	bool shared = false;

	while (root->def && (optab[root->def->op]->flags & OP_VIEW))
		root = root->def->in[0];
	for (Value *v = acc->in[0];; v = v->def->in[0]) {
		for (int i = 0; i < v->nuses; i++)
			shared |= v->uses[i].node->op == OP_Send;
		if (v == root)
			break;
	}
	if (root->kind == VAL_NODE && root->def->phase == PHASE_BWD && root->def->op != OP_Recv && !root->mark &&
		!shared) {
		root->mark = 1;
		return;
	}
	Stage *s = sp->m->stage[acc->stage];
	Node *maker = acc->in[0]->def; /* behind it: the copy is no reader of what other replicas are adding to */
	Node *before = maker && maker->graph == s->backward ? maker->next : NULL;
	Builder b = builder(sp, s->backward, before, PHASE_BWD, s->id, acc->loc);
	Node *copy = build(&b, OP_Sum, NULL, 1, &acc->in[0], acc->in[0]->name);
	node_set_input(acc, 0, copy->out[0]);
}

static void own_operands(Splitter *sp)
{
	for (int t = 0; t < sp->n; t++)
		for (Node *n = sp->m->stage[t]->update->first; n; n = n->next)
			if (n->op == OP_Accumulate)
				own_operand(sp, n);
	for (int t = 0; t < sp->n; t++)
		for (Node *n = sp->m->stage[t]->backward->first; n; n = n->next)
			for (int i = 0; i < n->nout; i++)
				if (n->out[i])
					n->out[i]->mark = 0;
}

/* ---- params, keep ---- */

static void list_params(Splitter *sp)
{
	Module *m = sp->m;

	for (int i = 0; i < m->nparam; i++)
		for (int t = 0; t < sp->n; t++)
			if (needed_in(m->param[i], t)) {
				Stage *s = m->stage[t];
				PUSH(m->arena, s->param, s->nparam, s->capparam) = m->param[i];
			}
}

/* Nodes to their graphs: first what begins an update graph, so that sharing has one place to go. */
static Value **move_nodes(Splitter *sp, int *nparts)
{
	Graph *g = sp->m->graph;
	Value **part = NULL;
	int cap = 0;

	for (int round = 0; round < 2; round++)
		for (Node *n = g->first, *next; n; n = next) {
			next = n->next;
			if (round == 0 && n->phase == PHASE_UPDATE && !begins_update(n))
				continue;
			if (n->op == OP_Accumulate)
				PUSH(sp->cx->scratch, part, *nparts, cap) = n->out[0];
			node_move(n, graph_of(sp->m->stage[n->stage], n->phase), NULL);
		}
	return part;
}

bool pass_split(Module *m, PassCx *cx)
{
	Splitter sp = { .m = m, .cx = cx };
	int nparts = 0;

	if (!m->graph)
		return diag_error(cx->d, FILELOC(m->file), 410, "this module is split already");
	for (const Node *n = m->graph->first; n; n = n->next)
		if (n->stage < 0)
			return diag_error(
				cx->d, n->loc, 410, "split needs a stage for every node; run partition first");
	find_loss(m, m->graph);
	if (!make_stages(&sp))
		return false;
	repeat_updates(&sp);
	Graph *whole = m->graph;
	Value **part = move_nodes(&sp, &nparts);
	give_inputs(&sp, whole);
	if (!cross_values(&sp, PHASE_FWD) || !cross_values(&sp, PHASE_BWD))
		return false;
	for (int i = 0; i < nparts; i++)
		share_part(&sp, part[i]);
	own_operands(&sp);
	list_params(&sp);
	for (int t = 0; t < sp.n; t++)
		list_kept(m, m->stage[t]);
	if (m->loss && m->loss->def)
		graph_output(m->stage[m->loss->def->stage]->forward, m->loss);
	m->graph = NULL;
	unscale(m, cx->train);
	return true;
}
