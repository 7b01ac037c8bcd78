/* Memory of stages and devices, to the byte. */
#ifndef PDCC_PASSES_MEMORY_MEMORY_H
#define PDCC_PASSES_MEMORY_MEMORY_H

#include "passes/common/pass.h"

int64_t memory_of(const Stage *s, const Cluster *c); /* of the smallest of its devices; 0: nothing is said of it */
/* Stages that were planned as if each had its device for itself move into the arenas of their devices. False after
 * E0601: a device has less memory. */
bool share_devices(Module *m, PassCx *cx);
/* Whether a stage's temporaries lie over what is dead of its only slot. */
static inline bool tmp_over_slot(const Stage *s) { return s->inflight == 1 && !s->weight; }
/* Whether what Accumulate n sums is added to the sum by the node that makes it, root's, and lies there; its `into_sum` says so.
 * root: the value where the operand's memory begins, all others that lie there stem from it by views and in place. */
bool summed_where_made(const PassCx *cx, const Module *m, const Stage *s, const Node *n, Value *root);
int64_t memplan_stage(Module *m, PassCx *cx, Stage *s); /* bytes of the arena of a stage; the schedule is known */
int64_t memplan_device(Module *m, PassCx *cx, const Stage *of); /* of all stages of its device, planned anew */

#endif
