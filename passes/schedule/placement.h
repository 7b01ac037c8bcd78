/* Devices: which stages lie on the same ones, by what the schedule asks for. */
#ifndef PDCC_PASSES_SCHEDULE_PLACEMENT_H
#define PDCC_PASSES_SCHEDULE_PLACEMENT_H

#include "passes/common/pass.h"

/* Groups of devices: all stages of a group lie on the same ones. group, rank (of replica 0): by stage. */
typedef struct Placement {
	int ngroup, ndevice, *group, *rank;
} Placement;
/* Reads the file of a schedule that has one, unless that was done; it lives as long as a. Whoever runs passes calls it before.
 * False after E0513 to E0516. */
bool schedule_read(Arena *a, PlanSettings *p, Diag *d);
/* By what the schedule asks for. False after E0510, E0511, E0515. */
bool plan_place(Arena *a, ScheduleSpec schedule, int nstage, const int *replicas, Placement *p, Diag *d);
/* Whether its backwards come in two parts, B and W. */
bool schedule_splits(ScheduleSpec schedule);
/* The most microbatches that a device keeps of a stage, by the formula of the schedule's row (schedule_depth.c); grains:
 * that it has in a step. What memory is planned with until there is a schedule. */
int schedule_depth(ScheduleSpec schedule, const int *replicas, int nstage, int stage, int grains);
/* How many versions of its weights a stage keeps, in the same way; rule: schedule_rule(). */
int schedule_versions(ScheduleSpec schedule, VersionRule rule, const int *replicas, int nstage, int stage);
/* Steps that are shown, proved and simulated: 1, or of an asynchronous schedule as many as show its start and its steady state. */
int schedule_steps(ScheduleSpec schedule, const int *replicas, int nstage);

#endif
