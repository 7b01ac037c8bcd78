/* Questions about a cluster. */
#include "cluster.h"

Link cluster_link(const Cluster *c, int a, int b)
{
	int ha = c->device[a].host, hb = c->device[b].host;

	for (int i = 0; i < c->nlink; i++) {
		const Link *l = &c->link[i];

		if (l->scope == LINK_DEFAULT ? ha != hb : l->scope == LINK_WITHIN ? ha == hb :
		    (l->host_a == ha && l->host_b == hb) || (l->host_a == hb && l->host_b == ha))
			return *l;
	}
	if (ha == hb)
		return (Link){ .scope = LINK_WITHIN, .kind = "memory", .bandwidth = 8e9, .latency = 2e-6 };
	return (Link){ .scope = LINK_DEFAULT, .kind = "ethernet", .bandwidth = 1.25e9, .latency = 30e-6 };
}
