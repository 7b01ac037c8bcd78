/* rt.h: what the runtime's files share among themselves. Emitted programs include pd.h alone. */
#ifndef RT_H
#define RT_H

#if !defined _GNU_SOURCE
#define _GNU_SOURCE 1 /* prctl, madvise, MAP_ANONYMOUS */
#endif

#include "pd.h"
#include <stdio.h>

#if defined __GNUC__
#define RT_PRINTF(a, b) __attribute__((format(printf, a, b)))
#else
#define RT_PRINTF(a, b)
#endif

/* Exit codes; README.md explains them. */
enum { RT_OK = 0, RT_ERROR = 1, RT_USAGE = 2, RT_LOST = 75, RT_NUMERIC = 76, RT_MEMORY = 77, RT_MISMATCH = 78 };

/* ---- start.c ---- */
extern const pd_program *rt_program; /* of this process */
extern int64_t rt_step;              /* the running step */

/* Prints "CODE stage1.r0 (rank 2): text" and ends the whole job with the exit status. */
_Noreturn void rt_fail(int status, const char *code, const char *fmt, ...) RT_PRINTF(3, 4);
void *rt_alloc(size_t bytes);                        /* zeroed; before step 0 only; rt_fail with 77 */
double rt_rate(int64_t step);                        /* factor of the learning rate */
void rt_rate_fix(const pd_program *p, int64_t last); /* before step 0: the run ends before step `last` */
void rt_rate_resume(int64_t step);         /* before that: a checkpoint says where the schedule ends; 0: it does not */
int64_t rt_rate_end(void);                 /* for checkpoints; 0: nowhere */
bool rt_last_step(void);                   /* none is trained on behind the running one */
void rt_tell_rest(void);                   /* of one rank: what the last step came to, where it is not yet told */
double rt_now(void);                       /* seconds, monotonic */
void rt_json_text(FILE *f, const char *s); /* json_text.c: quoted, of JSON and YAML */

/* ---- where tensors lie ----
 * The host's arena holds all that files hold. A GPU program has another one on the device (gpu_memory.c). */
#if defined RT_GPU
size_t rt_host_arena(const pd_program *p); /* bytes */
void rt_gpu_settings(void);                /* before anything calls the driver */
void rt_gpu_fits(const pd_program *p);     /* R521 (77) where the arena is larger than what is free; before all else */
char *rt_to_gpu(const pd_program *p, char *arena);  /* makes the device's arena; gives it */
void rt_from_gpu(const pd_program *p, char *arena); /* parameters and state as they are now */
void rt_gpu_wait(void);                             /* until the device has done all it was told */
void rt_gpu_advance(void);                          /* what the host is to do after copies that are done by now */
void rt_gpu_reports(void);                          /* losses that were reported on the device */
void rt_gpu_reports_later(void); /* those of the running step are for rt_gpu_reports_before: the next one begins */
void rt_gpu_reports_before(void);
struct rt_options;
void rt_gpu_connect(const pd_program *p, const struct rt_options *o); /* before step 0, all ranks together */
void rt_gpu_announce(void);                                           /* a line about that, on rank 0 */
void rt_gpu_leave(void);
void rt_local_copy(void *to, const void *from, size_t bytes); /* between stages of this device */
void rt_section_spoil(const char *why); /* gpu_graph.c: a function asks for this, so there is no graph of it */
void rt_graphs_open(const struct rt_options *o);
void rt_graphs_between(void); /* two steps: graphs are made of what was captured in the last one */
void rt_graphs_end(void);
void rt_inputs_ahead(void); /* what the next step reads first, while the device works on this one */
void rt_inputs_end(void);
#else
static inline size_t rt_host_arena(const pd_program *p) { return p->arena; }
static inline void rt_gpu_settings(void) {}
static inline void rt_gpu_fits(const pd_program *p) { (void)p; }
static inline char *rt_to_gpu(const pd_program *p, char *arena)
{
	(void)p;
	return arena;
}
static inline void rt_from_gpu(const pd_program *p, char *arena)
{
	(void)p;
	(void)arena;
}
static inline void rt_gpu_wait(void) {}
static inline void rt_gpu_advance(void) {}
static inline void rt_gpu_reports(void) {}
static inline void rt_gpu_reports_later(void) {}
static inline void rt_gpu_reports_before(void) {}
struct rt_options;
static inline void rt_gpu_connect(const pd_program *p, const struct rt_options *o)
{
	(void)p;
	(void)o;
}
static inline void rt_gpu_announce(void) {}
static inline void rt_gpu_leave(void) {}
static inline void rt_local_copy(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }
static inline void rt_section_spoil(const char *why) { (void)why; }
static inline void rt_graphs_open(const struct rt_options *o) { (void)o; }
static inline void rt_graphs_between(void) {}
static inline void rt_graphs_end(void) {}
static inline void rt_inputs_ahead(void) {}
static inline void rt_inputs_end(void) {}
#endif

/* ---- options.c ---- */
typedef struct rt_profile_options {
	const char *file;      /* --profile */
	int64_t steps;         /* at most */
	double seconds, bound; /* at most; 95 % confidence of the mean, as a share of it */
	int64_t copies;        /* processes that do the same beside each other; 0: one */
} rt_profile_options;

typedef struct rt_options {
	int64_t steps, log_every, samples, ckpt_every, ckpt_keep, eval_every, eval_samples;
	double log_seconds; /* a progress line at least so often */
	double timeout;
	const char *data, *eval_data, *out, *name, *weights, *dump_grads, *first_step, *each_step, *replay;
	const char *resume; /* NULL: no; "": the newest of --ckpt */
	const char *jsonl, *csv, *tensorboard, *stop, *trace, *trace_steps, *arrivals; /* NULL: none */
	int64_t trace_rank;                                                            /* -1: all */
	int64_t metrics_every, epochs;                                                 /* epochs 0: steps count */
	const char *ckpt;                                                              /* NULL: no checkpoints */
	const char *nccl, *graphs;                                                     /* GPU programs: auto, on, off */
	int64_t time_products; /* GPU programs: seconds at most; 0: they are not timed */
	double ckpt_seconds;   /* between two checkpoints; 0: steps count */
	double ckpt_settle;    /* seconds between two that the disk is asked to have */
	bool then_loss, state, dry_run, shuffle;
	int64_t attempt; /* the how manieth start of this job by pdrun, from 0 */
	char root[4096]; /* the build folder: the one above the program's */
	rt_profile_options profile;
} rt_options;
void rt_options_read(rt_options *o, int argc, char **argv);
/* How much is told, --log-level: errors; what goes wrong and is lived with; progress and results; each device and step. */
enum { RT_LOG_ERROR, RT_LOG_WARNING, RT_LOG_NOTE, RT_LOG_DEBUG };
extern int rt_log;

/* ---- run_paths.c ---- */

void rt_find_root(rt_options *o, const char *argv0);
const char *rt_in_root(const rt_options *o, const char *path); /* a file of the build folder; in static memory */
void rt_results_find(
	const pd_program *p, rt_options *o); /* where results of this run lie: o->out and what lies in it */
void rt_results_take(const pd_program *p, rt_options *o); /* of rank 0: the next run-N, where nobody named one */
void rt_results_open(const rt_options *o);                /* of rank 0: that folder, and run/latest */

/* ---- tensor.c: tensor groups. A rank of the plan is so many processes, its members, one beside the other: the tasks of
 * MPI are rt_first_task(rank) + member. Peers world + k are the members k of this rank ---- */
enum { RT_MEMBERS = 1024 };
extern int rt_member;
int rt_group(void); /* members of this rank */
int rt_group_of(int rank);
int rt_first_task(int rank);
int rt_tasks(void);       /* of all ranks */
int rt_task_of(int peer); /* the member of it that this one hears */
int rt_takers(
	int peer); /* so many of its members hear this one: the first is rt_task_of, the others each rt_group() further */
static inline bool rt_leads(const pd_program *p) { return p->rank == 0 && rt_member == 0; } /* it speaks for the run */
void rt_tensor_tell(void *what, size_t bytes);                 /* what member 0 has, to all members */
void rt_tensor_all(void *all, const void *mine, size_t bytes); /* what each has, one behind the other, to all */
char *rt_tensor_whole(const pd_param *q, const char *part, size_t bytes);

/* ---- mpi.c: requests live in one static table; an index names one ---- */
enum { RT_COLL = 16 }; /* requests of the ring: half of them sends, half receives */
enum {
	RT_TAG_RING = 1,
	RT_TAG_SMALL,
	RT_TAG_GATHER,
	RT_TAG_BROADCAST,
	RT_TAG_PART,
	RT_TAG_SLICE,
	RT_TAG_FILE,
	RT_TAG_LEAD, /* of member 0 to member 0 alone, whatever the groups are; counted as RT_TAG_FILE is */
	RT_TAG_HEAD,
	RT_TAG_IDS,
	RT_TAG_VALUES,
	RT_TAG_TENSOR,
	RT_TAG_OWNED /* and on: one per gradient */
};

/* Starts MPI and compares the plans of all ranks (exit 78). */
void rt_join(const pd_program *p, double timeout);
void rt_leave(void); /* all ranks are done: ends MPI */
void rt_barrier(void);
void rt_look(void);                  /* for whoever waits for something else: ends the run when a rank is gone */
_Noreturn void rt_abort(int status); /* ends all ranks */

/* Requests of collectives: rt_ring(0 .. RT_COLL-1) belong to the background ring; rt_peer(k) is
 * the first of two per rank for the main thread. Posting and rt_idle want the lock held. */
int rt_ring(int k);
int rt_peer(int k);
void rt_post_send(int i, int peer, int tag, const void *buf, size_t bytes);
void rt_post_recv(int i, int peer, int tag, void *buf, size_t bytes);
void rt_post_sum(int i, int peer, int tag, float *sum, size_t n); /* added as it comes; of ranks that are rt_shared() */
bool rt_idle(int i);
/* What all ranks have in mine, in the order of ranks, to all; one at a time. Of a rank's group: what rt_task_of has. */
void rt_gather_start(const void *mine, void *all, size_t bytes);
void rt_gather_wait(void);
void rt_gather_tasks(
	const void *mine, void *all, size_t bytes); /* the same of all tasks, in their order; begun and awaited */
/* A request that MPI itself begins (an MPI_Request), lock held; then what it is for. */
void *rt_request(int i);
void rt_requested(int i, int peer, size_t bytes);
void rt_lock(void);
void rt_unlock(void);
void rt_wake(void);             /* lock held: there is work for the progress thread */
void rt_wait(int first, int n); /* until all of them are idle; a timeout ends the job */
/* Polls until done(first, n, &pending) says so, which is called with the lock held; pending: a request that it lacks. */
void rt_wait_until(bool (*done)(int, int, int *), int first, int n);
/* Four requests per rank, for what devices and servers tell each other: heads, row numbers, values there and back. */
int rt_between(int rank, int j);
int rt_owned(int k, int member); /* of gradient k that a replica owns: one per member of the group */
void rt_wait_ring(void);         /* until rt_ring_idle() */
void rt_wait_sum(int64_t n);     /* until the n-th sum since the start is made, and those before */
/* Blocking messages of any size in the main thread. */
void rt_send(int peer, int tag, const void *buf, size_t bytes);
void rt_recv(int peer, int tag, void *buf, size_t bytes);

/* ---- host_memory.c: parts of AllReduce between ranks of one host ---- */
/* Before step 0, all ranks: what this one tells, where there is room for what all tell, first of their memory, then whose they
 * can reach; then who uses it. */
size_t rt_shared_offer(int world, void **told, void **all);
unsigned char *rt_shared_see(int world, void **all);
void rt_shared_agree(int world);
bool rt_shared(int peer); /* messages of AllReduce to and from this rank go through memory */
/* Lock held. Message k of RT_COLL, as rt_ring(k): from now on under way. add: floats, to what is in buf. */
void rt_shared_post(int k, int peer, bool recv, bool add, void *buf, size_t bytes);
bool rt_shared_busy(int k);
bool rt_shared_advance(void); /* true: something moved */

/* ---- signals.c ---- */
extern _Atomic int rt_signal; /* SIGINT, SIGTERM or SIGHUP has come; 0: none */
void rt_signals_open(void);   /* from here on they interrupt neither this thread nor those that it begins */
void rt_signals_take(void);   /* until here they end the process; from here on rt_signal says that one came */

/* ---- idle_wait.c ---- */
void rt_crowd(
	const pd_program *p); /* when the processes of all ranks are known: naps as long as their cores are crowded */
void rt_nap(long us);
void rt_rest(int idle); /* after so many polls in vain */

/* ---- device_local.c: messages between stages of this device ---- */
void rt_local_setup(const pd_program *p);
void rt_local(int channel, int slot, int mb, void *buf, size_t bytes, bool send);
void rt_local_wait(int channel, int slot, bool send); /* it must be done; else the program is wrong */

/* ---- compress.c ---- */
typedef struct rt_codec {
	pd_codec kind;
	int block;
} rt_codec;                                     /* block: elements, PD_CODEC_Q8 only */
size_t rt_encoded(const rt_codec *c, size_t n); /* bytes of n elements */
size_t rt_codec_grain(const rt_codec *c);       /* a part of an array begins at a multiple of this */
void rt_encode(const rt_codec *c, const float *x, size_t n, void *out);
/* Error feedback: encodes x + scale * residual, which x becomes; the residual becomes what is lost by that, over scale, a
 * power of two. Where the sum is no number the residual stays. */
void rt_encode_feedback(const rt_codec *c, float *x, float *residual, float scale, size_t n, void *out);
void rt_decode(const rt_codec *c, const void *in, size_t n, float *y, bool add);
void rt_codec_check(const rt_codec *c, size_t segment);

/* Some of n encoded elements are no number. */
bool rt_encoded_bad(const rt_codec *c, const void *in, size_t n);
void rt_feedback_flush(float *x, float *residual, float scale, size_t n); /* x += scale * residual, which is 0 then */

/* ---- compress_guard.c: whether packed sums stay packed ---- */
typedef struct rt_guard rt_guard;
/* Before a sum of a group, by the main thread: whether it is packed; vote: two floats that the group has to add up first, NULL:
 * none. NULL: there are too many groups; packed. */
rt_guard *rt_guard_start(const pd_group *g, bool timed, bool *packs, float **vote);
int rt_guard_round(const rt_guard *x);
void rt_guard_end(rt_guard *x, int round, double seconds, bool bad); /* lock held */
int64_t rt_guard_get(void);                                          /* decisions, for a checkpoint; of the same plan */
void rt_guard_put(int64_t states);
void rt_guard_write(FILE *f); /* a member of an object, or nothing */

/* ---- allreduce.c: called by mpi.c with the lock held ---- */
void rt_ring_setup(int world);
bool rt_ring_advance(void); /* true: something moved */
bool rt_ring_idle(void);
bool rt_ring_has(int64_t n); /* the n-th sum since the start is made; lock held */
/* pd_gather_parts begins; pd_allreduce_wait waits for it. */
void rt_gather_begin(const pd_group *g, void *buf, const pd_part *p, int n, size_t size);
int64_t rt_ring_begun(void), rt_ring_over(void); /* sums since the start: told of, made */

/* ---- vendor.c, lock held ---- */
void rt_vendor_sum(const pd_group *g, float *buf, size_t count, int request, int peer);

/* ---- pull.c, serve.c, fetch.c: devices and servers ---- */
enum { RT_PULL = 1, RT_PUSH, RT_END, RT_SUM };
void rt_serve_each(void (*update)(int k)); /* pd_serve_each with one function for all shares */
void rt_arrivals_open(const char *dir); /* asynchronous servers write there what came in which order; NULL: nowhere */
typedef struct rt_head {                /* of every message; ids (i32) and values (f32) follow in their own */
	int32_t kind, key, part;
	int32_t lo, leaves; /* push: which subtree is summed */
	int32_t round;      /* steps since the start, those without update too */
	int32_t more;       /* to a neighbour: sums of this gradient that follow. An end of asynchronous steps: 0, or
	                         * how many steps this rank may be ahead of the slowest to be told to go on, and 1; -1: it
	                         * was the flow's last step */
	float count;        /* asynchronous push: labels that the sum is of */
	int64_t row, rows;  /* the first row of the part that the server has; rows that follow, -1: whole */
} rt_head;

/* ---- wire_casts.c ---- */
size_t rt_wire_bytes(pd_wire w, int64_t n); /* that n values are on their way */
/* What is sent of x: itself, or 16-bit floats in `room`, which may be x. */
const void *rt_wire_pack(pd_wire w, const float *x, void *room, int64_t n);
/* What comes for n floats at x: where it is received, then what makes them of it. */
void *rt_wire_place(pd_wire w, float *x, int64_t n);
void rt_wire_unpack(pd_wire w, float *x, int64_t n);

/* ---- sums.c ---- */
typedef struct rt_pushed { /* a sum, with its rows in ascending order */
	int lo, leaves;
	int64_t n, next; /* rows; the next one to be added */
	int32_t *ids;    /* NULL: whole, one row */
	float *values;
} rt_pushed;
typedef struct rt_sums {
	rt_pushed *sum; /* by first leaf */
	int n, most;
	int32_t *ids;
	float *values;
	int64_t rows, room, width; /* rows taken; that there is memory for; floats of one */
	int *order;                /* what adds a row: a sum, or -1: the two before are added */
	int norder;
} rt_sums;
void rt_sums_open(rt_sums *b, int most, int64_t room, int64_t width, bool whole);
void rt_sums_clear(rt_sums *b);
/* A sum that has one of these leaves already; NULL: none. */
const rt_pushed *rt_sums_twice(const rt_sums *b, int lo, int leaves);
/* A place for n rows, to be filled; valid until the next one. NULL: there is no room. */
rt_pushed *rt_sums_put(rt_sums *b, int lo, int leaves, int64_t n);
/* Adds the sums of a subtree: false where a leaf lacks; then row by row, each with its number, until NULL. A whole
 * parameter has one row, to be asked for once. */
bool rt_sums_begin(rt_sums *b, int lo, int leaves);
float *rt_sums_next(rt_sums *b, int32_t *row);

/* ---- tree.c ---- */
int rt_tree_sums(const pd_tree *t); /* subtrees that this device holds, by ascending first grain */
int rt_tree_leaves(const pd_tree *t);
float *rt_tree_sum(const pd_tree *t, int k, int *lo, int *n);

/* ---- step_loss.c ---- */
void rt_totals_setup(int microbatches);
void rt_totals_begin(bool train); /* of a step */
bool rt_totals_done(void);
void rt_totals_end(void); /* a line for --log-level debug */
/* On GPUs, where nothing depends on the losses of a step: they are joined in the next one. All ranks say the same, before step 0. */
extern bool rt_late;
int64_t rt_totals_of(void); /* the step whose totals came last; -1: of none so far */
bool rt_totals_rest(void);  /* all ranks: those of the last step, which are behind; false: none are */
double rt_loss_sum(void);
double rt_loss(void); /* mean over the step's counted labels, on every rank */
double rt_hits(void); /* labels that the model found, of rt_labels() */
double rt_labels(void);
double rt_count(void);
/* Rank 0: seconds that devices waited for others since the run began, the mean (*least: the rank that waited least; servers
 * left out), and of one; bytes sent so far by all. Of synchronous plans. */
double rt_totals_waited(int *least);
double rt_totals_waited_of(int rank);
double rt_totals_sent(void);
bool rt_stop(void);            /* some rank got a signal: all ranks stop after this step */
void rt_totals_ask(double at); /* from then on (rt_now) rank 0 tells all ranks that a checkpoint is due ... */
bool rt_totals_asked(void);    /* ... which they hear with the totals of a step */

/* ---- norm.c ---- */
void rt_norm_setup(const pd_program *p);
double rt_norm(
	int64_t step); /* of the gradients of that step, summed over its labels; -1: no update was made of them */
double rt_clip_scaled(double count, double most); /* pd_clip_scaled of numbers of the host */
double rt_scale_of_step(void); /* what the gradients of the running step are scaled by; 1 where they are not */
/* What a run needs to go on: the scale, steps since it changed, steps so far that had no update, for gradients overflowed. */
void rt_scale_get(double *now, int64_t *good, int64_t *skipped);
void rt_scale_put(double now, int64_t good, int64_t skipped);
int64_t rt_skipped(void);

/* ---- flow.c: asynchronous pipelines ---- */
extern int64_t rt_update;      /* the update that runs; -1: the plan is synchronous */
extern int64_t rt_update_step; /* the step it is of */
/* Steps rt_step .. rt_step + steps - 1, and the drain. Loss by loss, in order, come by result(),
 * on every rank; late, and all before the end. FORWARD: no training; WHOLE: a signal does not cut it short. */
typedef enum rt_flow_kind { RT_FLOW_FORWARD, RT_FLOW_TRAIN, RT_FLOW_WHOLE } rt_flow_kind;
void rt_flow_run(
	const pd_program *p, int64_t steps, rt_flow_kind kind, void (*result)(int64_t step, void *to), void *to);
double rt_flow_seconds(void); /* of a step, of those whose results are told */
void rt_flow_report(int mb, double loss, double count);
void rt_flow_hits(int mb, double hits, double of);
double rt_flow_count(void);
int64_t rt_flow_sums(void);                 /* of pd_sums_wait: the last of them, since the start */
int64_t rt_flow_block(const pd_program *p); /* steps whose results come together; they are told a block later */
/* Of servers: counted labels of this rank since rt_flow_next(); the update that comes now. */
double rt_flow_labels(void);
void rt_flow_next(void);
void rt_flow_update(double count, int64_t updates, int64_t step);
void rt_totals_put(double loss, double count, double hits, double labels, double stop);

/* ---- traffic.c ---- */
void rt_traffic_setup(int world);
void rt_traffic(int peer, int tag, bool channel, size_t bytes); /* is sent; lock held */
int64_t rt_traffic_sent(void);                                  /* bytes that this device has sent so far */
void rt_inputs_write(FILE *f);  /* of rank 0: a member of an object: what the run reads */
void rt_traffic_write(FILE *f); /* all ranks; rank 0 writes members of an object, f of others is not used */

/* ---- time_spent.c: seconds of the main thread ---- */
void rt_spent_begin(void); /* the loop begins */
void rt_spent_wait(bool begins);
void rt_spent_packed(double from); /* a part was encoded or decoded; since when */
void rt_spent_slept(double seconds);
double rt_spent_waited(void); /* seconds in waits since the last call */
void rt_spent_write(FILE *f); /* a member of an object */

/* ---- profile.c: programs with clocks ---- */
extern bool rt_alone;                       /* --profile: no other device is there, nothing is sent or received */
extern bool rt_virtual;                     /* --virtual: nothing is computed */
void rt_profile_check(const pd_program *p); /* after init: has the program clocks? */
void rt_profile_copies(const rt_profile_options *o); /* first of all */
void rt_pause(void);                                 /* a wait begins: no statement is running */
void rt_profile_run(const pd_program *p, const rt_profile_options *o, void (*step)(const pd_program *, bool));

/* ---- input.c ---- */
typedef struct rt_input_options {
	const char *dir;  /* --data; NULL: none */
	const char *root; /* the build folder */
	int64_t samples;  /* only the first of them are used; 0: all */
	bool shuffle;
	const char *eval;     /* --eval-data; NULL: as --data */
	int64_t eval_samples; /* as samples */
} rt_input_options;
void rt_input_open(const pd_program *p, const rt_input_options *o); /* all ranks together */
bool rt_input_synthetic(void);
int64_t rt_input_samples(void);      /* of an epoch */
int64_t rt_input_span(void);         /* places of an epoch, what is left over or left out counted */
int64_t rt_input_eval_samples(void); /* 0: there is no evaluation set */
int64_t rt_input_eval_steps(void);
void rt_input_evaluate(bool on); /* rt_step counts steps of the evaluation set */
bool rt_input_read(int i, int64_t step, int mb,
	void *dst); /* pd_input of another step; false: a value is out of range, pd_input says it */

/* ---- samples.c: n samples in steps of `batch` ---- */
typedef struct rt_order {
	int64_t samples, span, epoch;
	bool shuffle;
	uint64_t seed, key[4];
} rt_order; /* key: of epoch */
rt_order rt_order_of(int64_t samples, int64_t batch, pd_last last, bool shuffle, uint64_t seed);
/* The sample at a place of the run; absent: the epoch has no sample there, this is one to fill the place. */
int64_t rt_order_at(rt_order *o, int64_t place, bool *absent);

/* ---- prefetch.c ---- */
/* A mapped file: what fits into a quarter of memory is brought in whole, from front to back. True: the others of its samples that
 * are wanted next shall be asked for. */
bool rt_prefetch_file(const char *at, size_t bytes);
void rt_prefetch(const char *at, size_t bytes); /* will be read soon */
void rt_prefetch_go(void);                      /* behind some of these calls */

/* ---- first_step.c ---- */
void rt_first_open(const pd_program *p, const char *dir, const char *arena, bool of_each);
void rt_first_mute(bool on);            /* until it is off, only updates are told */
void rt_first_gradient(int i);          /* of each: pd_gradient has it */
void rt_first_settle(void);             /* of each, behind an update: tells it */
void rt_first_version(int64_t version); /* that the running action reads */
void rt_first_loss(int mb, double loss, double count);
void rt_first_norm(double norm);
void rt_first_end(const pd_program *p, const char *arena); /* behind the first step */

/* ---- replay.c ---- */
void rt_replay_open(const pd_program *p, const char *path, char *arena);
bool rt_replays(void);
int64_t rt_replay_shares(void);          /* so many steps have the samples of one that is replayed; 1: none is */
void rt_replay_action(const char *what); /* begins */
bool rt_replay_gradient(
	int i, void *sum);    /* sum becomes what parameter i is updated with; false: it is not, in this line */
double rt_replay_count(void); /* of the labels of that */
void rt_replay_run(void (*step)(const pd_program *, bool), void (*result)(int64_t, void *));

/* ---- store.c ---- */
/* What a file has to hold; the rest gets its initial value. */
typedef enum rt_need { RT_NEED_NOTHING, RT_NEED_WEIGHTS, RT_NEED_ALL } rt_need;
struct st_file;
void rt_weights_load(const pd_program *p, char *arena, const char *path, rt_need need);
/* From whichever of n opened files has a tensor; path: their name in messages. */
void rt_weights_from(const pd_program *p, char *arena, const struct st_file *f, int n, const char *path, rt_need need);
/* How many steps were done when a state file was written; 0: it does not say. */
size_t rt_param_bytes(const pd_param *p);
pd_param rt_param_local(
	const pd_param *p); /* what the replicas of a stage have together; of a tensor group a member's part of that */
pd_param rt_param_whole(const pd_param *p); /* as files have it: not the part of a member of a tensor group */
int64_t rt_weights_step(const char *path);
void rt_gradients_keep(const pd_program *p);
bool rt_keeps_gradients(void);
const void *rt_gradient(int i); /* the sum that was told of params[i] here; NULL: none */
/* Rank 0 writes the file; all ranks call it together. */
typedef enum rt_what { RT_TRAINED, RT_STATE, RT_GRADIENTS } rt_what;
void rt_weights_save(const pd_program *p, const char *arena, const char *path, rt_what what);

/* ---- resume.c ---- */
/* Loads what --resume names and sets rt_step. false: there is no checkpoint yet, and none was named. */
bool rt_resume(const pd_program *p, const rt_options *o, char *arena);
bool rt_is_folder(const char *path);

/* ---- checkpoint.c ---- */
void rt_checkpoint_open(const pd_program *p, const rt_options *o, const char *arena); /* before step rt_step */
void rt_checkpoint_journal(int fd); /* this file is on the disk before a checkpoint says that it is */
/* Between two steps, `step` of them done: takes a copy and has it written. Waits while the one before is written. */
void rt_checkpoint(int64_t step);
void rt_checkpoint_poll(void);  /* ends the run when one could not be written */
void rt_checkpoint_close(void); /* waits until all are written, by all ranks */

/* ---- evaluate.c ---- */
/* Sums; what it took: seconds, those that devices waited (mean), bytes between them. */
typedef struct rt_score {
	int64_t step;
	double loss, count, hits, labels, seconds, waited, sent;
} rt_score;
void rt_evaluate_open(int64_t every);   /* steps; 0: as the program says in epochs */
int64_t rt_evaluate_next(int64_t step); /* the first step behind `step` after which one is due; INT64_MAX: none */
bool rt_evaluate_due(int64_t step, bool last);
/* Tells rt_watch_score what came of it, unless a signal came. */
void rt_evaluate(const pd_program *p, char *arena, void (*one_step)(const pd_program *p, bool update));

/* ---- metrics.c: on rank 0 it writes, everywhere it knows ---- */
void rt_watch_open(const pd_program *p, const rt_options *o, int64_t last);
void rt_watch(int64_t step);   /* rt_loss() is that step's */
double rt_watch_average(void); /* of the loss */
void rt_watch_resume(double average);
void rt_watch_then(void); /* the loss after the last update */
void rt_watch_score(const rt_score *s);
void rt_watch_check(const char *stop); /* ends the run when it is no METRIC=VALUE */
bool rt_watch_reached(void);           /* what --stop asks for; the same on all ranks */
void rt_watch_flush(void);
void rt_watch_close(void);
/* progress.c */
void rt_progress_open(void);
bool rt_progress_drawn_over(void); /* on a terminal, each line in the place of the last */
void rt_progress_line(const pd_metric *m, int64_t last, double memory);
void rt_progress_end(void);                    /* what is printed next has a line of its own */
const char *rt_seconds(char to[32], double s); /* "1.71 s", "0.528 ms" */
const char *rt_speed(char to[32], double x);   /* of samples a second: "18578", "0.42" */

/* ---- events.c: TensorBoard ---- */
bool rt_events_open(const char *dir, int64_t step); /* steps done; true: the folder is new */
void rt_event(int64_t step, const char *tag, double v);
void rt_events_flush(void);
void rt_events_close(void);

/* ---- faults.c ---- */
void rt_faults_open(const pd_program *p, const rt_options *o);
const char *rt_action(void);     /* of the plan, running now */
int64_t rt_action_step(int *mb); /* of which step; and of which of its microbatches, -1: of none */
bool rt_launched(void);          /* by pdrun, which ends the other ranks: nobody needs to */
/* What was done, for the flight recorder: at most 11 letters; -1 for what does not apply. */
void rt_record(const char *what, int mb, int channel, int peer);
void rt_record_end(void); /* of a step */
/* trace.c, on with --trace DIR: an action begins, which ends the one before (NULL: none begins);
 * a wait within it; all of it is written. */
void rt_trace_open(const rt_options *o);
void rt_trace_action(const char *name, int64_t step, int mb); /* NULL: none from now on */
void rt_trace_wait(bool begins);
void rt_trace_packed(double from);     /* the main thread encoded or decoded a part; since when */
void rt_trace_evaluation(double from); /* which ends now, behind step rt_step - 1 */
void rt_trace_close(const pd_program *p);
void rt_point_ckpt(int64_t step);                         /* of writing a checkpoint: tests may kill the rank here */
void rt_doing(char *to, size_t room);                     /* "B of microbatch 5 in step 812" */
void rt_channel_text(char *to, size_t room, int channel); /* " ('h', node #3 'fc1')", or "" */
void rt_dump(const char *why);                            /* the flight recorder as text */
enum { RT_ADDRESSES = 8 };
typedef struct rt_process {
	int64_t pid;
	uint64_t born;
	char host[64];
	uint32_t ip[RT_ADDRESSES];
} rt_process;
rt_process rt_process_here(void);
/* A rank of this host whose process has ended, or, if that is asked, stands still: why says which. -1: none. */
int rt_lost(bool stopped, char *why, size_t room);
/* The first verdict of a job is everyone's. */
bool rt_verdict_known(int *rank, char *why, size_t room);
void rt_bus_open(void);                     /* bus.c */
bool rt_verdict(int rank, const char *why); /* false: another was first */
/* Who is missing when `wanted` did not answer in time, by the first verdict or by one made here. */
int rt_missing(int wanted, char *why, size_t room);

/* ---- handshake.c: who the ranks are ---- */
const char *rt_name(int rank);             /* "stage1.r0 (rank 2)"; a tensor group: rank world + k is its member k */
const rt_process *rt_process_of(int task); /* NULL: not known yet */
const char *rt_task_name(int task);
bool rt_serves(int rank); /* it trains nothing */
/* What this rank tells all others, and room for what all ranks tell; bytes of each. */
size_t rt_hello(const pd_program *p, void **mine, void **all);
void rt_met(const pd_program *p); /* that room is filled: all are of one plan and one runtime, or the run ends */

/* ---- host_reach.c ---- */

void rt_addresses(uint32_t ip[RT_ADDRESSES]); /* IPv4, of this host; 0: no more */
/* The first rank on another host that does not answer, `wanted` if it is on one; -1: none. How many other hosts there
 * are, and how many of them were silent. */
int rt_unreached(int wanted, int *others, int *silent);

#endif
