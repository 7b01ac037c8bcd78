/* Every IR struct and the six functions that change a graph. Passes never touch links or use lists themselves.
 *
 * A Module is one model. Import gives it one graph; train and autodiff append to that graph; split takes it apart
 * into Stages. A node's phase says when it runs:
 *     PHASE_FWD     once per microbatch, in the forward action
 *     PHASE_BWD     once per microbatch, in the backward action
 *     PHASE_UPDATE  once per step, after all microbatches
 * Only three ops carry a value from the per-microbatch phases into the update phase: Accumulate (the sum over
 * microbatches), Stack (one row per microbatch, in global microbatch order) and nothing else. */
#ifndef PDCC_IR_IR_H
#define PDCC_IR_IR_H

#include "ir/base/arena.h"
#include "ir/base/diag.h"
#include "ir/base/map.h"
#include "schedule_kind.h"
#include "settings.h"
#include "shard.h"
#include "type.h"

typedef struct Node Node;
typedef struct Value Value;
typedef struct Graph Graph;
typedef struct Module Module;
typedef struct Stage Stage;

typedef enum OpKind {
	OP_NONE,
#define OP(name) OP_##name,
#include "ops.def"
#undef OP
	OP_COUNT
} OpKind;

typedef enum Phase { PHASE_FWD, PHASE_BWD, PHASE_UPDATE } Phase;

/* ---- values ---- */

typedef struct Use {
	Node *node;
	int index; /* node->in[index] is the value */
} Use;

typedef enum ValueKind { VAL_NODE, VAL_INPUT, VAL_PARAM, VAL_CONST } ValueKind;

typedef enum ParamKind {
	PARAM_WEIGHT, /* trained unless frozen */
	PARAM_BUFFER, /* BatchNormalization statistics: changed by training, not by a gradient */
	PARAM_STATE   /* optimizer state: momentum, Adam's m and v */
} ParamKind;

/* How the gradient of a parameter gets from those who make it to those who update it (Parallax section 3): everyone updates
 * with the sum of all; a server does and everyone pulls; everyone has all touched rows. */
typedef enum SyncKind { SYNC_NONE, SYNC_ALLREDUCE, SYNC_PS, SYNC_ALLGATHERV, SYNC_KINDS } SyncKind;

/* Measured: so many lookups of a table name so many different rows, ascending. */
typedef struct Touch {
	int n;
	double *lookups, *rows;
} Touch;

typedef struct Param {
	ParamKind kind;
	bool frozen;           /* no gradient, no update */
	bool is_mean, is_var;  /* which BatchNormalization buffer */
	const void *data;      /* initial value, row-major, in the type's dtype; NULL: zeros (or init spec) */
	bool mapped;           /* data lies in a mapped file, not in memory of our own */
	double fill;           /* used when data is NULL and random is 0 */
	int random;            /* != 0: random initial values (--init random:SEED), uniform in +-fill */
	Value *of;             /* PARAM_STATE: the weight it belongs to */
	const char *onnx_name; /* initializer name in the model; NULL for state */
	SyncKind sync;         /* set by comm */
	const Touch *touch;    /* of a looked-up table; NULL: not measured */
	bool rows;             /* its gradient is row-sparse: it is only looked up */
	bool own;              /* every replica has one of its own (residuals of packed sums) */
	int pieces;            /* a table at servers, partitioned by rows into so many; 0: in one piece */
	Value *whole;          /* such a piece, or one of optimizer state: of this parameter the rows from `row` on */
	int64_t row;
	Shard shard; /* which part of it each device of a tensor group has (passes/shard); data is of the whole */
	int members; /* of that group, where it is divided */
	int64_t pad; /* so many of axis pad_axis lie behind what the model has: zeros, in no file (passes/shard/pad.c); data lacks them */
	int pad_axis;
	bool mixed; /* some parts of its gradient are row-sparse (all, where rows) */
	/* Of which each replica of a stage has so many elements, those from replica x part on (--zero; passes/comm/zero.c): state has
	 * the type f32[part]; a weight (gather.c) has the type of the whole, whose parts GatherWeight puts together. data is of the
	 * whole. 0: every replica has all */
	int64_t part;
} Param;

struct Value {
	const char *name; /* unique in its graph (module-wide for params and consts); "d.x" is the gradient of "x" */
	Type type;
	ValueKind kind;
	Node *def; /* VAL_NODE only */
	int index; /* which output of def; which input of the graph */
	Use *uses; /* kept exact; order is the order in which uses were made */
	int nuses, capuses;
	Param *param;        /* VAL_PARAM only */
	const void *data;    /* VAL_CONST: row-major elements; NULL when elided in a text file */
	uint64_t hash;       /* VAL_CONST without data: what the text file said of them */
	int batch_axis;      /* which axis carries the batch, -1 none or unknown; inputs and outputs only */
	int64_t index_range; /* int input that indexes a table or a class axis: values lie in [0, index_range); else 0 */
	bool is_label;       /* graph input that feeds the loss as target */
	int64_t ignore_index; /* is_label: value that is allowed too and not counted; INT64_MIN: none */
	bool masked;          /* input of labels: ignore_index where a step has no sample */
	bool presence;        /* input that the runtime makes: 1 where a step has a sample, else 0 */
	int64_t offset;       /* set by memplan: byte offset in its region */
	int region;           /* set by memplan: enum Region */
	Value *alias;         /* set by memplan: shares the memory of this value (views, in-place); never a chain */
	void *aux;            /* scratch of the running pass; NULL between passes */
	int mark;             /* likewise, 0 between passes */
};

/* ---- nodes ---- */

struct Node {
	OpKind op;
	Phase phase;
	int nin, nout;
	Value **in, **out; /* in[i] NULL: absent optional input.  out[i] NULL: output not produced */
	void *attr;        /* the op's own struct, described by optab[op]->attrs; never NULL */
	Loc loc;           /* the ONNX node it stems from; what replaces a node inherits it */
	int stage;         /* -1 before partition */
	int64_t scratch;   /* bytes of library scratchpad, set by the library pass */
	double time;       /* seconds per microbatch, set by cost */
	Node *fwd;         /* PHASE_BWD: the forward node whose gradient this is part of; NULL: parsed from text */
	Graph *graph;
	Node *prev, *next; /* program order, which is always a topological order */
	void *aux;
	int mark;
};

/* ---- graphs, stages, modules ---- */

/* Where memplan puts a value. A device has one arena; the regions lie in it one after another, each aligned to 64
 * bytes, as every value in its region is. Params differ by stage (Stage.param_at), so their Value.offset is unused.
 *     PARAMS   weights and buffers            one each
 *     STATE    optimizer state, rounded copies of weights    one each
 *     GRADS    what Accumulate gives: the sums over microbatches, of the step. One struct, in order of offset
 *     LEAF     the operand of an Accumulate, this microbatch's gradient; packed by lifetime, which ends where it is
 *              added to its sum. The first microbatch of a step writes the sum itself. bytes[LEAF] is 0 where every
 *              device does one microbatch per step: leaf and sum are the same memory, of one offset. A gradient that
 *              the node which makes it adds to the sum (Gemm, MatMul, GatherGrad {into_sum}) lies in GRADS, where the sum does.
 *              Reproducible: LEAF is the memory of the pd_tree (bytes as it asks), a leaf the same struct as GRADS,
 *              member by member; GRADS has no memory of its own and means the tree's root
 *     STACK    what Stack gives: `microbatches` rows (of the step, all replicas), row g written after forward g
 *     ENTRY    what forwards receive and backwards send: `entries` copies
 *     SLOT     what lives from a forward to its backward (to its weight part), what backwards receive and forwards send:
 *              `inflight` copies
 *     TMP      all other values of the three graphs; forward, backward and update use the same bytes in turn. With one
 *              copy of SLOT and no weight part it begins where SLOT does, over what is dead there; bytes[TMP] is what it has beyond
 *     SCRATCH  library scratchpads, one at a time
 * A value that is an alias has the region and offset of what it shares. Constants are no part of the arena. */
typedef enum Region {
	REGION_NONE,
	REGION_PARAMS,
	REGION_STATE,
	REGION_GRADS,
	REGION_LEAF,
	REGION_STACK,
	REGION_ENTRY,
	REGION_SLOT,
	REGION_TMP,
	REGION_SCRATCH,
	REGION_COUNT
} Region;

struct Graph {
	Module *module;
	const char *name; /* "mlp", or "forward", "backward", "update" inside a stage */
	Stage *stage;     /* NULL before split */
	Value **in;
	int nin, capin;
	Value **out;
	int nout, capout;
	Node *first, *last;
	int nnodes;
	Map *names; /* every name in use in this graph (shared by the graphs of one stage) -> Value */
};

/* A server is a stage without forward and backward, behind the others: its update graph has the very nodes that would stand
 * in the stage whose parameters it holds (passes/comm/servers.c). */
struct Stage {
	int id;
	bool server;
	int replicas;      /* devices that run it */
	int *device;       /* cluster device index of each replica */
	double (*pace)[3]; /* by replica and phase: how much longer its nodes take than Node.time, which is the first
	                             * device's; NULL: as long */
	int rank;          /* of replica 0; replica r has rank + r. Stages of one rank are chunks of one device */
	int inflight;      /* microbatches whose kept values live at once: slots */
	int entries;       /* and for how many there is room at the stage's entry */
	Graph *forward, *backward, *update;
	Graph *weight; /* what defer took out of the backward, once per microbatch behind it; NULL: nothing */
	Value **param;
	int nparam, capparam; /* weights, buffers and states this stage reads, module order */
	Value **keep;
	int nkeep, capkeep; /* forward values that backward or weight read, backward values that weight
	                                         * reads: one copy per slot */
	/* memplan */
	int64_t *param_at;               /* byte offset in the arena, by index into param[] */
	int64_t at[REGION_COUNT];        /* byte offset of each region in the arena */
	int64_t bytes[REGION_COUNT];     /* its size, all copies of ENTRY and SLOT counted */
	int64_t slot_bytes, entry_bytes; /* one copy of SLOT, of ENTRY */
	/* Asynchronous pipelines: weights of which several versions are kept lie behind the others in PARAMS, `versions`
	 * copies of version_bytes; param_at is that of the first. 0: every weight is updated in place */
	int versions;
	int64_t version_bytes, versions_at;
	bool *versioned; /* by index into param[] */
	int64_t row_copies;
	int64_t arena; /* the sum: what the device allocates */
	int64_t bytes_params, bytes_state, bytes_grads, bytes_kept, bytes_tmp, bytes_comm, bytes_scratch;
};

/* It receives from earlier stages, or sends back to them: its functions are told which buffer. */
static inline bool stage_enters(const Stage *s) { return s->entry_bytes > 0; }

/* How the model is trained; from train.yaml and flags, written into the IR by the train pass. */
typedef struct LossTerm {
	const char *output; /* scalar output of the graph, or the logits when kind is not LOSS_OUTPUT */
	LossKind kind;
	const char *labels; /* input to add; NULL: "labels" */
	double weight;
	int64_t ignore_index; /* INT64_MIN: none */
	int axis;             /* of the logits, of classes; 0: not said, the last */
} LossTerm;

/* What passes establish of a module, each pass in its row of passes/common/passes.def; Module.has.
 * The text form has words for them (text/facts.c). */
enum {
	P_TYPES = 1,
	P_LOSS = 2,
	P_GRADS = 4,
	P_COSTS = 8,
	P_STAGES = 16,
	P_PLACED = 32,
	P_SPLIT = 64,
	P_SCHEDULED = 128,
	P_SYNCED = 256,
	P_PLANNED = 512,
	P_LAYOUT = 1024
};

struct Module {
	Arena *arena;
	const char *name;
	const char *file; /* model as the user named it */
	int opset;
	Value **param;
	int nparam, capparam;
	Value **konst;
	int nkonst, capkonst;
	Map names;    /* params and consts by name */
	Graph *graph; /* NULL after split */
	Stage **stage;
	int nstage;           /* servers are the last of them */
	Value *loss, *count;  /* per microbatch: sum of the loss terms, and what it will be divided by */
	int64_t batch;        /* size of one microbatch as bound */
	int64_t export_batch; /* batch size in the file, 0 if symbolic */
	int tensor;           /* so many devices share each replica of a stage (ir/shard.h); 0, 1: one */
	int *tensor_of; /* by stage, where they are not all as many, of which `tensor` is the largest; else NULL */
	int ntensor_of;
	int64_t microbatches; /* grains per step, over all replicas */
	int64_t grains;   /* so many grains are one microbatch that is sliced over a stage's replicas; 0: a grain is a
	                             * microbatch, and replicas have whole ones */
	int64_t folded;   /* bytes of constants that were computed while compiling */
	double step_time; /* predicted seconds per step, when the plan was chosen; 0: not known */
	struct Schedule *schedule;
	ScheduleSpec
		chosen; /* what partition chose for --schedule auto; SCHEDULE_AUTO: nothing, what was asked for counts */
	unsigned has;   /* P_TYPES, P_LOSS ...: what passes have established */
};

/* Stages that are no servers. */
int module_stages(const Module *m);
/* Devices that share each replica of a stage: the members of its tensor groups. */
int stage_tensor(const Module *m, int stage);
/* Programs of all ranks in front of this one: task first_task(m, rank) + member is the program of a member of rank. Of a module that
 * has stages. */
int first_task(const Module *m, int rank);
Module *module_new(Arena *a, const char *name);
Graph *graph_new(Module *m, const char *name);
/* The graphs of a stage in the order in which they run: forward, backward, weight if there is one, update; those that are
 * NULL are left out. Gives how many there are. */
int stage_graphs(const Stage *s, Graph *g[4]);
/* A stage graph shares its names with the stage's other graphs. */
Graph *stage_graph_new(Module *m, Stage *s, const char *name);

Value *graph_input(Graph *g, const char *name, Type t);
void graph_output(Graph *g, Value *v);
/* The parameter that keeps what packing took away from a gradient (comm): "w:residual" of %g.w. */
const char *residual_name(Arena *a, const Value *gradient);
Value *module_param(Module *m, const char *name, Type t, ParamKind kind);
Value *module_const(Module *m, const char *name, Type t, const void *data); /* data is copied; name NULL: made */
/* Whether n's results may be computed while compiling and kept: all of a module's have FOLD_BYTES; what is beyond stays computed in
 * the step. Counts them. */
enum { FOLD_BYTES = 1 << 27 };
bool module_may_fold(Module *m, const Node *n);
/* Constants that nothing reads are gone, as they are from the text. */
void module_sweep(Module *m);
Value *const_scalar(Module *m, DType t, double x);   /* shared per value */
const char *unique_name(Graph *g, const char *base); /* base, or base.1, base.2 ...; legal in the text form */
const char *output_word(
	Arena *a, OpKind op, int i); /* what output i > 0 of an op is called: "mean"; "1" where it has no name */

/* ---- the six that change a graph ---- */

/* Where new nodes go and what they inherit. */
typedef struct Builder {
	Module *m;
	Graph *g;
	Node *before; /* NULL: at the end */
	Loc loc;
	Phase phase;
	int stage;
	Diag *d;
	bool failed; /* a shape rule refused; already reported */
} Builder;

/* Types n's outputs by its op's shape rule. False after E03xx, also where the result has a negative axis or more bytes
 * than any machine could hold. */
bool node_infer(Node *n, Diag *d);
/* A node with nin operands; attr is copied (NULL: the op's defaults). Outputs are created by the op's shape rule with
 * names made from `name` (NULL: made from the op); a node of several outputs names them name, name.1 ... .
 * Never NULL; on a refused shape b->failed is set and outputs are f32[]. */
Node *build(Builder *b, OpKind op, const void *attr, int nin, Value *const *in, const char *name);
/* The same, giving the first output. */
Value *mk(Builder *b, OpKind op, const void *attr, const char *name, int nin, ...);

/* A node of a text may lack outputs that nothing there reads; gradients may read them. False: the shape rule says no. */
bool node_complete(Node *n, Diag *d);
void node_set_input(Node *n, int i, Value *v); /* v may be NULL */
void value_replace(Value *old, Value *neu);    /* every use, and graph outputs, of old */
void node_remove(Node *n);                     /* no output may be in use */
/* n and what only served it, unless something reads it; up to what is received and where gradients are added. */
void node_drop(Node *n);
void node_move(Node *n, Graph *g, Node *before); /* to another place or graph; NULL: at the end */
void value_rename(Graph *g, Value *v, const char *base);

int value_parts(const Value *v, OpKind op); /* how many results of that op make it, added and nothing else; 0: not so */
/* SGD without state and decay, of so few sums of that op that a server can do it row by row: the rows it hears nothing of stay. */
bool updates_rows(const Node *n, OpKind op);
bool value_feeds(const Value *v, OpKind op);          /* a node of that op reads it */
bool value_dead(const Value *v);                      /* no uses, not a graph output */
Value *value_root(const Value *v);                    /* what v is a view of, or v */
bool value_is_output(const Value *v);                 /* of its graph */
static inline Value *node_input(const Node *n, int i) /* NULL: there is none */
{
	return i >= 0 && i < n->nin ? n->in[i] : NULL;
}

/* ---- attributes by name (table driven; bug() when the op has no such attribute) ---- */
typedef struct Ints {
	int n;
	const int64_t *v;
} Ints;
typedef struct Floats {
	int n;
	const double *v;
} Floats;

int64_t attr_int(const Node *n, const char *name);
double attr_float(const Node *n, const char *name);
const char *attr_str(const Node *n, const char *name);
DType attr_dtype(const Node *n, const char *name); /* a string that names one; f32 where it is empty */
/* The node behind which the sum of a bucket begins, in the graph that makes the stage's gradients: the last that makes or
 * reads one of them, for what is summed in place is no gradient of this device any more. NULL: sum is no bucket. */
Node *bucket_node(const Stage *s, const Node *sum);
/* Some gradients are summed in parts behind every backward (AllReduce {each}). */
bool sums_each(const Stage *s);
Ints attr_ints(const Node *n, const char *name);
/* Numbers that a SquareSum of a piece of a table tells, or those of all replicas of their parts; 0: it tells the sum of a whole
 * parameter. */
int64_t square_blocks(const Node *n);
/* Bit i: operand i, a parameter, is written in place. */
unsigned node_writes(const Node *n);
void attr_set_int(Node *n, const char *name, int64_t v);
void attr_set_float(Node *n, const char *name, double v);
void attr_set_str(Node *n, const char *name, const char *v);            /* copied */
void attr_set_ints(Node *n, const char *name, int k, const int64_t *v); /* copied */

/* ---- text form (print.c, parse.c) and invariants (verify.c) ---- */
struct Buf;
typedef struct PrintOpt {
	int elide; /* constants above this many elements are elided; 16 */
} PrintOpt;
void print_attributes(struct Buf *b, const Node *n); /* those that differ from the op's defaults: {axis=1} */
void module_print(struct Buf *b, const Module *m, const PrintOpt *o);
Module *module_parse(Arena *a, const char *file, const char *text, Diag *d); /* NULL after a diagnostic */
bool module_verify(const Module *m, Diag *d);                                /* reports every broken invariant */

#endif
