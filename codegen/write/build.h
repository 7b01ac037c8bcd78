/* What the writers of a build folder share. */
#ifndef PDCC_CODEGEN_BUILD_H
#define PDCC_CODEGEN_BUILD_H

#include "ir/cluster.h"
#include "ir/training.h"
#include "ir/plan.h"
#include "ir/schedule.h"
#include "cw.h"
#include "kernel.h"

typedef struct BuiltFile {
	const char *path;
	char sha256[65];
} BuiltFile;

typedef struct Build {
	const Module *m;
	const Cluster *c;
	const Training *t;
	Arena *a;
	Diag *d;
	const char *dir;
	BuiltFile *file;
	int nfile, capfile; /* in the order in which they were written */
	int *first_rank;    /* by stage: of its replica 0 */
	bool gpu;           /* --target cuda */
	bool chunks;        /* some device runs several stages: their names tell them apart */
	bool split;         /* the schedule has W: backwards are in two parts */
	int channels;
	char model_hash[17]; /* of names, types and shapes of weights and statistics: no plan changes it */
	char hash[17];       /* of the plan: all stages' text and the schedule */
} Build;

/* Writes DIR/path, making folders; remembers its hash. False after E0703. */
bool build_write(Build *b, const char *path, const void *p, size_t n);
bool build_text(Build *b, const char *path, Buf *text); /* and frees the text */
/* The frame codegen/NAME.in with every @WORD@ replaced by the pair that has it (name, text, name, text ..., NULL). */
void build_frame(Buf *out, const char *frame, const char *const *pair);

bool emit_stage(Build *b, const Stage *s);          /* stageN/ */
bool emit_profile(Build *b, const Stage *s);        /* profile/stageN.c */
bool emit_device(Build *b, int task);               /* deviceN.c */
int tasks_of(const Build *b);                       /* how many programs there are */
int rank_of_task(const Build *b, int task);         /* whose member it is */
bool emit_bundle(Build *b);                         /* everything else */
bool emit_launch(Build *b);                         /* run.sh */
bool emit_plan(Build *b);                           /* plan.txt, plan.json, schedule.csv */
extern const char *const region_word[REGION_COUNT]; /* for people and programs */
bool emit_certificate(Build *b);                    /* certificate.json */

/* Is the embedded file one of the runtime that programs for CPUs (for GPUs) are built with? */
bool runtime_file(const char *name, bool gpu);
extern const char build_gpu_libraries[]; /* what GPU programs are linked with */

/* A value and the ONNX node that it stems from, for messages of the program; n: taken where nothing defines it. */
const char *origin_text(const Build *b, const Value *v, const Node *n);
/* What the C name of v is made from: its name in the model, behind the module where the file tells that beside it. */
const char *value_wish(Arena *a, const Value *v);
int stage_of_rank(const Build *b, int rank);   /* the first of its stages */
int next_chunk(const Build *b, int stage);     /* the next stage on the same devices, or -1 */
bool device_enters(const Build *b, int stage); /* some stage of its devices has buffers at its entry */
/* What a stage calls `name` outside its own file: "forward", or "stage2_forward" where devices run several stages. */
const char *stage_name(const Build *b, int stage, const char *name);
/* Where the parameters (else the inputs) of a stage begin in the table of its device. */
int table_base(const Build *b, int stage, bool params);
/* PipeDream's server of a replicated stage (owned.c): its AllReduce, whose operands have owners; NULL: none. Its operands, whole or
 * cut: `n` elements from `at` on that a replica owns. Which replica updates parameter v, or the one that v is the state of; 0: each
 * does, or its part. */
typedef struct OwnedPiece {
	const Value *sum;
	int owner;
	int64_t at, n;
} OwnedPiece;
const Node *owned_sums(const Stage *s);
int owned_pieces(Arena *a, const Stage *s, OwnedPiece **list); /* how many */
bool updates(const Node *n);                                   /* a parameter */
int64_t owned_part(const Stage *s, const Value *v); /* elements of v that each replica owns; 0: it is whole */
int owner_of_update(const Stage *s, const Node *update);
int owning_replica(const Stage *s, const Value *v);
int owner_of(const Build *b, const Value *v); /* the first rank that holds parameter v: it writes v to files */
/* Threads of a device: as asked for, or as many as its cluster file says it has cores; at least one. */
int threads_of(const Build *b, int rank);
double timeout_of(const Build *b);                        /* seconds that a rank waits for another one */
const char *plan_text(const Build *b);                    /* "2-1-1" */
const char *size_text(Arena *a, int64_t bytes);           /* "12.3 KiB" */
void plan_ways(const Build *b, Buf *out, const Stage *s); /* how the gradients of a stage travel, lines of plan.txt */

const char *ranks_text(Arena *a, Ints v); /* "0, 1" */
bool pulls(const Stage *s);               /* servers hold some of its parameters */
bool stage_has(const Graph *g, OpKind op);
const char *share_name(const Build *b, const Stage *s, const Node *broadcast); /* "stage2_share0" */
enum { TAG_BYTES = 24 /* of a pd_tag */, ALIGN = 64 /* of members of structs */ };
int64_t message_bytes(const Build *b, const Value *v); /* what is sent of v, with its tag */

/* Parameters whose norm is limited, of all stages; 0: none is. */
int squares_of(const Module *m);

/* consts.c: the declaration of a constant, and what fills it at start (nothing for most); gpu: and copies it there. */
void const_write(Cw *w, const Value *v, const char *name, bool gpu);
void const_fill(Cw *w, const Value *v, const char *name, bool gpu);

/* A literal of C that holds exactly s, a string of JSON that does. */
const char *quoted(Arena *a, const char *s);
const char *quoted_json(Arena *a, const char *s);

void sha256_hex(const void *p, size_t n, char hex[65]);

#endif
