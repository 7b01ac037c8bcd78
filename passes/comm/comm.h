/* What other passes ask of AllReduces. */
#ifndef PDCC_PASSES_COMM_COMM_H
#define PDCC_PASSES_COMM_COMM_H

#include "passes/common/pass.h"

/* Every device does the last of these actions of its stages in descending order of stages, so that all members of a group begin
 * its AllReduces in one order. */
bool sums_in_order(Arena *a, const struct Schedule *s, int kind);

#endif
