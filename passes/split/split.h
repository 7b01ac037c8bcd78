/* What other passes ask of stages. */
#ifndef PDCC_PASSES_SPLIT_SPLIT_H
#define PDCC_PASSES_SPLIT_SPLIT_H

#include "passes/common/pass.h"

void unscale(Module *m, const Training *t); /* operations of a user behind the sums see true gradients (unscale.c) */
/* Backwards in two parts (defer.c): bytes of a microbatch that its W will read of its B, where the stage is split. */
int64_t deferred_bytes(const Stage *s);
/* Gradients of several uses (add_uses.c): whether a sum of them in the update, behind their Accumulates, becomes one in front of a
 * single Accumulate where a stage of several replicas has them all. */
bool parts_joined(const Node *sum, const Training *t);

/* With these settings gradients may be one product of all microbatches of a step (at_once.c). */
bool may_be_at_once(const Training *t);

#endif
