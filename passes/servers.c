/* servers: parameters that hybrid gave to servers move there (Parallax sections 3.1 and 4.2, Figure 5). A server is
 * a process on a host of the plan; it is written down as a stage without forward and backward, behind the others,
 * whose update graph has the nodes that stood in the update of the stage that trains the parameter:
 *
 *     stage                                     server
 *       forward  Pull(@w, %ids) {key}
 *                %e = Gather(@w, %ids)
 *       update   %g.w = Accumulate(%d.w)        update  %g.w = Collect() {key, part, from}
 *                Push(%g.w) {key, part}                 @w <- SGD(@w, %g.w, %n)
 *
 * The stage's @w becomes a copy of the rows that the step pulled; optimizer state goes with the update. What is not
 * only looked up is pulled and pushed whole. A norm over all parameters (ClipNorm) spans both sides as it spans
 * stages.
 *
 * Parameters are spread by bytes, the largest first to the emptiest server: no server has more than the mean and one
 * parameter (PX-20).
 *
 * Reads Param.sync, the schedule; writes Module.stage, the schedule's devices, lists of parameters. */
#include <string.h>
#include "servers.h"

/* A parameter on its way. */
typedef struct Piece {
	const Travel *t;
	int      key, server;   /* server: among the servers */
	Map      moved;         /* what its gradient is there */
} Piece;

typedef struct Moving {
	Module *m;
	PassCx *cx;
	Piece  *piece; int npiece, cappiece;
	int     nserver;
	Stage **server;
	Map    *moved;          /* by server: what the count and the norm of a stage are there */
} Moving;

/* ---- where ---- */

/* The largest first, each to the server that has least; ties: the first. */
static void spread(Moving *x)
{
	int64_t *load = NEWN(x->cx->scratch, int64_t, x->nserver);
	bool *done = NEWN(x->cx->scratch, bool, x->npiece);

	for (int k = 0; k < x->npiece; k++) {
		int next = -1, to = 0;
		for (int i = 0; i < x->npiece; i++)
			if (!done[i] && (next < 0 || x->piece[i].t->bytes > x->piece[next].t->bytes))
				next = i;
		for (int s = 1; s < x->nserver; s++)
			to = load[s] < load[to] ? s : to;
		done[next] = true;
		x->piece[next].server = to;
		load[to] += x->piece[next].t->bytes;
	}
}

static void list_piece(Moving *x, const Travel *t, int key)
{
	Piece p = { .t = t, .key = key };

	map_init(&p.moved, x->cx->scratch, false);
	PUSH(x->cx->scratch, x->piece, x->npiece, x->cappiece) = p;
}

/* ---- the servers ---- */

static bool make_servers(Moving *x)
{
	Module *m = x->m;
	Schedule *s = m->schedule;
	int *host = NEWN(x->cx->scratch, int, s->ndevice + 1);
	const int hosts = server_hosts(m, x->cx->cluster, host);
	const int asked = x->cx->train ? (int)x->cx->train->servers : 0;

	if (!hosts)
		return diag_error(x->cx->d, FILELOC(x->cx->cluster->file), 431, "--comm %s needs a server; no host of the plan has the role "
			"server (nodes: roles)", x->cx->train->comm);
	x->nserver = asked ? asked : hosts;
	if (x->nserver > x->npiece)
		x->nserver = x->npiece;
	Stage **all = NEWN(m->arena, Stage *, m->nstage + x->nserver);
	memcpy(all, m->stage, sizeof *all * (size_t)m->nstage);
	m->stage = all;
	x->server = all + m->nstage;
	x->moved = NEWN(x->cx->scratch, Map, x->nserver);
	for (int i = 0; i < x->nserver; i++) {
		Stage *v = x->server[i] = NEW(m->arena, Stage);
		*v = (Stage){ .id = m->nstage + i, .server = true, .replicas = 1, .rank = s->ndevice + i, .inflight = 1,
			.entries = 1 };
		v->device = NEWN(m->arena, int, 1);
		v->device[0] = host[i % hosts];
		v->forward = stage_graph_new(m, v, "forward");
		v->backward = stage_graph_new(m, v, "backward");
		v->update = stage_graph_new(m, v, "update");
		map_init(&x->moved[i], x->cx->scratch, false);
	}
	m->nstage += x->nserver;
	return true;
}

/* A server's device does nothing but SYNC, in which it answers and adds, and UPDATE. */
static void extend_schedule(Moving *x)
{
	Schedule *s = x->m->schedule, was = *s;
	Arena *a = x->m->arena;
	const int n = s->nstage + x->nserver;

	s->replicas = NEWN(a, int, n);
	s->device = NEWN(a, int *, n);
	s->replica_of = NEWN(a, int *, n);
	s->inflight = NEWN(a, int, n);
	s->entries = NEWN(a, int, n);
	s->dev = NEWN(a, DeviceSchedule, s->ndevice + x->nserver);
	memcpy(s->replicas, was.replicas, sizeof *s->replicas * (size_t)was.nstage);
	memcpy(s->device, was.device, sizeof *s->device * (size_t)was.nstage);
	memcpy(s->replica_of, was.replica_of, sizeof *s->replica_of * (size_t)was.nstage);
	memcpy(s->inflight, was.inflight, sizeof *s->inflight * (size_t)was.nstage);
	memcpy(s->entries, was.entries, sizeof *s->entries * (size_t)was.nstage);
	memcpy(s->dev, was.dev, sizeof *s->dev * (size_t)was.ndevice);
	for (int i = 0; i < x->nserver; i++) {
		const int t = s->nstage++, rank = s->ndevice++;
		s->replicas[t] = s->inflight[t] = s->entries[t] = 1;
		s->device[t] = NEWN(a, int, 1);
		s->device[t][0] = rank;
		s->replica_of[t] = NEWN(a, int, s->nmicro);
		schedule_push(a, s, rank, (Action){ .kind = ACT_SYNC, .stage = t, .mb = -1 });
		schedule_push(a, s, rank, (Action){ .kind = ACT_UPDATE, .stage = t, .mb = -1 });
	}
}

/* ---- the update, there ---- */

static Builder at_server(Moving *x, const Piece *p, Loc loc)
{
	Stage *s = x->server[p->server];

	return (Builder){ .m = x->m, .g = s->update, .loc = loc, .phase = PHASE_UPDATE, .stage = s->id, .d = x->cx->d };
}

static Value *there(Moving *x, Piece *p, Value *v);

static Value *moved_node(Moving *x, Piece *p, const Value *v)
{
	const Node *n = v->def;
	Value **in = NEWN(x->cx->scratch, Value *, n->nin);

	for (int i = 0; i < n->nin; i++)
		in[i] = n->in[i] ? there(x, p, n->in[i]) : NULL;
	Builder b = at_server(x, p, n->loc);
	Node *copy = build(&b, n->op, n->attr, n->nin, in, v->name);
	return copy->out[v->index];
}

/* The sum of what all replicas push of this gradient: parts are numbered in the order in which the stage has them. */
static Value *collected(Moving *x, const Piece *p, const Value *sum)
{
	Builder b = at_server(x, p, sum->def->loc);
	Node *n = build(&b, OP_Collect, NULL, 0, NULL, sum->name);

	n->out[0]->type = p->t->w->type;
	attr_set_int(n, "key", p->key);
	attr_set_int(n, "part", sum->mark - 1);
	attr_set_int(n, "from", p->t->s->id);
	return n->out[0];
}

/* Does v come from gradients? Else it is the server's own: the count, the norm. */
static bool of_gradients(const Value *v)
{
	if (v->kind != VAL_NODE || v->def->op == OP_Accumulate)
		return v->kind == VAL_NODE;
	for (int i = 0; i < v->def->nin; i++)
		if (v->def->in[i] && of_gradients(v->def->in[i]))
			return true;
	return false;
}

/* What stands for v at the parameter's server. */
static Value *there(Moving *x, Piece *p, Value *v)
{
	if (v->kind != VAL_NODE)
		return v;
	Map *map = of_gradients(v) ? &p->moved : &x->moved[p->server];
	Value *got = map_get(map, v);
	if (!got) {
		got = v->def->op == OP_Accumulate ? collected(x, p, v) : moved_node(x, p, v);
		map_put(map, v, got);
	}
	return got;
}

static bool updates(const Node *n, const Value *w)
{
	return optab[n->op]->flags & OP_UPDATE && n->in[0] == w;
}

/* Numbers the parts of the gradient from 1, in the order of their sums. */
static int number_parts(Value *v, int n)
{
	if (v->kind != VAL_NODE)
		return n;
	if (v->def->op == OP_Accumulate) {
		v->mark = v->mark ? v->mark : ++n;
		return n;
	}
	for (int i = 0; i < v->def->nin; i++)
		if (v->def->in[i])
			n = number_parts(v->def->in[i], n);
	return n;
}

static void unmark(Value *v)
{
	if (v->kind != VAL_NODE)
		return;
	v->mark = 0;
	for (int i = 0; i < v->def->nin && v->def->op != OP_Accumulate; i++)
		if (v->def->in[i])
			unmark(v->def->in[i]);
}

/* The parts of w's gradient carry their numbers, from 1, between these two. */
static void mark_parts(const Travel *t)
{
	for (Node *n = t->s->update->first; n; n = n->next)
		if (updates(n, t->w))
			number_parts(n->in[gradient_operand(n)], 0);
}

static void unmark_parts(const Travel *t)
{
	for (Node *n = t->s->update->first; n; n = n->next)
		if (updates(n, t->w))
			unmark(n->in[gradient_operand(n)]);
}

static void list_param(Moving *x, Stage *s, Value *v)
{
	for (int i = 0; i < s->nparam; i++)
		if (s->param[i] == v)
			return;
	PUSH(x->m->arena, s->param, s->nparam, s->capparam) = v;
}

/* Copies the updates of one kind: squares come before anything that is clipped by them. */
static void move_updates(Moving *x, Piece *p, bool squares)
{
	mark_parts(p->t);
	for (Node *n = p->t->s->update->first; n; n = n->next) {
		if (!updates(n, p->t->w) || (n->op == OP_SquareSum) != squares)
			continue;
		Value **in = NEWN(x->cx->scratch, Value *, n->nin);
		for (int i = 0; i < n->nin; i++)
			in[i] = n->in[i] ? there(x, p, n->in[i]) : NULL;
		Builder b = at_server(x, p, n->loc);
		build(&b, n->op, n->attr, n->nin, in, NULL);
		for (int i = 0; i < n->nin; i++)
			if (in[i] && in[i]->kind == VAL_PARAM)
				list_param(x, x->server[p->server], in[i]);
	}
	unmark_parts(p->t);
}

/* ---- the stage, here ---- */

static bool is_sum(const Node *n)
{
	return n->op == OP_Accumulate || n->op == OP_Stack;
}

/* Behind the last sum. */
static Node *after_sums(const Stage *s)
{
	Node *at = s->update->first;

	for (Node *n = s->update->first; n; n = n->next)
		if (is_sum(n) || n->op == OP_Push)
			at = n->next;
	return at;
}

static void push(Moving *x, const Travel *t, int key)
{
	Stage *s = t->s;
	Node *at = after_sums(s);
	Builder b = { .m = x->m, .g = s->update, .before = at, .loc = FILELOC(x->m->file), .phase = PHASE_UPDATE, .stage = s->id,
		.d = x->cx->d };
	for (Node *n = s->update->first; n; n = n->next)
		if (n->op == OP_Accumulate && n->out[0]->mark) {
			Node *p = build(&b, OP_Push, NULL, 1, &n->out[0], NULL);
			attr_set_int(p, "key", key);
			attr_set_int(p, "part", n->out[0]->mark - 1);
		}
}

static void pull(Moving *x, const Travel *t, int key)
{
	Stage *s = t->s;
	Builder b = { .m = x->m, .g = s->forward, .before = s->forward->first, .phase = PHASE_FWD, .stage = s->id, .d = x->cx->d };

	b.loc = FILELOC(x->m->file);
	if (!t->rows)
		attr_set_int(build(&b, OP_Pull, NULL, 1, (Value *const[]){ t->w }, NULL), "key", key);
	for (Node *n = s->forward->first; n && t->rows; n = n->next)
		if (n->op == OP_Gather && n->in[0] == t->w) {
			b.before = n;
			b.loc = n->loc;
			attr_set_int(build(&b, OP_Pull, NULL, 2, n->in, NULL), "key", key);
		}
}

/* Update nodes of w, and what only they read. */
static void drop(Node *n)
{
	Value *in[MAXIN];
	const int nin = n->nin;

	for (int i = 0; i < nin; i++)
		in[i] = n->in[i];
	node_remove(n);
	for (int i = 0; i < nin; i++)
		if (in[i] && in[i]->kind == VAL_NODE && in[i]->def->op != OP_Accumulate && value_dead(in[i]))
			drop(in[i]->def);
}

static void leave(const Travel *t)
{
	for (Node *n = t->s->update->first, *next; n; n = next) {
		next = n->next;
		if (updates(n, t->w)) {
			drop(n);
			next = t->s->update->first;     /* what follows may be gone as well */
		}
	}
}

static void drop_states(Stage *s, const Value *w)
{
	int n = 0;

	for (int i = 0; i < s->nparam; i++)
		if (s->param[i]->param->of != w)
			s->param[n++] = s->param[i];
	s->nparam = n;
}

/* Sums that go to servers stand behind those that AllReduce joins, which is one stretch of memory. */
static void order_sums(Stage *s)
{
	Node *end = s->update->first;

	for (Node *n = s->update->first; n; n = n->next)
		end = is_sum(n) ? n->next : end;
	for (Node *n = s->update->first; n != end; n = n->next) {
		bool pushed = false;
		for (int i = 0; n->op == OP_Accumulate && i < n->out[0]->nuses; i++)
			pushed |= n->out[0]->uses[i].node->op == OP_Push;
		n->mark = pushed;
	}
	for (Node *n = s->update->first, *next; n != end; n = next) {
		next = n->next;
		if (n->mark)
			node_move(n, s->update, end);
		n->mark = 0;
	}
}

/* What the stage does without w: it pulls and pushes. */
static void rewrite_stage(Moving *x, const Travel *t, int key)
{
	mark_parts(t);
	push(x, t, key);
	unmark_parts(t);
	pull(x, t, key);
	leave(t);
	drop_states(t->s, t->w);
}

static void move_all(Moving *x)
{
	for (int i = 0; i < x->npiece; i++) {
		list_param(x, x->server[x->piece[i].server], x->piece[i].t->w);
		move_updates(x, &x->piece[i], true);
	}
	for (int i = 0; i < x->npiece; i++)
		move_updates(x, &x->piece[i], false);
	for (int i = 0; i < x->npiece; i++)
		rewrite_stage(x, x->piece[i].t, x->piece[i].key);
}

bool pass_servers(Module *m, PassCx *cx)
{
	Moving x = { .m = m, .cx = cx };
	int n, key = 0;
	Travel *t = travel_list(m, cx, &n);

	for (int i = 0; i < n; i++)
		if (t[i].w->param->sync == SYNC_PS)
			list_piece(&x, &t[i], key++);
	if (!x.npiece)
		return true;
	if (!m->schedule || (m->stage[m->nstage - 1]->server))
		return diag_error(cx->d, FILELOC(m->file), 410, m->schedule ? "servers has run on this module" :
			"servers needs a schedule; run schedule first");
	if (!make_servers(&x))
		return false;
	spread(&x);
	extend_schedule(&x);
	move_all(&x);
	for (int i = 0; i < m->nstage; i++)
		if (!m->stage[i]->server)
			order_sums(m->stage[i]);
	return true;
}
