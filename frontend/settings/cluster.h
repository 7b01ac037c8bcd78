/* cluster.yaml -> struct Cluster. */
#ifndef PDCC_FRONTEND_CLUSTER_H
#define PDCC_FRONTEND_CLUSTER_H

#include "ir/cluster.h"

/* `path` is a file, "local" (one device), "local:N", or what hosts.h reads. */
bool cluster_read(Arena *a, const char *path, Cluster *c, Diag *d);

#endif
