/* What planning knows of a model and a cluster, and plans over it that are tried.
 *
 * A model is a row of layers (segments of a module, layers of a profile) with seconds on every kind of device,
 * tensors between layers, weights, and states: places where it may be cut (planner/states.h). A stage is what lies
 * between two states. Every tensor crosses once per stage that reads it, from the stage that makes it, however many
 * cuts it passes; its gradients are added up in the first stage that reads it and come back from there.
 * Units: seconds, bytes, per microbatch where nothing else is said. */
#ifndef PDCC_PASSES_PLANMODEL_H
#define PDCC_PASSES_PLANMODEL_H

#include "passes/planner/states.h"
#include "segment.h"
#include "passes/simulate/simulate.h"
#include "passes/cost/cost.h"
#include "passes/cost/sumcost.h"

typedef enum PlanTensorKind { PLAN_FORWARD, PLAN_BACKWARD, PLAN_BOTH } PlanTensorKind;

typedef struct PlanTensor {
	PlanTensorKind kind; /* BOTH: forwards, and a gradient of the same size backwards */
	int from, *to, nto;  /* layers */
	double bytes;
	bool kept; /* counted in PlanModel.kept of its maker */
} PlanTensor;

/* n layers read it; value NULL: of a profile. */
typedef struct PlanWeight {
	int *layer, n;
	double bytes;
	bool trained, again; /* again: read in a backward, too, which may want an older version than the newest */
	bool added;          /* its gradient is made where the sum over microbatches lies */
	const Value *value;
} PlanWeight;

/* Stages may keep what their backward reads, or compute it again: never, always, where memory is short. */
typedef enum PlanRecompute { PLAN_KEEP, PLAN_AGAIN, PLAN_AGAIN_AS_NEEDED } PlanRecompute;

/* A kept value of a layer that may be computed again instead: seconds on every kind of device of its node and of those in
 * front of it that nothing keeps. tensor: it must not cross a cut then; -1: it never does. */
typedef struct PlanAgain {
	int layer, tensor;
	double bytes, *time;
} PlanAgain;

/* Rows that the replicas of a stage join in every step, one per microbatch. */
typedef struct PlanRow {
	int layer;
	double bytes;
} PlanRow;

/* A piece of the backward, in its order: so many seconds of a layer, on every kind of device, and then a gradient of so many
 * bytes is there (0: none). joined: it is added to a later one of its weight where a stage of several replicas has them all. */
typedef struct PlanGrad {
	int layer;
	double *time, bytes;
	int weight;
	bool joined;
} PlanGrad;

/* A layer that the cluster file has in a stage: it reads the parameter of that name (plan_pins.c). */
typedef struct PlanPin {
	int layer, stage;
	const char *name;
	const Pin *from;
} PlanPin;

/* A gradient that may be one product of all microbatches of a step (plan_once.c). */
typedef struct PlanOnce {
	const Node *node;   /* that makes it of one microbatch */
	int layer, weight;  /* index into PlanModel.weight; -1: none */
	double rows, bytes; /* of what it is made of, by the microbatch; of itself */
	bool normed;        /* its norm is taken before any update, until when it lives */
	double measured;    /* seconds of the product; 0: it was not measured */
	double *seconds;    /* by class: of one microbatch's */
	double *adds;       /* by class: seconds of a step that its sum takes besides */
} PlanOnce;

typedef struct PlanModel {
	Arena *a;
	const Cluster *c;
	const Training *train; /* NULL: of a profile */
	int nclass, *class_of; /* kinds of devices by speed; by device of the cluster */
	int nlayer;
	const char **name;             /* by layer */
	double **fwd, **bwd, **update; /* [class][layer]; update: per step */
	double *kept;                  /* by layer: bytes from a forward to its backward */
	double *tmp;                   /* by layer: the most that is alive besides */
	double *most;                  /* by layer: the most of its kept and other values that is alive at once */
	bool *param;                   /* by layer: reads a weight */
	PlanTensor *tensor;
	int ntensor;
	PlanWeight *weight;
	int nweight;
	PlanRow *row;
	int nrow;
	PlanPin *pin;
	int npin;
	PlanGrad *grad;
	int ngrad;
	PlanOnce *once;
	int nonce;
	Speed *speed;     /* by class, for these */
	const Module *of; /* for these */
	double rate;      /* product_rate */
	SumRule rule;
	struct SumCache *sums;       /* plan_allreduce.c */
	struct PlanServers *servers; /* plan_servers.c; NULL: no server holds anything */
	PlanAgain *again;
	int nagain;   /* in the order in which they are forgotten: the fewest seconds per byte first */
	double state; /* optimizer bytes per byte of a trained weight */
	const States *st;
	double **sum; /* [class][state]: seconds, forward and backward, of all layers up to it */
	double *sum_param, *sum_weight, *sum_kept; /* by state: layers with weights; bytes */
	double *tmp_at;                            /* by state: tmp of the layers that it adds */
	int *place, nplace;                        /* the states where cut_best cuts: all, or some of many */
	ScheduleSpec schedule, played;             /* that memory is planned for; that the simulator plays */
	PlanRecompute recompute;
	int64_t global;      /* microbatches per step as asked for; 0: any */
	int64_t per_replica; /* the same per replica of the widest stage; 0: any */
	int64_t most_stages; /* of a plan; 0: any */
	bool blocks;         /* replicas have blocks of microbatches (Sched.blocks) */
	int zero; /* of a layer profile: replicas divide the optimizer's state; plan_zero has it of a module too */
	bool no_replicas, equal_replicas; /* none at all; every stage has as many (asynchronous servers) */
	double memory_scale;              /* what the estimate of memory is multiplied with */
	const Corrected *corrected;       /* PassCx.corrected */
} PlanModel;

/* Of a module behind cost, cut into segments. */
PlanModel *plan_model(Arena *a, Segments *g);
/* What the replicas of a stage divide: stage_zero, or PlanModel.zero of a profile. */
int plan_zero(const PlanModel *p, int stage);
/* At most so many states, the cheapest to cut among those of like time, in their order; the last is the last. */
int *plan_places(Arena *a, const States *st, int most, int *n);
/* Of a layer profile: one kind of device; every tensor has a gradient, the optimizer keeps nothing. */
PlanModel *plan_model_of(Arena *a, const States *st, const Cluster *c);

/* Parts of it (plan_allreduce.c): PlanModel.grad of a module, layers in Node.stage; rule and sums. t NULL: nothing is asked of them. */
void find_grads(PlanModel *p, const Graph *g, const Training *t, Arena *scratch);
void sums_start(PlanModel *p, const Training *t);
int plan_weight_of(const PlanModel *p, const Value *w); /* index into PlanModel.weight; -1: none */

/* Gradients that are one product of all microbatches (plan_once.c): of a module, behind find_grads. */
void find_once(PlanModel *p, const Module *m, PassCx *cx);

/* ---- what the cluster file asks (plan_pins.c) ---- */
void find_pins(PlanModel *p, const Module *m);
int pins_broken(const PlanModel *p, int stage, int k, int j); /* how many pins a stage of the states (k, j] breaks */

void servers_start(PlanModel *p, const Training *t);

/* ---- plans ---- */
typedef struct Trial {
	int n;    /* stages */
	int *end; /* their last states */
	int *replicas;
	int ndevice, *device; /* by rank, stage-major: index into Cluster.device */
	int64_t micro;        /* microbatches per step, over all replicas */
	const char *by;       /* the planner that proposed it */
	double bound;         /* seconds per step that it takes at least */
	double likely;        /* where no sum goes on beside work, and messages take no time */
	double sums;          /* that are to be played: members of all of them */
	double step; /* seconds per step, of an asynchronous schedule once the pipeline is full; INFINITY: not simulated */
	double score; /* step / micro */
	double peak;  /* bytes of the fullest device, in relation to its limit where there is one */
	int peak_rank;
	double over;  /* largest share of its limit that a device needs; 0: no limits */
	bool refused; /* the schedule cannot have such stages */
	/* Where the step goes on the device that computes most: forwards and backwards, sums over replicas, update, and what
	 * else it waits for (other stages, messages, filling and draining). They add up to step. */
	double work, sum, update, wait;
	int slow_stage; /* that device's */
} Trial;

/* Costs of a stage of a trial. */
typedef struct TrialStage {
	double *fwd, *bwd, *update;         /* by class */
	double weights, trained, slot, tmp; /* bytes on a device; slot: per microbatch in flight */
	double grads, leaf;                 /* the largest gradient, and the largest that is made beside its sum .. */
	double small;                       /* .. and all those that are added when the backward ends (added_at_end) */
	double stashed;                     /* bytes of a version, where there are several */
	double parts;                       /* replicas that divide the optimizer's state (--zero); else 1 */
	double sums;                        /* those that divide sums of gradients (--zero 2); else 1 */
	double gathered;                    /* those that divide weights (--zero 3); else 1 */
	double kept;                        /* bytes of slot that computing all again would spare */
	double only;       /* bytes of the only microbatch in flight, with temporaries over what is dead of it */
	bool again;        /* some of its forward is computed again in the backward; bwd, slot, tmp say so */
	double in, out;    /* bytes per microbatch that come from and go to other stages, gradients included */
	double rows, once; /* kept of all microbatches for gradients that are one product of them; bytes of those */
	int inflight, versions;
} TrialStage;

/* Sums of a stage's replicas in their order. join: without ranks and stage; least: seconds that it takes if nothing else moves. */
typedef struct StageSum {
	SimJoin join;
	double least;
} StageSum;
typedef struct StageSums {
	int n;
	bool buckets;
	StageSum *sum;
} StageSums;

/* ---- schedules that are not flushed, and what they share with all others (plan_async.c) ---- */
bool trial_each(const PlanModel *p); /* every microbatch is a step */
int64_t trial_share(
	const PlanModel *p, const Trial *t, int stage); /* microbatches that a device has before an update, at most */
int trial_in_flight(const PlanModel *p, const Trial *t, int stage);
int trial_versions(const PlanModel *p, const Trial *t, int stage);
bool trial_older(const PlanModel *p, int stage); /* its forwards, too, read older versions than the newest */
/* stage: by layer. Whether the schedule has no meaning for its weights, or its last stage. */
bool trial_refused(const PlanModel *p, const Trial *t, const int *stage);
/* Seconds that a step takes at least in the steady state. */
double trial_steady(const PlanModel *p, const Trial *t, const TrialStage *s, const int *stage);

/* Servers of a trial (plan_servers.c): which weights of stage s go to them, NULL: none; what they are told, in its model. */
const bool *trial_served(Arena *a, const PlanModel *p, const Trial *t, int s, const int *device, const int *stage);
void trial_servers(Arena *a, const PlanModel *p, const Trial *t, SimModel *x, const int *stage, int *cap);
/* The only stage that reads a weight, stages by layer; -1: there are several. */
int plan_stage_with(const PlanWeight *w, const int *stage);
/* Microbatches of a step, 1 where every one is a step of its own. */
int64_t trial_micro(const PlanModel *p, int n, const int *replicas);
int *trial_stage_of(Arena *a, const PlanModel *p, const Trial *t); /* by layer */
TrialStage *trial_stages(Arena *a, const PlanModel *p, const Trial *t);
/* Of stage s, whose devices stand at `device`. stage: trial_stage_of; early: sums may begin before SYNC. */
const StageSums *trial_sums(const PlanModel *p, const Trial *t, int s, const int *device, const int *stage, bool early);
/* What gradients that are one product of all microbatches change of a stage. */
void trial_once(const PlanModel *p, const Trial *t, TrialStage *s, int at, const int *stage);
double stage_memory(const PlanModel *p, const TrialStage *s, int64_t grains);
/* What estimates of the schedule are multiplied with. */
Corrected trial_corrected(const PlanModel *p, ScheduleSpec spec);
/* Fills peak, peak_rank and over, with as many microbatches as the stages say. */
void trial_weigh(const PlanModel *p, Trial *t, const TrialStage *s);
/* Fills bound, peak, over. */
void trial_judge(const PlanModel *p, Trial *t);
/* The operands of the simulator for it; NULL: an asynchronous schedule that cannot have such stages. */
SimModel *trial_sim(Arena *a, const PlanModel *p, const Trial *t);
/* Plays it: fills step and score. */
void trial_play(const PlanModel *p, Trial *t);
Trial *trial_new(Arena *a, int n, int ndevice, const char *by);
/* These replicas of stages, not cut yet, on devices in the order of the cluster, of which the schedule may have given several stages
 * the same; ndevice: how many there must be. NULL after E0510, E0511. */
Trial *trial_asked(Arena *a, const PlanModel *p, int n, const int *replicas, int *ndevice, Diag *d);
/* Whether the schedule that is played can be made for its stages and microbatches; false after E0512 and the like. */
bool trial_possible(const PlanModel *p, const Trial *t, Diag *d);
const char *trial_str(Arena *a, const Trial *t); /* "2-1-1" */

#endif
