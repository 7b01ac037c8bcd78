/* DAPPLE's planner: synchronous pipelines with data parallelism inside the stages, placed by topology.
 *
 * Source: Fan et al., "DAPPLE: A Pipelined Data Parallel Approach for Training Large Models" (2020), section IV, and the
 * planner that its authors published. The two differ, so there are two searches over one profile and one cluster:
 *   dapple_published   scores as the published program does; what is known from it is wanted (its tables, its plans)
 *   dapple_plan        the paper's equations (1)-(5) with pivot stage; the library's own default
 * Units: seconds, bytes, bytes per second, samples. A state is a place where the model may be cut (profile below); stages
 * are [begin, end) over states. Complexity is stated at each search; N states, G devices, P sets of devices that the three
 * placements reach (9 to 81 for two servers of eight, growing as the product of the servers' sizes plus one). */
#ifndef PDCC_PASSES_PLANNER_DAPPLE_H
#define PDCC_PASSES_PLANNER_DAPPLE_H

#include <stdbool.h>
#include <stdint.h>
#include "states.h"

enum { DAPPLE_DEVICES = 64, DAPPLE_STATES = 8192 };

/* ---- profiles (dapple_profile.c) ---- */
/* One entry per state, everything for the profiled batch: sums over the state and all that it depends on, in an order in
 * which every state follows those it depends on. Stage (k, j] costs sum[j] - sum[k]. */
typedef struct DappleProfile {
	int n, words;         /* states; 64-bit words per row of before */
	double *fwd, *time;   /* seconds forward; forward and backward */
	double *act, *params; /* bytes of all outputs; bytes of parameters */
	double *cut;          /* bytes that cross a cut behind this state, one way (no sum) */
	uint64_t *before;     /* row j, bit k: state k is an ancestor of j: a stage (k, j] is possible */
} DappleProfile;

/* Of the states of a trimmed profile, without `live` (what the published program counts at a cut). O(N^2). */
DappleProfile *dapple_profile(Arena *a, const States *st);
/* A chain of n layers: seconds and bytes per layer; act is what crosses behind the layer. */
DappleProfile *dapple_chain(
	Arena *a, int n, const double *fwd, const double *bwd, const double *act, const double *params);
static inline bool dapple_before(const DappleProfile *p, int k, int j)
{
	return k < 0 || (p->before[(size_t)j * (size_t)p->words + (size_t)k / 64] >> (k % 64) & 1);
}

/* ---- clusters and placement (dapple_place.c) ---- */
typedef uint64_t DappleSet; /* bit i: device i */
typedef struct DappleCluster {
	int servers, end[DAPPLE_DEVICES]; /* server s has devices end[s-1] .. end[s]-1; end[servers-1] devices in all */
	double p2p, nccl, nvlink;         /* bytes/s: one link and a collective between servers, a link inside one */
	double memory;                    /* bytes of a device; 0: unlimited */
} DappleCluster;

/* Fresh: whole servers that nothing uses. Append: servers that are in use. Scatter: one device of each server in turn;
 * SPREAD is the paper's text, which stays on servers in use while there are any, SCATTER the published program's. */
typedef enum DapplePolicy { DAPPLE_FRESH, DAPPLE_APPEND, DAPPLE_SCATTER, DAPPLE_SPREAD } DapplePolicy;

bool dapple_cluster_check(const DappleCluster *c, Diag *d); /* false after E0441 */
int dapple_devices(const DappleCluster *c);
/* `need` further devices beside `used`; 0 where the policy cannot give them. Lowest numbers of a server first. */
DappleSet dapple_place(const DappleCluster *c, DappleSet used, int need, DapplePolicy policy);
/* Ring AllReduce of w bytes over n devices: 2 w (n-1)/n / nccl across servers, / nvlink / floor(n/2) inside one. */
double dapple_allreduce(const DappleCluster *c, DappleSet devices, double bytes);
/* Split and concat of z bytes from one set to another. Receivers in one server: the senders' share outside it over p2p,
 * or all over nvlink when there are none; receivers in several servers: z / nccl. */
double dapple_transfer(const DappleCluster *c, DappleSet from, DappleSet to, double bytes);

/* ---- plans ---- */
typedef struct DappleStage {
	int begin, end; /* states */
	DappleSet devices;
	int replicas;     /* devices, divided by the plan's copies */
	double fwd, bwd;  /* seconds of one microbatch, sliced over the devices */
	double transfer;  /* seconds of one microbatch to the next stage, one way; 0 for the last */
	double allreduce; /* seconds once per global batch */
	double memory;    /* bytes per device with `depth` microbatches in flight */
	int depth;        /* K_i: forwards before the first backward */
} DappleStage;

typedef struct DapplePlan {
	int n, copies; /* stages; whole pipelines beside each other (published search only, else 1) */
	DappleStage *stage;
	int microbatches, pivot; /* pivot counts transfers as stages: 2 s is stage s, 2 s + 1 the transfer behind it */
	double block;            /* published: the slowest block at the size of the global batch */
	double latency, speedup; /* seconds per global batch; against one device */
} DapplePlan;

typedef struct DappleOptions {
	double profiled, batch,
		least;    /* samples: of the profile, of the global batch, the least per device at a time */
	double scaling;   /* bytes kept per byte of parameters (gradients, optimizer); 0: 1 */
	double peak;      /* activation bytes per sample, for the estimates of data parallelism */
	int microbatches; /* dapple_plan: 0 tries all counts that give every device `least` samples or more */
	bool literal;     /* equation (1) as printed, not as corrected */
	char warmup;      /* 'A': K_i = min(S-i, D); 'B': K_i = min(2(S-i)-1, D); 0 is A */
	bool policies;    /* dapple_plan: the paper's placements only; else all where there are few (256 sets), and
	                             * the search begins with the published program's candidates */
	int width;        /* dapple_plan: prefixes kept per (states, devices); 0: 4, the paper keeps 1 */
} DappleOptions;

/* ---- the published program (dapple.c, dapple_score.c) ---- */
typedef struct DapplePublished {
	int n;
	DapplePlan *candidate; /* in its order: i = 2..G groups, straight 2, straight G, the best of all pairs */
	int best;
	long explored; /* stages tried */
} DapplePublished;

/* All candidates. For every i in 2..G: G/i copies of a pipeline over i groups, the least slowest block by dynamic
 * programming over (state, groups, devices in use), no AllReduce in it; then the score below. Ties: the first cut, the
 * fewest devices for the last stage, fresh before append before scatter. NULL after E0441/E0442 (fewer states than
 * devices is no fault here: such candidates are left out). O(N^2 G^2 P) in the worst case. */
DapplePublished *dapple_published(
	Arena *a, const DappleProfile *p, const DappleCluster *c, const DappleOptions *o, Diag *d);
/* Fills latency and speedup from stages, copies and block:
 *   M = floor(batch / copies / least), b = block / M,
 *   L = (M-1) b + T/(copies M) + sum of transfers of cut/(copies M) + max over s of max(0, AR_s - s b), speedup = T / L.
 * Parameters of a stage that is not the last count one state more (so does the published program). */
void dapple_score(const DappleProfile *p, const DappleCluster *c, const DappleOptions *o, DapplePlan *plan);
/* max( T_s/devices, transfer of `times` cut ) over the stages, at the size of the global batch: the search counts a cut
 * twice (there and back), the list of all pairs once. */
double dapple_block(
	const DappleProfile *p, const DappleCluster *c, const DappleOptions *o, const DapplePlan *plan, double times);
/* The published event recursion of the early-backward schedule: the speedup of a plan. O(stages * microbatches). */
double dapple_recursion(const DappleProfile *p, const DappleCluster *c, const DappleOptions *o, const DapplePlan *plan);
/* Data parallelism on all devices: without overlap, overlapped with the backward pass, also with the next forward pass. */
typedef struct DappleDp {
	double plain, overlap, inter;
} DappleDp;
DappleDp dapple_dp(const DappleProfile *p, const DappleCluster *c, const DappleOptions *o);

/* ---- the paper (dapple_cost.c, dapple_plan.c, dapple_every.c) ---- */
/* Equations (1)-(3) over n stages, transfers included (their ar is 0): pivot Q from the last stage down, a stage becomes
 * the pivot when (M-1)(F+B) of it exceeds that of the pivot plus all F+B between them; L = sum of F up to Q +
 * (M-1)(F_Q+B_Q) + T_e. T_e is the largest AR_s + sum of B from s to Q for s <= Q, AR_s - sum of B from Q+1 to s-1 for
 * s > Q; literal: the printed cases, - sum of B from Q to s for s >= Q. O(n). */
double dapple_latency(int n, const double *fwd, const double *bwd, const double *ar, int m, bool literal, int *pivot);
/* The best plan by equations (4) and (5): T_PL(j, m, g), all rests on the devices left. Also data parallelism on all
 * devices. Memory: a stage must hold scaling * parameters and one microbatch; K_i falls where it cannot hold more. Ties:
 * the first found: fewer microbatches, fewer states, fewer devices. NULL after E0441, or E0442 with the least memory per
 * device that would do. O(N^2 G P) prefixes times `width` times stages, per count of microbatches, where no plan is
 * known; with one, stages whose bound is above it are left out. */
DapplePlan *dapple_plan(
	Arena *a, const DappleProfile *p, const DappleCluster *c, const DappleOptions *o, long *explored, Diag *d);
/* Every cut and every placement, by the equation (published: by the score). Small cases only: 12 states, 8 devices. */
DapplePlan *dapple_exhaustive(
	Arena *a, const DappleProfile *p, const DappleCluster *c, const DappleOptions *o, bool published, Diag *d);
/* A plan with given stages (begin, end, devices) and microbatches: times, memory, depths, latency. False: no memory. */
bool dapple_evaluate(const DappleProfile *p, const DappleCluster *c, const DappleOptions *o, DapplePlan *plan);
const char *dapple_str(Arena *a, const DapplePlan *plan); /* "8:8" */

#endif
