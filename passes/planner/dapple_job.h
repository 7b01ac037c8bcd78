/* What the files of DAPPLE's planner by the paper share: one count of microbatches, and its stages. */
#ifndef PDCC_PASSES_PLANNER_DAPPLE_JOB_H
#define PDCC_PASSES_PLANNER_DAPPLE_JOB_H

#include "dapple.h"

enum { MOST = DAPPLE_DEVICES }; /* stages */

typedef struct Job {
	const DappleProfile *p;
	const DappleCluster *c;
	const DappleOptions *o;
	double part; /* a microbatch as a share of the profiled batch */
	double scaling;
	int m;         /* microbatches */
	double needed; /* the least memory that some plan met */
} Job;

void job_set(Job *j, int m);
/* The states [begin, end) on some devices, without a transfer behind. */
DappleStage job_stage(const Job *j, int begin, int end, DappleSet devices);
void job_link(const Job *j, DappleStage *s, const DappleStage *next); /* the transfer between two stages */
double job_latency(const Job *j, const DappleStage *s, int n, int *pivot);
bool job_fits(Job *j, const DappleStage *s, int n); /* into memory with one microbatch; what is missing is noted */
void job_finish(const Job *j, DapplePlan *plan);    /* warm-up depths, memory at them, the latency */

/* Counts of microbatches worth trying, m[DAPPLE_DEVICES + 1]; how many. */
int job_counts(const DappleCluster *c, const DappleOptions *o, int *m);
bool job_usable(const DappleProfile *p, const DappleCluster *c, const DappleOptions *o, Diag *d);
/* best becomes these stages if they are better and fit; it has room for MOST + 1 stages. */
void job_keep(Job *j, DapplePlan *best, const DappleStage *stage, int n, double time);
DapplePlan *job_result(
	Arena *a, Job *j, const DapplePlan *best, Diag *d); /* of an infinite latency: NULL after E0442 */

#endif
