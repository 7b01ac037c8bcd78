/* The machines and the training settings as plain data; filled by the front end, read by every pass. */
#ifndef PDCC_IR_CLUSTER_H
#define PDCC_IR_CLUSTER_H

#include <string.h>
#include "ir.h"
#include "optimizer.h"

typedef struct Device {
	const char *name;     /* "host[2]" */
	int host;             /* index into Cluster.host */
	int index;            /* device index on its host */
	bool cuda;            /* else a CPU process */
	int cores;            /* threads a CPU device may use; 0: not said */
	int64_t memory;       /* bytes available to pdcc (reserve taken off); 0: not said */
	double flops;         /* f32 FLOP/s; 0: default of the cost model */
	double half_flops;    /* of products in 16-bit floats; 0: not said */
	double mem_bandwidth; /* bytes/s; 0: default */
} Device;

typedef struct Host {
	const char *name, *address, *rack;
	int cores;
	int64_t memory;
	bool worker, server;
} Host;

typedef enum LinkScope { LINK_WITHIN, LINK_BETWEEN, LINK_DEFAULT } LinkScope;
typedef struct Link {
	LinkScope scope;
	int host_a, host_b; /* LINK_BETWEEN */
	const char *kind;
	double bandwidth; /* bytes/s */
	double latency;   /* seconds */
} Link;

/* Parameters whose names match (a glob) are at a server of this host, where servers hold them; or in this stage of the plan. The
 * other is -1; both are where the host is gone. */
typedef struct Pin {
	const char *pattern;
	int host, stage, line, col;
} Pin;

typedef struct EnvVar {
	const char *name, *value;
} EnvVar;

typedef struct Cluster {
	const char *file, *name;
	bool local;   /* every device is on this machine */
	bool untyped; /* hosts without kinds of devices: they are what --target says */
	Device *device;
	int ndevice; /* first those that train (cluster_workers), then those of hosts that are only servers */
	Host *host;
	int nhost;
	Link *link;
	int nlink;             /* first match wins */
	double timeout;        /* seconds a wait may take; 60 */
	const char *interface; /* NULL: any */
	int port[2];           /* first and last; 0: any */
	const char *launch;    /* "auto", "local", "ssh", "slurm", "mpi" */
	const char *ssh_user, *ssh_key;
	int ssh_port; /* NULL, 0: ssh's own settings */
	EnvVar *env;
	int nenv;     /* for the programs */
	int tolerate; /* 1: plans for one host less too */
	const char **without;
	int nwithout; /* hosts (local: devices) that there is such a plan for, in DIR/without-NAME */
	Pin *pin;
	int npin; /* the first that matches counts */
	unsigned
		policies; /* how stages are given devices: 1 fresh first, 2 append first, 4 scatter first; 0: as is fastest */
} Cluster;

/* The link between two devices; a built-in default when the file names none. */
Link cluster_link(const Cluster *c, int a, int b);
/* Do these devices share a host? False where there is no cluster, or one of them is not in it. */
bool cluster_same_host(const Cluster *c, int a, int b);
/* How many devices may train: those of hosts with the role worker. */
int cluster_workers(const Cluster *c);
/* Which entry of Cluster.link that is; nlink and nlink + 1 stand for the built-in ones, within a host and between two. */
int cluster_link_line(const Cluster *c, int a, int b);
Link cluster_link_of(const Cluster *c, int line);

typedef struct Binding {
	const char *name;
	int axis;
	int64_t value;
} Binding; /* axis -1: a symbolic name */
typedef struct DataInput {
	const char *input, *path;
	DataKind kind;
} DataInput; /* DATA_UNSAID: the common one */

typedef struct Training {
	const char *file;
	Binding *bind;
	int nbind;
	Binding *batch_axis;
	int nbatch_axis;    /* input -> axis */
	DataKind data_kind; /* of all inputs that say none; DATA_UNSAID: synthetic */
	DataInput *data;
	int ndata;
	bool shuffle;
	LastSamples last; /* samples that fill no step at the end of an epoch */
	struct {          /* the evaluation set; in steps, or in epochs where that is 0, and at the end */
		bool on;
		DataKind kind; /* DATA_UNSAID: data_kind */
		DataInput *data;
		int ndata;
		int64_t every, epochs, samples;
		bool averages; /* of the weights (optimizer setting ema), in their place */
	} eval;
	int64_t micro;        /* size of a microbatch; 0: from the model or global */
	bool choose_micro;    /* --micro-batch auto was asked for: decided with the plan */
	int64_t global;       /* 0: micro x microbatches x replicas */
	int64_t microbatches; /* per replica; 0: chosen */
	int64_t steps;        /* 0: default */
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
	int npadding; /* embedding table (a glob) -> its row of padding, in value */
	Dropout dropout;
	BatchNormBy batchnorm;
	uint64_t seed;
	int init_random; /* 0: from the file; else seed */
	bool reproducible;
	const char *ckpt_dir;  /* where the run writes checkpoints; NULL: nowhere unless it is told to */
	int64_t metrics_every; /* 0: with the progress lines */
	const char *jsonl, *csv, *tensorboard; /* files of metrics; NULL: none */
	const char *stop;                      /* "loss=0.1"; NULL: after the last step */
	int64_t ckpt_every, ckpt_keep;         /* steps; how many stay, 0: all */
	const char *plan;                      /* "2-1-1", NULL: auto */
	bool choose_schedule;                  /* --schedule auto was asked for: by simulation */
	ScheduleSpec schedule;
	WarmupPolicy warmup_policy; /* WARMUP_UNSAID: auto */
	ReplicaSplit replica_split;
	Stash stash; /* pipedream */
	bool vertical_sync;
	int64_t pipe_sgd;                    /* K: an update has the gradients of K - 1 steps before; 0, 1: its own */
	int64_t warmup_steps, warmup_epochs; /* asynchronous: so many steps, and so many epochs, are flushed first */
	Recompute recompute;
	const struct GivenPlan *given; /* --plan FILE, read (plan.h); else NULL */
	PlannerKind planner;
	int64_t max_stages;      /* of plans that are looked for; 0: any */
	bool no_pipeline, no_dp; /* those have one stage; no replicas */
	DpCost dp_cost;          /* of pipedream */
	Target target;           /* as asked */
	Target found; /* what TARGET_AUTO came to with the first cluster that was read; TARGET_AUTO: none was */
	const char *cc, *nvcc; /* compilers of the emitted Makefile; NULL: gcc, the toolkit's nvcc */
	OptLevel optimize;     /* -O there; OPT_LEVEL_UNSAID: 3 */
	bool debug;            /* -g there */
	const char *arch;      /* of GPUs, as nvcc calls it: "sm_90" */
	int threads;           /* per device; 0: from cluster or machine */
	AllReduceBy allreduce;
	const char *dense;    /* name or pattern of tables whose gradients travel whole; NULL: none */
	int64_t bucket;       /* least bytes of a sum that begins during the backward; 0: auto, INT64_MAX: one sum */
	GradComm grad_comm;   /* as asked; training_complete chooses bucket by it */
	Comm comm;            /* COMM_UNSAID: allreduce */
	ServerSync comm_sync; /* of the servers, as --comm ps-sync and async say with ps */
	ServerSync sync;      /* as --sync says; both unsaid: synchronous */
	int64_t staleness;    /* async: a device is at most so many steps ahead of the slowest; -1: any */
	int64_t servers;      /* processes that hold parameters; 0: one per host */
	int64_t partitions;   /* pieces of tables at servers, by rows; -1: searched by cost; 0: whole */
	const char *partitions_of;  /* pattern of their names; NULL: all */
	bool sum_dense, sum_sparse; /* gradients are sums of the workers' means, not the mean over all */
	bool no_local_agg;          /* devices of a host push each for itself */
	bool no_opsw;               /* slices of parameters at servers and of their gradients stay with the devices */
	bool no_opau;               /* what is between sums at servers and updates stays with the devices */
	struct {                    /* of gradients on the wire */
		Codec codec;
		bool if_faster; /* only sums that are predicted to end earlier so */
		int block;      /* elements that share a step of q8 */
		bool feedback;  /* what packing takes away is added in the next step */
	} compress;
	struct { /* mixed precision */
		AmpKind kind;
		double scale;  /* of the loss with fp16, at first; 0: 65536 */
		int64_t every; /* so many steps without overflow double it; 0: 2000 */
	} amp;
	bool gnorm;          /* the norm of the gradient goes into progress lines and metrics */
	bool check_numerics; /* the programs look for NaN in every tensor that they make */
	const Map *told; /* by name: values that the programs tell of in their first step (pdcc verify); NULL: none */
	bool f64;        /* checking mode: every float is f64, plain loops */
} Training;

/* Is the loss scaled, and a step whose gradients overflow without update (fp16)? */
static inline bool amp_scaled(const Training *t) { return t && t->amp.kind == AMP_FP16 && !t->f64; }

/* Are programs written for GPUs? No training: no. */
static inline bool target_cuda(const Training *t)
{
	return t && (t->target == TARGET_AUTO ? t->found : t->target) == TARGET_CUDA;
}

/* Do servers apply every device's gradient when it comes? */
static inline bool served_async(const Training *t)
{
	return t && (t->sync == SERVERS_ASYNC || t->comm_sync == SERVERS_ASYNC);
}

#endif
