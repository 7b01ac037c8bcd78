/* The one representation of every schedule: per device a list of actions. It is printed (grid and PyTorch's CSV
 * notation), verified, simulated and emitted. A new schedule is one small file in passes/ that fills this.
 *
 * A stage's microbatches are spread over its replicas: replica_of[stage][mb]. Receives are posted by RECV actions,
 * early; F and B wait for what they read. SEND starts a send and does not wait; a send's buffer is waited for before it
 * is written again. slot says which copy of the kept values an action uses, from F on. What passes the entry of a stage,
 * received by forwards or sent by backwards, has buffers of its own, one per microbatch from RECV_F on: entry says
 * which. A stage has more of those than slots, so that receives are posted while all slots are in use. */
#ifndef PDCC_IR_SCHEDULE_H
#define PDCC_IR_SCHEDULE_H

#include "ir.h"

typedef enum ActKind {
	ACT_RECV_F, /* post the receives of everything forward mb reads from other stages */
	ACT_F,      /* forward of mb */
	ACT_SEND_F, /* start the sends of what F(mb) made for other stages */
	ACT_RECV_B,
	ACT_B,
	ACT_SEND_B,
	ACT_W,      /* weight-gradient part of a split backward */
	ACT_SYNC,   /* reduce gradients over the replicas */
	ACT_UPDATE, /* optimizer */
	ACT_COUNT
} ActKind;

typedef struct Action {
	ActKind kind;
	int stage;
	int mb; /* global microbatch index within the step; -1 for SYNC and UPDATE */
	int slot;
	int version; /* weight version read: 0 in synchronous schedules; UPDATE: the one it makes */
	int entry;
} Action;

/* An action of a turn, in an asynchronous schedule. A turn takes a step of the flow forward: all of its microbatches,
 * or the one that falls to this replica. lag: how many steps before that is the step to which the action belongs. Those
 * that belong to no step (before the first, behind the last) are left out: so a flow starts and drains. */
typedef struct Turn {
	ActKind kind;
	int mb;       /* within its step */
	int nth;      /* its place among the device's microbatches of a step */
	int lag;      /* in steps; -N: that much ahead */
	bool once;    /* only in the device's first turn of a flow */
	int from, to; /* only in a round's turns from..to, where the schedule has rounds */
} Turn;

typedef struct DeviceSchedule {
	Action *act;
	int n, cap;
	Turn *turn;
	int nturn, capturn;
} DeviceSchedule;

/* Which weights a microbatch meets. Version v of a stage's weights is what its update v - 1 made; 0 is the first. */
typedef enum VersionRule {
	VERSION_FLUSH,    /* synchronous: one version */
	VERSION_STASH,    /* forward: the newest; backward: that of its forward (PipeDream 3.4) */
	VERSION_NEWEST,   /* both the newest: no stashing */
	VERSION_VERTICAL, /* every stage: the one that was the newest at the first stage */
	VERSION_PREVIOUS, /* step k: version k - 1 everywhere (PipeDream-2BW 3.1) */
	VERSION_RULES
} VersionRule;

/* Where an action stands in the file that a schedule was read from. */
typedef struct ActionPlace {
	ActKind kind;
	int stage, mb, line, col;
} ActionPlace;

typedef struct Schedule {
	ScheduleKind kind;
	const char *name; /* as the plan and the text form say it: a word of --schedule without the path of a file */
	int nstage, nmicro, ndevice;
	int *replicas;    /* by stage */
	int **device;     /* [stage][replica] -> rank */
	int **replica_of; /* [stage][mb] -> replica */
	int *inflight;    /* slots by stage */
	int *entries;     /* buffers of messages at its entry; as many as slots, or more */
	/* Asynchronous: no flush. act then shows the flow's first microbatches, numbered from 0 and drained at the end;
	 * SYNC and UPDATE have the first microbatch of theirs. The program repeats turn. */
	bool async;
	VersionRule rule;
	bool robin;    /* a step is a minibatch: those of a round fall to a stage's replicas in turn */
	int late;      /* Pipe-SGD: an update has the gradients of so many steps before; else 0 */
	int per_step;  /* microbatches of a step; nmicro: of all that is shown */
	int *depth;    /* by stage: microbatches between forward and backward on a device, at most */
	int *versions; /* by stage: how many are kept where several are wanted */
	int *round;    /* by stage: turns of a device until the pipeline runs empty; NULL: it never does */
	int lag;       /* the largest of any turn */
	/* By stage: the n-th backwards of its replicas (W, where they are split) sum their gradients together, so that none ends
	 * before all have begun (AllReduce {each}); NULL: in no stage */
	bool *together;
	/* By stage: the n-th forwards of its replicas gather weights together, and the n-th backwards (and W) too (GatherWeight); NULL: in
	 * no stage */
	bool *gathers;
	DeviceSchedule *dev; /* by rank */
	const char *file;    /* NULL: it was made here */
	ActionPlace *place;
	int nplace;
} Schedule;

/* Which stages exchange data, for verification: edge s -> t carries tensors in forward (and gradients back). */
typedef struct StageEdge {
	int from, to;
	bool forward, backward;
} StageEdge;

/* Of a microbatch; SYNC and UPDATE are of a step. */
static inline bool act_of_micro(const Action *x) { return x->mb >= 0 && x->kind < ACT_SYNC; }

/* A step's microbatches go to the replicas of the stage in turn, and not in blocks (plan_replica_of). */
bool schedule_in_turn(const Schedule *s, int stage);
/* How many microbatches make an update of a stage; which of them a device does, in the order of their backwards. */
int schedule_grains(const Schedule *s, int stage);
int schedule_mine(const Schedule *s, int rank, int stage, int *grain);
/* Sums that are held when the grains `mine` of `grains` come in that order and whole subtrees of the fixed tree
 * (runtime/comm/tree.c) are added at once: gives how many in the end; most: at one time. */
int schedule_subtrees(Arena *a, int grains, const int *mine, int n, int *most);
bool schedule_has(const Schedule *s, ActKind k); /* some device does that */
/* Servers update as gradients come: their devices have no UPDATE. */
bool schedule_each(const Module *m);
/* Messages between stages bring how many labels count: the updates of a step do not wait until all devices have met. */
static inline bool schedule_tagged(const Module *m) { return m->schedule && (m->schedule->async || schedule_each(m)); }
void schedule_push(Arena *a, Schedule *s, int rank, Action act);
/* Of an asynchronous schedule with all but act and, of all that is shown, nmicro and replica_of: fills these with so many steps of
 * its turns (schedule_flow.c). Nothing of act is there yet; replica_of is that of a step. */
void schedule_flow(Arena *a, Schedule *s, int steps);
Schedule *schedule_longer(Arena *a, const Schedule *s, int times); /* the same with so many times as many steps */
const char *str_action(Arena *a, const Action *x); /* "0F3": stage, kind, microbatch; B also where it is only a part */
/* Order, matching of sends and receives, slots, depth, deadlock; names the actions on a fault. */
bool schedule_verify(const Schedule *s, const StageEdge *edge, int nedge, Diag *d);
struct Buf;
void schedule_print_csv(struct Buf *b, const Schedule *s); /* one line per rank: 0F0,0SEND_F0,... */
/* What an action is called there. split: the schedule has W, so that B is I, the gradients of inputs. */
const char *schedule_word(bool split, ActKind k);
void schedule_print_grid(struct Buf *b, const Schedule *s); /* time x rank; F takes 1, B 2, or 1 each with W */

#endif
