/* What the planning passes share: the plan (ir/plan.h), its notation, and time as the cost model sees it. */
#ifndef PDCC_PASSES_PLAN_H
#define PDCC_PASSES_PLAN_H

#include "ir/plan.h"
#include "pass.h"

/* "2-1-1" or "2:1:1" -> replicas per stage. False after E0402 when it is not that. "auto" and NULL give *n = 0. */
bool        plan_parse(Arena *a, const char *text, int **replicas, int *n, Diag *d);
const char *plan_str(Arena *a, const Plan *p);              /* "2-1-1" */

/* The schedule of this module: chosen, else asked for. */
static inline ScheduleSpec schedule_asked(const Module *m, const PassCx *cx)
{
	return m->chosen.kind || !cx->train ? m->chosen : cx->train->schedule;
}

/* ---- devices (placement.c) ---- */
/* Groups of devices: all stages of a group lie on the same ones. group, rank (of replica 0): by stage. */
typedef struct Placement { int ngroup, ndevice, *group, *rank; } Placement;
/* Reads the file of a schedule that has one, unless that was done; it lives as long as a. Whoever runs passes calls it before.
 * False after E0513 to E0516. */
bool schedule_read(Arena *a, ScheduleSpec *s, Diag *d);
/* By what the schedule asks for. False after E0510, E0511, E0515. */
bool plan_place(Arena *a, ScheduleSpec schedule, int nstage, const int *replicas, Placement *p, Diag *d);
/* Whether its backwards come in two parts, B and W. */
bool schedule_splits(ScheduleSpec schedule);
/* The most microbatches that a device keeps of a stage, by the formula of the schedule's row (schedule_depth.c); grains:
 * that it has in a step. What memory is planned with until there is a schedule. */
int  schedule_depth(ScheduleSpec schedule, const int *replicas, int nstage, int stage, int grains);

/* ---- time (cost.c) ---- */
typedef struct Speed { double flops, bandwidth, launch, half; } Speed;  /* FLOP/s (half: of products of 16-bit floats), bytes/s,
                                                                         * seconds per node */
Speed  device_speed(const Cluster *c, int device);          /* numbers of the cluster file, or defaults */
double node_time(const Node *n, const Speed *s);            /* the slower of arithmetic and memory, and a start */
/* Times of the cost model, for PassCx.sized: of a module behind cost, of the size that the profile was measured at, without
 * that profile. */
Map   *cost_sizes(Arena *a, const Module *m);
/* Node.time of all stages anew, behind fusion: measured where the profile has the node, else as it was, else estimated;
 * counts both into PassCx.measured and .estimated. */
void cost_again(Module *m, PassCx *cx);
int64_t value_bytes(const Value *v);                        /* in memory; row-sparse ones are kept dense */

/* ---- memory (memplan_device.c) ---- */
int64_t memory_of(const Stage *s, const Cluster *c);      /* of the smallest of its devices; 0: nothing is said of it */
/* Stages that were planned as if each had its device for itself move into the arenas of their devices. False after
 * E0601: a device has less memory. */
bool share_devices(Module *m, PassCx *cx);
/* Whether a stage's temporaries lie over what is dead of its only slot. */
static inline bool tmp_over_slot(const Stage *s)
{
	return s->inflight == 1 && !s->weight;
}

/* ---- cuts (partition.c) ---- */
/* A place where partition may cut the forward graph: in front of `node`. before: share of a microbatch's time,
 * forward and backward, that lies in front of it; bytes: what crosses forwards, gradients come back in the same
 * size. */
typedef struct Cut { const Node *node; double before; int64_t bytes; } Cut;
int list_cuts(Module *m, PassCx *cx, Cut **cut);            /* in program order; m has Node.time */

/* Orders of the main nodes in which plans are cut (order.c), and how plan files call them. */
typedef enum Order { ORDER_FILE, ORDER_DEPTH, ORDER_DEPTH_LAST, ORDER_LEVEL, ORDER_LATE, ORDER_LEAN, ORDERS } Order;
extern const char *const order_name[ORDERS];

/* ---- stages (split.c) ---- */
void list_kept(Module *m, Stage *s);        /* Stage.keep anew, after its graphs changed */
void unscale(Module *m, const Training *t);         /* operations of a user behind the sums see true gradients (unscale.c) */

/* ---- memory (memplan.c) ---- */
int64_t memplan_stage(Module *m, PassCx *cx, Stage *s);    /* bytes of the arena of a stage; the schedule is known */
int64_t memplan_device(Module *m, PassCx *cx, const Stage *of);    /* of all stages of its device, planned anew */

/* ---- backwards in two parts (defer.c): bytes of a microbatch that its W will read of its B, where the stage is split ---- */
int64_t deferred_bytes(const Stage *s);

/* ---- the schedule (schedule.c): pass_schedule; where not `limited` memory limits no depth and no receive is ahead ---- */
enum { RECEIVE_AHEAD = 1 };     /* receives of so many microbatches are posted while all slots are in use */
bool schedule_module(Module *m, PassCx *cx, bool limited);
DType amp_dtype(const Training *t);                     /* what products compute in (--amp); f32: in what they have */
bool schedule_async(const Training *t);                 /* nothing is flushed */
bool one_per_step(const Training *t);                   /* every microbatch is a step of its own, with its update */

/* ---- sums (comm.c): every device does the last of these actions of its stages in descending order of stages, so that all
 * members of a group begin its sums in one order ---- */
bool sums_in_order(Arena *a, const struct Schedule *s, int kind);

/* ---- servers (travel.c): the share of table w's rows that so many ids touch: as measured (Param.touch), else drawn evenly ---- */
double rows_touched(const Value *w, double lookups);

/* ---- gradients of several uses (parts.c): whether a sum of them in the update, behind their Accumulates, becomes one in front of a
 * single Accumulate where a stage of several replicas has them all ---- */
bool parts_joined(const Node *sum, const Training *t);

/* ---- loss (train.c), gradients (autodiff.c) ---- */
void find_loss(Module *m, const Graph *g);  /* Module.loss and .count anew, when g reports them */
/* Does the gradient of n's outputs go on to operand i? True also for ops that lack a gradient but should have one. */
bool grad_flows(const Node *n, int i);

#endif
