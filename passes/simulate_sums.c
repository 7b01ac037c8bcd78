/* What several devices do together: how long it takes once all of them are there, and when they are. The sums of a device
 * go one after another, in the order of its list: those of buckets first, as its last backward makes them ready, and the
 * others in its SYNC, which ends when all are made. */
#include "simulate_play.h"

static void slowest(const SimModel *m, int from, int to, Link *worst)
{
	const Link l = cluster_link(m->c, m->device[from], m->device[to]);

	worst->latency = l.latency > worst->latency ? l.latency : worst->latency;
	if (l.bandwidth > 0 && (worst->bandwidth <= 0 || l.bandwidth < worst->bandwidth))
		worst->bandwidth = l.bandwidth;
}

static double rounds_time(const SimModel *m, const SimJoin *j)
{
	double all = 0;
	bool going = true;

	for (int k = 0; going; k++) {
		double round = 0;

		for (int i = 0; i < j->n; i++) {
			Link l = { .bandwidth = 0 };
			rounds_step x;

			going = rounds_step_of(sim_rounds(j->kind), j->n, i, k, (size_t)j->bytes / 4, &x);
			if (!going || x.to < 0)
				continue;
			slowest(m, j->rank[i], j->rank[x.to], &l);
			const double t = l.latency + sim_link_seconds(&l, 4 * (double)x.send_n);
			round = t > round ? t : round;
		}
		all += round;
	}
	return all;
}

/* The server's host has one port for all that comes from other hosts; devices of its own have one each. */
static double serve_time(const SimModel *m, const SimJoin *j)
{
	const int server = j->rank[j->root];
	double far = 0, near = 0;
	Link l = { .bandwidth = 0 };

	for (int i = 0; i < m->nserve; i++) {
		const SimServe *x = &m->serve[i];
		if (x->server != server)
			continue;
		const Link one = cluster_link(m->c, m->device[x->worker], m->device[server]);
		const double t = sim_link_seconds(&one, x->up + x->down + x->ids + x->heads);
		const bool same = m->c->device[m->device[x->worker]].host == m->c->device[m->device[server]].host;
		slowest(m, x->worker, server, &l);
		near = same && t > near ? t : near;
		far += same ? 0 : t;
	}
	return 2 * l.latency + (far > near ? far : near);
}

double sim_join_seconds(const SimModel *m, const SimJoin *j)
{
	Link l = { .bandwidth = 0 };

	if (j->n < 2)
		return 0;
	if (j->kind == SIM_SERVE)
		return serve_time(m, j);
	if (j->kind >= SIM_ROUNDS)
		return rounds_time(m, j);
	for (int i = 0; i < j->n; i++)
		if (j->kind == SIM_RING)
			slowest(m, j->rank[i], j->rank[(i + 1) % j->n], &l);
		else if (i != j->root)
			slowest(m, j->rank[j->root], j->rank[i], &l);
	if (j->kind == SIM_COPY)
		return l.latency + (j->n - 1) * sim_link_seconds(&l, (double)j->bytes);
	return 2 * (j->n - 1) * (l.latency + sim_link_seconds(&l, (double)j->bytes / j->n));
}

double sim_totals_seconds(const SimModel *m)
{
	Link l = { .bandwidth = 0 };

	for (int r = 1; r < m->s->ndevice; r++)
		slowest(m, 0, r, &l);
	return 2 * l.latency + (m->s->ndevice - 1) * sim_link_seconds(&l, (double)m->totals);
}

/* ---- played ---- */

/* Whether a device's action at position i has another of its kind behind it, or (step -1) before it; of its stage, if asked. */
static bool another(const DeviceSchedule *d, int i, int step, bool stage)
{
	int k = i + step;

	while (k >= 0 && k < d->n && (d->act[k].kind != d->act[i].kind || (stage && d->act[k].stage != d->act[i].stage)))
		k += step;
	return k >= 0 && k < d->n;
}

static int members(const Player *p, int join) { return join < p->m->njoin ? p->m->join[join].n : p->s->ndevice; }
static int member(const Player *p, int join, int i) { return join < p->m->njoin ? p->m->join[join].rank[i] : i; }

static void arrive(Player *p, int rank, int join)
{
	p->summing[rank] = true;
	if (++p->present[join] < members(p, join))
		return;
	p->present[join] = 0;       /* asynchronous devices meet here again */
	const bool last = join == p->m->njoin;
	const double end = p->now + (last ? sim_totals_seconds(p->m) : sim_join_seconds(p->m, &p->m->join[join]));
	for (int i = 0; i < members(p, join); i++) {
		SimSpan *s = sim_span(p, member(p, join, i), end);
		s->kind = ACT_SYNC;
		s->bytes = last ? p->m->totals : p->m->join[join].bytes;
	}
	sim_push(p, (Event){ end, rank, p->at[rank], EV_JOINED, join });
}

static bool at_sums(const Player *p, int rank)
{
	const ActKind k = p->at[rank] < p->s->dev[rank].n ? p->s->dev[rank].act[p->at[rank]].kind : ACT_COUNT;

	return k == ACT_SYNC && (p->s->async || !another(&p->s->dev[rank], p->at[rank], 1, false));
}

/* The device takes part in its next sum, if it can. */
static void next_sum(Player *p, int rank)
{
	const int can = at_sums(p, rank) ? p->njoin_of[rank] : p->early[rank];

	if (!p->summing[rank] && p->joined[rank] < can)
		arrive(p, rank, p->join_of[rank][p->joined[rank]]);
}

bool sim_waits_for_sum(Player *p, int rank, ActKind kind)
{
	if (kind != ACT_SYNC && kind != ACT_UPDATE)
		return false;
	if (p->since[rank] < 0)
		p->since[rank] = p->now;
	if (kind == ACT_UPDATE && (another(&p->s->dev[rank], p->at[rank], -1, false) || p->m->totals <= 0 || p->s->ndevice < 2 ||
	                           p->joined[rank]))
		return false;
	if (kind == ACT_SYNC && (!at_sums(p, rank) || p->joined[rank] >= p->njoin_of[rank]))
		return false;
	p->running[rank] = true;
	if (kind == ACT_UPDATE)
		arrive(p, rank, p->m->njoin);
	else
		next_sum(p, rank);
	return true;
}

void sim_sums_done(Player *p, int rank, ActKind kind)
{
	if (kind == ACT_UPDATE || (kind == ACT_SYNC && at_sums(p, rank)))
		p->joined[rank] = p->early[rank] = 0;
}

void sim_buckets(Player *p, int rank, const Action *x, double t)
{
	const DeviceSchedule *d = &p->s->dev[rank];

	if (x->kind != ACT_B && x->kind != ACT_W)
		return;
	for (int i = 0; i < p->njoin_of[rank]; i++) {
		const SimJoin *j = &p->m->join[p->join_of[rank][i]];
		if (!j->bucket || j->stage != x->stage)
			continue;
		if (x->kind != j->when || another(d, p->at[rank], 1, true))
			return;
		sim_push(p, (Event){ p->now + t * j->ready, rank, p->at[rank], EV_READY, i });
	}
}

void sim_join_ready(Player *p, const Event *e)
{
	p->early[e->rank]++;
	next_sum(p, e->rank);
}

void sim_joined(Player *p, const Event *e)
{
	for (int i = 0; i < members(p, e->id); i++) {
		const int r = member(p, e->id, i);

		p->summing[r] = false;
		p->joined[r]++;
		if (at_sums(p, r) || e->id == p->m->njoin) {
			p->running[r] = false;
			sim_advance(p, r);
		} else {
			next_sum(p, r);
		}
	}
}

void sim_prepare_joins(Player *p)
{
	const SimModel *m = p->m;

	p->present = NEWN(p->a, int, m->njoin + 1);
	p->early = NEWN(p->a, int, p->s->ndevice);
	p->summing = NEWN(p->a, bool, p->s->ndevice);
	p->njoin_of = NEWN(p->a, int, p->s->ndevice);
	p->join_of = NEWN(p->a, int *, p->s->ndevice);
	for (int j = 0; j < m->njoin; j++)
		for (int i = 0; i < m->join[j].n; i++)
			p->njoin_of[m->join[j].rank[i]]++;
	for (int r = 0; r < p->s->ndevice; r++) {
		p->join_of[r] = NEWN(p->a, int, p->njoin_of[r]);
		p->njoin_of[r] = 0;
	}
	for (int j = 0; j < m->njoin; j++)
		for (int i = 0; i < m->join[j].n; i++) {
			const int r = m->join[j].rank[i];
			p->join_of[r][p->njoin_of[r]++] = j;
		}
}
