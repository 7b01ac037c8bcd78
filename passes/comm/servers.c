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
 * The stage's @w becomes a copy of the rows that the step pulled; optimizer state goes with the update, and the parts of a
 * gradient are added where they are collected. What is not only looked up is pulled and pushed whole.
 *
 * Operations between the sum and the update (a norm over all parameters, clipping, what a user put there) stay at first
 * where they are, with the devices that train; opau.c looks at them:
 *
 *       update   %a = Fetch(@w) {key}           update  Give(%g.w) {key, from}
 *                SquareSum(@w, %a)
 *                %m = ClipNorm(%n)
 *                %c = Mul(%a, 1 / %m)
 *                Return(%c) {key}                       %b = Take(@w) {key, from}
 *                                                       @w <- SGD(@w, %b, 1)
 *
 * A table that tables.c partitioned is here several parameters, each the rows of one piece: @w.64 {whole=@w, row=64}, with
 * optimizer state of its own, at a server of its own. Its key is the table's; Collect, Give and Take say the piece's row.
 *
 * Reads Param.sync, the schedule; writes Module.stage, the schedule's devices, lists of parameters. */
#include <string.h>
#include "servers.h"
#include "ir/analysis.h"

/* A parameter on its way, or some rows of it. */
typedef struct Piece {
	const Travel *t;
	int key, server;   /* server: among the servers */
	int64_t row, rows; /* 0 rows: all */
	int more;          /* pieces of the same table behind this one */
	Map moved;         /* what its gradient is there; of a table in pieces, what its parameters are */
} Piece;

typedef struct Moving {
	Module *m;
	PassCx *cx;
	Piece *piece;
	int npiece, cappiece;
	int nserver;
	Stage **server;
	Map *moved; /* by server: what the count and the norm of a stage are there */
} Moving;

/* ---- where ---- */

static int64_t bytes_of(const Piece *p) { return p->rows ? p->t->bytes / p->t->w->type.dim[0] * p->rows : p->t->bytes; }

/* Each piece's server; devices of the servers, NULL after a diagnostic. */
static int *spread(Moving *x)
{
	Held *held = NEWN(x->cx->scratch, Held, x->npiece);

	for (int i = 0; i < x->npiece; i++)
		held[i] = (Held){ x->piece[i].t->w, bytes_of(&x->piece[i]), -1 };
	int *device = servers_spread(x->m, x->cx, held, x->npiece, &x->nserver);
	for (int i = 0; i < x->npiece; i++)
		x->piece[i].server = held[i].server;
	return device;
}

/* Of the parameter, and of the time that its update takes. */
static double share_of(const Piece *p) { return p->rows ? (double)p->rows / (double)p->t->w->type.dim[0] : 1; }

static void list_pieces(Moving *x, const Travel *t, int key)
{
	const int n = t->w->param->pieces ? t->w->param->pieces : 1;

	for (int i = 0; i < n; i++) {
		Piece p = { .t = t, .key = key, .more = n - 1 - i };
		if (n > 1)
			table_piece(t->w, n, i, &p.row, &p.rows);
		map_init(&p.moved, x->cx->scratch, false);
		PUSH(x->cx->scratch, x->piece, x->npiece, x->cappiece) = p;
	}
}

/* ---- the servers ---- */

static bool make_servers(Moving *x)
{
	Module *m = x->m;
	Schedule *s = m->schedule;
	const int *device = spread(x);

	if (!device)
		return false;
	Stage **all = NEWN(m->arena, Stage *, m->nstage + x->nserver);
	memcpy(all, m->stage, sizeof *all * (size_t)m->nstage);
	m->stage = all;
	x->server = all + m->nstage;
	x->moved = NEWN(x->cx->scratch, Map, x->nserver);
	for (int i = 0; i < x->nserver; i++) {
		Stage *v = x->server[i] = NEW(m->arena, Stage);
		*v = (Stage){ .id = m->nstage + i,
			.server = true,
			.replicas = 1,
			.rank = s->ndevice + i,
			.inflight = 1,
			.entries = 1 };
		v->device = NEWN(m->arena, int, 1);
		v->device[0] = device[i];
		v->forward = stage_graph_new(m, v, "forward");
		v->backward = stage_graph_new(m, v, "backward");
		v->update = stage_graph_new(m, v, "update");
		map_init(&x->moved[i], x->cx->scratch, false);
	}
	m->nstage += x->nserver;
	return true;
}

/* A server's device does nothing but SYNC, in which it answers and adds, and UPDATE; asynchronously it updates meanwhile. */
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
		if (!served_async(x->cx->train))
			schedule_push(a, s, rank, (Action){ .kind = ACT_UPDATE, .stage = t, .mb = -1 });
	}
}

/* ---- the update, there ---- */

static Builder at_server(Moving *x, const Piece *p, Loc loc)
{
	Stage *s = x->server[p->server];

	return (Builder){ .m = x->m, .g = s->update, .loc = loc, .phase = PHASE_UPDATE, .stage = s->id, .d = x->cx->d };
}

/* What stands for v at the parameter's server: parts of the gradient are collected there, and added as they were here. */
static Value *there(Moving *x, Piece *p, Value *v);

/* The piece's own of a parameter or of optimizer state. */
static Value *own(Moving *x, Piece *p, Value *v)
{
	Value *got = p->rows ? map_get(&p->moved, v) : v;
	const Param *all = v->param;
	Type t = v->type;

	if (got)
		return got;
	t.dim[0] = p->rows;
	got = module_param(x->m, arena_printf(x->cx->scratch, "%s.%lld", v->name, (long long)p->row), t, all->kind);
	*got->param = *all;
	got->param->pieces = 0;
	got->param->whole = v;
	got->param->row = p->row;
	got->param->onnx_name = all->onnx_name ? all->onnx_name : v->name;
	got->param->of = all->of ? own(x, p, all->of) : NULL;
	if (all->data)
		got->param->data = (const char *)all->data + p->row * (type_bytes(&v->type) / v->type.dim[0]);
	map_put(&p->moved, v, got);
	return got;
}

static void say_row(const Piece *p, Node *n)
{
	if (p->rows)
		attr_set_int(n, "row", p->row);
}

static Value *moved_node(Moving *x, Piece *p, const Value *v)
{
	const Node *n = v->def;
	Value **in = NEWN(x->cx->scratch, Value *, n->nin);

	for (int i = 0; i < n->nin; i++)
		in[i] = n->in[i] ? there(x, p, n->in[i]) : NULL;
	Builder b = at_server(x, p, n->loc);
	Node *copy = build(&b, n->op, n->attr, n->nin, in, v->name);
	copy->time = n->time * share_of(p);
	return copy->out[v->index];
}

/* The sum of what all replicas push of this gradient: parts are numbered in the order in which the stage has them. */
static Value *collected(Moving *x, const Piece *p, const Value *sum)
{
	Builder b = at_server(x, p, sum->def->loc);
	Node *n = build(&b, OP_Collect, NULL, 0, NULL, sum->name);

	n->out[0]->type = p->t->w->type;
	if (p->rows)
		n->out[0]->type.dim[0] = p->rows;
	say_row(p, n);
	attr_set_int(n, "key", p->key);
	attr_set_int(n, "part", sum->mark - 1);
	attr_set_int(n, "from", p->t->s->id);
	attr_set_str(n, "cast", p->t->push ? p->t->push : "");
	return n->out[0];
}

static Value *there(Moving *x, Piece *p, Value *v)
{
	if (v->kind != VAL_NODE)
		return v->kind == VAL_PARAM ? own(x, p, v) : v;
	Value *got = map_get(&p->moved, v);
	if (!got) {
		got = v->def->op == OP_Accumulate ? collected(x, p, v) : moved_node(x, p, v);
		map_put(&p->moved, v, got);
	}
	return got;
}

static bool updates(const Node *n, const Value *w) { return optab[n->op]->flags & OP_UPDATE && n->in[0] == w; }

/* The sum that v is made of. */
static Value *aggregate_of(Value *v)
{
	if (v->kind != VAL_NODE || value_parts(v, OP_Accumulate))
		return v->kind == VAL_NODE ? v : NULL;
	for (int i = 0; i < v->def->nin; i++) {
		Value *sum = v->def->in[i] ? aggregate_of(v->def->in[i]) : NULL;
		if (sum)
			return sum;
	}
	return NULL;
}

/* Numbers the parts of the gradient from 1, in the order of their sums. */
static int number_parts(Value *v, int n)
{
	if (v->def->op == OP_Accumulate) {
		v->mark = v->mark ? v->mark : ++n;
		return n;
	}
	for (int i = 0; i < v->def->nin; i++)
		n = number_parts(v->def->in[i], n);
	return n;
}

static void unmark(Value *v)
{
	v->mark = 0;
	for (int i = 0; i < v->def->nin && v->def->op != OP_Accumulate; i++)
		unmark(v->def->in[i]);
}

static void list_param(Moving *x, Stage *s, Value *v)
{
	for (int i = 0; i < s->nparam; i++)
		if (s->param[i] == v)
			return;
	PUSH(x->m->arena, s->param, s->nparam, s->capparam) = v;
}

/* ---- the stage, here ---- */

static bool is_sum(const Node *n) { return n->op == OP_Accumulate || n->op == OP_Stack; }

/* Behind the last sum, and what is done with it. */
static Node *after_sums(const Stage *s)
{
	Node *at = s->update->first;

	for (Node *n = s->update->first; n; n = n->next)
		if (is_sum(n) || n->op == OP_Push || n->op == OP_Fetch)
			at = n->next;
	return at;
}

static Builder at_stage(const Moving *x, const Travel *t, Node *before)
{
	return (Builder){ .m = x->m,
		.g = t->s->update,
		.before = before,
		.loc = FILELOC(x->m->file),
		.phase = PHASE_UPDATE,
		.stage = t->s->id,
		.d = x->cx->d };
}

static void push(Moving *x, const Travel *t, int key)
{
	Builder b = at_stage(x, t, after_sums(t->s));

	for (Node *n = t->s->update->first; n; n = n->next)
		if (n->op == OP_Accumulate && n->out[0]->mark) {
			Node *p = build(&b, OP_Push, NULL, 1, &n->out[0], NULL);
			attr_set_int(p, "key", key);
			attr_set_int(p, "part", n->out[0]->mark - 1);
		}
}

static void say_pull(Node *n, const Travel *t, int key)
{
	attr_set_int(n, "key", key);
	attr_set_str(n, "cast", t->pull ? t->pull : "");
}

static void pull(Moving *x, const Travel *t, int key)
{
	Stage *s = t->s;
	Builder b = { .m = x->m,
		.g = s->forward,
		.before = s->forward->first,
		.phase = PHASE_FWD,
		.stage = s->id,
		.d = x->cx->d };

	b.loc = FILELOC(x->m->file);
	if (!t->rows)
		say_pull(build(&b, OP_Pull, NULL, 1, (Value *const[]){ t->w }, NULL), t, key);
	for (Node *n = s->forward->first; n && t->rows; n = n->next)
		if (n->op == OP_Gather && n->in[0] == t->w) {
			b.before = n;
			b.loc = n->loc;
			say_pull(build(&b, OP_Pull, NULL, 2, n->in, NULL), t, key);
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
		n->mark = n->op == OP_Accumulate && value_feeds(n->out[0], OP_Push);
	}
	for (Node *n = s->update->first, *next; n != end; n = next) {
		next = n->next;
		if (n->mark)
			node_move(n, s->update, end);
		n->mark = 0;
	}
}

/* ---- the gradient's way back ---- */

static Node *update_of(const Travel *t)
{
	for (Node *n = t->s->update->first; n; n = n->next)
		if (updates(n, t->w) && n->op != OP_SquareSum)
			return n;
	bug("nothing updates %s", t->w->name);
}

/* Does something read the sum before the update, or is it divided by anything but the count? */
static bool between(const Node *update, const Value *sum)
{
	int read = 0;

	for (int i = 0; i < sum->nuses; i++)
		read += sum->uses[i].node->op != OP_Push;
	return read > 1 || update->in[gradient_operand(update)] != sum ||
	       update->in[update->nin - 1]->def->op != OP_Total;
}

/* 1 / n: with a product it is how an update divides, to the bit. */
static Value *inverse_of(Builder *b, Value *n)
{
	for (int i = 0; i < n->nuses; i++)
		if (n->uses[i].node->op == OP_Div && n->uses[i].index == 1)
			return n->uses[i].node->out[0];
	return mk_binary(b, OP_Div, mk_scalar(b, n->type.dtype, 1), n);
}

static void give(Moving *x, Piece *p, const Node *update, Value *sum)
{
	Builder b = at_server(x, p, update->loc);
	Node *n = build(&b, OP_Give, NULL, 1, (Value *const[]){ there(x, p, sum) }, NULL);

	attr_set_int(n, "key", p->key);
	attr_set_int(n, "from", p->t->s->id);
	say_row(p, n);
}

/* Those operations stand where they stood: the stage has the sum sent and gives back what it makes of it. */
static void leave_between(Moving *x, Piece *p, Node *update, Value *sum)
{
	const Travel *t = p->t;

	for (int i = 0; i <= p->more; i++)
		give(x, p + i, update, sum);
	Builder b = at_stage(x, t, after_sums(t->s));
	Node *fetch = build(&b, OP_Fetch, NULL, 1, (Value *const[]){ t->w }, "fetched");
	value_rename(b.g, fetch->out[0], arena_printf(x->cx->scratch, "all.%s", t->w->name));
	attr_set_int(fetch, "key", p->key);
	for (int i = sum->nuses - 1; i >= 0; i--) {
		const Use u = sum->uses[i];
		if (u.node->op != OP_Push)
			node_set_input(u.node, u.index, fetch->out[0]);
	}
	if (value_dead(sum) && sum->def->op != OP_Accumulate)
		node_drop(sum->def);
	b = at_stage(x, t, update);
	Value *made = update->in[gradient_operand(update)], *n = update->in[update->nin - 1];
	if (n->def && n->def->op != OP_Total)
		made = mk_binary(&b, OP_Mul, made, inverse_of(&b, n));
	attr_set_int(build(&b, OP_Return, NULL, 1, &made, NULL), "key", p->key);
}

/* Asynchronous: plain SGD of a table is done by the rows that a replica pushed. */
static double touched(const Moving *x, const Piece *p, const Node *update)
{
	return served_async(x->cx->train) && p->t->rows && updates_rows(update, OP_Accumulate) ? p->t->alpha : 1;
}

/* The update as the server has it. */
static void move_update(Moving *x, Piece *p, Node *update, bool returned)
{
	Value **in = NEWN(x->cx->scratch, Value *, update->nin), *n = update->in[update->nin - 1];
	Builder b = at_server(x, p, update->loc);
	const int g = gradient_operand(update);

	for (int i = 0; i < update->nin; i++)
		in[i] = update->in[i]->kind == VAL_PARAM ? own(x, p, update->in[i]) : update->in[i];
	if (returned) {
		Node *take = build(&b, OP_Take, NULL, 1, in, NULL);
		value_rename(b.g, take->out[0], arena_printf(x->cx->scratch, "back.%s", in[0]->name));
		say_row(p, take);
		attr_set_int(take, "key", p->key);
		attr_set_int(take, "from", p->t->s->id);
		in[g] = take->out[0];
	} else {
		in[g] = there(x, p, in[g]);
	}
	if (n->def->op == OP_Total) {
		Map *map = &x->moved[p->server];
		Value *total = map_get(map, n);
		if (!total) {
			total = moved_node(x, p, n);
			map_put(map, n, total);
		}
		in[update->nin - 1] = total;
	} else {
		in[update->nin - 1] = mk_scalar(&b, n->type.dtype, 1);
	}
	build(&b, update->op, update->attr, update->nin, in, NULL)->time =
		update->time * share_of(p) * touched(x, p, update);
	for (int i = 0; i < update->nin; i++)
		if (in[i]->kind == VAL_PARAM)
			list_param(x, x->server[p->server], in[i]);
}

static Value *sum_of(const Node *update) { return aggregate_of(update->in[gradient_operand(update)]); }

/* Aggregation at the server; the stage pulls and pushes. */
static void move_sum(Moving *x, Piece *p)
{
	const Travel *t = p->t;
	Value *sum = sum_of(update_of(t));

	list_param(x, x->server[p->server], own(x, p, t->w));
	number_parts(sum, 0);
	there(x, p, sum);
	if (!p->more) {
		push(x, t, p->key);
		pull(x, t, p->key);
	}
	unmark(sum);
}

static void move_all(Moving *x)
{
	bool *stays = NEWN(x->cx->scratch, bool, x->npiece);

	for (int i = 0; i < x->npiece; i++)
		move_sum(x, &x->piece[i]);
	for (int i = 0; i < x->npiece; i += x->piece[i].more + 1) {
		Node *update = update_of(x->piece[i].t);
		const bool stay = between(update, sum_of(update));
		if (stay)
			leave_between(x, &x->piece[i], update, sum_of(update));
		for (int k = 0; k <= x->piece[i].more; k++)
			stays[i + k] = stay;
	}
	for (int i = 0; i < x->npiece; i++) {
		Node *update = update_of(x->piece[i].t);
		move_update(x, &x->piece[i], update, stays[i]);
		if (x->piece[i].more)
			continue;
		node_drop(update);
		drop_states(x->piece[i].t->s, x->piece[i].t->w);
	}
}

/* What is said of servers, and there are none: no --comm, no parameter that one could have, replicas that own them (owners.c). */
static void say_idle(const Module *m, const PassCx *cx)
{
	const Training *t = cx->train;
	const char *const flag[] = { t->comm.servers ? "--servers" : NULL, t->comm.partitions ? "--partitions" : NULL,
		t->comm.no_local_agg ? "--no-local-agg" : NULL, t->comm.no_opau ? "--no-opau" : NULL,
		t->comm.no_opsw ? "--no-opsw" : NULL };
	const char *all = "";
	int n = 0;

	for (size_t i = 0; i < sizeof flag / sizeof *flag; i++)
		if (flag[i])
			all = arena_printf(cx->scratch, "%s%s%s", all, n++ ? ", " : "", flag[i]);
	if (n)
		diag_warn(cx->d, NOLOC, "comm", "%s change%s nothing: there are no servers; %s", all, n == 1 ? "s" : "",
			t->comm.by == COMM_UNSAID || t->comm.by == COMM_ALLREDUCE ? "--comm ps, hybrid or auto has them"
			: stage_servers(m, t) ? "replicas own the parameters of their stage"
					      : "no parameter goes to one");
}

bool pass_servers(Module *m, PassCx *cx)
{
	Moving x = { .m = m, .cx = cx };
	int n, key = 0;
	Travel *t = travel_list(m, cx, &n);

	for (int i = 0; i < n; i++)
		if (t[i].w->param->sync == SYNC_PS)
			list_pieces(&x, &t[i], key++);
	if (!x.npiece) {
		if (cx->train)
			say_idle(m, cx);
		return true;
	}
	if (!m->schedule || (m->stage[m->nstage - 1]->server))
		return diag_error(cx->d, FILELOC(m->file), 410,
			m->schedule ? "servers has run on this module"
				    : "servers needs a schedule; run schedule first");
	if (!make_servers(&x))
		return false;
	extend_schedule(&x);
	move_all(&x);
	for (int i = 0; i < m->nstage; i++)
		if (!m->stage[i]->server)
			order_sums(m->stage[i]);
	return !served_async(cx->train) || async_moved(m, cx);
}
