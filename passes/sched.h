/* What the schedule families share. A family is one file with one function that fills Schedule.dev. */
#ifndef PDCC_PASSES_SCHED_H
#define PDCC_PASSES_SCHED_H

#include "pass.h"

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

#endif
