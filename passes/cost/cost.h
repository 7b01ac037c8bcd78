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
/* Of a product (Gemm, ConvGradWeights) that takes `time` seconds: what it takes of operands with `times` as many rows. rate: FLOP/s at best
 * of what was measured (product_rate), 0: nothing was, the roofline says how much more it is. */
double time_at_once(const Node *n, double time, double times, double rate, const Speed *s);
/* FLOP/s of the fastest products and convolutions of a module by their times; 0 without a profile. */
double product_rate(const Module *m, const PassCx *cx);
/* Measured seconds of a node of that kind in a phase that makes `value`, with as many threads; 0: none. */
double time_measured(const PassCx *cx, const Node *n, Phase phase, const char *value);
/* Seconds of a node on device `on`, where its time (Node.time) is of device `first`. */
double node_seconds(const Node *n, const Speed *first, const Speed *on);
double graph_seconds(const Graph *g, const Speed *first, const Speed *on); /* of all of its nodes */
/* Times of the cost model, for PassCx.sized: of a module behind cost, of the size that the profile was measured at, without
 * that profile. */
Map *cost_sizes(Arena *a, const Module *m);
/* Node.time of all stages anew, behind fusion: measured where the profile has the node, else as it was, else estimated;
 * counts both into PassCx.measured and .estimated. */
void cost_again(Module *m, PassCx *cx);

#endif
