/* pd.h: the whole interface that emitted programs may use, in one place, however long. Everything is C11; sizes are bytes
 * unless said otherwise. The runtime holds no interpreter of the model: an emitted program calls
 * these functions, they never call an op. Faults end the program with a message "R1xx ..." and
 * the exit codes of the README: no function returns an error unless its comment says so. */
#ifndef PD_H
#define PD_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined __cplusplus /* kernels for GPUs (gpu.h) */
extern "C" {
#endif
#if defined __CUDACC__ || defined __CUDA__
#define PD_ANYWHERE __host__ __device__
#else
#define PD_ANYWHERE
#endif

#define PD_ABI 3

/* ---- what a program says of itself ---- */

typedef enum pd_dtype { /* numbers as in ONNX TensorProto.DataType */
	PD_F32 = 1,
	PD_U8 = 2,
	PD_I8 = 3,
	PD_U16 = 4,
	PD_I16 = 5,
	PD_I32 = 6,
	PD_I64 = 7,
	PD_BOOL = 9,
	PD_F16 = 10,
	PD_F64 = 11,
	PD_U32 = 12,
	PD_U64 = 13,
	PD_BF16 = 16,
	PD_F8E4M3 = 17,
	PD_F8E5M2 = 19
} pd_dtype;

enum { PD_MAXRANK = 8 };

/* PD_OWN: every replica has one of its own, writes it whatever `owner` says, and files call it "NAME@REPLICA". */
typedef enum pd_param_kind { PD_WEIGHT, PD_BUFFER, PD_STATE, PD_OWN } pd_param_kind;

typedef struct pd_param { /* weights, BatchNormalization statistics, optimizer state */
	const char *name; /* the ONNX initializer name; state: "weight:m" */
	pd_param_kind kind;
	pd_dtype dtype;
	int rank;
	int64_t dim[PD_MAXRANK];
	size_t offset;   /* in the arena */
	double fill;     /* initial value when the weight file lacks it */
	bool trained;    /* frozen weights and buffers: false */
	int owner;       /* rank that writes it to files */
	int64_t row, of; /* of > 0: this is a piece, the rows from `row` on, of a table of so many */
	int axis;        /* blocks > 0: each device of a tensor group has a part of this axis, which is seen as */
	int64_t blocks;  /* [blocks, devices, part]; dim is of the part */
	int64_t pad;     /* so many of that axis lie at the end of the whole and are in no file: zeros */
	int64_t part; /* > 0: each replica has so many elements of it, or what is left, from replica x part on; dim is of the whole */
} pd_param;

typedef struct pd_parted { /* a table in pieces at several servers: its squares are told in blocks */
	int index;         /* among the trained parameters */
	int at, blocks;    /* numbers of the first, how many */
} pd_parted;

typedef struct pd_input_desc { /* one input of the graph that this stage reads */
	const char *name;
	pd_dtype dtype;
	int rank;
	int64_t dim[PD_MAXRANK]; /* of one microbatch */
	int batch_axis;          /* -1: the same value for every microbatch */
	int64_t range;           /* integers lie in [0, range), real ones are checked; 0: no rule */
	const char *kind; /* "synthetic" | "npy" | "idx" | "safetensors" | "raw" | "tokens" (16 bits) | "tokens32"
	                             * | "presence": 1 for a sample, 0 behind the last one; without a
	                             * batch axis for a microbatch, which then has all of its samples or none */
	const char *path; /* as the user named it */
	const char *eval_kind, *eval_path; /* of the evaluation set; NULL: as above */
	bool is_label;
	int64_t ignore_index; /* labels: also allowed; INT64_MIN: none */
	bool masked;          /* ignore_index stands where a step has no sample */
} pd_input_desc;

/* What becomes of samples that fill no step at the end of an epoch: the step takes the next epoch's first ones; it is short;
 * they are left out. */
typedef enum pd_last { PD_LAST_WRAP, PD_LAST_KEEP, PD_LAST_DROP } pd_last;

typedef struct pd_group {
	int n;
	const int *rank;
} pd_group; /* ranks in ascending order */

/* GPU programs: messages of a channel from this rank to a peer, or from there. Those of a lane come in one order on both sides; lane
 * -1: they do not. In so many slots at once, of so many bytes. */
typedef struct pd_link {
	int channel, peer, lane;
	bool sends;
	int slots;
	size_t bytes;
} pd_link;

typedef struct pd_program {
	unsigned abi;                               /* PD_ABI */
	const char *model, *plan, *schedule, *hash; /* hash of the plan: equal on all ranks */
	int rank, world, stage, stages, replica, replicas;
	int tensor, member;   /* a rank is so many programs, a tensor group, of which this is one; 0: it is alone */
	const int *tensor_of; /* by rank: its programs; NULL: each has as many as this one */
	bool server;          /* it holds parameters and trains nothing: stage is its number */
	int threads;
	bool reproducible;
	bool shuffle; /* samples are permuted anew in every epoch */
	pd_last last;
	uint64_t seed;
	int64_t micro;              /* samples per microbatch */
	int microbatches;           /* per step, over all replicas: the grains */
	int grains;                 /* so many of them are dealt to a stage's replicas at a time, in
	                             * blocks; 0: all of a step */
	bool in_turn;               /* microbatch g is of replica g mod replicas; else they have blocks */
	int channels, slots;        /* sizes of the request tables below */
	const char *const *channel; /* what each carries, for messages; NULL: not said */
	size_t arena;               /* bytes; laid out by pdcc */
	int nparams;
	const pd_param *params;
	int ninputs;
	const pd_input_desc *inputs;
	const char *weights; /* safetensors file, relative to the build folder */
	int64_t steps;       /* default number of steps */
	int64_t epochs;      /* where it is not 0, passes over the samples in their place */
	bool compressed;     /* some sum travels compressed */
	int squares_at;      /* the rank that joins them */
	int squares;         /* trained parameters of all stages, when their norm is limited */
	bool gnorm;          /* and told, with --gnorm or --clip-norm; the scale of fp16 has squares too */
	int nparted;
	const pd_parted *parted;
	double loss_scale;                    /* at first; 0: gradients are not scaled */
	int64_t scale_every;                  /* steps without overflow after which it doubles */
	double timeout;                       /* seconds */
	void (*init)(char *arena);            /* sets the stage's pointers, makes library objects */
	void (*step)(bool update);            /* one training step: all actions of this device; false:
	                                     * no weight, state or statistics change, only losses
	                                     * are reported */
	struct {                              /* factor of the learning rate: pd_rate */
		int kind;                     /* 0 constant, 1 step, 2 exponential, 3 linear, 4 cosine,
		                               * 5 inverse square root, 6 inverse */
		int64_t warmup, every, steps; /* steps 0: what the run has beyond warmup */
		double gamma, last;
	} rate;
	const char *model_hash; /* parameters and operators, whatever the plan; NULL: not known */
	const char *optimizer;  /* "adam"; NULL: not known */
	struct {
		const char *dir;
		int64_t every, keep;
	} ckpt;             /* defaults of --ckpt...; dir NULL: none */
	double lr;          /* learning rate, before pd_rate */
	double predicted;   /* seconds of a step, as planned; 0: not known */
	double flops, peak; /* FLOP of a step, forwards and backwards; FLOP/s of all devices; 0: not known */
	struct {
		int64_t every;
		const char *jsonl, *csv, *tensorboard;
	} metrics;        /* defaults; NULL: none */
	const char *stop; /* "loss=0.1"; NULL: no early end */
	/* There is an evaluation set; every so many steps, or epochs where that is 0; 0 and 0: at the end. */
	struct {
		bool on, accuracy;
		int64_t every, epochs, samples;
		bool averages;
	} eval;            /* averages: NAME:ema in place of NAME */
	const char *notes; /* first line of the run, e.g. "synthetic data"; may be "" */
	/* Asynchronous pipelines; 0 and NULL: the pipeline is flushed in every step. */
	int flow;                        /* no device is so many steps behind another, in the plan */
	int lag;                         /* steps that this device needs to drain */
	int64_t sync_steps, sync_epochs; /* steps before these are drained one by one; later ones flow */
	void (*settle)(void);            /* drained: the newest weights go to where params says */
	int owned;                       /* gradients that replicas of the stage own */
	int64_t staleness; /* asynchronous servers: a device is at most so many steps ahead of the slowest; -1: any */
	int nlinks;
	const pd_link *links; /* GPU programs: between two devices; groups that it sums in */
	int ngroups;
	const pd_group *groups;
} pd_program;

/* The whole life of a run: arguments, joining the others, weights, the loop, the result files.
 * Gives the exit status. */
int pd_main(const pd_program *p, int argc, char **argv);

/* The same in parts, for a loop of one's own: all ranks call them alike. A program of one's own
 * takes the place of deviceN.c's main (make LOOP=FILE.c); pd_device() there is its program. */
const pd_program *pd_device(void); /* written by pdcc */
/* Up to the first step; argv as of pd_main. false: there is nothing to train (--check, --steps 0). */
bool pd_init(const pd_program *p, int argc, char **argv);
/* One step, and the checkpoint and the lines that are due then. An asynchronous pipeline does all
 * steps up to the next checkpoint or the end. false: it was the last one (steps are done, a signal
 * came, --stop was reached). */
bool pd_step(void);
typedef struct pd_metric {
	int64_t step, steps;           /* done; of the whole run */
	double epoch;                  /* passes over the data; on rank 0, as are the next two: of the steps */
	double step_ms, samples_per_s; /* since the last progress line */
	double mfu;     /* model FLOP utilization since then: share of the devices' FLOP/s; NaN: those are not known */
	double seconds; /* since pd_init */
	double loss, loss_ema, lr;           /* of the last step, before its update; its average; rate */
	double step_accuracy, gradient_norm; /* of the last step; NaN: no classes; neither --gnorm nor --clip-norm */
	double idle,
		sent; /* on rank 0, since the last line: share of time that devices waited, bytes a step between them;
	                         * NaN: asynchronous plans */
	int64_t eval_step;                      /* steps done at the last evaluation; -1: there was none */
	double eval_loss, accuracy, perplexity; /* then, on all ranks; accuracy NaN: the loss has no classes */
} pd_metric;
void pd_metrics(pd_metric *m);
/* Writes results, waits for the others. Gives the exit status. */
int pd_finalize(void);

/* ---- inside a step ---- */

/* What this device does now: "F", "RECV_B" ... of microbatch mb; -1: of none. For verdicts. */
void pd_action(const char *what, int mb);
/* The same of a step that is `lag` steps back in an asynchronous pipeline, mb counted within it; and the weights that the
 * running action reads or makes: updates since the flow began. For traces. */
void pd_action_of(const char *what, int64_t lag, int mb);
void pd_version(int64_t version);

int64_t pd_step_index(void);   /* 0, 1, 2 ... */
int64_t pd_update_index(void); /* updates before this one: steps that overflow left out (fp16) do not count */
/* Samples of the evaluation set run through the model: Dropout passes its operand on, BatchNormalization takes its running
 * statistics. */
bool pd_evaluating(void);
/* What the learning rate of this step is multiplied with: a rise in a line over `warmup` steps,
 * then by the kind, s steps later: gamma ^ floor(s / every); gamma ^ (s / every); in a line, or
 * half a cosine, from 1 to `last` over `steps`; (1 + s / every) ^ -1/2 or ^ -1. */
double pd_rate(void);
/* What a program with clocks times (profile/): a statement, by the value that it makes. */
typedef struct pd_record {
	const char *phase, *op, *value, *node, *type;
	int64_t activation, weight; /* bytes of its results; of the weights that it reads */
	double planned;             /* seconds: per microbatch, of the update per step */
} pd_record;
int pd_records(const pd_record *r, int n); /* of a stage; gives the number of the first */
/* Virtual compute: records from that one on take so many times as long, by phase: forward, backward, update. */
void pd_pace(int first, const double *times);
/* Statement k begins, the one before it ends; -1: none begins. False (make virtual): it shall not
 * be done, its planned time passes instead. */
bool pd_timed(int k);
/* Copies microbatch mb of the running step for inputs[i]; checks ranges (R2xx). Threads may not
 * share this call. */
void pd_input(int i, int mb, void *dst);
/* Global index of the first sample of microbatch mb of the running step: the counter of random
 * numbers. */
int64_t pd_sample(int mb);

int64_t pd_sample_of_step(int mb); /* pd_sample(mb) - pd_sample(0) */

/* Sum of the loss over microbatch mb and what it is divided by (counted labels). The loss's
 * stage calls it per microbatch; pd_totals joins all ranks (in microbatch order, so the sum has
 * one value whatever the plan). */
void pd_report(int mb, double loss, double count);
void pd_hits(int mb, double hits, double of); /* labels that had the greatest score, of those that count */
void pd_totals(void);
/* n elements of PD_F32 or PD_F64: ends the run (R307, exit 76) at one that is NaN or
 * +infinite; masks are made of -infinity. */
void pd_check(const char *what, pd_dtype t, const void *v, int64_t n);
double pd_total_count(void); /* after pd_totals; never 0 */
/* The norm of the gradient over all parameters. Between pd_totals and the first pd_clip a device
 * tells the sum of squares of each trained parameter it updates; replicas tell the same. pd_clip
 * joins all ranks and gives n * max(1, norm / n / most), what a sum over n labels is divided by
 * so that the norm of the mean is at most `most` (0: any; the norm is told in metrics). */
void pd_square(int index, double sum);
double pd_clip(double n, double most);
/* Loss scaling of 16-bit floats: gradients are those of the loss times pd_loss_scale(). pd_clip_scaled gives pd_clip's result
 * for n times that (most 0: any norm). Where the norm is no number all ranks see an overflow: pd_overflow() is true until the
 * next step's, nothing may be updated, and the scale halves; after scale_every steps without one it doubles. Below 2^-24 it
 * cannot help: R308. pd_loss_scale in an update: what its gradients were scaled by. */
double pd_loss_scale(void);
void pd_clip_scaled(float *to, const float *n, double most);
bool pd_overflow(void);
/* Behind an update that clips nothing: takes part all the same. */
void pd_norm_end(void);
/* The gradient of params[i] as summed over the global batch, before the division by
 * pd_total_count(). Called once per trained parameter and step from its update; keeps a copy
 * under --dump-grads, else does nothing. */
void pd_gradient(int i, const void *sum);
/* The same of one of which each member has a part. */
void pd_gradient_part(const pd_group *g, int i, const void *part, int64_t n);
/* The same of rows: rows[k] of `width` elements belongs to row ids[k] (-1: none). With add they
 * come on top of what was told of params[i] before in this step. */
void pd_gradient_rows(int i, const int32_t *ids, const void *rows, int64_t n, int64_t width, int add);

/* n elements of PD_F32 or PD_F64 of microbatch mb, made by the running action or received by it; --first-step writes those of
 * the first step, --each-step of each. channels: not 0 where they are images that lie channels-last, of so many channels and pixels. */
void pd_value(const char *name, bool received, int mb, pd_dtype t, const void *v, int64_t n, int64_t channels,
	int64_t pixels);
/* Where the running update leaves params[i], which has several versions; for --each-step. */
void pd_updated(int i, const void *v);

/* Tensor groups (comm/tensor.c): all members make these calls in one order.
 * y = the sum of all members' x, count elements of t (f32, f64), the same bits for all; y may be x. */
void pd_tensor_sum(void *y, const void *x, int64_t count, pd_dtype t);
double pd_tensor_total(double mine);
/* y: the whole, of which every member has `blocks` runs of `run` bytes at x; and back, to this member's part. */
void pd_tensor_gather(void *y, const void *x, int64_t blocks, int64_t run);
void pd_tensor_shard(void *y, const void *x, int64_t blocks, int64_t run);
/* y = this member's part of the sum of all members' x, of elements of t: the bits of pd_tensor_sum. y is not x. */
void pd_tensor_scatter(void *y, const void *x, int64_t blocks, int64_t run, pd_dtype t);
int pd_member(void);
/* What each member has, to all: `bytes` of one behind those of the one before, until the next call of this kind. Memory for what one has. */
const void *pd_tensor_all(const void *mine, size_t bytes);
void *pd_tensor_room(size_t bytes);

/* Messages between stages. A channel is one tensor crossing one cut; its number is the same on
 * both sides. Each (channel, slot) has one request. The buffer stays untouched until the wait;
 * waits on an idle request return at once. Where the peer is this rank itself, another of its
 * stages, the message is copied. */
void pd_irecv(int channel, int slot, int peer, int mb, void *buf, size_t bytes);
void pd_isend(int channel, int slot, int peer, int mb, const void *buf, size_t bytes);
void pd_wait_recv(int channel, int slot);
void pd_wait_send(int channel, int slot);

/* Sum over a group, in place. Fast: ring of reduce-scatter and all-gather. */
void pd_allreduce(const pd_group *g, float *buf, size_t count);
/* The same by another algorithm, or with compressed messages: every hop of the ring decodes, adds
 * and encodes. All members end with the same bits. block: elements that share a step (Q8), a power
 * of two from 16 to 32768. PD_SUM_AUTO is the ring, and everyone to everyone for up to 4096
 * elements, uncompressed. Others than the ring are exact. PD_SUM_HOSTS: inside hosts, then between
 * them; host: of each member. PD_SUM_VENDOR: MPI's own, for groups that were opened. residual: as many floats as
 * the buffer, at first 0; what packing takes away from what this member sends stays there and is added to it the
 * next time (error feedback), so that nothing is lost in the long run. guard: whether packing pays is measured in the
 * first steps; where it does not, sums go on as they are. */
typedef enum pd_algorithm {
	PD_SUM_AUTO,
	PD_SUM_RING,
	PD_SUM_DOUBLING,
	PD_SUM_HALVING,
	PD_SUM_PAIRWISE,
	PD_SUM_HOSTS,
	PD_SUM_VENDOR
} pd_algorithm;
typedef enum pd_codec { PD_CODEC_EXACT, PD_CODEC_TRUNC16, PD_CODEC_BF16, PD_CODEC_Q8 } pd_codec;
typedef struct pd_sum {
	pd_algorithm by;
	pd_codec codec;
	int block;
	const int *host;
	float *residual;
	bool guard;
} pd_sum;
void pd_group_open(const pd_group *g); /* before step 0, by all members; g stays where it is */
void pd_allreduce_as(const pd_group *g, float *buf, size_t count, const pd_sum *how);
void pd_allreduce_f64(const pd_group *g, double *buf, size_t count); /* plain: for checking */
/* Starts it in the background (how NULL: PD_SUM_AUTO); sums are done in the order in which they were started, which
 * must be one order on all members. pd_allreduce_wait waits for all that were started. */
void pd_allreduce_start(const pd_group *g, float *buf, size_t count, const pd_sum *how);
void pd_allreduce_wait(void);
/* Tensors of which each replica has the gradient's sum of a part, and updates that part: of n elements replica r has those from
 * r x part on, `part` of them or what is left. at: where they begin in the buffer, in elements. */
typedef struct pd_part {
	int64_t at, n, part;
	int64_t own; /* where the member's own part begins in a buffer that has nothing else of it */
} pd_part;
static inline size_t pd_part_at(int replica, int64_t part, int64_t n)
{
	const int64_t at = replica * part;

	return (size_t)(at < n ? at : n);
}
static inline size_t pd_part_of(int replica, int64_t part, int64_t n)
{
	const size_t left = (size_t)n - pd_part_at(replica, part, n);

	return left < (size_t)part ? left : (size_t)part;
}
/* ReduceScatter: sums as those of pd_allreduce_start, of the member's own parts; what is in the others means nothing then. */
void pd_scatter_start(const pd_group *g, float *buf, const pd_part *p, int n);
/* The same of a microbatch's gradients, into the sums of the own parts: add: to what is there. `one` is free behind the next wait. */
void pd_scatter_add(const pd_group *g, float *sum, const float *one, const pd_part *p, int n, int add);
/* AllGather: the parts of all members, elements of `size` bytes. */
void pd_gather_parts(const pd_group *g, void *buf, const pd_part *p, int n, size_t size);
/* Weights of which each replica has its part alone, from p[i].own on at `own`: the wholes are at p[i].at in buf when pd_allreduce_wait()
 * comes back. */
void pd_gather_start(const pd_group *g, void *buf, const void *own, const pd_part *p, int n, size_t size);
/* The same of sums of gradients, where somebody looks at them: --dump-grads, pdcc verify. */
void pd_gradients_whole(const pd_group *g, void *buf, const pd_part *p, int n);
/* Every rank of the group contributes `bytes`; out gets n * bytes in group order. */
void pd_allgather(const pd_group *g, const void *in, void *out, size_t bytes);
/* What member `from` (its place in the group) has in buf, all get. Members of several groups
 * come in one order. */
void pd_broadcast(const pd_group *g, int from, void *buf, size_t bytes);

/* Row-sparse gradients: `grains` lists of n rows of `width` floats, ids[g][k] the row of the table, -1: none. pd_gatherv_join
 * gets those of other members' grains (g NULL: there are none) and leaves each id once, its row summed over the grains by
 * the tree below, so with the bits of a dense gradient. Only rows that are there travel; duplicates of a grain are
 * added up before. */
typedef struct pd_gatherv pd_gatherv;
pd_gatherv *pd_gatherv_new(int grains, int64_t n, int64_t width, const int *mine, int nmine, int members);
void pd_gatherv_join(pd_gatherv *r, const pd_group *g, int32_t *ids, float *rows);

/* Reproducible sums. A tree over the grains 0..n-1 of a step: tree(lo, n) = tree(lo, p) +
 * tree(lo + p, n - p) with p the largest power of two below n. Whole
 * subtrees are added as soon as they are complete. */
typedef struct pd_tree pd_tree;
/* `mine`: this device's grains in the order in which they are done. Over a group of n, grain g
 * must belong to member g * n / grains (with pd_program.grains: that of its place among
 * these). Bytes are of arena memory, 64-byte aligned; pd_tree_new
 * allocates nothing else. */
size_t pd_tree_bytes(int grains, size_t count, const int *mine, int nmine);
pd_tree *pd_tree_new(int grains, size_t count, const int *mine, int nmine, void *mem);
float *pd_tree_leaf(pd_tree *t, int mb); /* zeroed memory for grain mb's gradient */
void pd_tree_done(pd_tree *t, int mb);   /* the leaf is complete */
/* Joins the group's partial sums; the root lies in the returned memory on every rank (valid
 * until the next leaf). */
float *pd_tree_root(pd_tree *t, const pd_group *g);
float *pd_tree_join(pd_tree *t, const pd_group *g, size_t count); /* only of the first floats */

/* ---- parameter servers ----
 *
 * Some parameters are updated by servers, which are ranks of their own; devices that train have a
 * copy of what they pulled. A pull waits until the server has done the update of the step before.
 * Of a parameter that is only looked up, rows travel: each at most once per step and device, on
 * its way back too. What is pushed is a sum over grains; a server adds these as a tree (pd_tree)
 * whatever the order of arrival, so that --reproducible has the bits of one device. */
typedef struct pd_rows {
	int server;        /* rank */
	int64_t row, rows; /* that it holds */
} pd_rows;

/* Values between devices and servers. type PD_BF16, PD_F16: they are rounded to it (--amp): narrow: where they leave, so that 16
 * bits travel; else where they arrive. They lie as f32 in the copy that is read and in sums. */
typedef struct pd_wire {
	pd_dtype type; /* PD_F32: as they are */
	bool narrow;
} pd_wire;

typedef struct pd_held { /* on a device that trains */
	const char *name;
	int key;             /* the same on both sides */
	bool whole;          /* all of it travels: one row */
	size_t at;           /* the copy, in the arena */
	int64_t rows, width; /* floats of a row */
	int64_t most;        /* rows that the device pulls in a step, at most */
	int64_t room;        /* rows of its sums of a part of the gradient, at most */
	int sums;            /* so many sums at most */
	int parts;           /* of its gradient, from uses in several places */
	int npieces;
	const pd_rows *piece;
	int64_t cut, ncut;   /* whole: the floats that are pulled, from where, how many */
	const int64_t *part; /* whole: floats of each part */
	pd_wire pull, push;
	int64_t lookup; /* rows that one call pulls, the same ones twice too, at most */
} pd_held;

typedef struct pd_share { /* on a server: a parameter, or some rows of one */
	const char *name;
	int key, parts; /* parts of its gradient, from uses in several places */
	bool whole;
	size_t at; /* in the arena */
	int64_t row, rows, width;
	int first, members; /* ranks that push to it: of the first, how many */
	int leaves;         /* of the tree: grains; without --reproducible, pushers */
	int pushers;        /* one member of every host: the others give it what they have */
	int64_t room;       /* rows that one pushes of a part in a step, at most */
	int sums;           /* in so many messages, at most */
	int64_t cut, ncut;  /* as in pd_held */
	const int64_t *part;
	pd_wire pull, push;
	bool by_rows; /* it is updated by pd_collect_rows alone */
} pd_share;

/* Before step 0, as replica `member` of so many. chief, by replica: which one adds what those of its host have, and
 * pushes it; itself: nobody does that for it. */
void pd_held_open(const pd_held *h, int n, char *arena, int member, const int *chief, int members);
void pd_pull(int k);                                             /* held[k] as a whole, once per step */
void pd_pull_rows(int k, const void *ids, int64_t n, int bytes); /* ids of so many bytes each */
/* Part `part` of the gradient of held[k], from a struct of sums, or as the tree has it `at` floats
 * behind the beginning of its leaves: every subtree that this device holds. */
void pd_push(int k, int part, const float *sum);
void pd_push_tree(int k, int part, pd_tree *t, size_t at);
void pd_push_end(void); /* nothing more comes in this step */
void pd_shares_open(const pd_share *s, int n, char *arena);
/* Answers until all that push to this server have said that nothing more comes. */
void pd_serve(void);
/* Asynchronous: a gradient counts as soon as a device has pushed all parts of it. update[k] collects it, alone, and updates
 * shares[k]; pd_total_count() is the device's, pd_step_index() the number of updates before, pd_rate() that of the
 * device's step. Returns when the slowest device has done the running step; what others pushed by then is done. */
void pd_serve_each(void (*const update[])(void));
/* The sum of what was pushed of shares[k], over all rows; `to` is the same in every step. */
void pd_collect(int k, int part, float *to);
/* Asynchronous: the rows that were pushed of shares[k], all parts added; their numbers, counted from the share's first, ascending.
 * Gives how many; they lie there until the next call. */
int64_t pd_collect_rows(int k, const int32_t **rows, const float **sum);
/* GPU programs: those rows of shares[k] one behind the other, for the update; behind it they go to their places. All lie on the
 * device, with room for as many rows as a gradient may have. */
float *pd_collected(void);
void pd_put_collected(int k);

/* The server of a replicated stage that is spread over its replicas (PipeDream): each owns some parameters. In a round every
 * replica begins, pushes each gradient when it is made (it stays as it is until the sum), then asks for all sums; only the owner
 * gets one, and sends what it makes of the parameter by pd_broadcast. */
typedef struct pd_owned {
	const char *name;
	int owner; /* its place in the group */
	int64_t n; /* floats */
} pd_owned;
void pd_owned_open(const pd_group *g, int replica, const pd_owned *o, int n);
void pd_owned_begin(void);
void pd_owned_push(int k, const float *gradient);
void pd_owned_sum(int k, float *sum);

/* What is between the sum of a gradient and the update, where devices do it: the server gives the sum to all members, and
 * the first of them returns what it made of it. Untouched rows do not travel; the receiver has zeros there. */
typedef struct pd_way {
	int key, server;     /* server: rank */
	int first, members;  /* ranks */
	bool whole;          /* one row */
	int64_t rows, width; /* floats of a row */
} pd_way;
void pd_give(const pd_way *w, const float *sum);
void pd_fetch(const pd_way *w, float *sum);
void pd_return(const pd_way *w, const float *made);
void pd_take(const pd_way *w, float *made);

/* ---- asynchronous pipelines ----
 *
 * Steps flow through the devices without a flush: while a device does the forward of the running
 * step, its backward and update are of earlier ones. The step of an action is the running one
 * less a lag; microbatches are counted from the running step on, so those of earlier ones are
 * negative. A flow begins with an empty pipeline and ends with one: at the end of the run. */
int64_t pd_flow(void);       /* the running step, counted from the flow's first */
bool pd_flows(int64_t step); /* is it a step of the flow, so counted? */

/* Behind the tensor of every message. */
typedef struct pd_tag {
	int64_t mb;      /* counted from the run's first */
	int64_t version; /* of the sender's weights: updates since the flow began */
	double count;    /* backward: counted labels of the microbatch */
} pd_tag;
void pd_tag_write(pd_tag *tag, int mb, int64_t version);
/* Checks that it is of that microbatch (R114), remembers its count; gives the version. */
int64_t pd_tag_read(const pd_tag *tag, int mb);

/* The labels of a microbatch count for the next update; SYNC joins them over the replicas (NULL:
 * there are no others), and pd_total_count() gives the sum in the update. */
void pd_count(int mb);
void pd_count_join(const pd_group *g, bool later); /* later: after pd_sums_wait() */
/* The update that follows is of the step `lag` back, with one of every `every` steps: sets
 * pd_step_index() and pd_rate(). */
void pd_update_of(int lag, int every);
/* Where updates take sums of earlier steps: waits for those that were begun up to the pd_count_join of the step of the update;
 * those of later steps go on. */
void pd_sums_wait(void);

/* ---- random numbers: counter based, the same for every plan ---- */

/* The output function of SplitMix64: every bit of the argument reaches every bit of the result. */
PD_ANYWHERE static inline uint64_t pd_mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
	x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
	return x ^ (x >> 31);
}

/* A stream per seed, node and sample, in which `element` counts. */
PD_ANYWHERE static inline uint64_t pd_random_stream(uint64_t seed, uint64_t node, uint64_t sample)
{
	return pd_mix(pd_mix(pd_mix(seed) + node) + sample);
}
/* `place` of an element, from which those of others are so many times PD_RANDOM_STEP away as they are further; what is drawn there. */
#define PD_RANDOM_STEP 0x9E3779B97F4A7C15u
PD_ANYWHERE static inline uint64_t pd_random_place(uint64_t stream, uint64_t element)
{
	return stream + (element + 1) * PD_RANDOM_STEP;
}
PD_ANYWHERE static inline uint32_t pd_random_at(uint64_t place) { return (uint32_t)(pd_mix(place) >> 32); }
PD_ANYWHERE static inline uint32_t pd_random_of(uint64_t stream, uint64_t element)
{
	return pd_random_at(pd_random_place(stream, element));
}
PD_ANYWHERE static inline uint32_t pd_random_bits(uint64_t seed, uint64_t node, uint64_t sample, uint64_t element)
{
	return pd_random_of(pd_random_stream(seed, node, sample), element);
}
PD_ANYWHERE static inline float pd_random_unit(uint64_t seed, uint64_t node, uint64_t sample, uint64_t element)
{
	return (float)(pd_random_bits(seed, node, sample, element) >> 8) * 0x1p-24f; /* [0, 1) */
}

/* Dropout keeps what has 16 bits that are not below a limit. One draw serves four elements of a row of `width`: j, j + 1, j + 8, j + 9,
 * where j is even and below 8 of its 16, for so many a thread of a GPU has of a product by tensor cores. Which of a stream it is; the 16
 * bits of one of them, piece j % 16 / 8 * 2 + j % 2; both; those of elements j to j + 15, j a multiple of 16. */
PD_ANYWHERE static inline uint64_t pd_random_group(uint64_t row, uint64_t width, uint64_t j)
{
	return row * ((width + 15) / 16 * 4) + j / 16 * 4 + j % 8 / 2;
}
PD_ANYWHERE static inline uint32_t pd_random_piece(uint64_t drawn, int piece)
{
	return (uint32_t)(drawn >> 16 * piece) & 0xffff;
}
PD_ANYWHERE static inline uint32_t pd_random_four(uint64_t stream, uint64_t row, uint64_t width, uint64_t j)
{
	return pd_random_piece(
		pd_mix(pd_random_place(stream, pd_random_group(row, width, j))), (int)(j % 16 / 8 * 2 + j % 2));
}
static inline void pd_random_sixteen(uint16_t bits[16], uint64_t stream, uint64_t row, uint64_t width, uint64_t j)
{
	const uint64_t place = pd_random_place(stream, pd_random_group(row, width, j));

	for (int g = 0; g < 4; g++) {
		const uint64_t drawn = pd_mix(place + (uint64_t)g * PD_RANDOM_STEP);

		bits[2 * g] = (uint16_t)drawn;
		bits[2 * g + 1] = (uint16_t)(drawn >> 16);
		bits[2 * g + 8] = (uint16_t)(drawn >> 32);
		bits[2 * g + 9] = (uint16_t)(drawn >> 48);
	}
}

/* ---- 16-bit floats: values of them lie in memory as uint16_t and are computed with as float. Rounding is to the nearest,
 * ties to even; NaN stays NaN. ---- */

PD_ANYWHERE static inline float pd_float_of(uint32_t bits)
{
	float x;

	memcpy(&x, &bits, sizeof x);
	return x;
}
PD_ANYWHERE static inline uint32_t pd_bits_of(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof bits);
	return bits;
}
PD_ANYWHERE static inline float pd_from_bf16(uint16_t h) { return pd_float_of((uint32_t)h << 16); }
PD_ANYWHERE static inline uint16_t pd_to_bf16(float x)
{
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 800 /* one instruction for two of them; of a NaN nothing is kept */
	uint16_t h;

	asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(x));
	return h;
#else
	const uint32_t b = pd_bits_of(x), even = b + 0x7fff + (b >> 16 & 1);

	return (uint16_t)((b & 0x7fffffff) > 0x7f800000 ? b >> 16 | 0x40 : even >> 16);
#endif
}
PD_ANYWHERE static inline float pd_from_f16(uint16_t h)
{
	const uint32_t b = (uint32_t)(h & 0x7fff) << 13, sign = (uint32_t)(h & 0x8000) << 16;

	return pd_float_of(sign | (b >= 0x0f800000 ? b | 0x7f800000 : pd_bits_of(pd_float_of(b) * 0x1p112f)));
}
PD_ANYWHERE static inline uint16_t pd_to_f16(float x)
{
	const uint32_t b = pd_bits_of(x) & 0x7fffffff, sign = pd_bits_of(x) >> 16 & 0x8000;
	const uint32_t even = (b + 0xfff + (b >> 13 & 1) - 0x38000000) >> 13;  /* 2^-14 and more */
	const uint32_t small = pd_bits_of(pd_float_of(b) + 0.5f) - 0x3f000000; /* below: steps of 2^-24 */

	return (uint16_t)(sign | (b > 0x7f800000 ? 0x7e00 : b >= 0x477ff000 ? 0x7c00 : b < 0x38800000 ? small : even));
}

/* Numbers of 8 bits: fraction bits of fraction, an exponent with this bias, up to `most`, which larger ones become. A number below 2^(1 -
 * bias) is a multiple of 2^(1 - bias - fraction). Without infinity; of a NaN nothing is kept. */
PD_ANYWHERE static inline uint8_t pd_to_f8(float x, int fraction, int bias, uint8_t most)
{
	const uint32_t b = pd_bits_of(x) & 0x7fffffff, sign = pd_bits_of(x) >> 24 & 0x80;
	const int drop = 23 - fraction;
	const uint32_t even =
		((b + ((1u << (drop - 1)) - 1) + (b >> drop & 1)) >> drop) - ((127u - (uint32_t)bias) << fraction);
	const uint32_t unit = (uint32_t)(127 + 24 - bias - fraction)
	                      << 23; /* bits of a float of which the last bit is that multiple */
	const uint32_t small = pd_bits_of(pd_float_of(b) + pd_float_of(unit)) - unit;
	const uint32_t near = b < (uint32_t)(128 - bias) << 23 ? small : even;

	return (uint8_t)(sign | (b > 0x7f800000 ? 0x7f : b >= 0x7f800000 || near > most ? most : near));
}
PD_ANYWHERE static inline uint8_t pd_to_f8e4m3(float x)
{
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 890
	uint16_t two;

	asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(two) : "f"(0.0f), "f"(x));
	return (uint8_t)two;
#else
	return pd_to_f8(x, 3, 7, 0x7e);
#endif
}
PD_ANYWHERE static inline uint8_t pd_to_f8e5m2(float x)
{
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 890
	uint16_t two;

	asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(two) : "f"(0.0f), "f"(x));
	return (uint8_t)two;
#else
	return pd_to_f8(x, 2, 15, 0x7b);
#endif
}

/* ---- heavy ops: oneDNN behind a few calls (cpu*.c; they use nothing else of the runtime) ---- */

/* Objects are made before step 0; calls allocate nothing. What runs and how much scratch it needs
 * depends on the number of threads: set it first. A size of SIZE_MAX says that oneDNN has no such
 * operation. Scratch is 64-byte aligned. */

void pd_threads(int n); /* of OpenMP loops and of oneDNN */
/* The cores that this process may use, at least one: affinity, and limits of control groups (versions 1 and 2), rounded up.
 * `root`: what stands in front of /proc and /sys, "" but in tests. PDCC_CORES=N in the environment says another number. */
int pd_cores(const char *root);
const char *pd_device_name(void); /* "Intel(R) Xeon(R) CPU @ 2.20GHz"; where unknown, "cpu" */
/* At start: ends the program (exit 78, both sizes) when `asked` is more than the plan has room
 * for. */
void pd_check_scratch(const char *what, size_t asked, size_t planned);

/* C[m,n] = op(A) op(B) + beta C, row-major, leading dimensions as given. */
void pd_gemm(int transa, int transb, int m, int n, int k, const float *a, int lda, const float *b, int ldb, float beta,
	float *c, int ldc);
/* to[cols,rows] = from[rows,cols]' */
void pd_transpose(float *to, const float *from, int rows, int cols);
/* C[m,n] = op(A) op(B) + bias, which is one row. */
void pd_gemm_bias(int transa, int transb, int m, int n, int k, const float *a, int lda, const float *b, int ldb,
	const float *bias, float *c);

/* pd_gemm of 16-bit floats, `in` PD_BF16 or PD_F16; products are added in f32, C is of type `out`: `in` or PD_F32. */
void pd_gemm_half(pd_dtype in, pd_dtype out, int transa, int transb, int m, int n, int k, const uint16_t *a, int lda,
	const uint16_t *b, int ldb, float beta, void *c, int ldc);
/* Room for n floats that kernels of the processor work on in place of 16-bit ones, `which` from 0 to 7; with what x holds; and
 * from there. */
float *pd_room_f32(int which, size_t n);
float *pd_widen(int which, pd_dtype t, const uint16_t *x, size_t n);
void pd_narrow(pd_dtype t, uint16_t *to, const float *from, size_t n);

/* Convolution over 1 to 3 spatial axes. */
enum { PD_FORWARD, PD_BACKWARD_DATA, PD_BACKWARD_WEIGHTS };
typedef struct pd_conv {
	void *impl;
} pd_conv;
typedef struct pd_conv_desc {
	int what; /* PD_FORWARD ... */
	int nd;   /* spatial axes */
	int n, c, oc, groups;
	int in[3], out[3], kernel[3], stride[3], pad_begin[3], pad_end[3];
	int dilation[3]; /* 1: dense */
	int nhwc;        /* activations channels-last; else plain */
	int krsc;        /* on GPUs, with nhwc: weights likewise, [oc, kernel .., c / groups]; else plain */
	int bias;        /* forward: adds it; backward weights: also its gradient */
	int relu;        /* forward on GPUs: max(0, x) behind the bias */
	pd_dtype type;   /* of all tensors; 0: PD_F32 */
} pd_conv_desc;
size_t pd_conv_scratch(const pd_conv_desc *d);
/* On processors: FLOPs that it takes, with whatever else takes as long as so many of a product. */
double pd_conv_work(const pd_conv_desc *d);
void pd_conv_init(pd_conv *o, const pd_conv_desc *d);
void pd_conv_forward(const pd_conv *o, void *y, const void *x, const void *w, const void *b, void *scratch);
void pd_conv_backward_data(const pd_conv *o, void *dx, const void *dy, const void *w, void *scratch);
void pd_conv_backward_weights(const pd_conv *o, void *dw, void *db, const void *x, const void *dy, void *scratch);

/* Batch normalization in training mode; mean and var are of this microbatch (population
 * variance). Images are of the type that the object was made for (0: PD_F32), all else is f32. */
typedef struct pd_bn {
	void *impl;
} pd_bn;
typedef struct pd_bn_desc {
	int what, n, c, nd, sp[3], nhwc;
	float eps;
	pd_dtype type;
	int relu; /* is part of it; on GPUs, of channels-last images of 16 bits alone */
} pd_bn_desc;
size_t pd_bn_scratch(const pd_bn_desc *d);
void pd_bn_init(pd_bn *o, const pd_bn_desc *d);
void pd_bn_forward(const pd_bn *o, void *y, float *mean, float *var, const void *x, const float *scale,
	const float *bias, void *scratch);
/* By the running statistics. */
void pd_bn_evaluate(const pd_bn *o, void *y, const void *x, const float *scale, const float *bias, const float *mean,
	const float *var);
void pd_bn_backward(const pd_bn *o, void *dx, float *dscale, float *dbias, const void *dy, const void *x,
	const float *mean, const float *var, const float *scale, void *scratch);
/* With relu; more: NULL, or what is added before it, and then the backward is that of a normalization without. */
void pd_bn_relu_forward(const pd_bn *o, void *y, float *mean, float *var, const void *x, const float *scale,
	const float *bias, const void *more);
void pd_bn_relu_evaluate(const pd_bn *o, void *y, const void *x, const float *scale, const float *bias,
	const float *mean, const float *var, const void *more);
void pd_bn_relu_backward(const pd_bn *o, void *dx, float *dscale, float *dbias, const void *dy, const void *x,
	const float *mean, const float *var, const float *scale, const float *bias);

/* ---- programs for GPUs (gpu*.c, .cu): tensors lie in device memory ----
 *
 * All functions above take such tensors then. What is started runs in the order of the calls, on one
 * stream; nothing here waits for the device but what gives the host a number. */

void pd_copy(void *to, const void *from, size_t bytes);
/* `rows` runs of n elements of `size` bytes: every `to_row` elements there, every `from_row` elements here. */
void pd_copy_rows(void *to, int64_t to_row, const void *from, int64_t from_row, int64_t n, int64_t rows, size_t size);
void pd_fill(void *to, int byte, size_t bytes);
void pd_add(float *sum, const float *one, int64_t n);
/* One of many tensors that a kernel works on in one launch: its elements, operands as the kernel has them, and what it asks
 * besides (gpu.h: pd_pack). */
typedef struct pd_many {
	int64_t n;
	const void *at[6];
	int of[2];
} pd_many;
/* Copies of .n 4-byte words each: .at[0] to, .at[1] from; as many as go into one launch by each. */
void pd_copy_many(const pd_many *row, int rows);
/* Likewise .n numbers, which are added to those at .at[0]. */
void pd_add_many(const pd_many *row, int rows);
void pd_set(float *to, double v);
double pd_get(const float *from);
/* Device memory that holds what make gives for the running step, n numbers, when what is started next runs: kernels take from there what
 * depends on the step, so that a graph may start them again. make: always the same function, of the host. */
const double *pd_late(void (*make)(double *numbers), int n);
void pd_set_count(float *to); /* pd_set(to, pd_total_count()) */
/* Action k of n of a step begins its kernels, of microbatch mb or -1. false: a graph does what it did before; else the kernels are to
 * be started, and then the section ended. That gives true where there shall be a graph and cannot be: nothing was done then, and they are to
 * be started once more. */
bool pd_section(bool train, int k, int n, int mb);
bool pd_section_end(void);
void pd_counted(int *n);                                    /* before step 0: sections count in *n */
const void *pd_constant(const void *on_host, size_t bytes); /* before step 0: a copy on the device */
/* Before step 0, what memory a step will need beside the arena: pd_room of kernels; products by cuBLAS; the host's memory for a sum that a
 * step begins (pd_allreduce_start), and for the largest tensors of a call that the host makes: of a group, of pd_check, of pd_gradient_rows
 * (rows, then their numbers). */
typedef enum pd_call { PD_CALL_GROUP, PD_CALL_CHECK, PD_CALL_GRADIENT, PD_CALLS } pd_call;
void pd_room_open(size_t bytes);
void pd_gemm_open(void);
void pd_sum_open(size_t count, const pd_sum *how);
void pd_parts_open(const pd_group *g, const pd_part *p, int n, size_t size); /* or pd_scatter_start and its like */
void pd_call_open(pd_call of, size_t bytes, size_t more);
void pd_tensor_open(
	size_t sum, size_t part); /* bytes of the largest pd_tensor_sum, and of a part of pd_tensor_gather */
/* y = end(op(a) op(b) + bias) for `batch` matrices, row-major and without gaps; those of a and b begin astep and bstep elements
 * apart. bias: a row of n. keep: `also` is made for the backward, of PD_RELU a bit per element, set above 0, rows of a multiple of
 * 128 bits; of PD_GELU (by tanh) what went in. The _GRAD ends multiply with the derivative at what was kept so. sum: `also` is,
 * of k rows that are added up, those of a (1, which transa says it lies as) or of b (2, not transposed). in: of a and b,
 * out: of all else; added up in f32. */
typedef enum pd_end { PD_AS_IT_IS, PD_RELU, PD_GELU, PD_RELU_GRAD, PD_GELU_GRAD } pd_end;
typedef struct pd_product_desc {
	pd_dtype in, in_b, out;             /* in_b: of b, where a is of 8 bits */
	int transa, transb, m, n, k, batch; /* batch 0: one */
	int64_t astep, bstep;
	int lda, ldb, ldy; /* elements from a row of memory to the next; 0: as many as a row has */
	pd_end end;
	int keep, bias, sum;
	const int *
		adds; /* once this is positive the product is added to what y has; NULL: never. As it is and of f32 alone */
	size_t scratch; /* bytes that a call gets */
} pd_product_desc;
typedef struct pd_product {
	void *impl, *more; /* more: which adds */
	const int *adds;
} pd_product;
void pd_product_init(pd_product *o, const pd_product_desc *d);
void pd_product_run(const pd_product *o, void *y, void *also, const void *a, const void *b, const void *bias,
	const void *kept, void *scratch);
/* Of a and b of 8 bits (PD_F8E4M3, or one of them PD_F8E5M2), transb and not transa, all extents multiples of 16; *ascale and *bscale, on
 * the device, are what their numbers are times. */
void pd_product_run_f8(const pd_product *o, void *y, void *also, const void *a, const void *b, const void *bias,
	const void *kept, const float *ascale, const float *bscale, void *scratch);
/* A recurrent layer in one direction over `steps` steps, by cuDNN: x [steps * batch, input], y [steps, batch, hidden], states
 * [batch, hidden]; w [gates * hidden, input] and r [gates * hidden, hidden] with gates in ONNX's order, b [gates * hidden] what is
 * added to the input's product, rb [hidden] what a GRU adds to the recurrent product of its n. reverse: from the last step to the
 * first. lens: steps of each sequence, behind which y is 0; not for PD_RNN_RELU, and an LSTM gives no c with it. `reserve` is made
 * by the forward, changed by backward_data and read by backward_weights, which come in this order. Absent: NULL. */
typedef enum pd_cell { PD_LSTM, PD_GRU, PD_RNN_TANH, PD_RNN_RELU } pd_cell;
typedef struct pd_recurrent_desc {
	int what; /* PD_FORWARD ... */
	pd_cell cell;
	int steps, batch, input, hidden, reverse, lens;
	int bias;       /* how many: b, rb */
	size_t reserve; /* bytes that it has; where the library wants more, it gets them before step 0 .. */
	int slots;      /* .. for so many microbatches in flight */
	size_t scratch; /* bytes that a call gets; likewise */
} pd_recurrent_desc;
typedef struct pd_recurrent {
	void *impl;
} pd_recurrent;
void pd_recurrent_init(pd_recurrent *o, const pd_recurrent_desc *d);
void pd_recurrent_forward(const pd_recurrent *o, float *y, float *h, float *c, float *reserve, const float *x,
	const float *w, const float *r, const float *b, const float *rb, const float *h0, const float *c0,
	const int32_t *lens, void *scratch);
void pd_recurrent_backward_data(const pd_recurrent *o, float *dx, float *dh0, float *dc0, float *reserve,
	const float *y, const float *w, const float *r, const float *b, const float *rb, const float *dy,
	const float *dh, const float *dc, const float *h0, const float *c0, const int32_t *lens, void *scratch);
void pd_recurrent_backward_weights(const pd_recurrent *o, float *dw, float *dr, float *db, float *drb, float *reserve,
	const float *x, const float *y, const float *h0, const int32_t *lens, void *scratch);
/* y = softmax(scale q k' [of keys up to the query]) v, lse, the natural log of the sum of exp, and rest = 0, [b, h, tq], by the
 * library's fused forward: q [b, h, tq, d], k [b, h, tk, d], v [b, h, tk, dv], y [b, h, tq, dv] of type PD_BF16 or PD_F16, strides by
 * batch, head and row. pd_attention_run gives 0 where the library has none: nothing was done then. */
typedef struct pd_attention_desc {
	pd_dtype type;
	int causal, backward;
	float scale;
	int64_t b, h, tq, tk, d, dv, q[3], k[3], v[3], y[3];
} pd_attention_desc;
typedef struct pd_attention {
	void *impl;
} pd_attention;
void pd_attention_init(pd_attention *o, const pd_attention_desc *d);
int pd_attention_run(
	const pd_attention *o, void *y, float *lse, float *rest, const void *q, const void *k, const void *v);
/* The gradients of an object made with `backward`, which lie as what they are of, dy as y; not of what lse rounded. */
int pd_attention_grad_run(const pd_attention *o, void *dq, void *dk, void *dv, const void *dy, const void *q,
	const void *k, const void *v, const void *y, const float *lse);
/* Pooling over 1 to 3 spatial axes of f32 images in plain order; backward: of averages. */
typedef enum pd_pool_kind {
	PD_MAX,
	PD_AVERAGE,
	PD_AVERAGE_PADDED
} pd_pool_kind; /* PADDED: what lies in the padding counts */
typedef struct pd_pool_desc {
	pd_pool_kind kind;
	int nd, n, c;
	int in[3], out[3], kernel[3], stride[3], pad[3];
} pd_pool_desc;
typedef struct pd_pool {
	void *impl;
} pd_pool;
void pd_pool_init(pd_pool *o, const pd_pool_desc *d);
void pd_pool_forward(const pd_pool *o, float *y, const float *x);
void pd_pool_backward(const pd_pool *o, float *dx, const float *dy);
/* pd_report of numbers on the device. */
void pd_report_from(int mb, const float *loss, const float *count);
void pd_hits_from(int mb, const float *hits); /* likewise pd_hits */

#if defined __cplusplus
}
#endif

#endif
