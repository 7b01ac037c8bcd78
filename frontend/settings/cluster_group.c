/* cluster_group.c: tensor groups. What the planner sees of a group is its first device: every member does the same work on parts
 * of the same size, and messages between groups go from the k-th member to the k-th, all at once, so that links between
 * hosts are shared by the members. */
#include "cluster.h"

static int of_host(const Cluster *c, int host)
{
	int n = 0;

	for (int i = 0; i < c->ndevice; i++)
		n += c->device[i].host == host;
	return n;
}

bool cluster_group(Arena *a, Cluster *c, int tensor, Diag *d)
{
	int n = 0, seen = 0, most = 0;

	if (tensor < 2)
		return true;
	for (int i = 0; i < c->ndevice; i++) {
		const Device *dev = &c->device[i];
		const int has = of_host(c, dev->host);

		seen = i && c->device[i - 1].host == dev->host ? seen + 1 : 0;
		most = has > most ? has : most;
		if (seen % tensor || has - seen < tensor)
			continue;
		c->device[n] = *dev;
		c->device[n++].name = arena_printf(a, "%s..%s", dev->name, dev[tensor - 1].name);
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
