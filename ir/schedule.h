/* The one representation of every schedule: per device a list of actions. It is printed (grid and PyTorch's CSV
 * notation), verified, simulated and emitted. A new schedule is one small file in passes/ that fills this.
 *
 * A stage's microbatches are spread over its replicas: replica_of[stage][mb]. Receives are posted by RECV actions,
 * early; F and B wait for what they read. SEND starts a send and does not wait; a send's buffer is waited for before
 * its slot is written again. slot says which copy of the kept values and receive buffers an action uses. */
#ifndef PDCC_IR_SCHEDULE_H
#define PDCC_IR_SCHEDULE_H

#include "ir.h"

typedef enum ActKind {
	ACT_RECV_F,     /* post the receives of everything forward mb reads from other stages */
	ACT_F,          /* forward of mb */
	ACT_SEND_F,     /* start the sends of what F(mb) made for other stages */
	ACT_RECV_B,
	ACT_B,
	ACT_SEND_B,
	ACT_W,          /* weight-gradient part of a split backward */
	ACT_SYNC,       /* reduce gradients over the replicas */
	ACT_UPDATE,     /* optimizer */
	ACT_COUNT
} ActKind;

typedef struct Action {
	ActKind kind;
	int     stage;
	int     mb;         /* global microbatch index within the step; -1 for SYNC and UPDATE */
	int     slot;
	int     version;    /* weight version read; 0 in synchronous schedules */
} Action;

typedef struct DeviceSchedule { Action *act; int n, cap; } DeviceSchedule;

typedef struct Schedule {
	const char     *name;       /* "1f1b", "gpipe" */
	int             nstage, nmicro, ndevice;
	int            *replicas;   /* by stage */
	int           **device;     /* [stage][replica] -> rank */
	int           **replica_of; /* [stage][mb] -> replica */
	int            *inflight;   /* slots by stage */
	DeviceSchedule *dev;        /* by rank */
} Schedule;

/* Which stages exchange data, for verification: edge s -> t carries tensors in forward (and gradients back). */
typedef struct StageEdge { int from, to; bool forward, backward; } StageEdge;

void schedule_push(Arena *a, Schedule *s, int rank, Action act);
const char *str_action(Arena *a, const Action *x);      /* "0F3": stage, kind, microbatch */
/* Order, matching of sends and receives, slots, depth, deadlock; names the actions on a fault. */
bool schedule_verify(const Schedule *s, const StageEdge *edge, int nedge, Diag *d);
struct Buf;
void schedule_print_csv(struct Buf *b, const Schedule *s);      /* one line per rank: 0F0,0SEND_F0,... */
void schedule_print_grid(struct Buf *b, const Schedule *s);     /* time x rank with unit F and B */

#endif
