/* What the writers of one stage's file share: stage.c (the file), stage_data.c (structs, tables), stage_body.c (the
 * functions). */
#ifndef PDCC_CODEGEN_STAGE_H
#define PDCC_CODEGEN_STAGE_H

#include "build.h"

/* A member of one of the structs that lay out the arena. */
typedef struct Member {
	const Value *v;             /* what gave it its name */
	const char  *name;
	int64_t      offset, count; /* bytes in the struct; elements */
} Member;

typedef struct Struct {
	const char *tag, *pointer;  /* "params", "P" */
	const char *what;           /* the comment above the struct */
	int64_t     bytes;
	Names       names;
	Member     *m; int n, cap;
} Struct;

typedef struct StageCx {
	Build       *b;
	const Stage *s;
	Names        names;         /* of the file, and locals of its functions */
	Kernels      kernels;
	Struct       layout[REGION_COUNT];  /* LEAF: uses GRADS' */
	const Value **konst; int nkonst, capkonst;      /* constants that some statement names */
	const Node  **object; int nobject, capobject;
	const Value **local; int nlocal, caplocal;      /* temporaries of the function being written */
	bool         failed;
} StageCx;

void layout_stage(StageCx *x);                      /* finds all members */
void write_layout(StageCx *x, Cw *w, Region r);     /* the struct, its pointer, the check of its size */
void write_params(StageCx *x, Cw *w);               /* pd_param table */
void write_inputs(StageCx *x, Cw *w);               /* pd_input_desc table */
void write_consts(StageCx *x, Cw *w);
void fill_consts(StageCx *x, Cw *w);
int  param_index(const Stage *s, const Value *v);
const char *table_name(const Build *b, const Stage *s, const char *what);       /* "stage_params", "stage2_params" */

const char *value_text(void *stage_cx, const Value *v);         /* for struct Place */
const char *object_text(void *stage_cx, const Node *n);

void write_init(StageCx *x, Cw *w);
void write_receives(StageCx *x, Cw *w, const Graph *g, const char *name);
void write_sends(StageCx *x, Cw *w, const Graph *g, const char *name);
void write_forward(StageCx *x, Cw *w);
void write_backward(StageCx *x, Cw *w);
void write_sync(StageCx *x, Cw *w);
void write_shares(StageCx *x, Cw *w);   /* a function per Broadcast, where devices run several stages */
const char *share_head(const Build *b, const Stage *s, const Node *n);
void write_update(StageCx *x, Cw *w);

bool stage_has(const Graph *g, OpKind op);
bool leaf_apart(const StageCx *x);      /* a microbatch's gradients have memory of their own */
bool leaf_added(const StageCx *x);      /* and each is added to its sum once it is made: no tree */

#endif
