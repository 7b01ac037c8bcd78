/* DAPPLE's view of a cluster: servers of devices, three ways to give a stage devices, the cost of moving bytes. */
#include "dapple.h"

int dapple_devices(const DappleCluster *c) { return c->servers ? c->end[c->servers - 1] : 0; }

bool dapple_cluster_check(const DappleCluster *c, Diag *d)
{
	if (c->servers < 1 || c->servers > DAPPLE_DEVICES)
		return diag_error(
			d, NOLOC, 441, "a cluster has %d servers; 1 to %d can be planned", c->servers, DAPPLE_DEVICES);
	for (int s = 0, last = 0; s < c->servers; last = c->end[s++])
		if (c->end[s] <= last || c->end[s] > DAPPLE_DEVICES)
			return diag_error(d, NOLOC, 441, "server %d ends at device %d; ends rise from %d to at most %d",
				s, c->end[s], last, DAPPLE_DEVICES);
	if (!(c->p2p > 0 && c->nccl > 0 && c->nvlink > 0) || c->memory < 0)
		return diag_error(d, NOLOC, 441,
			"bandwidths %.15g, %.15g, %.15g and memory %.15g: the first three must be positive, memory not "
			"negative",
			c->p2p, c->nccl, c->nvlink, c->memory);
	return true;
}

static DappleSet server(const DappleCluster *c, int s)
{
	const int from = s ? c->end[s - 1] : 0, n = c->end[s] - from;

	return (n == 64 ? ~(DappleSet)0 : ((DappleSet)1 << n) - 1) << from;
}

static DappleSet lowest(DappleSet of) { return of & (~of + 1); }

/* One device of each server in turn, until all are given or a round gives none. */
static DappleSet rounds(const DappleCluster *c, DappleSet used, int *need, bool only_used)
{
	DappleSet given = 0;

	for (bool more = true; more && *need;) {
		more = false;
		for (int s = 0; s < c->servers && *need; s++) {
			const DappleSet all = server(c, s), left = all & ~used & ~given;
			if (!left || (only_used && !(all & used)))
				continue;
			given |= lowest(left);
			*need -= 1;
			more = true;
		}
	}
	return given;
}

DappleSet dapple_place(const DappleCluster *c, DappleSet used, int need, DapplePolicy policy)
{
	DappleSet given = 0;

	if (policy == DAPPLE_SCATTER || policy == DAPPLE_SPREAD) {
		if (policy == DAPPLE_SPREAD)
			given = rounds(c, used, &need, true);
		given |= rounds(c, used | given, &need, false);
	} else {
		for (int s = 0; s < c->servers; s++) {
			const DappleSet all = server(c, s);
			if (!(all & used) != (policy == DAPPLE_FRESH))
				continue;
			for (DappleSet left = all & ~used; left && need; left &= left - 1, need--)
				given |= lowest(left);
		}
	}
	return need ? 0 : given;
}

/* The server that holds all of a set, -1 if there are several. */
static int home(const DappleCluster *c, DappleSet set)
{
	for (int s = 0; s < c->servers; s++)
		if (set & server(c, s))
			return set & ~server(c, s) ? -1 : s;
	return -1;
}

double dapple_allreduce(const DappleCluster *c, DappleSet devices, double bytes)
{
	const int n = __builtin_popcountll(devices);

	if (n < 2)
		return 0;
	const double ring = bytes * 2 * (n - 1) / n;
	return home(c, devices) < 0 ? ring / c->nccl : ring / c->nvlink / (n / 2);
}

double dapple_transfer(const DappleCluster *c, DappleSet from, DappleSet to, double bytes)
{
	const int s = home(c, to);

	if (s < 0)
		return bytes / c->nccl;
	const int outside = __builtin_popcountll(from & ~server(c, s));
	return outside ? bytes / __builtin_popcountll(from) * outside / c->p2p : bytes / c->nvlink;
}
