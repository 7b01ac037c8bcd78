/* cluster_group.c: tensor groups. What the planner sees of a group is its first device: every member does the same work on parts
 * of the same size, and messages between groups go from the k-th member to the k-th, all at once, so that links between
 * hosts are shared by the members. */
#include "cluster.h"

/* Devices from `first` on, of one host. */
static Device group_of(Arena *a, const Device *first, int members)
{
	Device d = *first;

	d.members = members;
	if (members > 1)
		d.name = arena_printf(a, "%s..%s", first->name, first[members - 1].name);
	return d;
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
			c->device[n++] = group_of(a, c->device + k, tensor);
	}
	if (!n)
		return diag_error(d, FILELOC(c->file), 424,
			"--tensor %d: the members of a group are devices of one host, and no host of the cluster has more than %d",
			tensor, most);
	c->ndevice = n;
	share_links(c, tensor);
	return true;
}

bool cluster_groups_fit(Arena *a, const Cluster *c, const int *members, const int *at, int n)
{
	const int workers = cluster_workers(c);
	bool *taken = NEWN(a, bool, c->ndevice);

	for (int r = 0; r < n; r++) {
		if (at[r] < 0 || at[r] + members[r] > workers || end_of_host(c, at[r]) - at[r] < members[r])
			return false;
		for (int i = at[r]; i < at[r] + members[r]; i++) {
			if (taken[i])
				return false;
			taken[i] = true;
		}
	}
	return true;
}

/* Where groups begin that are neighbours in the order of the cluster; NULL after E0424. */
static int *in_order(Arena *a, const Cluster *c, const int *members, int n, const char *plan, Diag *d)
{
	int *first = NEWN(a, int, n), at = 0;

	for (int r = 0; r < n; r++) {
		while (at < c->ndevice && end_of_host(c, at) - at < members[r])
			at = end_of_host(c, at);
		if (at >= c->ndevice || at >= cluster_workers(c)) {
			diag_error(d, FILELOC(c->file), 424,
				"rank %d of plan %s is a group of %d devices: its members are devices of one host, and behind those of the ranks before it the cluster has no host of so many",
				r, plan, members[r]);
			return NULL;
		}
		first[r] = at;
		at += members[r];
	}
	return first;
}

bool cluster_groups(Arena *a, Cluster *c, const int *members, const int *at, int n, const char *plan, Diag *d)
{
	const int *first = at ? at : in_order(a, c, members, n, plan, d);
	Device *was = c->device;
	int most = 1;

	if (!first)
		return false;
	c->device = NEWN(a, Device, n);
	for (int r = 0; r < n; r++) {
		c->device[r] = group_of(a, was + first[r], members[r]);
		most = members[r] > most ? members[r] : most;
	}
	c->ndevice = n;
	share_links(c, most);
	return true;
}
