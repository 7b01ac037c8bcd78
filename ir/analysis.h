/* Questions about a module that several passes ask. */
#ifndef PDCC_IR_ANALYSIS_H
#define PDCC_IR_ANALYSIS_H

#include "ir.h"

int64_t value_bytes(const Value *v); /* in memory; row-sparse ones are kept dense */
/* Of a weight, or of its copy in 16 bits, the elements that a device has of it always: all, or its part (Param.part); their bytes. */
int64_t held_count(const Value *v);
int64_t held_bytes(const Value *v);
Type held_type(const Value *v);            /* v's, or so many elements in a row */
bool gathers_weights(const Stage *s);      /* its graphs do (GatherWeight) */
void find_loss(Module *m, const Graph *g); /* Module.loss and .count anew, when g reports them */
void list_kept(Module *m, Stage *s);       /* Stage.keep anew, after its graphs changed */
double rows_touched(const Value *w, double lookups);
/* The parameter that a sum becomes the gradient of; NULL: none. */
const Value *gradient_of(const Value *sum);
/* The value that the node which makes it can add to what Accumulate `sum` sums (Gemm, MatMul, GatherGrad {into_sum}); the operand of
 * that shows it, or has rows added in place. NULL: nothing does, or others read it. */
Value *added_where_made(const Node *sum);
/* Gradients that may be one product of all microbatches of a step (passes/split/at_once.c): the node that makes a microbatch's for an
 * Accumulate, whose operands' first axis is what is summed over, rows of a product or samples of ConvGradWeights, NULL: there is none such;
 * whether the rows of so many microbatches are at most half the bytes of the result; the name of what the product makes. */
Node *made_once(const Node *acc);
bool at_once_pays(const Node *made, int64_t micro);
const char *at_once_name(Arena *a, const Node *acc);
/* How much of that parameter each replica updates (attribute `part`); 0: all of it. */
int64_t part_of_sum(const Value *sum);
/* Which operand of an update node is the gradient. */
int gradient_operand(const Node *update);
/* The copy in 16 bits (Cast {once}) of the weight that this node alone updates, and all of it; NULL: none, or several. */
const Value *copy_beside(const Node *update);
/* Of n elements, how many each of R replicas has (--zero): the last ones have fewer, or none. Whole cache lines. */
int64_t part_of(int64_t n, int replicas);
/* How many of them replica r has. */
int64_t part_held(int64_t n, int64_t part, int r);

#endif
