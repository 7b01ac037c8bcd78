/* What several devices do together: when all of them are there (simulate_ports.c has how long it takes then). The sums of a device
 * go one after another, in the order of its list: those of buckets first, as its last backward in front of a SYNC makes them ready,
 * and the others in that SYNC, which ends when all are made; with Pipe-SGD the UPDATE that takes them waits for that. Sums are counted
 * from the begin on: every SYNC of an asynchronous schedule is for one more round of the list. */
#include "simulate_play.h"

static void slowest(const SimModel *m, int from, int to, Link *worst)
{
	const Link l = cluster_link(m->c, m->device[from], m->device[to]);

	worst->latency = l.latency > worst->latency ? l.latency : worst->latency;
	if (l.bandwidth > 0 && (worst->bandwidth <= 0 || l.bandwidth < worst->bandwidth))
		worst->bandwidth = l.bandwidth;
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

	while (k >= 0 && k < d->n &&
		(d->act[k].kind != d->act[i].kind || (stage && d->act[k].stage != d->act[i].stage)))
		k += step;
	return k >= 0 && k < d->n;
}

/* The last of its kind in front of a SYNC of its stage. */
static bool last_in_front(const DeviceSchedule *d, int i)
{
	for (int k = i + 1; k < d->n; k++) {
		if (d->act[k].stage != d->act[i].stage)
			continue;
		if (d->act[k].kind == ACT_SYNC || d->act[k].kind == d->act[i].kind)
			return d->act[k].kind == ACT_SYNC;
	}
	return true;
}

static int members(const Player *p, int join) { return join < p->m->njoin ? p->m->join[join].n : p->s->ndevice; }
static int member(const Player *p, int join, int i) { return join < p->m->njoin ? p->m->join[join].rank[i] : i; }

static void arrive(Player *p, int rank, int join)
{
	p->summing[rank] = true;
	if (++p->present[join] < members(p, join))
		return;
	p->present[join] = 0; /* where nothing is flushed they meet here again */
	const bool last = join == p->m->njoin;
	const double alone = last ? sim_totals_seconds(p->m) : ports_sum(&p->ports, join);
	if (!last)
		p->span_of[p->ports.nmsg + join] = p->out->nspan;
	for (int i = 0; i < members(p, join); i++) {
		SimSpan *s = sim_span(p, member(p, join, i), p->now + alone);
		s->kind = ACT_SYNC;
		s->bytes = last ? p->m->totals : p->m->join[join].bytes;
	}
	p->last[join] = rank;
	if (last)
		sim_push(p, (Event){ p->now + alone, rank, p->at[rank], EV_JOINED, join });
	else
		ports_begin(&p->ports, p->ports.nmsg + join, alone, p->now);
}

static bool at_sums(const Player *p, int rank)
{
	const ActKind k = p->at[rank] < p->s->dev[rank].n ? p->s->dev[rank].act[p->at[rank]].kind : ACT_COUNT;

	return k == ACT_SYNC && (p->s->async || !another(&p->s->dev[rank], p->at[rank], 1, false));
}

/* The device takes part in its next sum, if it can. */
static void next_sum(Player *p, int rank)
{
	if (!p->summing[rank] && p->joined[rank] < p->ready[rank])
		arrive(p, rank, p->join_of[rank][p->joined[rank] % p->njoin_of[rank]]);
}

static void sums_ready(Player *p, int rank, int n)
{
	p->ready[rank] = n > p->ready[rank] ? n : p->ready[rank];
	next_sum(p, rank);
}

/* Whether the device has to wait: in SYNC for its sums, or in the later UPDATE that takes them (Pipe-SGD); in a first UPDATE for the
 * losses of all. */
static bool waits(Player *p, int rank, ActKind kind)
{
	const int n = p->njoin_of[rank];

	if (kind == ACT_SYNC && at_sums(p, rank)) {
		sums_ready(p, rank, n * (p->syncs[rank] + 1));
		return !p->s->late && p->joined[rank] < n * (p->syncs[rank] + 1);
	}
	if (kind != ACT_UPDATE)
		return false;
	if (p->s->late)
		return p->joined[rank] < n * (p->updates[rank] + 1);
	if (p->told[rank] || p->m->totals <= 0 || p->s->ndevice < 2 ||
		another(&p->s->dev[rank], p->at[rank], -1, false))
		return false;
	if (!p->waits[rank])
		arrive(p, rank, p->m->njoin);
	return true;
}

bool sim_waits_for_sum(Player *p, int rank, ActKind kind)
{
	if (kind != ACT_SYNC && kind != ACT_UPDATE)
		return false;
	if (p->since[rank] < 0)
		p->since[rank] = p->now;
	p->waits[rank] = p->running[rank] = waits(p, rank, kind);
	if (!p->waits[rank] && p->s->late && kind == ACT_UPDATE)
		p->out->spent[rank][ACT_SYNC] += p->now - p->since[rank];
	return p->waits[rank];
}

void sim_sums_done(Player *p, int rank, ActKind kind)
{
	p->syncs[rank] += kind == ACT_SYNC && at_sums(p, rank);
	p->updates[rank] += kind == ACT_UPDATE;
}

void sim_buckets(Player *p, int rank, const Action *x, double t)
{
	if (x->kind != ACT_B && x->kind != ACT_W)
		return;
	for (int i = 0; i < p->njoin_of[rank]; i++) {
		const SimJoin *j = &p->m->join[p->join_of[rank][i]];
		if (!j->bucket || j->stage != x->stage)
			continue;
		if (x->kind != j->when || !last_in_front(&p->s->dev[rank], p->at[rank]))
			return;
		sim_push(p, (Event){ p->now + t * j->ready, rank, p->at[rank], EV_READY,
				    p->syncs[rank] * p->njoin_of[rank] + i + 1 });
	}
}

void sim_join_ready(Player *p, const Event *e) { sums_ready(p, e->rank, e->id); }

void sim_joined(Player *p, const Event *e)
{
	const bool totals = e->id == p->m->njoin;

	if (!totals) {
		p->out->sums[p->m->join[e->id].kind] += p->now - p->out->span[p->span_of[p->ports.nmsg + e->id]].begin;
		for (int i = 0; i < members(p, e->id); i++)
			p->out->span[p->span_of[p->ports.nmsg + e->id] + i].end = p->now;
		ports_end(&p->ports, p->ports.nmsg + e->id);
	}
	for (int i = 0; i < members(p, e->id); i++) {
		const int r = member(p, e->id, i);

		p->summing[r] = false;
		*(totals ? &p->told[r] : &p->joined[r]) += 1;
		next_sum(p, r);
		if (!p->waits[r])
			continue;
		p->running[r] = false;
		sim_advance(p, r);
	}
}

void sim_prepare_joins(Player *p)
{
	const SimModel *m = p->m;

	p->present = NEWN(p->a, int, m->njoin + 1);
	p->last = NEWN(p->a, int, m->njoin + 1);
	p->joined = NEWN(p->a, int, p->s->ndevice);
	p->ready = NEWN(p->a, int, p->s->ndevice);
	p->syncs = NEWN(p->a, int, p->s->ndevice);
	p->updates = NEWN(p->a, int, p->s->ndevice);
	p->told = NEWN(p->a, int, p->s->ndevice);
	p->waits = NEWN(p->a, bool, p->s->ndevice);
	p->summing = NEWN(p->a, bool, p->s->ndevice);
	p->njoin_of = NEWN(p->a, int, p->s->ndevice);
	p->join_of = NEWN(p->a, int *, p->s->ndevice);
	for (int j = 0; j < m->njoin; j++)
		for (int i = 0; i < m->join[j].n && !m->join[j].beside; i++)
			p->njoin_of[m->join[j].rank[i]]++;
	for (int r = 0; r < p->s->ndevice; r++) {
		p->join_of[r] = NEWN(p->a, int, p->njoin_of[r]);
		p->njoin_of[r] = 0;
	}
	for (int j = 0; j < m->njoin; j++)
		for (int i = 0; i < m->join[j].n && !m->join[j].beside; i++) {
			const int r = m->join[j].rank[i];
			p->join_of[r][p->njoin_of[r]++] = j;
		}
}
