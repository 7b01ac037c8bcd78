/* What devices and servers tell each other in a step, parameter by parameter, as runtime/servers/pull.c and serve.c do it: heads, row numbers, values.
 * Whole parameters are exact; of rows it is what evenly drawn ids touch (travel.c). Devices of a host that give their
 * sums to the first of them are listed as if that one were a server to them. */
#include "simulate_servers.h"
#include "ir/analysis.h"

enum { HEAD = 48, ID = 4 };

static Team team_of(Arena *a, const Schedule *x, const Cluster *c, const Stage *s, int r, const Training *t, bool alone)
{
	int *mine = NEWN(a, int, x->nmicro), most, n = 0;
	Team team = { .chief = r, .sums = 1 };

	for (int k = 0; k < s->replicas; k++)
		if (k == r || (!alone && !(t && t->comm.no_local_agg) && !served_async(t) &&
				      cluster_same_host(c, s->device[k], s->device[r]))) {
			team.chief = k < team.chief ? k : team.chief;
			team.n++;
			n += schedule_mine(x, x->device[s->id][k], s->id, mine + n);
		}
	team.grains = n;
	if (t && t->loop.reproducible)
		team.sums = schedule_subtrees(a, schedule_grains(x, s->id), mine, n, &most);
	return team;
}

static double share(const Node *n) { return (double)dtype_bytes(attr_dtype(n, "wire")) / 4; }

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
			x.cut = attr_int(n, "ncut") ? 4.0 * (double)attr_int(n, "ncut")
			                            : (double)type_bytes(&n->in[0]->type);
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

static SimServe *entry(ServeList *l, int worker, int server, ServePhase phase, int order)
{
	for (int i = l->x->nserve - 1;
		i >= 0 && l->joined && l->x->serve[i].worker == worker && i > l->x->nserve - SERVE_RETURN - 2; i--)
		if (l->x->serve[i].server == server && l->x->serve[i].phase == phase)
			return &l->x->serve[i];
	SimServe *e = &PUSH(l->a, l->x->serve, l->x->nserve, l->cap);

	*e = (SimServe){ .worker = worker, .server = server, .phase = phase, .order = l->joined ? 0 : order };
	return e;
}

/* All of them, in the order of the server's program. */
static Dealing *dealings_of(Arena *a, const Stage *s, const Stage *server, int *n)
{
	Dealing *all = NULL;
	int cap = 0;

	*n = 0;
	for (const Node *c = server->update->first; c; c = c->next) {
		const bool give = c->op == OP_Give;
		if ((!give && c->op != OP_Collect) || attr_int(c, "from") != s->id)
			continue;
		Dealing *x = &PUSH(a, all, *n, cap);
		*x = (Dealing){ .give = give, .pull = !give && !attr_int(c, "part") };
		x->rows = rows_of(s, c, give ? &c->in[0]->type : &c->out[0]->type, &x->w);
		x->first = give ? order_of(server->update, OP_Give, c) : x->pull ? order_of(s->forward, OP_Pull, c) : 0;
		x->then = order_of(s->update, give ? OP_Return : OP_Push, c);
	}
	return all;
}

/* The sum to this replica, and from the first what it made of it (runtime/servers/fetch.c); their heads and row numbers too. */
static void add_way(ServeList *l, int worker, const Stage *s, int server, const Dealing *x, const Team *t)
{
	const double rows = touched(&x->rows, x->w, t->grains * s->replicas), ids = x->rows.whole ? 0 : rows * ID;
	SimServe *down = entry(l, worker, server, SERVE_FETCH, x->first);

	down->down = rows * x->rows.row;
	down->back_ids = ids;
	down->back_heads = HEAD;
	if (t->chief == 0) {
		SimServe *up = entry(l, worker, server, SERVE_RETURN, x->then);
		up->up = rows * x->rows.row;
		up->ids = ids;
		up->heads = HEAD;
	}
}

void sim_deal(
	ServeList *l, const int *device, const Stage *s, int r, int server, const Dealing *x, int n, const Teams *team)
{
	const Teams *t = &team[r];
	const int worker = device[t->one.chief], chief = device[t->all.chief];

	for (int i = 0; i < n; i++) {
		if (x[i].give) {
			add_way(l, worker, s, server, &x[i], &t->one);
			continue;
		}
		if (x[i].pull)
			add_pull(entry(l, worker, server, SERVE_PULL, x[i].first), &x[i].rows, x[i].w, t->one.grains);
		if (worker != chief)
			add_push(entry(l, worker, chief, SERVE_GIVE, x[i].then), &x[i].rows, x[i].w, &t->one);
		else
			add_push(entry(l, worker, server, SERVE_PUSH, x[i].then), &x[i].rows, x[i].w, &t->all);
	}
	entry(l, worker, server, SERVE_END, 0)->heads = HEAD;
}

double serve_bytes(const SimServe *x) { return x->up + x->down + x->ids + x->heads + x->back_ids + x->back_heads; }

/* Asynchronous servers: the device exchanges with each alone. */
static void add_exchanges(Arena *a, SimModel *x, int serve, int *capjoin)
{
	const SimServe *s = &x->serve[serve];
	int *rank = NEW(a, int);

	*rank = s->worker;
	for (int pull = 0; pull < 2; pull++)
		PUSH(a, x->join, x->njoin, *capjoin) = (SimJoin){ .kind = pull ? SIM_PULL : SIM_PUSH,
			.n = 1,
			.rank = rank,
			.serve = serve,
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

Teams *sim_teams(Arena *a, const Schedule *x, const Cluster *c, const Stage *s, const Training *t)
{
	Teams *team = NEWN(a, Teams, s->replicas);

	for (int r = 0; r < s->replicas; r++)
		team[r] = (Teams){ team_of(a, x, c, s, r, t, true), team_of(a, x, c, s, r, t, false) };
	return team;
}

/* All replicas of a stage and a server. */
static void add_stage(
	ServeList *l, const Module *m, const Stage *s, const Stage *server, const Teams *team, int *capjoin)
{
	SimModel *x = l->x;
	const int *device = m->schedule->device[s->id];
	int n;
	const Dealing *deal = dealings_of(l->a, s, server, &n);

	for (int r = 0; n && r < s->replicas; r++) {
		const int had = x->nserve;
		sim_deal(l, device, s, r, server->rank, deal, n, team);
		if (!x->each)
			continue;
		join_entries(x, had)->update = sim_update_seconds(x->c, server, s->id, server->device[0]);
		add_exchanges(l->a, x, had, capjoin);
	}
}

/* Sums that devices with servers make meanwhile; where they have too many rounds for that to be played, by themselves. */
static void beside(SimModel *x, const bool *in)
{
	enum { GROUPS = 1 << 15 };
	double groups = 0;

	for (int pass = 0; pass < 2 && groups < GROUPS; pass++)
		for (int i = 0; i < x->njoin; i++) {
			SimJoin *j = &x->join[i];
			bool all = j->n > 1 && !j->vendor &&
			           (j->kind >= SIM_ROUNDS || (j->kind == SIM_RING && !sim_small_sum(j)));
			for (int k = 0; k < j->n && all; k++)
				all = in[j->rank[k]];
			if (all)
				groups += 2.0 * j->n * j->n;
			j->beside = pass && all;
		}
}

void sim_join_servers(Arena *a, SimModel *x, int *capjoin)
{
	const int ndevice = x->s->ndevice;
	bool *in = NEWN(a, bool, ndevice);
	int *rank = NEWN(a, int, ndevice), n = 0;

	for (int i = 0; i < x->nserve; i++)
		in[x->serve[i].worker] = in[x->serve[i].server] = true;
	for (int r = 0; r < ndevice; r++)
		if (in[r])
			rank[n++] = r;
	if (!x->nserve || x->each)
		return;
	if (!x->s->async)
		beside(x, in);
	PUSH(a, x->join, x->njoin, *capjoin) =
		(SimJoin){ .kind = SIM_SERVE, .bytes = most_bytes(a, x), .n = n, .rank = rank, .root = n - 1 };
}

void sim_add_servers(Arena *a, SimModel *x, const Module *m, const Training *training, int *capjoin)
{
	ServeList l = { .a = a, .x = x };
	Teams **team = NEWN(a, Teams *, m->nstage);

	for (int v = 0; v < m->nstage; v++) {
		const Stage *server = m->stage[v];
		if (!server->server)
			continue;
		x->nserver++;
		for (int t = 0; t < m->nstage && !m->stage[t]->server; t++) {
			team[t] = team[t] ? team[t] : sim_teams(a, m->schedule, x->c, m->stage[t], training);
			add_stage(&l, m, m->stage[t], server, team[t], capjoin);
		}
	}
	sim_join_servers(a, x, capjoin);
}
