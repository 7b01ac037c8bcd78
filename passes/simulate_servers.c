/* What devices and servers tell each other in a step, parameter by parameter, as runtime/pull.c and serve.c do it: heads, row numbers, values.
 * Whole parameters are exact; of rows it is what evenly drawn ids touch (travel.c). Devices of a host that give their
 * sums to the first of them are listed as if that one were a server to them. */
#include "simulate.h"

enum { HEAD = 48, ID = 4 };

/* Replicas whose sums leave together: of one host, or r alone. */
typedef struct Team { int chief, n; double sums; int64_t grains; } Team;

static Team team_of(Arena *a, const Module *m, const Cluster *c, const Stage *s, int r, const Training *t, bool alone)
{
	const Schedule *x = m->schedule;
	int *mine = NEWN(a, int, x->nmicro), most, n = 0;
	Team team = { .chief = r, .sums = 1 };

	for (int k = 0; k < s->replicas; k++)
		if (k == r || (!alone && !(t && t->no_local_agg) && !served_async(t) && cluster_same_host(c, s->device[k], s->device[r]))) {
			team.chief = k < team.chief ? k : team.chief;
			team.n++;
			n += schedule_mine(x, x->device[s->id][k], s->id, mine + n);
		}
	team.grains = n;
	if (t && t->reproducible)
		team.sums = schedule_subtrees(a, schedule_grains(x, s->id), mine, n, &most);
	return team;
}

/* cut: bytes that are pulled of a whole one; down, up: bytes that travel of each (opsw.c: 16 bits or 32) */
typedef struct Rows { bool whole; double row, all, cut, down, up; int64_t lookups; int pulls; } Rows;

static double share(const Node *n)
{
	return (double)dtype_bytes(attr_dtype(n, "wire")) / 4;
}

/* Of what a Collect is the gradient: bytes of a row, rows here, what a microbatch looks up. */
static Rows rows_of(const Stage *s, const Node *collect, const Type *t, const Value **w)
{
	Rows x = { .row = (double)type_bytes(t), .all = 1, .whole = true, .down = 1, .up = 1 };

	for (const Node *n = s->update->first; n; n = n->next)
		if (n->op == OP_Push && attr_int(n, "key") == attr_int(collect, "key"))
			x.up = share(n);
	for (const Node *n = s->forward->first; n; n = n->next)
		if (n->op == OP_Pull && attr_int(n, "key") == attr_int(collect, "key")) {
			*w = n->in[0];
			x.whole = n->nin == 1;
			x.cut = attr_int(n, "ncut") ? 4.0 * (double)attr_int(n, "ncut") : (double)type_bytes(&n->in[0]->type);
			x.lookups += n->nin > 1 ? type_numel(&n->in[1]->type) : 0;
			x.pulls++;
			x.down = share(n);
		}
	if (!x.whole) {
		x.all = (double)t->dim[0];
		x.row /= x.all;
	}
	return x;
}

static double touched(const Rows *x, const Value *w, int64_t grains)
{
	return x->whole ? 1 : x->all * rows_touched(w, (double)(x->lookups * grains));
}

/* A sum of these grains on its way. */
static void add_push(SimServe *to, const Rows *x, const Value *w, const Team *t)
{
	const double rows = touched(x, w, t->grains);

	to->up += t->sums * rows * x->row * x->up;
	to->ids += x->whole ? 0 : t->sums * rows * ID;
	to->heads += t->sums * HEAD;
}

static void add_pull(SimServe *to, const Rows *x, const Value *w, int64_t grains)
{
	const double rows = touched(x, w, grains);

	to->down += (x->whole ? x->cut : rows * x->row) * x->down;
	to->ids += x->whole ? 0 : rows * ID;
	to->heads += HEAD * (x->whole ? 1.0 : (double)(x->pulls * grains));
	to->pulls += x->whole ? 1.0 : (double)(x->pulls * grains);
}

/* Where a program has what it does about this parameter. */
static int order_of(const Graph *g, int op, const Node *collect)
{
	int k = 0;

	for (const Node *n = g->first; n; n = n->next, k++)
		if ((int)n->op == op && attr_int(n, "key") == attr_int(collect, "key") &&
		    (op != OP_Push || attr_int(n, "part") == attr_int(collect, "part")))
			return k;
	return k;
}

typedef struct List { Arena *a; SimModel *x; int cap; } List;

static SimServe *entry(List *l, int worker, int server, ServePhase phase, int order)
{
	SimServe *e = &PUSH(l->a, l->x->serve, l->x->nserve, l->cap);

	*e = (SimServe){ .worker = worker, .server = server, .phase = phase, .order = order };
	return e;
}

/* The sum to this replica, and from the first what it made of it (runtime/fetch.c); their heads and row numbers too. */
static void add_way(List *l, int worker, const Stage *s, const Stage *server, const Node *give, const Team *t)
{
	const Value *w = NULL;
	const Rows x = rows_of(s, give, &give->in[0]->type, &w);
	const double rows = touched(&x, w, t->grains * s->replicas), ids = x.whole ? 0 : rows * ID;
	SimServe *down = entry(l, worker, server->rank, SERVE_FETCH, order_of(server->update, OP_Give, give));

	down->down = rows * x.row;
	down->back_ids = ids;
	down->back_heads = HEAD;
	if (t->chief == 0) {
		SimServe *up = entry(l, worker, server->rank, SERVE_RETURN, order_of(s->update, OP_Return, give));
		up->up = rows * x.row;
		up->ids = ids;
		up->heads = HEAD;
	}
}

/* Replica r of stage s and a server: what they tell each other, and what r gives its chief instead. */
static void add_replica(List *l, int worker, int chief, const Stage *s, const Stage *server, const Team *one, const Team *team)
{
	for (const Node *c = server->update->first; c; c = c->next) {
		const Value *w = NULL;
		if (c->op == OP_Give && attr_int(c, "from") == s->id)
			add_way(l, worker, s, server, c, one);
		if (c->op != OP_Collect || attr_int(c, "from") != s->id)
			continue;
		const Rows x = rows_of(s, c, &c->out[0]->type, &w);
		const int order = order_of(s->update, OP_Push, c);
		if (!attr_int(c, "part"))
			add_pull(entry(l, worker, server->rank, SERVE_PULL, order_of(s->forward, OP_Pull, c)), &x, w, one->grains);
		if (worker != chief)
			add_push(entry(l, worker, chief, SERVE_GIVE, order), &x, w, one);
		else
			add_push(entry(l, worker, server->rank, SERVE_PUSH, order), &x, w, team);
	}
}

double serve_bytes(const SimServe *x)
{
	return x->up + x->down + x->ids + x->heads + x->back_ids + x->back_heads;
}

/* Asynchronous servers: the device exchanges with each alone. */
static void add_exchanges(Arena *a, SimModel *x, int serve, int *capjoin)
{
	const SimServe *s = &x->serve[serve];
	int *rank = NEW(a, int);

	*rank = s->worker;
	for (int pull = 0; pull < 2; pull++)
		PUSH(a, x->join, x->njoin, *capjoin) = (SimJoin){ .kind = pull ? SIM_PULL : SIM_PUSH, .n = 1, .rank = rank, .serve = serve,
			.bytes = (int64_t)(pull ? s->down + s->back_ids + s->back_heads : s->up + s->ids + s->heads) };
}

/* All that a device and an asynchronous server tell each other as one. */
static SimServe *join_entries(SimModel *x, int from)
{
	SimServe *to = &x->serve[from];

	for (const SimServe *e = to + 1; e < x->serve + x->nserve; e++) {
		to->up += e->up;
		to->down += e->down;
		to->ids += e->ids;
		to->heads += e->heads;
		to->pulls += e->pulls;
	}
	x->nserve = from + 1;
	return to;
}

/* Bytes of the device that has most. */
static int64_t most_bytes(Arena *a, const SimModel *x)
{
	double *of = NEWN(a, double, x->s->ndevice), most = 0;

	for (int i = 0; i < x->nserve; i++) {
		double *to = &of[x->serve[i].worker];
		*to += serve_bytes(&x->serve[i]);
		most = *to > most ? *to : most;
	}
	return (int64_t)most;
}

void sim_add_servers(Arena *a, SimModel *x, const Module *m, const Training *training, int *capjoin)
{
	List l = { .a = a, .x = x };
	bool *in = NEWN(a, bool, m->schedule->ndevice);
	int *rank = NEWN(a, int, m->schedule->ndevice), n = 0;

	for (int v = 0; v < m->nstage; v++) {
		const Stage *server = m->stage[v];
		if (!server->server)
			continue;
		x->nserver++;
		in[server->rank] = true;
		for (int t = 0; t < m->nstage && !m->stage[t]->server; t++)
			for (int r = 0; r < m->stage[t]->replicas; r++) {
				const Team one = team_of(a, m, x->c, m->stage[t], r, training, true);
				const Team team = team_of(a, m, x->c, m->stage[t], r, training, false);
				const int *device = m->schedule->device[t], had = x->nserve;
				add_replica(&l, device[r], device[team.chief], m->stage[t], server, &one, &team);
				if (x->nserve == had)
					continue;
				in[device[r]] = true;
				entry(&l, device[r], server->rank, SERVE_END, 0)->heads = HEAD;
				if (!x->each)
					continue;
				join_entries(x, had)->update = sim_update_seconds(x->c, server, t, server->device[0]);
				add_exchanges(a, x, had, capjoin);
			}
	}
	for (int r = 0; r < m->schedule->ndevice; r++)
		if (in[r])
			rank[n++] = r;
	if (x->nserve && !x->each)
		PUSH(a, x->join, x->njoin, *capjoin) = (SimJoin){ .kind = SIM_SERVE, .bytes = most_bytes(a, x), .n = n, .rank = rank,
			.root = n - 1 };
}
