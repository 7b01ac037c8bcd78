/* Questions about a cluster. */
#include "cluster.h"

int cluster_link_line(const Cluster *c, int a, int b)
{
	int ha = c->device[a].host, hb = c->device[b].host;

	for (int i = 0; i < c->nlink; i++) {
		const Link *l = &c->link[i];

		if (l->scope == LINK_DEFAULT ? ha != hb
			: l->scope == LINK_WITHIN
				? ha == hb
				: (l->host_a == ha && l->host_b == hb) || (l->host_a == hb && l->host_b == ha))
			return i;
	}
	return ha == hb ? c->nlink : c->nlink + 1;
}

Link cluster_link_of(const Cluster *c, int line)
{
	if (line < c->nlink)
		return c->link[line];
	if (line == c->nlink)
		return (Link){ .scope = LINK_WITHIN, .kind = "memory", .bandwidth = 8e9, .latency = 2e-6 };
	return (Link){ .scope = LINK_DEFAULT, .kind = "ethernet", .bandwidth = 1.25e9, .latency = 30e-6 };
}

Link cluster_link(const Cluster *c, int a, int b) { return cluster_link_of(c, cluster_link_line(c, a, b)); }

bool cluster_same_host(const Cluster *c, int a, int b)
{
	return c && a >= 0 && b >= 0 && a < c->ndevice && b < c->ndevice && c->device[a].host == c->device[b].host;
}

int cluster_workers(const Cluster *c)
{
	int n = 0;

	while (n < c->ndevice && (!c->nhost || c->host[c->device[n].host].worker))
		n++;
	return n;
}
