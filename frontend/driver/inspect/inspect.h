/* Private to pdcc inspect: what was found out of a model (inspect.c) and its tables (inspect_print.c). */
#ifndef PDCC_FRONTEND_INSPECT_H
#define PDCC_FRONTEND_INSPECT_H

#include "frontend/driver/compile/compile.h"

/* A parameter and who reads it. kind: dense, row-sparse (only rows are read, by Gather along axis 0), mixed (rows, and
 * more than those), tied (more than one node), frozen, buffer, unused. */
typedef struct ParamRow {
	const char *name, *shape, *kind;
	const char *readers; /* "Gather 'wte', Gemm 'head'" */
	const char *home;    /* Item of its first reader; NULL: unused */
	int64_t elements, bytes;
} ParamRow;

/* What one node of the model costs, with all that stems from it. */
typedef struct Item {
	const char *name; /* of the ONNX node, or of its output */
	OpKind op;        /* the one of its forward nodes that takes longest */
	double most;      /* seconds of that one */
	double time[3];   /* seconds by phase: per microbatch, the update per step */
	double flops;     /* forward */
	int64_t weights;  /* bytes of weights and buffers, state and gradients */
	int64_t kept;     /* bytes from forward to backward */
} Item;

typedef struct Look {
	Compile *c;
	Module *m;
	const char *missing; /* why there is no training graph; NULL: there is one */
	struct IoRow {
		const char *name, *type;
		int axis;
		bool label, out;
	} *io;
	int nio, capio;
	ParamRow *param;
	int nparam, capparam;
	Item *item;
	int nitem, capitem;
	Map places;          /* name -> its Item's number + 1 */
	int count[OP_COUNT]; /* forward nodes */
	double op_flops[OP_COUNT];
	double flops[3], time[3]; /* by phase */
	struct CutRow {
		const char *node;
		OpKind op;
		double before;
		int64_t bytes;
	} *cut; /* in front of node; as Cut */
	int ncut;
	const Stage *stage; /* all of the model on one device; NULL: it was not planned */
} Look;

const char *inspect_name(Arena *a, const char *s, int n); /* at most n columns of it, the end */
/* Everything, on standard output, at most 100 columns wide. */
void inspect_print(const Look *l);

/* Files and folders that pdcc and its programs write; the exit status, -1: it is none of these. */
int inspect_file(Compile *c);
int inspect_json(Compile *c);     /* plans, profiles */
int inspect_ir(Compile *c);       /* *.pdir */
bool inspect_is_plan(Compile *c); /* a plan file in YAML */

/* Does `pdcc inspect` take this for a cluster file? And what it prints then; the exit status. */
bool inspects_cluster(const char *path);
int inspect_cluster(Compile *c);

#endif
