/* The plan as plain data: stages, replicas, devices, what was predicted. Filled by partition and place, printed by the
 * front end and codegen. Text form: replicas of each stage, "2-1-1". */
#ifndef PDCC_IR_PLAN_H
#define PDCC_IR_PLAN_H

#include "ir.h"

typedef struct PlanStage {
	int         replicas;
	double      fwd, bwd;       /* predicted seconds per microbatch */
	double      update;         /* predicted seconds per step: optimizer, and summing gradients over the replicas */
	int64_t     weight_bytes;   /* weights that are used here */
	int64_t     out_bytes;      /* per microbatch, to later stages; gradients come back in the same size */
	int         nodes, heavy;   /* forward nodes; those with a library call */
	const char *first, *last;   /* ONNX names of its first and last heavy node */
} PlanStage;

typedef struct Plan {
	int         nstage;
	PlanStage  *stage;
	int         ndevice;        /* ranks */
	int        *rank;           /* by stage: of its replica 0; stage-major, where no device runs several stages */
	int        *device;         /* by rank: index into Cluster.device; set by partition */
	int64_t     microbatches;   /* per step, over all replicas */
	double      step_time;      /* predicted seconds per step */
	double      one_time;       /* the same step on one device */
	bool        forced;         /* --plan said so */
	const char *by;             /* what proposed it: a planner, "local search", "as asked" */
} Plan;

/* The replica that does microbatch g of `micro`: blocks of a step, or of every `grains` where these are sliced (not 0). */
static inline int plan_replica_of(int64_t g, int replicas, int64_t micro, int64_t grains)
{
	return (int)(grains ? g % grains * replicas / grains : g * replicas / micro);
}

#endif
