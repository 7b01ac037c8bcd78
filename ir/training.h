/* The settings of a training run as plain data, by subject; filled by the front end (train.yaml and flags), read by every
 * pass. */
#ifndef PDCC_IR_TRAINING_H
#define PDCC_IR_TRAINING_H

#include "ir.h"
#include "optimizer.h"

typedef struct Binding {
	const char *name;
	int axis;
	int64_t value;
} Binding; /* axis -1: a symbolic name */

typedef struct DataInput {
	const char *input, *path;
	DataKind kind;
} DataInput; /* DATA_UNSAID: the common one */

/* What is trained: the loss, the optimizer, which values are parameters, and how nodes that differ in training act. */
typedef struct ModelSettings {
	LossTerm *loss;
	int nloss; /* 0: found in the graph, or softmax cross-entropy on the only output */
	Optimizer opt;
	const char **freeze;
	int nfreeze; /* globs */
	const char **parameters;
	int nparameters; /* globs: parameters, whatever the reader would guess */
	const char **trainable;
	int ntrainable; /* globs; empty: all */
	Binding *padding;
	int npadding; /* embedding table (a glob) -> its row of padding, in value; -1: it has none */
	Dropout dropout;
	BatchNormBy batchnorm;
	int init_random; /* 0: from the file; else seed */
} ModelSettings;

/* What is read, and which axes of the inputs it fills. */
typedef struct DataSettings {
	Binding *bind;
	int nbind;
	Binding *batch_axis;
	int nbatch_axis; /* input -> axis */
	DataKind kind;   /* of all inputs that say none; DATA_UNSAID: synthetic */
	DataInput *input;
	int ninput;
	bool shuffle;
	LastSamples last; /* samples that fill no step at the end of an epoch */
	struct {          /* the evaluation set; in steps, or in epochs where that is 0, and at the end */
		bool on;
		DataKind kind; /* DATA_UNSAID: that of the training data */
		DataInput *data;
		int ndata;
		int64_t every, epochs, samples;
		bool averages; /* of the weights (optimizer setting ema), in their place */
	} eval;
} DataSettings;

/* A step's size, how many there are, and what a run writes besides the model. */
typedef struct LoopSettings {
	int64_t micro;        /* size of a microbatch; 0: from the model or global */
	bool choose_micro;    /* --micro-batch auto was asked for: decided with the plan */
	int64_t global;       /* 0: micro x microbatches x replicas */
	int64_t microbatches; /* per replica; 0: chosen */
	int64_t steps;        /* 0: default */
	int64_t epochs;       /* as many steps as pass over the samples so often; 0: steps count */
	const char *stop;     /* "loss=0.1"; NULL: after the last step */
	uint64_t seed;
	bool reproducible;
	bool check_numerics;           /* the programs look for NaN in every tensor that they make */
	const char *ckpt_dir;          /* where the run writes checkpoints; NULL: nowhere unless it is told to */
	int64_t ckpt_every, ckpt_keep; /* steps; how many stay, 0: all */
	int64_t metrics_every;         /* 0: with the progress lines */
	const char *jsonl, *csv, *tensorboard; /* files of metrics; NULL: none */
	bool gnorm;                            /* the norm of the gradient goes into progress lines and metrics */
} LoopSettings;

enum { PIPE_SGD_MOST = 1024, GROUP_MOST = 1024 }; /* K; devices of a group */

/* How the model is cut, replicated and scheduled. */
typedef struct PlanSettings {
	const char *replicas;          /* "2-1-1", NULL: auto */
	const struct GivenPlan *given; /* --plan FILE, read (plan.h); else NULL */
	PlannerKind planner;
	DpCost dp_cost; /* of pipedream */
	int64_t tensor; /* devices that share each replica of a stage; 0, 1: one */
	int *tensor_of; /* by stage, where they are not all as many, of which `tensor` is the largest; else NULL */
	int ntensor_of;
	int *sequence_of; /* of those, by stage: AlongSequence, where a plan file says it of stages; NULL: `sequence` holds */
	int *group_at; /* of those, by rank: its first device, index into Cluster.device before there are groups; NULL: neighbours in order */
	AlongSequence sequence; /* on: they divide along the sequence what stands between products */
	int64_t zero; /* replicas of every stage divide 1: the optimizer's state, 2: gradients too, 3: weights too; -1: not said (stage_zero) */
	bool choose_tensor, choose_zero; /* --tensor auto, --zero auto were asked for: by compiling each */
	int64_t max_stages;              /* of plans that are looked for; 0: any */
	bool no_pipeline, no_dp;         /* those have one stage; no replicas */
	bool choose_schedule;            /* --schedule auto was asked for: by simulation */
	ScheduleSpec schedule;
	WarmupPolicy warmup_policy; /* WARMUP_UNSAID: auto */
	ReplicaSplit replica_split;
	Stash stash; /* pipedream */
	bool vertical_sync;
	bool choose_pipe_sgd;                /* --pipe-sgd auto was asked for: K, codec and buckets by simulation */
	int64_t pipe_sgd;                    /* K: an update has the gradients of K - 1 steps before; 0, 1: its own */
	int64_t warmup_steps, warmup_epochs; /* asynchronous: so many steps, and so many epochs, are flushed first */
	Recompute recompute;
} PlanSettings;

/* How gradients are summed, and what servers hold. */
typedef struct CommSettings {
	Comm by; /* COMM_UNSAID: allreduce */
	AllReduceBy allreduce;
	const char *dense;  /* name or pattern of tables whose gradients travel whole; NULL: none */
	int64_t bucket;     /* least bytes of a sum that begins during the backward; 0: auto, INT64_MAX: one sum */
	GradComm grad;      /* as asked; training_complete chooses bucket by it */
	ServerSync by_sync; /* of the servers, as --comm ps-sync and async say with ps */
	ServerSync sync;    /* as --sync says; both unsaid: synchronous */
	int64_t staleness;  /* async: a device is at most so many steps ahead of the slowest; -1: any */
	int64_t servers;    /* processes that hold parameters; 0: one per host */
	int64_t partitions; /* pieces of tables at servers, by rows; -1: searched by cost; 0: whole */
	const char *partitions_of;  /* pattern of their names; NULL: all */
	bool sum_dense, sum_sparse; /* gradients are sums of the workers' means, not the mean over all */
	bool no_local_agg;          /* devices of a host push each for itself */
	bool no_opsw;               /* slices of parameters at servers and of their gradients stay with the devices */
	bool no_opau;               /* what is between sums at servers and updates stays with the devices */
	struct {                    /* of gradients on the wire */
		Codec codec;
		bool said;
		bool if_faster; /* only sums that are predicted to end earlier so */
		int block;      /* elements that share a step of q8 */
		bool feedback;  /* what packing takes away is added in the next step */
	} compress;
} CommSettings;

/* What the emitted programs are written for, and in which numbers they compute. */
typedef struct TargetSettings {
	Target kind;  /* as asked */
	Target found; /* what TARGET_AUTO came to with the first cluster that was read; TARGET_AUTO: none was */
	const char *cc, *nvcc; /* compilers of the emitted Makefile; NULL: gcc, the toolkit's nvcc */
	OptLevel optimize;     /* -O there; OPT_LEVEL_UNSAID: 3 */
	bool debug;            /* -g there */
	const char *arch;      /* of GPUs, as nvcc calls it: "sm_90" */
	int threads;           /* per device; 0: from cluster or machine */
	struct {               /* mixed precision */
		AmpKind kind;
		double scale;  /* of the loss with fp16, at first; 0: 65536 */
		int64_t every; /* so many steps without overflow double it; 0: 2000 */
	} amp;
	const Map *told; /* by name: values that the programs tell of in their first step (pdcc verify); NULL: none */
	bool apart;      /* gradients of a microbatch have memory of their own: somebody looks at them */
	bool replayed; /* a microbatch reads weights of any age (--replay): no copy of them is made behind an update */
	bool each;     /* every gradient is made by the microbatch, none of all at once (pdcc profile) */
	bool f64;      /* checking mode: every float is f64, plain loops */
} TargetSettings;

typedef struct Training {
	const char *file;
	ModelSettings model;
	DataSettings data;
	LoopSettings loop;
	PlanSettings plan;
	CommSettings comm;
	TargetSettings target;
} Training;

/* Is the loss scaled, and a step whose gradients overflow without update (fp16)? */
static inline bool amp_scaled(const Training *t) { return t && t->target.amp.kind == AMP_FP16 && !t->target.f64; }

/* Are programs written for GPUs? No training: no. */
static inline bool target_cuda(const Training *t)
{
	return t && (t->target.kind == TARGET_AUTO ? t->target.found : t->target.kind) == TARGET_CUDA;
}

/* Are gradients added to their sums by what makes them, where that can? Where no order is promised and nobody looks at them. */
static inline bool sums_where_made(const Training *t) { return t && !t->loop.reproducible && !t->target.apart; }

/* Is a gradient of so many bytes added to the step's sum with others, when the backward ends? On GPUs, where each addition is a launch. */
static inline bool added_at_end(const Training *t, int64_t bytes)
{
	return target_cuda(t) && !t->loop.reproducible && bytes <= 64 << 10;
}

/* Are weights in 16 bits made once a step, behind its update? Where all microbatches of a step read the same ones. */
static inline bool copies_weights(const Training *t)
{
	return t->target.amp.kind != AMP_OFF && !t->target.f64 && !t->data.eval.averages && !t->target.replayed &&
	       !schedule_is_async(t->plan.schedule) && t->plan.pipe_sgd <= 1;
}

/* Do servers apply every device's gradient when it comes? */
static inline bool served_async(const Training *t)
{
	return t && (t->comm.sync == SERVERS_ASYNC || t->comm.by_sync == SERVERS_ASYNC);
}

#endif
