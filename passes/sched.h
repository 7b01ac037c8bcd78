/* What the schedule families share. A family is one file with one function that fills Schedule.dev. */
#ifndef PDCC_PASSES_SCHED_H
#define PDCC_PASSES_SCHED_H

#include "plan.h"

typedef struct Sched {
	Arena    *a;
	Schedule *s;
	StageEdge *edge; int nedge;
	int      *stage;            /* by rank */
	int     **grain;            /* by rank: its microbatches in the order in which it does them */
	int      *ngrain;           /* by rank */
} Sched;

/* With the k-th microbatch of a rank: forward and its sends; backward, its sends, and the receive of the microbatch
 * that takes over the slot. The first receives are posted by sched_begin. */
void sched_begin(Sched *c, int rank);
void sched_forward(Sched *c, int rank, int k);
void sched_backward(Sched *c, int rank, int k);
void sched_end(Sched *c, int rank);         /* SYNC, UPDATE */

/* The schedule of that name (NULL: auto) for stages of so many replicas that exchange data over the edges; ranks are
 * stage-major. NULL: there is no such schedule. Not verified. */
Schedule *schedule_make(Arena *a, const char *name, int nstage, const int *replicas, int micro, StageEdge *edge, int nedge);

void schedule_gpipe(Sched *c);
void schedule_1f1b(Sched *c);

/* ---- DAPPLE (schedule_dapple.c) ---- */
int  dapple_depth(char policy, int stage, int stages, int most);        /* K_i; stage from 0 */
void schedule_dapple(Sched *c, char policy, const int *most);
/* By stage: how many microbatches the smallest of its devices can hold, by the memory plan; 0: nothing is said of its
 * memory. Module.schedule is set. NULL after a diagnostic. */
int *dapple_memory(Module *m, PassCx *cx);
/* The simulated step, without sums over replicas where comm has not run; below 0 after a diagnostic. */
double schedule_seconds(Module *m, PassCx *cx, Schedule *s);
/* K_i and D of each stage, the ratio of messages to work at each cut (ACR), the simulated steps with A and B (0: not tried). */
void dapple_explain(const Module *m, PassCx *cx, const Schedule *s, const int *most, double a, double b);

#endif
