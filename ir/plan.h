/* The plan as plain data: stages, replicas, devices, what was predicted. Filled by partition and place, printed by the
 * front end and codegen. Text form: replicas of each stage, "2-1-1". */
#ifndef PDCC_IR_PLAN_H
#define PDCC_IR_PLAN_H

#include "ir.h"
#include "training.h"

typedef struct PlanStage {
	int replicas;
	double fwd, bwd;          /* predicted seconds per microbatch */
	double update;            /* predicted seconds per step: optimizer, and summing gradients over the replicas */
	int64_t out_bytes;        /* per microbatch, to later stages; gradients come back in the same size */
	int nodes;                /* of its forward */
	const char *first, *last; /* ONNX names of its first and last node with a library call */
	const char *until;        /* the segment it ends with, as plan files name it; NULL: the end */
} PlanStage;

/* Where a step goes on the device that computes most: forwards and backwards; sums of gradients over replicas; update;
 * everything else it waits for. Seconds per step. */
typedef struct PlanTerms {
	double work, sum, update, wait;
} PlanTerms;

/* `shard: N` of a stage of a plan file, and where it stands. */
typedef struct GivenShard {
	bool said;
	int zero, line, col;
} GivenShard;

/* A plan as a file gives it. */
typedef struct GivenPlan {
	const char *file;
	int n;              /* stages */
	const char **until; /* by stage: its last segment; NULL: the end. NULL where the cuts are to be found */
	int *line, *col;    /* by stage: where in the file, at `until` where it has one */
	int *replicas;
	int ndevice, *device; /* by rank: index into Cluster.device */
	int64_t micro;        /* microbatches per step; 0: not said */
	int64_t batch;        /* samples of a step; 0: not said */
	int zero;             /* `zero: N`; 0: not said */
	GivenShard *shard;    /* by stage; NULL: not of a file */
	int order;      /* of the nodes that it cuts: index into order_name (passes/common/plan.h); 0: the file's */
	const char *by; /* what proposed it; NULL: it is the user's */
} GivenPlan;

/* A plan that was not chosen; step and terms are those of as many microbatches as the chosen plan has. */
typedef struct PlanOther {
	const char *plan, *by; /* "2-1-1" */
	double step;
	PlanTerms terms;
	double over; /* as Plan.over */
} PlanOther;

typedef struct Plan {
	int nstage;
	int order; /* of the nodes that were cut, as in GivenPlan */
	PlanStage *stage;
	int ndevice;        /* ranks */
	int *rank;          /* by stage: of its replica 0; stage-major, where no device runs several stages */
	int *device;        /* by rank: index into Cluster.device; set by partition */
	const char **place; /* where it may be cut, as PlanStage.until names them; the last is the end */
	int nplace;
	int64_t microbatches; /* per step, over all replicas */
	double step_time;     /* predicted seconds per step: the trial's; behind memplan the simulator's (predict.c) */
	double estimate;      /* the trial's, by which the plan was chosen; 0: not behind memplan */
	double one_time;      /* the same step on one device */
	double least;         /* no plan of these microbatches takes fewer seconds; 0: not known */
	bool forced;          /* --plan said so */
	double file_order;    /* seconds per step of the best plan found in the order of the file */
	const char *by;       /* what proposed it: a planner, "local search", "as asked" */
	PlanTerms terms;      /* of step_time */
	int slow_stage;       /* the stage whose devices compute most */
	PlanOther *other;
	int nother;         /* what came next, best first */
	long tried, played; /* plans that were looked at; those that were simulated */
	double peak;        /* estimated bytes of the fullest device */
	int peak_rank;
	struct GivenPlan *lean;
	int nlean;      /* where over > 1: the plans that were expected to need least, the first least */
	double over;    /* estimate: the largest share of its memory that a device needs; 0: no limits are known */
	bool recompute; /* step_time counts what --recompute computes again */
} Plan;

/* Microbatches are dealt to replicas in turn, as round-robin 1F1B does, where of two stages' counts neither divides the other:
 * blocks would leave replicas of one waiting for a few of the other. Where counts divide, blocks do as well, and a replica
 * exchanges with fewer. */
static inline bool plan_in_turn(const int *replicas, int n)
{
	for (int i = 0; i < n; i++)
		for (int k = 0; k < i; k++)
			if (replicas[i] % replicas[k] && replicas[k] % replicas[i])
				return true;
	return false;
}

/* Where the plan file says of the stage itself what its replicas divide; NULL: what is said of all stages holds. */
static inline const GivenShard *stage_shard(const PlanSettings *p, int stage)
{
	const GivenPlan *g = p->zero < 0 ? p->given : NULL;

	return g && g->shard && stage < g->n && g->shard[stage].said ? &g->shard[stage] : NULL;
}

/* What the replicas of a stage divide (PlanSettings.zero): as the settings say of all stages, else as the plan file says of
 * this one, else as it says of all. */
static inline int stage_zero(const PlanSettings *p, int stage)
{
	const GivenShard *own = stage_shard(p, stage);

	return own ? own->zero : p->zero >= 0 ? (int)p->zero : p->given ? p->given->zero : 0;
}

/* Of the first stages, the one whose replicas divide most; whether two are unlike. */
static inline int most_zero(const PlanSettings *p, int stages)
{
	int most = 0;

	for (int i = 0; i < stages; i++)
		most = stage_zero(p, i) > most ? stage_zero(p, i) : most;
	return most;
}

static inline bool zero_differs(const PlanSettings *p, int stages)
{
	for (int i = 1; i < stages; i++)
		if (stage_zero(p, i) != stage_zero(p, 0))
			return true;
	return false;
}

/* The replica that does microbatch g of `micro`: in turn, or by blocks of a step or of every `grains` where these are sliced
 * (not 0). */
static inline int plan_replica_of(int64_t g, int replicas, int64_t micro, int64_t grains, bool in_turn)
{
	if (in_turn)
		return (int)(g % replicas);
	return (int)(grains ? g % grains * replicas / grains : g * replicas / micro);
}

#endif
