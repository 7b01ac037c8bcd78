/* The published planners as a library over layer profiles, each with the cost model of its paper and of its published
 * code. Units: seconds, bytes, bytes per second. Symbols in formulas: T compute seconds, a bytes of activations that
 * cross a cut, w bytes of parameters, B bandwidth, M devices, r replicas of a stage, k the last state before it.
 * Plans are over states (states.h); a stage [start, end) has the layers of state end - 1 that are not of start - 1.
 * Tie rule: one stage rather than several, then the latest cut in the order of the states, then the fewest replicas of
 * the last stage; the stages before it follow the same rule. (The published code walks a set of objects by their
 * addresses, so that its choice among equal plans differs from run to run.) */
#ifndef PDCC_PASSES_PLANNER_PLANNER_H
#define PDCC_PASSES_PLANNER_PLANNER_H

#include "states.h"

/* ---- PipeDream (pipedream.c, pipedream_levels.c) ----
 * A(j, M) = the best of one stage on M devices and, over all k before j and r < M, max(A(k, M - r), S(k, j, r), X).
 *   cost     one stage on m            last stage S on r of several     X
 *   SOSP     (T + 4(m-1)w/(mB)/g)/m    (T + 4(r-1)w/(rB))/r             max(2 a_k, 2 a_j unless last) / (B r c)
 *   PAPER    max(T, 4(m-1)w/(mB))/m    the same                         2 a_k / B
 *   OLD      max(T, 4(m-1)w/(mB))/m    the same                         max(2 a_k, 2 a_{j-1} unless last) / (B r)
 *   ONCE     as PAPER                  the same                         2 in(k, j) / B
 *   TEXT     max(T, 2(m-1)w/B)/m       the same                         2 a_k / B
 *   RING     T/m + 2(m-1)(l + w/(mB))/n    the same                     2 (l + in(k, j) / B) / r
 * SOSP: optimizer_graph_hierarchical.py, the published code; g: devices per machine of the level below, missing in S
 * there as well; X only with a compression ratio c. PAPER: arXiv:1806.03377 section 3.2. OLD: optimizer.py, a is a
 * state's own output; chains only. ONCE: PAPER with in(k, j), the bytes the stage reads, every live tensor counted once
 * per consumer stage however many cuts it passes. TEXT: the formula of the SOSP'19 paper's text. RING: what our programs do,
 * gradients summed by a ring once in a step of n microbatches over links of latency l. */
typedef enum PdCost { PD_SOSP, PD_PAPER, PD_OLD, PD_ONCE, PD_TEXT, PD_RING } PdCost;

enum { PD_LEVELS = 4 };

typedef struct PdOpt {
	PdCost cost;
	int nlevel;              /* 1: flat. Several levels, lowest first: SOSP only */
	int machines[PD_LEVELS]; /* devices of a machine, machines of a group, .. */
	double bandwidth[PD_LEVELS];
	double latency, micro; /* RING: seconds of a link; microbatches per step */
	double compression;    /* c; 0: transfers are not counted (SOSP) */
	bool straight;         /* one replica each, as many stages as devices */
	bool fewer;            /* devices may be left unused */
	/* Bytes per device; 0: no limit. A stage on r devices with D devices behind it, counted on its level, keeps
	 * v (activations + parameters), v = ceil(D/r): SOSP and PAPER; v activations + parameters: OLD;
	 * (v + 1)(activations + parameters), the resident copy too: ONCE. */
	double memory;
} PdOpt;

typedef struct PdStage {
	int start, end, replicas;
	double compute;
} PdStage;

/* The stages of one group of a level: they split what one stage of the level above has. */
typedef struct PdGroup {
	PdStage *stage;
	int n, level;
} PdGroup;

typedef struct PdPlan {
	double seconds;       /* per minibatch, in the steady state */
	double single;        /* all layers on one device */
	double data_parallel; /* one stage on all devices, by the same cost */
	PdGroup *group;
	int ngroup; /* highest level first */
	int unused; /* devices of the highest level; others only with `fewer` */
} PdPlan;

/* False after an error: E0465 no plan fits (the least memory that would is named), E0466 settings that do not go
 * together, E0467 too big for the memory the search may take. */
bool pipedream_plan(Arena *a, const States *st, const PdOpt *o, PdPlan *plan, Diag *d);

/* The objective of a flat plan given by its stages, by the same cost; INFINITY when it is not legal or does not fit. */
double pipedream_cost(const States *st, const PdOpt *o, const PdStage *stage, int n);

/* ---- torchgpipe's block partition (blocks.c) ----
 * Costs of a row of layers, cut into `parts` blocks of neighbours so that they are even. `blocks_published` is the
 * heuristic of torchgpipe.balance (Barany and Grinberg, "Block partitions of sequences"): blocks grow and shrink from
 * equal spans of the cost until the largest and the smallest differ by at most the largest cost; the answer need not
 * be optimal. Where the published code would take a layer from an empty block, one comes from the next block towards the
 * largest, as that paper says; a block may be left empty. `blocks_optimal` has the least largest block; ties by the
 * earliest cut from the back. size[parts] gets the number of layers per block, the answer is the largest block.
 * parts <= n. O(n^2 parts). */
double blocks_published(Arena *a, const double *cost, int n, int parts, int *size);
double blocks_optimal(Arena *a, const double *cost, int n, int parts, int *size);

#endif
