/* A model taken as far as its costs, so that partition can be asked again and again: with other settings, on other
 * clusters, quickly. What it says are the planner's estimates; nothing is compiled (probe.c). */
#ifndef PDCC_FRONTEND_PROBE_H
#define PDCC_FRONTEND_PROBE_H

#include "passes/common/plan.h"
#include "compile.h"

typedef struct Probe {
	Compile c;
	Diag mute;
	Options o;
} Probe;

/* The model with so many samples in a microbatch; nothing is printed. False: it cannot be had at that size. */
bool probe_open(Probe *p, const Compile *c, int64_t micro);
void probe_close(Probe *p);
/* A plan for these settings on that cluster; *plan's strings live until probe_close. quick: a first look. False: there is
 * none. A plan that needs more memory than there is has plan->over > 1. */
bool probe_plan(Probe *p, const Training *t, const Cluster *cluster, bool quick, Plan *plan);

/* A size of microbatch that was looked at, and the planner's estimates of the plan that it came with. */
typedef struct MicroChoice {
	int64_t micro;
	double step, over; /* seconds per step; largest share of its memory that a device needs */
	const char *plan;  /* "2-1-1" */
} MicroChoice;

/* A tensor degree with or without ZeRO that was looked at (auto_mesh.c): compiled, of which nothing was written. */
typedef struct Mesh {
	int64_t tensor, zero, samples; /* samples: of a step */
	double step, least;            /* seconds: as simulated; Plan.least */
	double over;                /* where it does not fit: of the plan that lacks least, in relation to the limit */
	int64_t peak, limit;        /* bytes of the fullest device; limit 0: not known */
	bool fits, unread;          /* unread: the model could not be read */
	int nodes;                  /* of the model */
	const char *plan, *refused; /* "2x4-1x4"; why there is none */
	struct Staged *as;          /* the plan stage by stage (passes/plan/unlike.h); NULL: it is none of such */
} Mesh;

/* What became of plans whose stages are divided unlike. */
typedef struct UnlikeFound {
	int tried;
	Mesh *best; /* NULL: none was tried, or none has a plan */
	const char *name, *told;
	bool taken;
	PlanSettings settings; /* of the best */
	int64_t micro;
} UnlikeFound;

/* Is the size of a microbatch to be decided with the plan (auto_microbatch.c)? */
bool micro_is_open(const Compile *c);
/* Looks at sizes, fills c->micro, best first: what fits, then the shortest step, then the larger. Sets c->m and the settings
 * to the best. False after a diagnostic. */
bool micro_choose(Compile *c);
/* Where none fits: looks at all sizes that halving leads to, and puts them behind the others. */
void micro_smaller(Compile *c);
/* Compile.sized, where there is a profile. */
void micro_sized(Compile *c);
/* Goes on with c->micro[i]. False after a diagnostic. */
bool micro_take(Compile *c, int i);

/* --pipe-sgd auto (auto_pipe_sgd.c): sets K, codec and buckets, where any choice has a plan. False after a diagnostic. Afterwards:
 * what was chosen, and why. */
bool pipe_sgd_choose(Compile *c);
void pipe_sgd_said(const Compile *c);

#endif
