/* Clusters from the host lists of other launchers. */
#ifndef PDCC_FRONTEND_HOSTS_H
#define PDCC_FRONTEND_HOSTS_H

#include "ir/cluster.h"

/* `path` may be a file of lines `10.0.0.1: 0,1` (Parallax) or `host slots=4` (MPI, Horovod, DeepSpeed), or the words
 * `a:4,b:4`, `hosts:a,b`, `nnodes=2,nproc=8`, `slurm`. Fills hosts and devices of *c. 1: read; 0: after E0106; -1: it is
 * nothing of these. */
int hosts_read(Arena *a, const char *path, Cluster *c, Diag *d);

#endif
