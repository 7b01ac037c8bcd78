/* What several devices do together: when all of them are there (simulate_ports.c has how long it takes then). The sums of a device
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

/* Of what replicas own, gradients travel in every backward that a SYNC follows; of buckets in the last of all. */
static bool last_in_front(const DeviceSchedule *d, int i)
{
	for (int k = i + 1; k < d->n && d->act[k].kind != ACT_SYNC; k++)
		if (d->act[k].kind == d->act[i].kind && d->act[k].stage == d->act[i].stage)
			return false;
	return true;
}

static int members(const Player *p, int join) { return join < p->m->njoin ? p->m->join[join].n : p->s->ndevice; }
static int member(const Player *p, int join, int i) { return join < p->m->njoin ? p->m->join[join].rank[i] : i; }

static void arrive(Player *p, int rank, int join)
{
	p->summing[rank] = true;
	if (++p->present[join] < members(p, join))
		return;
	p->present[join] = 0; /* asynchronous devices meet here again */
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
	const bool all = p->s->late ? p->begun[rank] : at_sums(p, rank);
	const int can = all ? p->njoin_of[rank] : p->early[rank];

	if (!p->summing[rank] && p->joined[rank] < can)
		arrive(p, rank, p->join_of[rank][p->joined[rank]]);
}

/* A SYNC whose sums a later update takes: it begins them once those of the SYNC before are made, and goes on. */
static bool begins_late(Player *p, int rank)
{
	if (p->begun[rank] && p->joined[rank] < p->njoin_of[rank])
		return p->running[rank] = true;
	p->joined[rank] = 0;
	p->begun[rank] = true;
	next_sum(p, rank);
	return false;
}

bool sim_waits_for_sum(Player *p, int rank, ActKind kind)
{
	if (kind != ACT_SYNC && kind != ACT_UPDATE)
		return false;
	if (p->since[rank] < 0)
		p->since[rank] = p->now;
	if (p->s->late)
		return kind == ACT_SYNC && begins_late(p, rank);
	if (kind == ACT_UPDATE && (another(&p->s->dev[rank], p->at[rank], -1, false) || p->m->totals <= 0 ||
					  p->s->ndevice < 2 || p->joined[rank]))
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
	if (p->s->late)
		return;
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
		if (x->kind != j->when ||
			(j->kind == SIM_OWNED ? !last_in_front(d, p->at[rank]) : another(d, p->at[rank], 1, true)))
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
	if (e->id < p->m->njoin) {
		p->out->sums[p->m->join[e->id].kind] += p->now - p->out->span[p->span_of[p->ports.nmsg + e->id]].begin;
		for (int i = 0; i < members(p, e->id); i++)
			p->out->span[p->span_of[p->ports.nmsg + e->id] + i].end = p->now;
		ports_end(&p->ports, p->ports.nmsg + e->id);
	}
	for (int i = 0; i < members(p, e->id); i++) {
		const int r = member(p, e->id, i);

		p->summing[r] = false;
		p->joined[r]++;
		if (p->s->late) {
			const bool waits = p->running[r] && at_sums(p, r) && p->joined[r] == p->njoin_of[r];
			next_sum(p, r);
			p->running[r] = p->running[r] && !waits;
			if (waits)
				sim_advance(p, r);
			continue;
		}
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
	p->last = NEWN(p->a, int, m->njoin + 1);
	p->early = NEWN(p->a, int, p->s->ndevice);
	p->begun = NEWN(p->a, bool, p->s->ndevice);
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
