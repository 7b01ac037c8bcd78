/* Kernels of a file: templates filled for nodes, each text once; and the statement that calls one. */
#ifndef PDCC_CODEGEN_KERNEL_H
#define PDCC_CODEGEN_KERNEL_H

#include "cw.h"
#include "names.h"
#include "tmpl.h"

/* What is known of one node's kernel. */
typedef struct NodeKernel {
	const Kernel *k;
	Hole *hole; /* those that its statements name, as texts */
	int nhole;
	const char *name;   /* of the C function; NULL when there is no template */
	const char *call;   /* pattern of the statement */
	const char *row;    /* pattern of a row of pd_many, $rows in the statement; NULL: nodes are called one by one */
	const char *object; /* type of the library object that the statement names; NULL: it names none */
} NodeKernel;

typedef struct Kernels {
	Arena *a;
	Map name_of;        /* text with NAME left out -> name */
	Map used;           /* names */
	Map of;             /* Node -> NodeKernel */
	Holes *standard[2]; /* what every template may use, of f32 and f64; NULL: nobody asked yet */
	Map heads;          /* comments of templates' heads that are out already */
	Buf out;            /* the functions, in order of first use */
	Buf heads_of;       /* GPU: the functions' declarations */
	bool cuda;
	bool products;      /* GPU: some kernel calls pd_gemm or its like */
	const char *suffix; /* GPU, of names: several files of kernels go into one program; NULL: one does */
	Diag *d;
} Kernels;

void kernels_init(Kernels *k, Arena *a, Diag *d, bool cuda);
/* The node's kernel; fills its template at the first call. NULL after a diagnostic (no kernel for this op: E0702). */
const NodeKernel *kernel_of(Kernels *k, const Node *n);
/* GPU: bytes that the node's kernels keep from one launch to the next (the hole ROOM); 0: none. */
int64_t kernel_room(const Kernels *k, const Node *n);
/* What stands before the functions: includes and, unless every bit matters, vector versions of math functions. */
void kernels_head(const Kernels *k, Buf *out, bool reproducible);

/* How the values of a node are called at the place of a statement. */
typedef struct Place {
	void *cx;
	const char *(*value)(void *cx, const Value *v);
	const char *(*object)(void *cx, const Node *n); /* the node's library object */
	const char *(*scratch)(void *cx);
	const char *(*microbatch)(void *cx);
} Place;

/* The pattern with all $ names replaced, in the kernels' arena. */
const char *statement(Kernels *k, const NodeKernel *nk, const Node *n, const char *pattern, const Place *p);

/* Whether two nodes may be rows of one table, where they stand side by side: what they are called with else is the same. */
bool same_call(Kernels *k, const Node *a, const Node *b, const Place *p);
/* Whether the update of a weight writes its copy in 16 bits too (ir/analysis.h: copy_beside). */
bool writes_copy(Kernels *k, const Node *update);
/* The call of a node's kernel, or of several whose calls are the same; a comment for each. */
void write_call(Kernels *k, Cw *w, int n, const Node *const *node, const char *const *comment, const Place *p);

#endif
