/* How long a sum over a group takes: the timing models of Pipe-SGD (section 3.1, equations 4 to 7), for each algorithm of
 * runtime/allreduce.c. Units: seconds, bytes. */
#ifndef PDCC_PASSES_SUMCOST_H
#define PDCC_PASSES_SUMCOST_H

#include "../ir/cluster.h"
#include "../runtime/rounds.h"

typedef enum SumBy { SUM_RING, SUM_DOUBLING, SUM_HALVING, SUM_PAIRWISE, SUM_EVERYONE, SUM_KINDS } SumBy;

/* alpha: latency of a message; beta: seconds per byte on the wire; gamma: seconds per byte that is added; sync: of every
 * sum, until all members are there. */
typedef struct SumModel { double alpha, beta, gamma, sync; } SumModel;

/* The slowest of the links that a ring over these devices (indices into Cluster.device) uses. */
SumModel sum_model(const Cluster *c, const int *device, int n);
/* Of one sum of so many bytes over n members. Ring, equation 5: 2(n-1) alpha + 2 (n-1)/n b beta + (n-1)/n b gamma + sync.
 * The others: the longest message of each of their rounds. */
double sum_seconds(const SumModel *m, SumBy by, int n, double bytes);
/* The algorithm that PD_SUM_AUTO takes for so many bytes: everyone to everyone for small sums of small groups. */
SumBy sum_auto(int n, double bytes);
SumBy sum_named(const char *by);        /* "ring" ...; "auto": SUM_KINDS */

/* Gradients that become ready one after another in a backward: gradient i, of bytes[i], at ready[i] seconds, in ascending
 * order. Gives how many buckets of equal bytes end first (equation 6: sums begin while the backward goes on, and each
 * costs its alpha and sync), the fewest of equals; 1: sequential. *end: when the last sum is made. */
typedef struct SumReady { double ready, bytes; } SumReady;
int sum_buckets(const SumModel *m, SumBy by, int n, const SumReady *g, int count, double *end);
/* The bucket limit that cuts them so: a bucket is closed once it has at least so many bytes. */
double sum_end(const SumModel *m, SumBy by, int n, const SumReady *g, int count, double limit);

#endif
