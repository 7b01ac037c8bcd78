/* The timing models of sums over a group: sumcost.h. */
#include "sumcost.h"
#include <string.h>

enum { SMALL = 4096 * 4, WINDOW = 8, MOST = 64 };       /* bytes, members: as in runtime/allreduce.c; buckets */

/* What the runtime adds to a link: a poll of its progress thread per message, a pass over memory per byte that is added,
 * and the wake of that thread per sum. */
static const SumModel software = { .alpha = 15e-6, .gamma = 0.15e-9, .sync = 60e-6 };

SumModel sum_model(const Cluster *c, const int *device, int n)
{
	SumModel m = software;
	double bandwidth = 0, latency = 0;

	for (int i = 0; i < n && n > 1; i++) {
		const Link l = cluster_link(c, device[i], device[(i + 1) % n]);

		latency = l.latency > latency ? l.latency : latency;
		if (l.bandwidth > 0 && (bandwidth <= 0 || l.bandwidth < bandwidth))
			bandwidth = l.bandwidth;
	}
	m.alpha += latency;
	m.beta = bandwidth > 0 ? 1 / bandwidth : 0;
	return m;
}

SumBy sum_auto(int n, double bytes)
{
	return bytes <= SMALL && n - 1 <= WINDOW ? SUM_EVERYONE : SUM_RING;
}

SumBy sum_named(const char *by)
{
	static const char *const name[] = { "ring", "doubling", "halving", "pairwise" };

	for (int i = 0; i < 4; i++)
		if (by && strcmp(by, name[i]) == 0)
			return (SumBy)i;
	return SUM_KINDS;
}

static double rounds_seconds(const SumModel *m, SumBy by, int n, double bytes)
{
	static const rounds_kind kind[] = { [SUM_DOUBLING] = ROUNDS_DOUBLING, [SUM_HALVING] = ROUNDS_HALVING,
		[SUM_PAIRWISE] = ROUNDS_PAIRWISE };
	double all = m->sync;
	rounds_step x;

	for (int k = 0; rounds_step_of(kind[by], n, 0, k, (size_t)(bytes / 4), &x); k++) {
		double sent = 0, added = 0;

		for (int i = 0; i < n; i++)
			if (rounds_step_of(kind[by], n, i, k, (size_t)(bytes / 4), &x)) {
				sent = x.to >= 0 && 4 * (double)x.send_n > sent ? 4 * (double)x.send_n : sent;
				added = x.from >= 0 && x.add && 4 * (double)x.recv_n > added ? 4 * (double)x.recv_n : added;
			}
		all += m->alpha + sent * m->beta + added * m->gamma;
	}
	return all;
}

double sum_seconds(const SumModel *m, SumBy by, int n, double bytes)
{
	const double p = n, share = (p - 1) / p * bytes;

	if (n < 2)
		return 0;
	by = by == SUM_KINDS ? sum_auto(n, bytes) : by;
	if (by == SUM_RING)
		return 2 * (p - 1) * m->alpha + 2 * share * m->beta + share * m->gamma + m->sync;
	if (by == SUM_EVERYONE)
		return m->alpha + (p - 1) * bytes * (m->beta + m->gamma) + m->sync;
	return rounds_seconds(m, by, n, bytes);
}

double sum_end(const SumModel *m, SumBy by, int n, const SumReady *g, int count, double limit)
{
	double end = 0, bytes = 0;

	for (int i = 0; i < count; i++) {
		bytes += g[i].bytes;
		if (bytes < limit && i < count - 1)
			continue;
		end = (g[i].ready > end ? g[i].ready : end) + sum_seconds(m, by, n, bytes);
		bytes = 0;
	}
	return end;
}

int sum_buckets(const SumModel *m, SumBy by, int n, const SumReady *g, int count, double *end)
{
	double all = 0;
	int best = 1;

	for (int i = 0; i < count; i++)
		all += g[i].bytes;
	*end = sum_end(m, by, n, g, count, all);
	for (int k = 2; k <= count && k <= MOST; k++) {
		const double t = sum_end(m, by, n, g, count, all / k);

		if (t < *end) {
			*end = t;
			best = k;
		}
	}
	return best;
}
