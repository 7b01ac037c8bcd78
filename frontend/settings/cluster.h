/* cluster.yaml -> struct Cluster. */
#ifndef PDCC_FRONTEND_CLUSTER_H
#define PDCC_FRONTEND_CLUSTER_H

#include "ir/cluster.h"

/* `path` is a file, "local" (one device), "local:N", or what hosts.h reads. */
/* So many neighbours on a host become one device, which several programs share out (--tensor); what is left over of a host is not
 * used. False after E0424 where no host has so many. */
bool cluster_group(Arena *a, Cluster *c, int tensor, Diag *d);
/* The same of groups of unlike sizes, of a plan that is called so: device r becomes the members[r] neighbours from device at[r] on;
 * at NULL: the first so many of a host behind those of device r - 1. False after E0424. */
bool cluster_groups(Arena *a, Cluster *c, const int *members, const int *at, int n, const char *plan, Diag *d);
/* Are these groups of neighbours of one host that train, no device in two of them? */
bool cluster_groups_fit(Arena *a, const Cluster *c, const int *members, const int *at, int n);
bool cluster_read(Arena *a, const char *path, Cluster *c, Diag *d);

#endif
