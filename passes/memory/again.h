/* Recomputing forward values in the backward instead of keeping them. */
#ifndef PDCC_PASSES_MEMORY_AGAIN_H
#define PDCC_PASSES_MEMORY_AGAIN_H

#include "passes/common/plan.h"

/* What is known of a node of the stage; in Node.aux. */
typedef struct AgainNode {
	int at;     /* its place among the nodes of its graph, from 0 */
	bool need;  /* forward: the backward runs it again ... */
	int where;  /* ... in front of the backward node of this place */
	Node *copy; /* and this is the copy */
} AgainNode;

/* A stage of which some forward values are not kept, and what was changed for it. */
typedef struct Again {
	Module *m;
	Stage *s;
	PassCx *cx;
	Node **bwd;
	int nbwd; /* the backward nodes as they were */
	Map kept; /* values (no views) that the backward may read -> themselves; NULL: not any more */
	Node **copy;
	int ncopy, capcopy;
	struct Moved {
		Node *node;
		int index;
		Value *old;
	} *moved;
	int nmoved, capmoved;
} Again;

void again_begin(Again *x, Module *m, Stage *s, PassCx *cx);
void again_end(Again *x);
bool again_free(const Stage *s, Value *root); /* it lies in its slot anyway: received, read, sent; or a weight */
bool again_has(const Again *x, Value *v);     /* the backward may read it, or what it is a view of */
double again_need(Again *x);                  /* finds what must be run again; gives its seconds per microbatch */
void again_apply(Again *x);                   /* copies that into the backward; Stage.keep anew */
void again_undo(Again *x);
void again_forget_all(Again *x); /* nothing is kept but what lies in the slot anyway */

/* Bytes that the device of stage `of` would need if all of its stages were computed again; the seconds per microbatch that
 * they take as they are, and that this would add. Memory is to be planned anew behind it. */
int64_t recompute_need(Module *m, PassCx *cx, const Stage *of, double *time, double *more);

#endif
