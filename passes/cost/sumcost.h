/* How long a sum over a group takes: the timing models of Pipe-SGD (section 3.1, equations 4 to 7), for each algorithm of
 * runtime/comm/allreduce.c. Units: seconds, bytes. */
#ifndef PDCC_PASSES_SUMCOST_H
#define PDCC_PASSES_SUMCOST_H

#include "ir/cluster.h"
#include "ir/training.h"
#include "runtime/comm/rounds.h"

/* SUM_EVERYONE: what PD_SUM_AUTO does with small sums of small groups. SUM_KINDS: the one that ends first. */
typedef enum SumBy { SUM_RING, SUM_DOUBLING, SUM_HALVING, SUM_PAIRWISE, SUM_HOSTS, SUM_EVERYONE, SUM_KINDS } SumBy;

/* alpha: latency of a message; beta: seconds per byte on the wire; gamma: seconds per byte that is added; sync: of every
 * sum, until all members are there. Members of a host share its link to others, each way; inside it each has its own. */
typedef struct SumWay {
	double alpha, beta;
} SumWay;
typedef struct SumModel {
	SumWay within, between;
	double gamma, sync;
	int n;
	const int *host;    /* of each member; NULL: each on its own */
	rounds_hosts hosts; /* the same, numbered; n is 0 where host is NULL */
	/* By algorithm: seconds of 0 bytes (of a slice, of a round of the ring), and per byte; 0: not known yet. NULL: all is counted
	 * out. */
	double (*line)[2];
} SumModel;

/* What is asked of the sums of gradients (frontend/settings/train_comm.c). */
typedef struct SumRule {
	SumBy by;          /* SUM_KINDS: what is predicted to be fastest */
	bool plain;        /* nobody chooses: trees of --reproducible and sums of f64, taken for rings */
	double bucket;     /* least bytes of a bucket; 0: as predicted */
	bool early;        /* sums begin during the last backward */
	const char *codec; /* NULL: messages are not packed */
	int64_t block;
	bool packed_if; /* only where that is predicted to be faster */
} SumRule;

/* Over n devices (indices into Cluster.device): the slowest of the links among them, inside hosts and between. */
SumModel sum_model(Arena *a, const Cluster *c, const int *device, int n);
/* Of one sum of so many bytes. Ring between hosts, equation 5: 2(n-1) alpha + 2 (n-1)/n b beta + (n-1)/n b gamma + sync, where a
 * chunk, b/n, is one segment of the runtime's (128 KiB); segments of longer ones s bytes flow while others travel, and a round takes
 * max(b/n beta, alpha + s beta), the last one alpha + b/n beta.
 * Round by round the others: what the busiest link of each carries; those of rounds.h slice by slice. */
double sum_seconds(const SumModel *m, SumBy by, double bytes);
/* By the ring with packed messages (runtime/comm/compress.c), `wire` bytes of `bytes`: packing goes on beside sending, the longer
 * of them counts (section 3.2). Bytes on the wire of so many bytes of f32, by the name of the codec. */
double sum_packed_seconds(const SumModel *m, double bytes, double wire);
int64_t sum_wire(const char *codec, int64_t block, int64_t bytes);
/* Which one SUM_KINDS means for so many bytes: what PD_SUM_AUTO takes (the ring, whose segments travel while others are
 * added; everyone to everyone for small sums) unless another is predicted to be a tenth faster. */
SumBy sum_best(const SumModel *m, double bytes);
SumRule sum_rule(const Training *t); /* NULL: nothing is asked */
/* How such a sum goes; *wire: its bytes, packed or not. m NULL: nothing is known of the links. */
SumBy sum_choice(const SumModel *m, const SumRule *r, double bytes, double *wire);
bool sum_is_small(const SumModel *m, double bytes); /* PD_SUM_AUTO would go to everyone */
SumBy sum_named(
	const char *by); /* as in AllReduce {by}: "ring" ...; "vendor" is taken for a ring; NULL, "auto": SUM_KINDS */
SumBy sum_asked(AllReduceBy by); /* of --allreduce */
const char *sum_name(SumBy by);  /* as in AllReduce {by} */

/* Gradients that become ready one after another in a backward: gradient i, of bytes[i], at ready[i] seconds, in ascending
 * order. Gives how many buckets of equal bytes end first (equation 6: sums begin while the backward goes on, and each
 * costs its alpha and sync), the fewest of equals; 1: sequential. *end: when the last sum is made. */
typedef struct SumReady {
	double ready, bytes;
} SumReady;
int sum_buckets(const SumModel *m, SumBy by, const SumReady *g, int count, double *end);
/* The bucket limit that cuts them so, or as asked: a bucket is closed once it has at least so many bytes. 0: there is one, which need
 * not begin before all else is done. beside: the device has other stages, whose backwards go on beside even one that begins early. */
double sum_limit(const SumModel *m, const SumRule *r, const SumReady *g, int count, bool beside);
/* When the last sum is made with that limit. */
double sum_end(const SumModel *m, SumBy by, const SumReady *g, int count, double limit);

#endif
