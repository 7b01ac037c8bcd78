/* What judges a trial and what plays it (plan_trial.c, plan_sim.c) share. */
#ifndef PDCC_PASSES_PLAN_TRIAL_H
#define PDCC_PASSES_PLAN_TRIAL_H

#include "plan_model.h"

/* What the stages of a trial tell each other, per microbatch. */
typedef struct Flow {
	int n;
	double *fwd, *bwd; /* [from * n + to] */
	bool *waits[2]; /* the same: whether the stage waits for the other's forward, or backward, be it for no bytes */
	double *sent_only; /* by stage: bytes sent that are not kept */
	double *sent_kept; /* by stage: bytes sent that are */
} Flow;

/* stage: by layer (trial_stage_of). */
Flow flow_of(Arena *a, const PlanModel *p, const Trial *t, const int *stage);
/* trial_stages, with what it begins with. */
TrialStage *flow_stages(Arena *a, const PlanModel *p, const Trial *t, const int *stage, const Flow *f);
/* Are a stage's gradients summed over replicas by the microbatch, so that no sum is behind the last one (--zero 3)? */
bool trial_sums_within(const TrialStage *s);

#endif
