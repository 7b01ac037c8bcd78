/* What the schedule families share. A family is one file with one function that fills Schedule.dev. */
#ifndef PDCC_PASSES_SCHED_H
#define PDCC_PASSES_SCHED_H

#include "passes/common/plan.h"

/* Seconds of a microbatch, as the plan expects them, by stage. */
typedef struct ScheduleTimes {
	const Cluster *cluster;
	double *forward, *backward, *weights; /* of a replica's microbatch: F, B, W */
	double *message;                      /* from a stage to the next, and back */
	int *most;                            /* by stage: how many microbatches its devices have room for; 0: all */
} ScheduleTimes;

typedef struct Sched {
	Arena *a;
	Schedule *s;
	ScheduleSpec spec;
	StageEdge *edge;
	int nedge;
	int grains;           /* Module.grains */
	bool blocks;          /* microbatches are dealt in blocks, whatever the counts of replicas */
	int *stage;           /* by rank; the first of its chunks */
	int **chunk, *nchunk; /* by rank: its stages, ascending */
	int **grain;          /* by rank: its microbatches in the order in which it does them */
	int *ngrain;          /* by rank */
	VersionRule rule;     /* where stages keep versions */
	const int *
		most; /* by stage: what DAPPLE's K_i may reach, what a played order may hold; 0: anything; NULL: anything everywhere */
	const int *ahead; /* by stage: receives posted beyond its slots, at most; NULL: RECEIVE_AHEAD everywhere */
	int late;         /* Pipe-SGD: K, or 0 */
	const ScheduleTimes *times; /* NULL: all actions take as long, messages half of that */
} Sched;

/* All zero; then for each stage: seconds of its forward and its whole backward, of which W is half; what it sends the next
 * one, from the devices of so many replicas, which share the link out of their host. */
ScheduleTimes *schedule_times(Arena *a, const Cluster *c, int nstage);
void schedule_time_stage(ScheduleTimes *t, int stage, double fwd, double bwd);
void schedule_time_message(ScheduleTimes *t, int stage, double bytes, const int *from, const int *to, int replicas);
/* Stages that share a device: most[stage[i]] is how many microbatches stage[i] may hold, each of each[i] bytes, so that all of them take
 * at most `room` together: as many times n - s as fit, what ZBV's order holds of stage s of n; at least 1, at most grains. */
void schedule_fill_room(int nstage, int n, const int *stage, const double *each, double room, int grains, int *most);
/* What the module's plan expects of it; NULL: it has none. */
ScheduleTimes *schedule_times_of(Arena *a, const Module *m, const PassCx *cx);
/* Fills most, of a module whose schedule is made: by the memory plan where a device has too little for that; false: all have enough. */
bool schedule_times_room(ScheduleTimes *t, Module *m, PassCx *cx);

/* Whether a stage sends or receives in that direction; true for what is no message. */
bool sched_exchanges(const Sched *c, int stage, ActKind k);

/* Buffers at the entry of a stage: one per slot, and those ahead where it receives and does more microbatches. The slots
 * of all stages are known. */
void sched_entries(Sched *c);

/* Schedules of one stage per device. With the k-th microbatch of a rank: forward and its sends; backward, its sends, and
 * the receive of the microbatch that takes over its place at the entry. The first receives are posted by sched_begin. */
void sched_begin(Sched *c, int rank);
void sched_forward(Sched *c, int rank, int k);
void sched_backward(Sched *c, int rank, int k);
void sched_end(Sched *c, int rank); /* SYNC, UPDATE: of all its chunks */

/* Everything else from the order of computations alone (F, B and, where backwards are split, W; slots are not read): depths,
 * slots, receives and sends, SYNC and UPDATE. A receive of a forward is posted as soon as its buffer is free, that of
 * a backward behind the forward. work: by rank. */
void sched_from_work(Sched *c, const DeviceSchedule *work);

/* The schedule that is asked for, for stages of so many replicas that exchange data over the edges, on
 * the ranks that plan_place gives; blocks: as Sched.blocks. NULL after a diagnostic. Not verified. */
Schedule *schedule_make(Arena *a, ScheduleSpec spec, int nstage, const int *replicas, int micro, bool blocks,
	StageEdge *edge, int nedge, const ScheduleTimes *times, Diag *d);
/* The same for schedules whose stages keep versions by this rule; none of these asks for times. */
Schedule *schedule_make_by(Arena *a, ScheduleSpec spec, VersionRule rule, int nstage, const int *replicas, int micro,
	bool blocks, StageEdge *edge, int nedge, Diag *d);

/* ---- deal.c: who comes when ---- */
/* All microbatches of a step in the order in which devices work at theirs. Schedule.replica_of is known. */
const int *deal_order(Sched *c, int micro, bool in_turn);
/* Fills Sched.grain of the devices of a stage in that order. */
void deal_out(Sched *c, int stage, const int *order, int micro);

/* An edge goes from stage to stage (-1: any), with tensors forward, or with gradients back. */
bool sched_edge(const Sched *c, int from, int to, bool forward);

/* A family orders the actions of c->spec. In csv_fill.c messages that the file lacks are put in where it has none at all, or
 * where both stages are on one device. False after E0512 (no whole groups of microbatches), E0517 (no message where one is
 * needed), E0518 (another number of microbatches), E0520. */
#define SCHEDULE( \
	kind, name, param, letter, meaning, example, chunks, place, backward, flow, flight, first, last, fill, ...) \
	bool fill(Sched *c, Diag *d);
#include "ir/schedules.def"
#undef SCHEDULE

/* E0520 for flags and plans that this schedule gives no meaning; cx->train may be NULL. */
bool async_check(const Module *m, const PassCx *cx, ScheduleSpec spec);

/* ---- DAPPLE (schedule_dapple.c) ---- */
int dapple_depth(char policy, int stage, int stages, int most); /* K_i; stage from 0 */
/* By stage: how many microbatches the smallest of its devices can hold, by the memory plan; 0: nothing is said of its
 * memory. Module.schedule is set. NULL after a diagnostic. */
int *dapple_memory(Module *m, PassCx *cx);
/* The simulated step, without sums over replicas where comm has not run; below 0 after a diagnostic. */
double schedule_seconds(Module *m, PassCx *cx, Schedule *s);
/* K_i and D of each stage, the ratio of messages to work at each cut (ACR), the simulated steps with A and B (0: not tried). */
void dapple_explain(const Module *m, PassCx *cx, const Schedule *s, const int *most, double a, double b);

#endif
