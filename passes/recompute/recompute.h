/* Recomputing forward values in the backward instead of keeping them: what the pass and the planners share. */
#ifndef PDCC_PASSES_RECOMPUTE_H
#define PDCC_PASSES_RECOMPUTE_H

#include "passes/common/plan.h"

/* What is known of a node of the stage; hangs on Node.aux. */
typedef struct AgainNode {
	int   at;                   /* its place among the nodes of its graph, from 0 */
	bool  need;                 /* forward: the backward runs it again ... */
	int   where;                /* ... in front of the backward node of this place */
	Node *copy;                 /* and this is the copy */
} AgainNode;

/* A stage of which some forward values are not kept, and what was changed for it. */
typedef struct Again {
	Module *m;
	Stage  *s;
	PassCx *cx;
	Node  **bwd; int nbwd;      /* the backward nodes as they were */
	Map     kept;               /* values (no views) that the backward may read -> themselves; NULL: not any more */
	Node  **copy; int ncopy, capcopy;
	struct Moved { Node *node; int index; Value *old; } *moved; int nmoved, capmoved;
} Again;

void   again_begin(Again *x, Module *m, Stage *s, PassCx *cx);
void   again_end(Again *x);
bool   again_free(const Stage *s, Value *root);     /* it lies in its slot anyway: received, read, sent; or a weight */
bool   again_has(const Again *x, Value *v);         /* the backward may read it, or what it is a view of */
double again_need(Again *x);        /* finds what must be run again; gives its seconds per microbatch */
void   again_apply(Again *x);       /* copies that into the backward; Stage.keep anew */
void   again_undo(Again *x);

/* Forgets one value after another, by seconds per byte, until the stage's device, with its other stages as they are, needs
 * no more than `limit` bytes or nothing more can be forgotten; the choice is in Again.kept, not applied. Gives the bytes
 * that the device will need at most. */
int64_t again_choose(Again *x, int64_t limit);

/* Bytes that the device of stage `of` would need if all of its stages were computed again; the seconds per microbatch that
 * they take as they are, and that this would add. Memory is to be planned anew behind it. */
int64_t recompute_need(Module *m, PassCx *cx, const Stage *of, double *time, double *more);

/* Of the nodes of an unsplit module that have Node.stage == stage (a stage, or a segment that a planner looks at): bytes
 * that a microbatch keeps from its forward to its backward; those that it keeps where the stage is computed again, which
 * come from other stages or from the input; what is alive beyond them while one backward runs, at most; and the seconds
 * per microbatch that computing again takes. Views share the bytes of what they view. */
typedef struct RecomputeEstimate { int64_t kept, kept_again, again; double time; } RecomputeEstimate;
RecomputeEstimate recompute_estimate(const Module *m, int stage);

#endif
