/* The notation of plans, and the schedule that was asked for. */
#ifndef PDCC_PASSES_PLAN_H
#define PDCC_PASSES_PLAN_H

#include "ir/plan.h"
#include "pass.h"

/* "2-1-1" or "2:1:1" -> replicas per stage. False after E0402 when it is not that. "auto" and NULL give *n = 0. */
bool plan_parse(Arena *a, const char *text, int **replicas, int *n, Diag *d);
/* "2x4-1x8": replicas and the devices of each, which become p->tensor, or p->tensor_of where stages are unlike, and p->replicas "2-1";
 * where the text has no x, all stay. False after E0402, also where the counts are not what p->tensor said. */
bool plan_tensor(Arena *a, PlanSettings *p, Diag *d);
/* Of stages that have so many devices a replica: p->tensor, and p->tensor_of where they are unlike. */
void plan_degrees(PlanSettings *p, int *degree, int n);
/* Whether tensor groups go with what else was asked for. False after E0520. */
bool tensor_allowed(const Module *m, const PassCx *cx);
/* Why stages cannot be divided unlike with what else was asked for; NULL: they can. */
const char *unlike_refused(const Training *t);
const char *plan_str(Arena *a, const Plan *p); /* "2-1-1" */

/* The schedule of this module: chosen, else asked for. */
static inline ScheduleSpec schedule_asked(const Module *m, const PassCx *cx)
{
	return m->chosen.kind || !cx->train ? m->chosen : cx->train->plan.schedule;
}

#endif
