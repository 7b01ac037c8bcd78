/* What other passes ask of gradients. */
#ifndef PDCC_PASSES_TRAIN_TRAIN_H
#define PDCC_PASSES_TRAIN_TRAIN_H

#include "passes/common/pass.h"

/* Does the gradient of n's outputs go on to operand i? True also for ops that lack a gradient but should have one. */
bool grad_flows(const Node *n, int i);

#endif
