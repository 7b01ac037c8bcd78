/* What other passes ask of AllReduces. */
#ifndef PDCC_PASSES_COMM_COMM_H
#define PDCC_PASSES_COMM_COMM_H

#include "passes/common/pass.h"

/* Every device does the last of these actions of its stages in descending order of stages, so that all members of a group begin
 * its AllReduces in one order. */
bool sums_in_order(Arena *a, const struct Schedule *s, int kind);
/* What --zero 1 does not go with, as E0520 has it; NULL: nothing of this. */
const char *zero_refused(const Training *t, bool async);
/* Each replica updates so many elements and has their states alone. */
void update_in_parts(Node *update, int64_t part);
/* With --zero an AllReduce over the replicas becomes a ReduceScatter, where all that read its sums take the replica's part. */
void zero_scatter(Node *sum, const Module *m, const Stage *s, const Training *t);
/* Whether the stage sums its gradients in parts behind every backward (--zero 2); of which that is true; and does so with a bucket. */
bool zero_each(const Module *m, const Stage *s, PassCx *cx);
bool zero_in_parts(const Value *sum);
/* Bytes of a bucket that lies in memory as long as it is summed or read, of all that is: --bucket, or an eighth, 16 MiB at most. */
double zero_bucket(const Training *t, double all);
void zero_sum_parts(Node *sum, const Stage *s);

/* --zero 3 (gather.c). Whether the stage's replicas can gather weights in every action; if not, a note says why. Whether a weight may be
 * in parts, and what is done with the stage's graphs when some are (Param.part). */
bool gather_meets(const Module *m, const Stage *s, PassCx *cx);
bool gather_divides(const Value *w, const Stage *s);
void gather_weights(Module *m, Stage *s, PassCx *cx);

#endif
