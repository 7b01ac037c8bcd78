/* The seconds that a plan expects its stages and messages to take, for orders that ask for them (schedule_timed.c). */
#include "passes/cost/cost.h"
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

const ScheduleTimes *schedule_times_of(Arena *a, const Module *m, const PassCx *cx)
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
