/* What a plan expects of its stages: the seconds that they and messages take, microbatches that memory holds; for orders that ask for it
 * (schedule_timed.c). */
#include <math.h>
#include "passes/cost/cost.h"
#include "passes/memory/memory.h"
#include "sched.h"

/* An order that counts with a message just in time waits whenever it is not, and sums over replicas share its link: up to 2 % of a
 * GPT-3's step (docs/explain/meshes.md). */
static const double LATE = 1.1;

ScheduleTimes *schedule_times(Arena *a, const Cluster *c, int nstage)
{
	ScheduleTimes *t = NEW(a, ScheduleTimes);

	t->forward = NEWN(a, double, nstage);
	t->backward = NEWN(a, double, nstage);
	t->weights = NEWN(a, double, nstage);
	t->message = NEWN(a, double, nstage);
	t->most = NEWN(a, int, nstage);
	t->cluster = c;
	return t;
}

void schedule_time_stage(ScheduleTimes *t, int stage, double fwd, double bwd)
{
	t->forward[stage] = fwd;
	t->backward[stage] = t->weights[stage] = bwd / 2;
}

void schedule_time_message(ScheduleTimes *t, int stage, double bytes, const int *from, const int *to, int replicas)
{
	const Cluster *c = t->cluster;
	const Link l = cluster_link(c, from[0], to[0]);
	const int host = c->device[from[0]].host;
	int n = 1;

	while (host != c->device[to[0]].host && n < replicas && c->device[from[n]].host == host)
		n++;
	t->message[stage] = LATE * (l.latency + (l.bandwidth > 0 ? n * bytes / l.bandwidth : 0));
}

ScheduleTimes *schedule_times_of(Arena *a, const Module *m, const PassCx *cx)
{
	const Plan *p = cx->plan;

	if (!p || !cx->cluster || !p->device || p->nstage != m->nstage)
		return NULL;
	ScheduleTimes *x = schedule_times(a, cx->cluster, m->nstage);
	const Speed first = device_speed(cx->cluster, 0);
	for (int t = 0; t < m->nstage; t++) {
		const Stage *s = m->stage[t];
		const Speed on = device_speed(cx->cluster, p->device[s->rank]);
		x->forward[t] = graph_seconds(s->forward, &first, &on);
		x->backward[t] = graph_seconds(s->backward, &first, &on);
		x->weights[t] = s->weight ? graph_seconds(s->weight, &first, &on) : 0;
	}
	for (int t = 0; t + 1 < m->nstage; t++)
		schedule_time_message(x, t, (double)p->stage[t].out_bytes, &p->device[m->stage[t]->rank],
			&p->device[m->stage[t + 1]->rank], m->stage[t]->replicas);
	return x;
}

/* So many times what ZBV holds. */
static int times_depth(double x, int nstage, int stage, int grains)
{
	const double n = floor(x * (nstage - stage));

	return n < 1 ? 1 : n < grains ? (int)n : grains;
}

void schedule_fill_room(int nstage, int n, const int *stage, const double *each, double room, int grains, int *most)
{
	double low = 0, high = grains;

	for (int i = 0; i < 50; i++) {
		const double x = i ? (low + high) / 2 : high;
		double all = 0;
		for (int k = 0; k < n; k++)
			all += each[k] * times_depth(x, nstage, stage[k], grains);
		if (all <= room)
			low = x;
		else
			high = x;
	}
	for (int k = 0; k < n; k++)
		most[stage[k]] = times_depth(low, nstage, stage[k], grains);
}

/* The stages of the device of stage `first`, which is the first of them. */
static void fill_device_room(ScheduleTimes *t, Module *m, PassCx *cx, int first, int64_t memory)
{
	double *each = NEWN(cx->scratch, double, m->nstage), all = 0;
	int *stage = NEWN(cx->scratch, int, m->nstage), n = 0;

	for (int k = first; k < m->nstage; k++)
		if (m->stage[k]->rank == m->stage[first]->rank) {
			m->stage[k]->inflight = m->stage[k]->entries = 2;
			stage[n++] = k;
		}
	const double two = (double)memplan_device(m, cx, m->stage[first]);
	for (int i = 0; i < n; i++) {
		each[i] = (double)(m->stage[stage[i]]->slot_bytes + m->stage[stage[i]]->entry_bytes);
		all += each[i];
	}
	const int grains = (int)((m->microbatches + m->stage[first]->replicas - 1) / m->stage[first]->replicas);
	schedule_fill_room(m->nstage, n, stage, each, (double)memory - two + 2 * all, grains, t->most);
}

bool schedule_times_room(ScheduleTimes *t, Module *m, PassCx *cx)
{
	bool fits = true;

	for (int s = 0; s < m->nstage; s++) {
		bool first = true;
		for (int k = 0; k < s; k++)
			first &= m->stage[k]->rank != m->stage[s]->rank;
		const int64_t memory = memory_of(m->stage[s], cx->cluster);
		if (!first || !memory || memplan_device(m, cx, m->stage[s]) <= memory)
			continue;
		fits = false;
		fill_device_room(t, m, cx, s, memory);
	}
	return !fits;
}
