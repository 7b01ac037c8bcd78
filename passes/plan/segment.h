/* The forward graph as a row of segments, the pieces that partition makes stages of (segment.c), in one of several orders
 * (order.c). */
#ifndef PDCC_PASSES_SEGMENT_H
#define PDCC_PASSES_SEGMENT_H

#include "passes/common/plan.h"
#include "cuts.h"

typedef struct Seg {
	int first, end;   /* main nodes [first, end) */
	int64_t live;     /* bytes that cross the cut before this segment */
	const char *name; /* of its library call, or of its first node */
} Seg;

typedef struct Segments {
	Module *m;
	PassCx *cx;
	Order order; /* of node; the graph keeps the file's */
	bool known;  /* the stages are: each is a segment, and nodes keep theirs (segments_known) */
	Node **node;
	int nnode; /* the main nodes (stages.h) */
	Seg *seg;
	int n;
} Segments;

/* wanted: stages that a plan asks for. When there are fewer library calls than that, every node is a place to cut. */
void segments_find(Segments *g, int wanted);
/* The segments are the n stages that nodes have: those that passes have added since get the stage of what they are for. */
void segments_known(Segments *g, int n);
/* Every node of the module has its segment as Node.stage; segments_clear: -1 again. */
void segments_spread(Segments *g);
void segments_clear(const Segments *g);
/* Every node has its stage: stage s begins with segment cut[s]. */
void segments_assign(Segments *g, const int *cut, int n);
/* Puts main nodes, which come in program order, in that order. */
void order_nodes(Arena *a, Node **node, int n, Order order);
bool reads_weight(const Node *n); /* also one that is transposed or reshaped; main nodes are marked */
const char *node_label(const Node *n);

#endif
