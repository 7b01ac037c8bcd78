/* cluster_group.c: tensor groups. What the planner sees of a group is its first device: every member does the same work on parts
 * of the same size, and messages between groups go from the k-th member to the k-th, all at once, so that links between
 * hosts are shared by the members. */
#include "cluster.h"

/* Devices from `first` on, of one host. */
static void make_group(Arena *a, Cluster *c, int to, int first, int members)
{
	const char *from = c->device[first].name, *last = c->device[first + members - 1].name;

	c->device[to] = c->device[first];
	c->device[to].members = members;
	if (members > 1)
		c->device[to].name = arena_printf(a, "%s..%s", from, last);
}

/* The members of the largest group share the links between hosts. */
static void share_links(Cluster *c, int members)
{
	for (int i = 0; i < c->nlink; i++)
		if (c->link[i].scope != LINK_WITHIN)
			c->link[i].bandwidth /= members;
}

/* Behind the last device of the first one's host. */
static int end_of_host(const Cluster *c, int first)
{
	int end = first + 1;

	while (end < c->ndevice && c->device[end].host == c->device[first].host)
		end++;
	return end;
}

bool cluster_group(Arena *a, Cluster *c, int tensor, Diag *d)
{
	int n = 0, most = 0;

	if (tensor < 2)
		return true;
	for (int i = 0, end; i < c->ndevice; i = end) {
		end = end_of_host(c, i);
		most = end - i > most ? end - i : most;
		for (int k = i; k + tensor <= end; k += tensor) /* n <= k: what is read is not yet written over */
			make_group(a, c, n++, k, tensor);
	}
	if (!n)
		return diag_error(d, FILELOC(c->file), 424,
			"--tensor %d: the members of a group are devices of one host, and no host of the cluster has more than %d",
			tensor, most);
	c->ndevice = n;
	share_links(c, tensor);
	return true;
}

bool cluster_groups(Arena *a, Cluster *c, const int *members, int n, const char *plan, Diag *d)
{
	int most = 1, at = 0;

	for (int r = 0; r < n; r++) {
		while (at < c->ndevice && end_of_host(c, at) - at < members[r])
			at = end_of_host(c, at);
		if (at >= c->ndevice || at >= cluster_workers(c))
			return diag_error(d, FILELOC(c->file), 424,
				"rank %d of plan %s is a group of %d devices: its members are devices of one host, and behind those of the ranks before it the cluster has no host of so many",
				r, plan, members[r]);
		make_group(a, c, r, at, members[r]); /* r <= at */
		at += members[r];
		most = members[r] > most ? members[r] : most;
	}
	c->ndevice = n;
	share_links(c, most);
	return true;
}
