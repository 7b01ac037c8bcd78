/* The notation of plans, and the schedule that was asked for. */
#ifndef PDCC_PASSES_PLAN_H
#define PDCC_PASSES_PLAN_H

#include "ir/plan.h"
#include "pass.h"

/* "2-1-1" or "2:1:1" -> replicas per stage. False after E0402 when it is not that. "auto" and NULL give *n = 0. */
bool plan_parse(Arena *a, const char *text, int **replicas, int *n, Diag *d);
/* "2x4-1x4": replicas and the devices of each, which becomes *tensor, and *text "2-1"; where a text has no x, both stay. False
 * after E0402 where the counts differ, or are not what *tensor said. */
bool plan_tensor(Arena *a, const char **text, int64_t *tensor, Diag *d);
const char *plan_str(Arena *a, const Plan *p); /* "2-1-1" */

/* The schedule of this module: chosen, else asked for. */
static inline ScheduleSpec schedule_asked(const Module *m, const PassCx *cx)
{
	return m->chosen.kind || !cx->train ? m->chosen : cx->train->plan.schedule;
}

#endif
