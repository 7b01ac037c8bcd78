/* Time as the cost model sees it. */
#ifndef PDCC_PASSES_COST_COST_H
#define PDCC_PASSES_COST_COST_H

#include "passes/common/pass.h"

typedef struct Speed {
	double flops, bandwidth, launch, half;
} Speed;                                          /* FLOP/s (half: of products of 16-bit floats), bytes/s,
                                                                         * seconds per node */
Speed device_speed(const Cluster *c, int device); /* numbers of the cluster file, or defaults */
double node_time(const Node *n, const Speed *s);  /* the slower of arithmetic and memory, and a start */
/* Seconds of a node on device `on`, where its time (Node.time) is of device `first`. */
double node_seconds(const Node *n, const Speed *first, const Speed *on);
/* Times of the cost model, for PassCx.sized: of a module behind cost, of the size that the profile was measured at, without
 * that profile. */
Map *cost_sizes(Arena *a, const Module *m);
/* Node.time of all stages anew, behind fusion: measured where the profile has the node, else as it was, else estimated;
 * counts both into PassCx.measured and .estimated. */
void cost_again(Module *m, PassCx *cx);

#endif
