/* Servers of a plan that is tried: what hybrid, tables and servers will give them once it is taken (Parallax, Table 3, per
 * parameter; spread by bytes over the hosts of the plan), and what devices and they tell each other in a step, for the
 * simulator. What lies in one stage alone can be at a server. Not counted: sums that servers give back to devices for what
 * stands between sum and update (--no-opau). */
#include <string.h>
#include "plan_model.h"
#include "passes/schedule/sched.h"
#include "passes/comm/servers.h"
#include "passes/simulate/simulate_servers.h"
#include "passes/cost/cost.h"
#include "passes/schedule/schedule.h"

/* Of so many devices times parameters all that a device and a server tell each other is one; times servers, it is not played. */
enum { APART = 1 << 10, PLAYED = 1 << 11, MOST_PARTS = 64 };

/* By weight; Travel.w NULL: never at a server. update: seconds by kind of device; parts: of its gradient, where its stage
 * has several replicas and where it has one; pulls: of a table by a microbatch. */
typedef struct Parts {
	int joined, all, pulls;
} Parts;
struct PlanServers {
	const Training *train;
	Travel *travel;
	double **update;
	Parts *parts;
};

/* Seconds of what makes a weight new, on every kind of device. */
static double *update_of(const PlanModel *p, const Value *w)
{
	double *t = NEWN(p->a, double, p->nclass);
	const Speed first = device_speed(p->c, 0);

	for (int c = 0; c < p->nclass; c++) {
		int d = 0;
		while (p->c && d < p->c->ndevice - 1 && p->class_of[d] != c)
			d++;
		const Speed on = device_speed(p->c, d);
		for (int i = 0; i < w->nuses; i++)
			if (optab[w->uses[i].node->op]->flags & OP_UPDATE && !w->uses[i].index)
				t[c] += node_seconds(w->uses[i].node, &first, &on);
	}
	return t;
}

void servers_start(PlanModel *p, const Training *t)
{
	if (!t || t->comm.by == COMM_UNSAID || t->comm.by == COMM_ALLREDUCE || schedule_async(t))
		return;
	struct PlanServers *x = p->servers = NEW(p->a, struct PlanServers);

	*x = (struct PlanServers){ t, NEWN(p->a, Travel, p->nweight + 1), NEWN(p->a, double *, p->nweight + 1),
		NEWN(p->a, Parts, p->nweight + 1) };
	for (int i = 0; i < p->ngrad; i++)
		if (p->grad[i].weight >= 0 && x->parts[p->grad[i].weight].all < MOST_PARTS) {
			x->parts[p->grad[i].weight].all++;
			x->parts[p->grad[i].weight].joined += !p->grad[i].joined;
		}
	for (int i = 0; i < p->nweight; i++) {
		Value *w = (Value *)(uintptr_t)p->weight[i].value; /* read only */
		if (!w || !p->weight[i].trained || travel_reason(w))
			continue;
		x->travel[i].w = w;
		travel_measure(t, &x->travel[i]);
		x->update[i] = update_of(p, w);
		for (int k = 0; k < w->nuses; k++)
			x->parts[i].pulls += w->uses[k].node->phase == PHASE_FWD;
	}
}

int plan_stage_with(const PlanWeight *w, const int *stage)
{
	for (int k = 1; k < w->n; k++)
		if (stage[w->layer[k]] != stage[w->layer[0]])
			return -1;
	return stage[w->layer[0]];
}

/* Of weight i in stage s, behind travel_measure. */
static bool served(const PlanModel *p, const Trial *t, Stage *s, int i, const int *stage, Travel *x)
{
	*x = p->servers->travel[i];
	x->s = s;
	if (!x->w || plan_stage_with(&p->weight[i], stage) != s->id)
		return false;
	travel_step(x, t->micro / s->replicas);
	return travel_served(p->servers->train, p->c, x);
}

static Stage *stage_of(Arena *a, const Trial *t, int s, const int *device)
{
	Stage *x = NEW(a, Stage);

	*x = (Stage){ .id = s, .replicas = t->replicas[s], .device = (int *)(uintptr_t)device };
	return x;
}

const bool *trial_served(Arena *a, const PlanModel *p, const Trial *t, int s, const int *device, const int *stage)
{
	if (!p->servers)
		return NULL;
	bool *in = NEWN(a, bool, p->nweight);
	Stage *x = stage_of(a, t, s, device);
	Travel travel;

	for (int i = 0; i < p->nweight; i++)
		in[i] = served(p, t, x, i, stage, &travel);
	return in;
}

/* Ranks of servers, which do nothing but answer, behind those of the devices. */
static void add_ranks(Arena *a, SimModel *x, const int *server, int n)
{
	Schedule *s = NEW(a, Schedule);
	const int had = x->s->ndevice;
	int *device = NEWN(a, int, had + n);
	SimTimes *time = NEWN(a, SimTimes, (had + n) * x->s->nstage);

	*s = *x->s;
	s->ndevice += n;
	s->dev = NEWN(a, DeviceSchedule, had + n);
	memcpy(s->dev, x->s->dev, sizeof *s->dev * (size_t)had);
	for (int r = had; r < s->ndevice; r++) {
		schedule_push(a, s, r, (Action){ .kind = ACT_SYNC, .mb = -1 });
		schedule_push(a, s, r, (Action){ .kind = ACT_UPDATE, .mb = -1 });
	}
	memcpy(device, x->device, sizeof *device * (size_t)had);
	memcpy(device + had, server, sizeof *device * (size_t)n);
	memcpy(time, x->time, sizeof *time * (size_t)(had * s->nstage));
	x->s = s;
	x->device = device;
	x->time = time;
	x->nserver = n;
}

/* All parameters at servers, tables in pieces; of which stage. */
typedef struct Kept {
	Held held;
	Travel travel;
	int weight;
	int64_t rows;
} Kept;

static Kept *list(
	Arena *a, const PlanModel *p, const Trial *t, Stage *const *s, const int *stage, PassCx *cx, int hosts, int *n)
{
	const int servers = p->servers->train->comm.servers ? (int)p->servers->train->comm.servers : hosts;
	Kept *all = NULL;
	int cap = 0;

	*n = 0;
	for (int i = 0; i < p->nweight; i++) {
		const int at = plan_stage_with(&p->weight[i], stage);
		Travel x;
		if (at < 0 || !served(p, t, s[at], i, stage, &x))
			continue;
		const int pieces = table_cut(cx, &x, servers);
		for (int k = 0; k < pieces; k++) {
			int64_t row = 0, rows = 0;
			if (pieces > 1)
				table_piece(x.w, pieces, k, &row, &rows);
			PUSH(a, all, *n, cap) =
				(Kept){ { x.w, rows ? x.bytes / x.w->type.dim[0] * rows : x.bytes, -1 }, x, i, rows };
		}
	}
	return all;
}

/* About one part of its gradient: it is pulled with the first, what is whole before all rows and the last of it first (servers.c). */
static Dealing dealing(const PlanModel *p, const Kept *k, int part)
{
	const Travel *t = &k->travel, *one = &p->servers->travel[k->weight];
	const double dim = (double)t->w->type.dim[0], b = (double)t->bytes;
	const Rows rows = { .whole = !t->rows,
		.row = t->rows ? b / dim : b,
		.all = !t->rows  ? 1
		       : k->rows ? (double)k->rows
		                 : dim,
		.cut = t->alpha * b,
		.down = t->down,
		.up = t->up,
		.lookups = one->lookups,
		.pulls = p->servers->parts[k->weight].pulls };

	return (Dealing){ .pull = !part,
		.rows = rows,
		.w = t->w,
		.first = t->rows ? p->nweight + k->weight : p->nweight - k->weight,
		.then = k->weight * MOST_PARTS + part };
}

/* The update is made at the server, and not by any device. */
static void move_update(const PlanModel *p, SimModel *x, const Kept *k, int rank)
{
	const double *t = p->servers->update[k->weight],
		     share = k->rows ? (double)k->rows / (double)k->travel.w->type.dim[0] : 1;
	const int n = x->s->nstage, s = k->travel.s->id;

	x->time[rank * n][ACT_UPDATE] += share * t[p->class_of[x->device[rank]]];
	for (int r = 0; r < k->travel.s->replicas; r++) {
		const int at = x->s->device[s][r];
		double *had = &x->time[at * n + s][ACT_UPDATE];
		*had = sim_rest(*had, share * t[p->class_of[x->device[at]]]);
	}
}

/* All replicas of a stage and a server. */
static void deal(ServeList *l, const PlanModel *p, const Stage *s, const Teams *team, const Kept *kept, int n,
	int server, int rank)
{
	Dealing *deal = NULL;
	int many = 0, cap = 0;

	for (int i = 0; i < n; i++) {
		const Parts *x = &p->servers->parts[kept[i].weight];
		if (kept[i].held.server == server && kept[i].travel.s == s)
			for (int part = 0; part < (s->replicas > 1 ? x->joined : x->all); part++)
				PUSH(l->a, deal, many, cap) = dealing(p, &kept[i], part);
	}
	for (int r = 0; r < s->replicas && many; r++)
		sim_deal(l, l->x->s->device[s->id], s, r, rank, deal, many, team);
}

void trial_servers(Arena *a, const PlanModel *p, const Trial *t, SimModel *x, const int *stage, int *cap)
{
	if (!p->servers)
		return;
	Diag silent = { .out = stderr, .errors = 1, .scratch = a };
	PassCx cx = { .scratch = a, .d = &silent, .cluster = p->c, .train = p->servers->train };
	Module m = { .schedule = (Schedule *)(uintptr_t)x->s, .nstage = t->n, .stage = NEWN(a, Stage *, t->n) };
	int n, nserver, *host = NEWN(a, int, x->s->ndevice + p->c->ndevice + 1);

	for (int s = 0; s < t->n; s++) {
		int *device = NEWN(a, int, t->replicas[s]);
		for (int k = 0; k < t->replicas[s]; k++)
			device[k] = x->device[x->s->device[s][k]];
		m.stage[s] = stage_of(a, t, s, device);
	}
	Kept *kept = list(a, p, t, m.stage, stage, &cx, server_hosts(&m, p->c, host), &n);
	Held *held = NEWN(a, Held, n);
	for (int i = 0; i < n; i++)
		held[i] = kept[i].held;
	const int *at = n ? servers_spread(&m, &cx, held, n, &nserver) : NULL, had = x->s->ndevice;
	if (!at)
		return;
	for (int i = 0; i < n; i++)
		kept[i].held.server = held[i].server;
	add_ranks(a, x, at, nserver);
	for (int i = 0; i < n; i++)
		move_update(p, x, &kept[i], had + held[i].server);
	x->quick = (double)had * nserver > PLAYED;
	ServeList l = { .a = a, .x = x, .joined = (double)had * n > APART };
	for (int s = 0; s < t->n; s++) {
		const Teams *team = sim_teams(a, x->s, p->c, m.stage[s], p->servers->train);
		for (int v = 0; v < nserver; v++)
			deal(&l, p, m.stage[s], team, kept, n, v, had + v);
	}
	sim_join_servers(a, x, cap);
}
