/* What the stages of a trial tell each other, per microbatch. */
#ifndef PDCC_PASSES_PLAN_FLOW_H
#define PDCC_PASSES_PLAN_FLOW_H

#include "plan_model.h"

typedef struct Flow {
	int n;
	double *fwd, *bwd; /* [from * n + to] */
	bool *waits[2]; /* the same: whether the stage waits for the other's forward, or backward, be it for no bytes */
	double *sent_only; /* by stage: bytes sent that are not kept */
	double *sent_kept; /* by stage: bytes sent that are */
} Flow;

/* stage: by layer (trial_stage_of). */
Flow flow_of(Arena *a, const PlanModel *p, const Trial *t, const int *stage);

#endif
