/* cluster_group.c: tensor groups. What the planner sees of a group is its first device: every member does the same work on parts
 * of the same size, and messages between groups go from the k-th member to the k-th, all at once, so that links between
 * hosts are shared by the members. */
#include "cluster.h"

bool cluster_group(Arena *a, Cluster *c, int tensor, Diag *d)
{
	int n = 0, most = 0;

	if (tensor < 2)
		return true;
	for (int i = 0, end; i < c->ndevice; i = end) {
		for (end = i + 1; end < c->ndevice && c->device[end].host == c->device[i].host;)
			end++;
		most = end - i > most ? end - i : most;
		for (int k = i; k + tensor <= end; k += tensor) { /* n <= k: what is read is not yet written over */
			const char *last = c->device[k + tensor - 1].name;

			c->device[n] = c->device[k];
			c->device[n].name = arena_printf(a, "%s..%s", c->device[k].name, last);
			n++;
		}
	}
	if (!n)
		return diag_error(d, FILELOC(c->file), 424,
			"--tensor %d: the members of a group are devices of one host, and no host of the cluster has more than %d",
			tensor, most);
	c->ndevice = n;
	for (int i = 0; i < c->nlink; i++)
		if (c->link[i].scope != LINK_WITHIN)
			c->link[i].bandwidth /= tensor;
	return true;
}
