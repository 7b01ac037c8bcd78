/* What the writers of one stage's file share: stage.c (the file), stage_data.c (structs, tables), stage_body.c (the
 * functions), stage_join.c (sums over replicas), stage_async.c, stage_clock.c. */
#ifndef PDCC_CODEGEN_STAGE_H
#define PDCC_CODEGEN_STAGE_H

#include "codegen/write/build.h"

/* A member of one of the structs that lay out the arena. */
typedef struct Member {
	const Value *v; /* what gave it its name */
	const char *name;
	int64_t offset, count; /* bytes in the struct; elements */
	bool tag;              /* a message: its tag lies behind it */
} Member;

typedef struct Struct {
	const char *tag, *pointer; /* "params", "P" */
	const char *what;          /* the comment above the struct */
	int64_t bytes;
	Names names;
	Member *m;
	int n, cap;
} Struct;

/* Names that a function may use: its parameters, and pointers that it declares where its statements use them. */
typedef enum Name {
	NAME_SLOT,
	NAME_ENTRY,
	NAME_MB,
	NAME_COPY,
	NAME_ARENA,
	NAME_WHICH,
	NAME_MINE,
	NAME_NMINE, /* parameters */
	NAME_V,
	NAME_E,
	NAME_K,
	NAME_R,
	NAME_G, /* struct weights, entry, kept, rows, grads */
	NAMES
} Name;

/* How a function is called, and what it declares. */
typedef enum FunctionKind {
	FUNCTION_PLAIN,
	FUNCTION_COPY, /* once a step; of several copies of the gradients */
	FUNCTION_MICRO,
	FUNCTION_FORWARD,
	FUNCTION_BACKWARD /* for a microbatch */
} FunctionKind;

enum { LAYOUT_VERSIONS = REGION_COUNT };

typedef struct StageCx {
	Build *b;
	const Stage *s;
	Names names; /* of the file, and locals of its functions */
	Kernels kernels;
	Struct layout[REGION_COUNT + 1]; /* LEAF: uses GRADS'; the last: weights of several versions */
	const Value **konst;
	int nkonst, capkonst; /* constants that some statement names */
	const Node **object;
	int nobject, capobject;
	const Value **local;
	const Node *
		gathering; /* the bucket of weights whose gather has begun and was not waited for: its first node; NULL: none */
	int nlocal, caplocal;    /* temporaries of the function being written */
	bool used[NAMES];        /* in its body */
	bool group, row, clears; /* the file names its group of replicas, row(mb), clear_rows */
	bool *asked;             /* by stage: the file asks for the rank that does a microbatch of it */
	bool clocks;             /* the program that times its statements: profile/stageN.c */
	const Node **clock;
	int nclock, capclock; /* timed nodes; NULL: an input, its value in clock_in */
	const Value **clock_in;
	int nclock_in, capclock_in;
	bool clock_open;     /* a timed statement is being written */
	const Node **adding; /* of gradients that nodes have made: their Accumulates, which one launch is to do */
	int nadding, capadding;
	Map behind; /* AllReduce of a bucket -> the node behind which it begins; empty until asked for */
	bool failed;
} StageCx;

void layout_stage(StageCx *x);               /* finds all members */
void write_layout(StageCx *x, Cw *w, int r); /* the struct, its pointer, the check of its size */
void write_params(StageCx *x, Cw *w);        /* pd_param table */
void write_inputs(StageCx *x, Cw *w);        /* pd_input_desc table */
void write_consts(StageCx *x, Cw *w);
void fill_consts(StageCx *x, Cw *w);
int param_index(const Stage *s, const Value *v);
const char *table_name(const Build *b, const Stage *s, const char *what); /* "stage_params", "stage2_params" */

bool rounds(const Stage *s);                            /* some weights have copies in 16 bits (cast_once) */
const char *value_text(void *stage_cx, const Value *v); /* for struct Place */
const char *scratch_text(void *stage_cx);               /* for struct Place */
const char *no_microbatch(void *stage_cx);              /* for struct Place, outside of microbatches */
const char *member_text(StageCx *x, const Value *v);    /* of a value in a struct: the member's name */
const char *use(StageCx *x, Name n);                    /* the name, for the text of the function being written */
const char *group_text(StageCx *x);                     /* "&replicas" */
const char *peer_text(StageCx *x, int64_t t);           /* the rank that does microbatch mb of stage t */
const char *object_text(void *stage_cx, const Node *n);

void write_init(StageCx *x, Cw *w);
void write_receives(StageCx *x, Cw *w, const Graph *g, const char *name);
void write_sends(StageCx *x, Cw *w, const Graph *g, const char *name);
void write_forward(StageCx *x, Cw *w);
void write_backward(StageCx *x, Cw *w);
void write_small_adds(StageCx *x, Cw *w);  /* those of .adding, of which then there are none */
void write_weight_part(StageCx *x, Cw *w); /* if there is one */
void write_sync(StageCx *x, Cw *w);
void write_absent(StageCx *x, Cw *w);           /* where the last round of a flow may have no minibatch for a replica */
bool sums_by(const StageCx *x, const char *by); /* an algorithm of AllReduce */
const char *hosts_text(const StageCx *x);
bool late_buckets(const StageCx *x);                          /* some sums begin in the last backward alone */
bool has_buckets(const StageCx *x);                           /* sums begin during the last backward */
void write_buckets(StageCx *x, Cw *w, const Node *n);         /* those behind node n; NULL: all, of no microbatch */
const char *rows_name(const StageCx *x, const Node *gatherv); /* a table may be looked up in several places */
void declare_rows(StageCx *x, Cw *w);                         /* what AllGatherv works with: variables, their making */
void open_memory(StageCx *x, Cw *w);
void init_rows(StageCx *x, Cw *w);
void write_shares(StageCx *x, Cw *w); /* a function per Broadcast, where devices run several stages */
const char *share_head(const Build *b, const Stage *s, const Node *n);
void write_update(StageCx *x, Cw *w);

/* ---- stage_parts.c: state in parts ---- */
bool moves_parts(const Node *n);
void write_part_tables(StageCx *x, Cw *w);
/* --zero 3: the gather of a bucket's weights begins; in front of a node that reads some, or that begins the next, it is waited for. */
void write_weights(StageCx *x, Cw *w, const Node *n);
void await_weights(StageCx *x, Cw *w, const Node *n);
void open_parts(StageCx *x, Cw *w);                      /* GPUs: memory of the host for them */
const char *parts_args(const StageCx *x, const Node *n); /* the table of an AllReduce or AllGather, and its length */
void write_gather(StageCx *x, Cw *w, const Node *n);

/* ---- stage_calls.c: calls of kernels ---- */
void write_kernel_node(StageCx *x, Cw *w, const Node *n);
/* Whether nothing but its call stands for an update, so that it may go with others. */
bool update_alone(const StageCx *x, const Node *n);
/* Updates from n on, before `end`, by a call for those whose calls are the same; the last of them. */
const Node *write_updates(StageCx *x, Cw *w, const Node *n, const Node *end);
void write_rounding(StageCx *x, Cw *w);    /* weights in 16 bits: round_weights */
void write_copies_left(StageCx *x, Cw *w); /* behind an update: of those weights whose copies it has not written */

/* ---- pieces of stage_body.c ---- */
bool reproducible(const StageCx *x);
const char *copy_name(const StageCx *x); /* "memcpy", or what takes its place on a GPU; "memset" */
const char *fill_name(const StageCx *x);
bool on_gpu(const StageCx *x); /* the structs lie in device memory, where the host only forms addresses */
const char *function_head(const StageCx *x, const char *head, const char *name) __attribute__((format(printf, 2, 0)));
Cw function_body(StageCx *x, Buf *body); /* to write a body with, which write_function takes */
void write_function(StageCx *x, Cw *w, const char *head, Buf *body, FunctionKind kind);
const char *comment_of(const StageCx *x, const Node *n); /* the value, its type, the node of the model it stems from */
const char *micro_args(const StageCx *x);                /* of functions that do something for a microbatch */
const char *bytes_text(Arena *a, const Value *v);
DType gradient_type(const StageCx *x); /* of the struct of sums: all members have one */

/* The nodes for which `wanted` is true, as write_update has them. */
void write_some_nodes(StageCx *x, Cw *w, const Graph *g, const bool *wanted);

/* Asynchronous servers (stage_servers.c): n is a table's update by the rows that were pushed, or part of its gradient; the kernel that
 * updates one row. */
bool of_rows(const StageCx *x, const Node *n);
const struct NodeKernel *row_kernel(StageCx *x, const Node *n);

/* ---- stage_watch.c: behind a node ---- */
void write_checks(StageCx *x, Cw *w, const Node *n);
void write_told(StageCx *x, Cw *w, const Node *n);
void write_updated(StageCx *x, Cw *w, const Node *n);

/* ---- stage_async.c; in a synchronous program most write nothing ---- */
bool flows(const StageCx *x); /* asynchronous */
bool round_robin(const StageCx *x);
const char *row_text(StageCx *x); /* the place of microbatch mb among those of its update */
void declare_flow(const StageCx *x, Cw *w);
bool has_tag(const StageCx *x, const Value *root);
const char *tag_text(StageCx *x, const Value *v);
const char *message_text(const StageCx *x, const Value *v);
const char *meet_text(StageCx *x);
void write_tags(StageCx *x, Cw *w, const Graph *g);
bool is_versioned(const Stage *s, const Value *v);
void write_meet(StageCx *x, Cw *w);
void write_struct_copy(const StageCx *x, Cw *w, const char *to, const char *from); /* pointers; from may be "&v" */
void write_version(StageCx *x, Cw *w, const char *version);
void write_next(StageCx *x, Cw *w);
void write_settle(StageCx *x, Cw *w);
int late(const StageCx *x); /* steps between a gradient and its update: copies of the gradients, less one */
bool has_copies(const StageCx *x);
void write_copy(const StageCx *x, Cw *w, const char *step);
void write_row(const StageCx *x, Cw *w);

/* stage_clock.c: what profile/stageN.c has beyond stageN/stageN.c; without StageCx.clocks these do nothing. */
void clock_node(StageCx *x, Cw *w, const Node *n);   /* before the statements of n */
void clock_input(StageCx *x, Cw *w, const Value *v); /* before an input is read */
void clock_end(StageCx *x, Cw *w);                   /* behind them */
void clock_stop(StageCx *x, Cw *w);                  /* at the end of a function */
void write_records(StageCx *x, Cw *w);               /* the table of what is timed */

/* stage_servers.c */
void write_held(StageCx *x, Cw *w);
void write_shares_table(StageCx *x, Cw *w);
void write_pull(StageCx *x, Cw *w, const Node *n);
void write_way(StageCx *x, Cw *w, const Node *n); /* Give, Fetch, Return, Take */
void write_pushes(StageCx *x, Cw *w);
const char *kept_floats(StageCx *x);
void write_serving(StageCx *x, Cw *w);
void open_servers(StageCx *x, Cw *w);

/* stage_owned.c: where owned_sums (build.h) is NULL they write nothing */
void write_owned_table(StageCx *x, Cw *w);
void open_owned(StageCx *x, Cw *w);
void begin_owned(StageCx *x, Cw *w);               /* before the nodes of a backward */
void push_owned(StageCx *x, Cw *w, const Node *n); /* gradients that node n makes; NULL: all, those of no microbatch */
void sum_owned(StageCx *x, Cw *w);
bool owned_update(StageCx *x, Cw *w, const Node *n); /* opens a block for its owner; to be ended */
void send_owned(StageCx *x, Cw *w);                  /* behind the updates */

bool needs_replica(const StageCx *x); /* the code asks which of the replicas it runs on */
bool leaf_brief(const StageCx
		*x); /* gradients that are summed in parts are temporary: a function waits for those sums at its end */
/* The operand of an Accumulate lies where its sum does: the node that makes it adds to that (passes/memory/sums.c). */
bool lies_in_sum(const Node *n);
bool leaf_apart(const StageCx *x); /* a microbatch's gradients have memory of their own */
bool leaf_added(const StageCx *x); /* and each is added to its sum once it is made: no tree */

#endif
