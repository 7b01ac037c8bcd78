/* What other passes ask of schedules. */
#ifndef PDCC_PASSES_SCHEDULE_SCHEDULE_H
#define PDCC_PASSES_SCHEDULE_SCHEDULE_H

#include "passes/common/pass.h"

/* pass_schedule; where not `limited` memory limits no depth and no receive is ahead. */
enum { RECEIVE_AHEAD = 1 }; /* receives of so many microbatches are posted while all slots are in use */
bool schedule_module(Module *m, PassCx *cx, bool limited);
bool schedule_async(const Training *t); /* nothing is flushed */
bool one_per_step(const Training *t);   /* every microbatch is a step of its own, with its update */

#endif
