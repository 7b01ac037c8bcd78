/* The simulator: plays a schedule on a cluster, action by action, without running anything.
 *
 * Rules, those of the programs that are emitted. Every device does its actions in order, one computation at a time.
 *     RECV      posts the receives of a microbatch; SEND starts its messages. Neither takes time.
 *     F, B      wait for every message they read, and for what was sent before from the memory they write.
 *     message   moves once it was sent and its receive was posted. It holds a port of the sender and one of the
 *               receiver for bytes / bandwidth, and is there a latency later. Within a host every device has a port of
 *               its own in each direction; between hosts a host has one per direction and link of the cluster file,
 *               which its devices share. A port serves one message at a time, in the order in which they became ready.
 *     SYNC      sums and copies over replicas begin when all have arrived and take ports as messages do. Alone, a ring of n
 *               takes 2 (n-1) times its slowest latency and what its busiest port moves in a round, bytes / n for each
 *               pair of neighbours; a small one, which goes to everyone at once, and a copy to n-1 others, a latency and
 *               what the busiest port moves; a sum in rounds, the same for each. A port is shared: a message asks
 *               for all of it, a sum for the part of its time in which it sends there, and where more is asked for than
 *               there is, everyone goes slower by as much. What goes to and from servers is played by itself
 *               (simulate_exchange.c): parameter by parameter as each device has them, and the sums of the same devices
 *               beside it, round by round. Rows of tables (GATHER) go to everyone at once, as
 *               many as there are at most. Sums of buckets begin during the last backward in front of it,
 *               one after another, and SYNC waits for what is left of them. A device of several stages does all in its last
 *               SYNC, one of an asynchronous schedule in each. Where a later update takes the sums (Pipe-SGD), SYNC begins them
 *               behind those under way, and the device goes on beside them; that UPDATE waits for them.
 *               Replicas that own parameters (simulate_owned.c) push gradients during the backward in front of each SYNC.
 *               Asynchronous servers (simulate_each.c): a device exchanges with its servers alone, and nobody waits for others
 *               but for --staleness.
 *     F .. UPDATE take a slow device longer, where there are any (stragglers.h).
 *     UPDATE    the first begins when device 0 has gathered the losses of all, if totals > 0.
 * A device runs one stage or several; a message between two of its own stages is there at once. Equal times are settled by
 * device, then by action. */
#ifndef PDCC_PASSES_SIMULATE_H
#define PDCC_PASSES_SIMULATE_H

#include "runtime/comm/rounds.h"
#include "passes/common/plan.h"
#include "passes/cost/cost.h"

/* One message per microbatch, from a stage to another. */
typedef struct SimMessage {
	int from, to;
	int64_t bytes;
	bool forward;
} SimMessage;

/* What several devices do together in SYNC. Those of a device are done in the order of the list. */
/* PULL, PUSH: of one device with one server (simulate_each.c). OWNED: of replicas that own parameters (simulate_owned.c).
 * PARTS: of those that have parts of the state, ReduceScatter or AllGather (simulate_parts.c). */
typedef enum SimJoinKind {
	SIM_RING,
	SIM_COPY,
	SIM_SERVE,
	SIM_GATHER,
	SIM_PULL,
	SIM_PUSH,
	SIM_OWNED,
	SIM_PARTS,
	SIM_ROUNDS,
	SIM_DOUBLING = SIM_ROUNDS,
	SIM_HALVING,
	SIM_PAIRWISE,
	SIM_HOSTS
} SimJoinKind;
typedef struct SimJoin {
	SimJoinKind kind;
	int64_t bytes;
	int n;
	const int *rank;
	const rounds_hosts *hosts; /* of the members, for SIM_HOSTS */
	int root;
	int serve; /* SIM_PULL, SIM_PUSH: which of SimModel.serve */
	const int64_t *push,
		*newest; /* SIM_OWNED, SIM_PARTS: by member, bytes that each other one pushes to it; that it sends each of them */
	const char *
		codec; /* SIM_RING with packed messages: `bytes` is what `floats` take on the wire, cut in whole blocks; or NULL */
	int64_t floats, block;
	const int *
		subtrees; /* SIM_RING that is a tree of --reproducible, but for its bytes taken for a ring: sums of each member */
	bool always; /* SIM_RING, however small the sum is */
	bool beside; /* of what goes to and from servers: a part of SIM_SERVE (simulate_exchange.c) */
	bool vendor; /* by MPI, taken for a ring; its bytes are not counted */
	bool bucket; /* begins in the last B, or W, of `stage`, behind that share of its time */
	int stage;
	ActKind when;
	double ready;
	int each; /* of parts: so many times a step, in every B or W (AllReduce {each}); the last is played, of the others a B, or W, takes
	           * at least as long as they do; 0: once */
} SimJoin;
/* Of those where members tell each other all at once: bytes that one tells another. */
static inline bool sim_tells(const SimJoin *j)
{
	return j->kind == SIM_GATHER || j->kind == SIM_OWNED || j->kind == SIM_PARTS || j->kind == SIM_COPY;
}
static inline int64_t sim_told(const SimJoin *j, int from, int to)
{
	return from == to || (j->kind == SIM_COPY && from != j->root) ? 0
	       : j->kind == SIM_OWNED || j->kind == SIM_PARTS         ? j->push[to] + j->newest[from]
	                                                              : j->bytes;
}

/* Of sums in rounds (runtime/comm/rounds.h), which. */
static inline rounds_kind sim_rounds(SimJoinKind k) { return (rounds_kind)(k - SIM_ROUNDS); }

/* What a device and a server of parameters tell each other in a step about a parameter, or a piece of one: bytes up and
 * down, row numbers, heads; with what comes down (sums that devices do something with) row numbers and heads too. Of a GIVE the
 * server is the device that pushes for its host. order: where the device's program has it, of a FETCH the server's. Asynchronous
 * servers have one of each device, with pulls, one after another, and seconds of the updates with what the device pushes. */
typedef enum ServePhase { SERVE_PULL, SERVE_GIVE, SERVE_PUSH, SERVE_END, SERVE_FETCH, SERVE_RETURN } ServePhase;
typedef struct SimServe {
	int worker, server, order;
	ServePhase phase;
	double up, down, ids, heads, back_ids, back_heads;
	double pulls, update;
} SimServe;

typedef double SimTimes[ACT_COUNT];

typedef struct Stragglers Stragglers; /* stragglers.h */

typedef struct SimModel {
	const Schedule *s;
	const Cluster *c;
	const int *device; /* by rank: index into Cluster.device */
	SimTimes *time;    /* [rank * stages + stage]: seconds of F, B, W and UPDATE */
	SimMessage *msg;
	int nmsg;
	SimJoin *join;
	int njoin;
	SimJoin *
		gather; /* weights that every forward, backward or W of a stage gathers (GatherWeight): their bytes; times have them in F, B, W */
	int ngather;
	SimServe *serve;
	int nserve;
	int nserver;    /* the last devices */
	int64_t totals; /* bytes that every device sends to device 0 before UPDATE; 0: nobody waits */
	int64_t *fixed; /* by stage: bytes of its device's memory that are always in use; NULL: not known */
	int64_t *slot;  /* by stage: bytes of a microbatch in flight */
	int norm_at;    /* the device that joins the norm */
	int64_t norm;   /* bytes that every device tells that one of its gradients' norm; 0: nothing is clipped */
	bool each;      /* servers are asynchronous: s is the schedule EACH_STEPS times */
	bool tagged;    /* steps are not told apart by a flush: messages bring their microbatch */
	bool quick;     /* what servers are told is not played: the busiest port counts */
	bool longer; /* s is long enough for the steady state of an asynchronous schedule; else a longer one is played for it */
	int64_t staleness;            /* of those; -1: any */
	int64_t weights;              /* bytes of all trained parameters, what data parallelism would sum */
	const Stragglers *stragglers; /* NULL: no device is slower than another time */
	double alone; /* seconds of a step of one device, the cluster's first, that does what all stages do */
} SimModel;

/* Something that took time: a computation, a message (on the sender's row), a sum. */
typedef struct SimSpan {
	double begin, end;
	int rank, action; /* action: index into the device's list */
	ActKind kind;     /* SYNC also stands for the totals before UPDATE */
	int stage, mb;    /* mb -1: none */
	int peer;         /* message: the rank that gets it; else -1 */
	int64_t bytes;    /* message: its own; SYNC: of the buffer */
} SimSpan;

typedef struct SimLoad {         /* one kind of link: an entry of the cluster file, or a built-in one */
	int line;                /* cluster_link_of() */
	int64_t messages, joins; /* bytes, of all steps that are shown */
	int64_t parallel;        /* bytes that data parallelism over the same devices would move */
	double busy;             /* seconds that its busiest port is held by messages */
} SimLoad;

/* In use from then on: slots of all stages of the device, and their bytes (where bytes are not known: their number). */
typedef struct SimUse {
	double time;
	int rank, slots;
	int64_t held;
} SimUse;

typedef struct Sim {
	const SimModel *model;
	double step;     /* seconds: of a step, or of all steps that an asynchronous schedule shows */
	int steps;       /* that are shown; 1 where each ends with a flush */
	double each;     /* seconds of a step once the pipeline is full (simulate_steady.c); step where steps is 1 */
	double pipeline; /* until the last forward or backward has ended */
	double bubble;   /* share of devices x pipeline in which no forward or backward runs */
	double *busy;    /* by rank: seconds of F, B, W and UPDATE */
	SimTimes *spent; /* by rank: the same by kind; SYNC: from arrival to end */
	SimSpan *span;
	int nspan; /* in the order in which they begin */
	SimUse *use;
	int nuse;      /* in order of time */
	int *peak;     /* by rank: most slots at once */
	int64_t *most; /* by rank: most of SimUse.held */
	SimLoad *load;
	int nload;                  /* only those that anything moves over */
	double sums[SIM_HOSTS + 1]; /* by SimJoinKind: seconds from when all members are there to the end, added */
} Sim;

/* What is left of a whole; what rounding left is nothing. */
static inline double sim_rest(double whole, double parts) { return whole - parts > 1e-9 * whole ? whole - parts : 0; }
/* Plays it. False after E0503: a deadlock, with the actions that wait. */
bool simulate(Arena *a, const SimModel *m, Sim *out, Diag *d);
/* The prediction that is told, of the module as it will be emitted: Module.step_time, and Plan's (predict.c). */
void predict_step(Module *m, PassCx *cx);
static inline double sim_link_seconds(const Link *l, double bytes)
{
	return l->bandwidth > 0 ? bytes / l->bandwidth : 0;
}
/* Device 0 hears of all others, one after another, and tells them the sum. */
double sim_totals_seconds(const SimModel *m);
/* How many times as many steps as are shown an asynchronous schedule is played for what a step takes in the steady state. */
enum { STEADY_TIMES = 4 };
/* Fills steps and each. False after E0503. */
bool sim_steady(Arena *a, Sim *out, Diag *d);
/* Sim.load from the model's messages and sums; busy: by link line, seconds of the busiest port. */
void sim_count_bytes(Arena *a, Sim *out, const double *busy);
/* How often a sum is made in what is shown: once a step, of an asynchronous schedule in every SYNC of its members. */
int sim_times(const SimModel *m, const SimJoin *j);
/* Of asynchronous schedules: replicas join how many labels count, behind all other sums of a SYNC (runtime/run/flow.c). */
void sim_add_count(Arena *a, SimModel *x, int stage, int *cap);
/* Bytes behind a message (pd_tag in runtime/pd.h); of such a count. */
enum { SIM_TAG = 24, SIM_COUNT = 4 };
/* Bytes per step from a rank to another, as the runtime counts them (runtime/run/traffic.c): messages, sums, totals. Exact but
 * for rows of tables, of which nobody knows how many there will be. In order of from and to. */
typedef struct SimPair {
	int from, to;
	int64_t messages, joins, totals, values, ids, heads;
} SimPair;
SimPair *sim_pairs(Arena *a, const SimModel *m, int *n);
/* Does a sum go to everyone at once (runtime/comm/allreduce.c)? */
bool sim_small_sum(const SimJoin *j);
int64_t sim_ring_sent(const SimJoin *j, int from, int to); /* bytes of such a sum from a member to another one */
int sim_ring_reach(const SimJoin *j);                      /* to how many members behind it each one sends */
/* A ReduceScatter or AllGather of parts (passes/comm/zero.c), at the end of the list. */
SimJoin *sim_add_parts(Arena *a, SimModel *x, const Stage *s, const Node *n, int *cap);
/* The weights that the stage's forward, backward and W gather; seconds of such a graph, where the gather of a bucket goes on while that of
 * the one before is read; *links grows by those of the gathers alone. */
void sim_add_gathers(Arena *a, SimModel *x, const Stage *s, int *cap);
double sim_gathered_seconds(
	const SimModel *x, const Stage *s, const Graph *g, const Speed *first, const Speed *on, double *links);
/* Seconds of those in every backward, one behind another. */
double sim_each_seconds(const SimModel *x, const Stage *s);
/* Of a stage whose replicas own its parameters: `sums` is its AllReduce {owner}. */
void sim_add_owned(Arena *a, SimModel *x, const Stage *s, const Node *sums, int *cap);
/* The module after memplan; times are Node.time, or the cost model's where a later pass made the node, scaled by what
 * the cost model makes of the device at hand (Node.time is for the first device). */
/* simulate_each.c: the schedule so many times; a server's seconds for what a device of the stage pushes in a step. */
enum { EACH_STEPS = 8 };
Schedule *sim_repeated(Arena *a, const Module *m);
double sim_update_seconds(const Cluster *c, const Stage *server, int stage, int device);
SimModel *simulate_model(Arena *a, const Module *m, const Cluster *c, const Training *t);
double serve_bytes(const SimServe *x);
void sim_add_servers(Arena *a, SimModel *x, const Module *m, const Training *t, int *capjoin);

#endif
