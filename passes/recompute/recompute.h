/* Which forward values are computed again in the backward: what the pass and the planners share. */
#ifndef PDCC_PASSES_RECOMPUTE_H
#define PDCC_PASSES_RECOMPUTE_H

#include "passes/memory/again.h"

/* Forgets one value after another, by seconds per byte, until the stage's device, with its other stages as they are, needs
 * no more than `limit` bytes or nothing more can be forgotten; the choice is in Again.kept, not applied. Gives the bytes
 * that the device will need at most. */
int64_t again_choose(Again *x, int64_t limit);

/* Of the nodes of an unsplit module that have Node.stage == stage (a stage, or a segment that a planner looks at): bytes
 * that a microbatch keeps from its forward to its backward; those that it keeps where the stage is computed again, which
 * come from other stages or from the input; what is alive beyond them while one backward runs, at most; and the seconds
 * per microbatch that computing again takes. Views share the bytes of what they view. */
typedef struct RecomputeEstimate {
	int64_t kept, kept_again, again;
	double time;
} RecomputeEstimate;
RecomputeEstimate recompute_estimate(const Module *m, int stage);

#endif
