/* How long what several devices do together takes, once all of them are there. */
#include "simulate.h"

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

double sim_join_seconds(const SimModel *m, const SimJoin *j)
{
	Link l = { .bandwidth = 0 };

	if (j->n < 2)
		return 0;
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
