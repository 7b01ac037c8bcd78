/* What devices and servers of parameters tell each other in a step, played by itself (runtime/servers/pull.c, serve.c, fetch.c):
 *
 *     a device pulls parameter by parameter, in the order of its program, each from all servers that have a piece of it at once,
 *     and then pushes them likewise; of a host whose sums are added before they leave it the first device pushes a
 *     parameter when the others have given it theirs;
 *     when all have said that nothing more comes, each server gives the sums that devices do something with, one after
 *     another to all of them at once; when all of a stage have theirs, its first device returns what it made of them, one by one;
 *     sums over replicas (SimJoin.beside) go on beside that: their rounds begin in the last backward, which stands between a
 *     device's pulls and its pushes, and a member is in its next round when it has sent and got what the one before says. So
 *     who pulls last holds up the sums of all, and what others push meanwhile holds up his pulls.
 *
 * What moves at one time shares ports: everyone is as slow as the fuller one of his two ports makes him. A server's process has no
 * port of its own within a host. A pull takes two latencies more, everything else one. */
#include <limits.h>
#include <stdlib.h>
#include "simulate_ports.h"

/* One direction of an exchange: seconds that are left if it were alone, its ports. */
typedef struct Way {
	double left;
	int port[2];
} Way;

/* What an actor does at one time. */
typedef struct Group {
	int actor, stage, order; /* stage 0: what is pulled and pushed, 1: what servers give and get back */
	ServePhase phase;
	int first, n; /* ways */
	int going;    /* of them under way */
	int needs;    /* groups of others that come first */
	int frees;    /* the group that needs this one; NONE: none */
	bool twice;   /* a question and its answer: its latency counts twice */
	double latency;
} Group;

typedef enum State { IDLE, MOVING, TOLD } State; /* TOLD: the latency of what moved passes */
typedef struct Actor {
	int next, end;
	State state;
	double until;
} Actor; /* groups [next, end) are to be done */

typedef struct Exchange {
	Ports *p;
	Way *way;
	int nway, capway;
	Group *group;
	int ngroup, capgroup, nsorted; /* the first are in_order */
	Actor *actor;
	int nactor;           /* devices and servers; what they compute; sums they are members of */
	int *moving, nmoving; /* ways */
	int *of;              /* by way: its group */
	int *users;           /* by port */
	double now;
} Exchange;

static int stage_of(ServePhase p) { return p == SERVE_FETCH || p == SERVE_RETURN; }
static int actor_of(const SimServe *x) { return x->phase == SERVE_FETCH ? x->server : x->worker; }

/* Gives and pushes stand at one place of a program. */
static int rank_of(ServePhase p) { return p == SERVE_GIVE ? SERVE_PUSH : (int)p; }

static int in_order(const void *a, const void *b)
{
	const SimServe *x = *(SimServe *const *)a, *y = *(SimServe *const *)b;
	const int key[][2] = { { stage_of(x->phase), stage_of(y->phase) }, { actor_of(x), actor_of(y) },
		{ rank_of(x->phase), rank_of(y->phase) }, { x->order, y->order }, { x->server, y->server },
		{ x->worker, y->worker } };

	for (size_t i = 0; i < sizeof key / sizeof *key; i++)
		if (key[i][0] != key[i][1])
			return key[i][0] < key[i][1] ? -1 : 1;
	return (x > y) - (x < y);
}

static void add_way(Exchange *e, Group *g, const SimServe *x, int from, int to, double bytes)
{
	const SimModel *m = e->p->m;
	const Link l = cluster_link_of(m->c, ports_line(m, from, to));
	const bool near = m->c->device[m->device[from]].host == m->c->device[m->device[to]].host;
	const int server = x->phase == SERVE_GIVE ? NONE : x->server;
	Way w = { .left = sim_link_seconds(&l, bytes) };

	g->latency = l.latency > g->latency ? l.latency : g->latency;
	if (!(bytes > 0))
		return;
	for (int i = OUT; i <= IN; i++) {
		w.port[i] = near && server == (i == OUT ? from : to) ? NONE : ports_between(m, from, to, i);
		if (w.port[i] != NONE)
			ports_load(e->p, w.port[i], w.left);
	}
	PUSH(e->p->a, e->way, e->nway, e->capway) = w;
	g->n++;
}

/* The last backward of a device, or what stands for it. */
static double backward_seconds(const SimModel *m, int rank)
{
	double t = 0;

	for (int s = 0; s < m->s->nstage; s++)
		t = m->time[rank * m->s->nstage + s][ACT_B] > t ? m->time[rank * m->s->nstage + s][ACT_B] : t;
	return t;
}

/* Exchanges of one actor at one place of its program are a group. */
static void make_groups(Exchange *e)
{
	const SimModel *m = e->p->m;
	const SimServe **x = NEWN(e->p->a, const SimServe *, m->nserve + 1);
	bool *returns = NEWN(e->p->a, bool, m->s->ndevice);
	Group *g = NULL;

	for (int i = 0; i < m->nserve; i++) {
		x[i] = &m->serve[i];
		returns[x[i]->worker] |= x[i]->phase == SERVE_RETURN;
	}
	qsort(x, (size_t)m->nserve, sizeof *x, in_order);
	for (int i = 0; i < m->nserve; i++) {
		const int stage = stage_of(x[i]->phase), actor = actor_of(x[i]);
		if (!g || g->stage != stage || g->actor != actor || g->phase != x[i]->phase ||
			g->order != x[i]->order) {
			g = &PUSH(e->p->a, e->group, e->ngroup, e->capgroup);
			*g = (Group){ .actor = actor,
				.stage = stage,
				.order = x[i]->order,
				.phase = x[i]->phase,
				.first = e->nway,
				.frees = NONE,
				.twice = x[i]->phase == SERVE_PULL };
		}
		add_way(e, g, x[i], x[i]->worker, x[i]->server, x[i]->up + x[i]->ids + x[i]->heads);
		add_way(e, g, x[i], x[i]->server, x[i]->worker, x[i]->down + x[i]->back_ids + x[i]->back_heads);
		if (x[i]->phase == SERVE_GIVE || (x[i]->phase == SERVE_FETCH && returns[x[i]->worker]))
			g->frees = x[i]->phase == SERVE_GIVE ? x[i]->server
			                                     : x[i]->worker; /* the rank, until ports are numbered */
	}
}

/* The first group of a stage and actor that is not before this phase and order (in_order). */
static int find(const Exchange *e, int stage, int actor, ServePhase phase, int order)
{
	int lo = 0, hi = e->nsorted;

	while (lo < hi) {
		const int k = (lo + hi) / 2;
		const Group *g = &e->group[k];
		const int is[] = { g->stage, g->actor, rank_of(g->phase), g->order },
			  want[] = { stage, actor, rank_of(phase), order };
		int i = 0;

		while (i < 3 && is[i] == want[i])
			i++;
		if (is[i] < want[i])
			lo = k + 1;
		else
			hi = k;
	}
	return lo;
}

/* Which push a give is for; the first return of whom a server's sum reaches. */
static void match_groups(Exchange *e)
{
	for (int i = 0; i < e->nsorted; i++) {
		Group *g = &e->group[i];
		const bool give = g->phase == SERVE_GIVE;
		const ServePhase phase = give ? SERVE_PUSH : SERVE_RETURN;
		const int rank = g->frees, order = give ? g->order : INT_MIN;

		g->frees = NONE;
		if (rank == NONE)
			continue;
		for (int k = find(e, stage_of(phase), rank, phase, order); k < e->nsorted && e->group[k].actor == rank;
			k++) {
			Group *to = &e->group[k];
			if (rank_of(to->phase) != (int)phase || (give && to->order != order))
				break;
			if (to->phase != phase)
				continue;
			g->frees = k;
			to->needs++;
			break;
		}
	}
}

/* ---- sums beside them ---- */

/* Rounds of a ring, or of the others: what member i sends in round k. False: there is no such round. */
static bool sends(const SimJoin *j, int i, int k, int *to, double *bytes)
{
	rounds_step x;

	if (j->kind == SIM_RING) {
		*to = (i + 1) % j->n;
		*bytes = (double)j->bytes / j->n;
		return k < 2 * (j->n - 1);
	}
	if (!rounds_step_of(sim_rounds(j->kind), j->n, j->hosts, i, k, (size_t)j->bytes / 4, &x))
		return false;
	*to = x.to;
	*bytes = 4 * (double)x.send_n;
	return true;
}

static int rounds_of(const SimJoin *j)
{
	int k = 0, to;
	double bytes;

	while (sends(j, 0, k, &to, &bytes))
		k++;
	return k;
}

static Group *add_group(Exchange *e, int actor, int frees)
{
	Group *g = &PUSH(e->p->a, e->group, e->ngroup, e->capgroup);

	*g = (Group){ .actor = actor, .first = e->nway, .frees = frees };
	if (frees != NONE)
		e->group[frees].needs++;
	return g;
}

static bool member(const SimJoin *j, int rank)
{
	for (int i = 0; i < j->n && j->beside; i++)
		if (j->rank[i] == rank)
			return true;
	return false;
}

/* The sums of a rank, one after another; of each a group for every round, and one for what the last has brought. */
static void list_rounds(Exchange *e, int rank, int **at)
{
	const SimModel *m = e->p->m;

	for (int j = 0; j < m->njoin; j++)
		for (int i = 0; i < m->join[j].n && m->join[j].beside; i++) {
			if (m->join[j].rank[i] != rank)
				continue;
			at[j][i] = e->ngroup;
			for (int k = rounds_of(&m->join[j]); k >= 0; k--)
				add_group(e, 2 * m->s->ndevice + rank, NONE);
		}
}

/* What is sent in each round, and for whose next one. */
static void fill_rounds(Exchange *e, const SimJoin *j, const int *at)
{
	for (int i = 0; i < j->n; i++) {
		double bytes;
		for (int k = 0, to; sends(j, i, k, &to, &bytes); k++) {
			Group *g = &e->group[at[i] + k];
			if (to < 0)
				continue;
			g->frees = at[to] + k + 1;
			e->group[g->frees].needs++;
			g->first = e->nway;
			add_way(e, g, &(SimServe){ .phase = SERVE_GIVE }, j->rank[i], j->rank[to], bytes);
		}
	}
}

/* What a device computes between its pulls and its pushes: the sums that become ready in it, then the pushes. */
static void list_computing(Exchange *e, int rank, int *const *at)
{
	const SimModel *m = e->p->m;
	const int main = find(e, 0, rank, SERVE_PULL, INT_MIN), push = find(e, 0, rank, SERVE_PUSH, INT_MIN);
	const double all = backward_seconds(m, rank);
	double done = 0;
	int begin = e->ngroup;

	for (int j = 0; j < m->njoin; j++)
		for (int i = 0; i < m->join[j].n && m->join[j].beside; i++) {
			const double ready = m->join[j].bucket ? m->join[j].ready * all : all;
			if (m->join[j].rank[i] != rank)
				continue;
			add_group(e, m->s->ndevice + rank, at[j][i])->latency = ready > done ? ready - done : 0;
			done = ready > done ? ready : done;
		}
	add_group(e, m->s->ndevice + rank,
		push < e->nsorted && e->group[push].actor == rank && !e->group[push].stage ? push : NONE)
		->latency = all > done ? all - done : 0;
	if (push > main) { /* behind the last pull */
		e->group[push - 1].frees = begin;
		e->group[begin].needs++;
	}
}

/* Gives the seconds that lie between pulls and pushes. */
static double add_sums(Exchange *e)
{
	const SimModel *m = e->p->m;
	int **at = NEWN(e->p->a, int *, m->njoin + 1);
	double most = 0;
	bool any = false;

	for (int j = 0; j < m->njoin; j++) {
		at[j] = NEWN(e->p->a, int, m->join[j].n + 1);
		any |= m->join[j].beside;
	}
	for (int r = 0; r < m->s->ndevice && any; r++)
		list_rounds(e, r, at);
	for (int j = 0; j < m->njoin && any; j++)
		if (m->join[j].beside)
			fill_rounds(e, &m->join[j], at[j]);
	for (int r = 0; r < m->s->ndevice && any; r++) {
		bool in = false;
		for (int j = 0; j < m->njoin && !in; j++)
			in = member(&m->join[j], r);
		if (!in)
			continue;
		list_computing(e, r, at);
		most = backward_seconds(m, r) > most ? backward_seconds(m, r) : most;
	}
	return most;
}

/* ---- playing ---- */

static void begin(Exchange *e, Actor *a)
{
	Group *g = &e->group[a->next];

	a->state = MOVING;
	g->going = g->n;
	for (int i = g->first; i < g->first + g->n; i++) {
		e->moving[e->nmoving++] = i;
		for (int k = OUT; k <= IN; k++)
			if (e->way[i].port[k] != NONE)
				e->users[e->way[i].port[k]]++;
	}
}

/* All of a group has moved: its latency passes. */
static void moved(Exchange *e, Group *g)
{
	Actor *a = &e->actor[g->actor];

	a->state = TOLD;
	a->until = e->now + (g->twice ? 2 : 1) * g->latency;
}

static double slowed(const Exchange *e, const Way *w)
{
	int most = 1;

	for (int k = OUT; k <= IN; k++)
		if (w->port[k] != NONE && e->users[w->port[k]] > most)
			most = e->users[w->port[k]];
	return most;
}

/* All that can begin at this moment does. True: somebody has something to do still. */
static bool begin_all(Exchange *e)
{
	bool some = false, again = true;

	while (again) {
		again = some = false;
		for (int r = 0; r < e->nactor; r++) {
			Actor *a = &e->actor[r];
			if (a->state == TOLD && a->until <= e->now) {
				const int frees = e->group[a->next].frees;
				if (frees != NONE)
					e->group[frees].needs--;
				a->next++;
				a->state = IDLE;
				again = true;
			}
			some |= a->next < a->end;
			if (a->state != IDLE || a->next >= a->end || e->group[a->next].needs > 0)
				continue;
			begin(e, a);
			if (!e->group[a->next].n)
				moved(e, &e->group[a->next]);
			again = true;
		}
	}
	return some;
}

/* To when the next way, or latency, ends. False: never. */
static bool pass_time(Exchange *e)
{
	double dt = -1;
	int left = 0;

	for (int i = 0; i < e->nmoving; i++) {
		const Way *w = &e->way[e->moving[i]];
		const double t = w->left * slowed(e, w);
		dt = dt < 0 || t < dt ? t : dt;
	}
	for (int r = 0; r < e->nactor; r++)
		if (e->actor[r].state == TOLD && (dt < 0 || e->actor[r].until - e->now < dt))
			dt = e->actor[r].until - e->now;
	if (dt < 0)
		return false;
	for (int i = 0; i < e->nmoving; i++)
		e->way[e->moving[i]].left -= dt / slowed(e, &e->way[e->moving[i]]);
	e->now += dt;
	for (int i = 0; i < e->nmoving; i++) {
		const int id = e->moving[i];
		Group *g = &e->group[e->of[id]];

		if (e->way[id].left > 1e-12) {
			e->moving[left++] = id;
			continue;
		}
		for (int k = OUT; k <= IN; k++)
			if (e->way[id].port[k] != NONE)
				e->users[e->way[id].port[k]]--;
		if (--g->going == 0)
			moved(e, g);
	}
	e->nmoving = left;
	return true;
}

static void play(Exchange *e, int stage)
{
	for (int r = 0; r < e->nactor; r++)
		e->actor[r] = (Actor){ .state = IDLE };
	for (int i = e->ngroup - 1; i >= 0; i--)
		if (e->group[i].stage == stage) {
			Actor *a = &e->actor[e->group[i].actor];
			a->end = a->end ? a->end : i + 1;
			a->next = i;
		}
	while (begin_all(e))
		if (!pass_time(e))
			bug("servers and devices wait for each other");
}

double exchange_seconds(Ports *p)
{
	Arena *a = p->a;
	Exchange e = { .p = p, .nactor = 3 * p->m->s->ndevice };

	make_groups(&e);
	e.nsorted = e.ngroup;
	if (p->m->quick)
		return 0;
	match_groups(&e);
	const double computing = add_sums(&e);
	e.of = NEWN(a, int, e.nway + 1);
	e.moving = NEWN(a, int, e.nway + 1);
	for (int i = 0; i < e.ngroup; i++)
		for (int k = 0; k < e.group[i].n; k++)
			e.of[e.group[i].first + k] = i;
	e.actor = NEWN(a, Actor, e.nactor);
	e.users = NEWN(a, int, 2 * (p->m->c->ndevice + (p->m->c->nlink + 2) * p->m->c->nhost));
	for (int stage = 0; stage <= 1; stage++)
		play(&e, stage);
	return e.now > computing ? e.now - computing : 0;
}
