/* opau: operations after aggregation and before the update (Parallax section 5.3.2, Figure 9; Parallax's option
 * boundary_among_servers). servers leaves them with the devices that train, which have the sums sent and give back what
 * they make of them. This pass walks from every sum to its update and says whose each operation is:
 *
 *     local     its gradients come from one process: it stands there (SquareSum of a parameter at the parameter's server)
 *     shared    they come from several: it stands at the first server (ClipNorm: the norm over all of them)
 *     local     and shared operands: with the local one, so that what travels is the shared scalar (clipping)
 *
 * A shared scalar is told to whoever reads it (runtime/run/norm.c), so every such process has its ClipNorm. Another shared
 * operation stays with the devices, and so do the gradients that it reads: they have the sums sent as before.
 *
 * Of a table in pieces at several servers each does its rows: operations element by element, and squares, which are told block
 * by block and added as those of the whole would be. Anything else that reads its gradient stays with the devices.
 *
 * Before:  Give -> Fetch, SquareSum, ClipNorm, Mul, Return -> Take, SGD     bytes of the sum to all replicas, and back
 * After:   SquareSum, ClipNorm, SGD, all at the server                      none
 *
 * Reads and writes the update graphs; ClipNorm.at. */
#include "servers.h"
#include "ir/analysis.h"

enum { ANYWHERE = -1, SHARED = -2, DEVICES = -3 }; /* else: the id of a server's stage */

typedef struct Way { /* of a gradient to the devices and back */
	Node *give, *fetch, *back, *take;
	Stage *s, *server;
	bool stays, last; /* last: of the pieces of a table, which have one Fetch and one Return */
	Map rows;         /* of a piece: what values of the table's shape are there */
} Way;

typedef struct Placing {
	Module *m;
	PassCx *cx;
	Way *way;
	int nway, capway;
	Map at;       /* Value -> its place */
	Map *there;   /* by stage: what a value of a device's update graph is at that server */
	Stage *first; /* server */
} Placing;

/* row: -1 where the node has none. */
static Node *keyed(const Graph *g, OpKind op, int64_t key, int64_t row)
{
	for (Node *n = g->first; n; n = n->next)
		if (n->op == op && attr_int(n, "key") == key && (row < 0 || attr_int(n, "row") == row))
			return n;
	bug("the way of gradient %lld has no end", (long long)key);
}

static void find_ways(Placing *x)
{
	for (int t = 0; t < x->m->nstage; t++) {
		Stage *v = x->m->stage[t];
		if (v->server && !x->first)
			x->first = v;
		for (Node *n = v->update->first; n; n = n->next) {
			if (n->op != OP_Give)
				continue;
			Stage *s = x->m->stage[attr_int(n, "from")];
			const int64_t key = attr_int(n, "key");
			Way w = { .give = n,
				.s = s,
				.server = v,
				.last = true,
				.fetch = keyed(s->update, OP_Fetch, key, -1),
				.back = keyed(s->update, OP_Return, key, -1),
				.take = keyed(v->update, OP_Take, key, attr_int(n, "row")) };
			for (int i = 0; i < x->nway; i++)
				x->way[i].last &= x->way[i].fetch != w.fetch;
			map_init(&w.rows, x->cx->scratch, false);
			PUSH(x->cx->scratch, x->way, x->nway, x->capway) = w;
		}
	}
}

static bool in_pieces(const Way *w) { return w->fetch->in[0]->param->pieces > 0; }

/* ---- whose is what ---- */

static Way *way_of(const Placing *x, const Node *fetch)
{
	for (int i = 0; i < x->nway; i++)
		if (x->way[i].fetch == fetch)
			return &x->way[i];
	bug("a gradient is fetched that nobody gives");
}

/* A server's stage; of a table in pieces a number beyond those, its own: all of its servers, row by row. */
static int place_of_way(const Placing *x, const Way *w)
{
	return in_pieces(w) ? x->m->nstage + (int)attr_int(w->fetch, "key") : w->server->id;
}

/* A parameter is at its server, or with the devices. */
static int place_of_param(const Placing *x, const Value *v)
{
	for (int i = 0; i < x->nway; i++)
		if (x->way[i].fetch->in[0] == v)
			return place_of_way(x, &x->way[i]);
	for (int t = 0; t < x->m->nstage; t++)
		for (int i = 0; i < x->m->stage[t]->nparam && x->m->stage[t]->server; i++)
			if (x->m->stage[t]->param[i] == v)
				return t;
	return DEVICES;
}

static int place_of(const Placing *x, const Value *v)
{
	if (v && v->kind == VAL_PARAM)
		return place_of_param(x, v);
	const int *at = v ? map_get(&x->at, v) : NULL;

	return at ? *at : ANYWHERE;
}

static void put_place(Placing *x, const Value *v, int place)
{
	int *at = NEW(x->cx->scratch, int);

	*at = place;
	map_put(&x->at, v, at);
}

/* Do squares of more than one process go into the norm? */
static bool norm_is_shared(const Placing *x)
{
	int seen = ANYWHERE;

	for (int t = 0; t < x->m->nstage; t++)
		for (const Node *n = x->m->stage[t]->update->first; n; n = n->next) {
			const int at = n->op == OP_SquareSum ? place_of(x, n->in[1]) : seen;
			if (seen != ANYWHERE && at != seen)
				return true;
			seen = at;
		}
	return false;
}

/* Can pieces of its operands make pieces of its result? v: one of them, which is in pieces. */
static bool row_by_row(const Node *n, const Value *v)
{
	if (n->op == OP_SquareSum || n->op == OP_Return)
		return true;
	for (int i = 0; i < n->nin; i++)
		if (n->in[i] && type_numel(&n->in[i]->type) != 1 &&
			(n->in[i]->kind == VAL_CONST || !shape_eq(&n->in[i]->type, &v->type)))
			return false;
	return optab[n->op]->flags & OP_EW && n->nout == 1 && shape_eq(&n->out[0]->type, &v->type);
}

static int place_node(const Placing *x, const Node *n)
{
	int local = ANYWHERE;
	bool shared = n->op == OP_ClipNorm;

	if (n->op == OP_Accumulate || n->op == OP_Stack || n->op == OP_Broadcast)
		return DEVICES;
	if (n->op == OP_Fetch)
		return place_of_way(x, way_of(x, n));
	for (int i = 0; i < n->nin; i++) {
		const int at = place_of(x, n->in[i]);
		if (at == SHARED)
			shared = true;
		else if (at != ANYWHERE && local != ANYWHERE && at != local)
			return DEVICES; /* of several processes, and not a norm */
		else if (at >= x->m->nstage && !row_by_row(n, n->in[i]))
			return DEVICES;
		else if (at != ANYWHERE)
			local = at;
	}
	return local != ANYWHERE ? local : shared ? SHARED : ANYWHERE;
}

static void place_all(Placing *x)
{
	for (int t = 0; t < x->m->nstage; t++)
		for (Node *n = x->m->stage[t]->update->first; n && !x->m->stage[t]->server; n = n->next)
			for (int i = 0, at = place_node(x, n); i < n->nout; i++)
				put_place(x, n->out[i], at);
}

/* A gradient that an operation of the devices reads is needed there. */
static bool read_here(const Placing *x, const Value *v, int place)
{
	for (int i = 0; i < v->nuses; i++) {
		const Node *n = v->uses[i].node;
		if (n->op == OP_Return)
			continue;
		if (place_node(x, n) != place)
			return true;
		for (int k = 0; k < n->nout; k++)
			if (read_here(x, n->out[k], place))
				return true;
	}
	return false;
}

/* ---- moving ---- */

static Value *there(Placing *x, Way *w, Value *v);

static Node *copy_there(Placing *x, Way *w, const Node *n, Node *before)
{
	Value **in = NEWN(x->cx->scratch, Value *, n->nin);

	for (int i = 0; i < n->nin; i++)
		in[i] = n->in[i] ? there(x, w, n->in[i]) : NULL;
	Builder b = { .m = x->m,
		.g = w->server->update,
		.before = before,
		.loc = n->loc,
		.phase = PHASE_UPDATE,
		.stage = w->server->id,
		.d = x->cx->d };
	return build(&b, n->op, n->attr, n->nin, in, n->nout ? n->out[0]->name : NULL);
}

/* The server's piece of a parameter. */
static Value *piece_of(const Way *w, Value *v)
{
	for (int i = 0; i < w->server->nparam; i++)
		if (w->server->param[i]->param->whole == v &&
			w->server->param[i]->param->row == attr_int(w->give, "row"))
			return w->server->param[i];
	bug("server %d has no piece of %s", w->server->id, v->name);
}

static Value *there(Placing *x, Way *w, Value *v)
{
	Map *map = in_pieces(w) && shape_eq(&v->type, &w->fetch->in[0]->type) ? &w->rows : &x->there[w->server->id];

	if (v->kind != VAL_NODE)
		return v->kind == VAL_PARAM && v->param->pieces ? piece_of(w, v) : v;
	if (v == w->fetch->out[0])
		return w->give->in[0];
	Value *got = map_get(map, v);
	if (!got) {
		got = copy_there(x, w, v->def, w->take)->out[v->index];
		map_put(map, v, got);
	}
	return got;
}

static Node *first_take(const Stage *server)
{
	Node *n = server->update->first;

	while (n->op != OP_Take)
		n = n->next;
	return n;
}

/* Blocks of tables in pieces have numbers behind those of parameters, in the order of their keys. */
static void number_blocks(const Placing *x, const Way *w, Node *square)
{
	const Type *t = &w->fetch->in[0]->type;
	const int64_t rows = type_block_rows(t);
	int64_t at = attr_int(w->give, "row") / rows;

	for (const Node *n = w->s->update->first; n; n = n->next)
		at += n->op == OP_ClipNorm ? attr_int(n, "of") : 0;
	for (int i = 0; i < x->nway; i++)
		if (x->way[i].last && !x->way[i].stays && in_pieces(&x->way[i]) &&
			attr_int(x->way[i].fetch, "key") < attr_int(w->fetch, "key"))
			at += table_pieces(x->way[i].fetch->in[0]);
	attr_set_int(square, "block", rows * (type_numel(t) / t->dim[0]));
	attr_set_int(square, "at", at);
}

/* The squares, which come before anything that is scaled by their norm. */
static void move_squares(Placing *x, Way *w, Node *before)
{
	for (Node *n = w->s->update->first, *next; n; n = next) {
		next = n->next;
		if (n->op == OP_SquareSum && n->in[0] == w->fetch->in[0]) {
			Node *made = copy_there(x, w, n, before);
			if (in_pieces(w))
				number_blocks(x, w, made);
			if (w->last)
				node_remove(n);
		}
	}
}

/* Mul(%g, Div(1, %m)) in front of an update is its own division by %m. */
static bool scaled(const Value *v, Value **g, Value **m)
{
	const Node *mul = v->kind == VAL_NODE && v->def->op == OP_Mul ? v->def : NULL;
	const Node *div = mul && mul->in[1]->kind == VAL_NODE ? mul->in[1]->def : NULL;

	if (!div || div->op != OP_Div || div->in[0]->kind != VAL_CONST)
		return false;
	*g = mul->in[0];
	*m = div->in[1];
	return true;
}

static void move(Placing *x, Way *w)
{
	Node *update = w->take->out[0]->uses[0].node;
	const int g = gradient_operand(update);
	Value *made = w->back->in[0], *m;

	if (update->in[update->nin - 1]->kind == VAL_CONST && scaled(made, &made, &m))
		node_set_input(update, update->nin - 1, there(x, w, m));
	node_set_input(update, g, there(x, w, made));
	node_remove(w->take);
	node_remove(w->give);
	if (w->last)
		node_drop(w->back);
}

/* The bytes of a gradient's way: to every replica, and back from the first; of rows as many as all replicas touch. */
static double bytes_of(const Placing *x, const Way *w)
{
	const Value *v = w->fetch->in[0];
	double bytes = (double)type_bytes(&w->give->in[0]->type), lookups = 0;

	for (const Node *n = w->s->forward->first; n; n = n->next)
		if (n->op == OP_Pull && n->in[0] == v && n->nin > 1)
			lookups += (double)type_numel(&n->in[1]->type) * x->m->microbatches;
	if (lookups > 0)
		bytes *= rows_touched(v, lookups);
	return bytes * (w->s->replicas + 1);
}

static void explain(const Placing *x)
{
	double before = 0, after = 0;

	for (int i = 0; i < x->nway; i++) {
		before += bytes_of(x, &x->way[i]);
		after += x->way[i].stays ? bytes_of(x, &x->way[i]) : 0;
		if (x->cx->explain)
			buf_printf(x->cx->explain, "opau: what is between the sum and the update of %s %s\n",
				x->way[i].take->in[0]->name,
				x->way[i].stays
					? "stays with the devices"
					: arena_printf(x->cx->scratch, "goes to server %d", x->way[i].server->id));
	}
	if (x->cx->explain)
		buf_printf(x->cx->explain, "opau: sums to devices and back, bytes of a step: %.0f before, %.0f after\n",
			before, after);
}

bool pass_opau(Module *m, PassCx *cx)
{
	Placing x = { .m = m, .cx = cx };

	find_ways(&x);
	if (!x.nway || (cx->train && cx->train->comm.no_opau))
		return true;
	map_init(&x.at, cx->scratch, false);
	x.there = NEWN(cx->scratch, Map, m->nstage);
	for (int t = 0; t < m->nstage; t++)
		map_init(&x.there[t], cx->scratch, false);
	place_all(&x);
	const bool shared = norm_is_shared(&x);
	for (int i = 0; i < x.nway; i++)
		x.way[i].stays = read_here(&x, x.way[i].fetch->out[0], place_of_way(&x, &x.way[i]));
	explain(&x);
	for (int i = 0; i < x.nway; i++)
		if (!x.way[i].stays)
			move_squares(&x, &x.way[i], first_take(x.way[i].server));
	for (int i = 0; i < x.nway; i++)
		if (!x.way[i].stays)
			move(&x, &x.way[i]);
	for (int t = 0; t < m->nstage; t++)
		for (Node *n = m->stage[t]->update->first; n && shared; n = n->next)
			if (n->op == OP_ClipNorm)
				attr_set_int(n, "at", x.first->id);
	return true;
}
