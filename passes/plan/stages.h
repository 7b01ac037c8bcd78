/* From a cut of the main forward nodes to a stage for every node (stages.c). */
#ifndef PDCC_PASSES_STAGES_H
#define PDCC_PASSES_STAGES_H

#include "passes/common/plan.h"

/* The forward nodes that depend on an activation or are a library call, in program order; mark is set on them until
 * spread_stages. */
int main_nodes(Module *m, Arena *a, Node ***list);
/* Main nodes have their stage; gives all others theirs. */
void spread_stages(Module *m);
int first_holder(const Value *param); /* the first stage with a forward or backward use */

#endif
