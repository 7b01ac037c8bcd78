/* What other passes ask of schedules. */
#ifndef PDCC_PASSES_SCHEDULE_SCHEDULE_H
#define PDCC_PASSES_SCHEDULE_SCHEDULE_H

#include "passes/common/pass.h"

/* pass_schedule; where not `limited` memory limits no depth and no receive is ahead. */
enum { RECEIVE_AHEAD = 1 }; /* receives of so many microbatches are posted while all slots are in use */
bool schedule_module(Module *m, PassCx *cx, bool limited);
bool schedule_async(const Training *t); /* nothing is flushed */
bool one_per_step(const Training *t);   /* every microbatch is a step of its own, with its update */
/* Whether it still ends where replicas meet as Schedule.together and .gathers say. */
bool schedule_meets(const Module *m);
/* Why this schedule cannot have such stages, in the words of E0520; NULL: it can. */
const char *schedule_refuses(Arena *a, const Training *t, ScheduleSpec spec, int nstage, const int *replicas);
VersionRule schedule_rule(
	const Training *t); /* of schedules that keep versions: from which backwards and forwards choose */

#endif
