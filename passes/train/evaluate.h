/* What train adds where samples may be missing in a step, and where a run evaluates. */
#ifndef PDCC_PASSES_EVALUATE_H
#define PDCC_PASSES_EVALUATE_H

#include "passes/common/pass.h"

/* Whether a step may have fewer samples than it has room for: the last of an epoch (data.last: keep), of an evaluation. */
bool samples_may_lack(const Training *t);
/* Labels of samples that are not there shall be the ignored index: gives ce one where it has none. False: its labels are not
 * read from an input that feeds nothing else. */
bool mask_labels(Node *ce);
/* 1 for samples that are there, 0 for others: an input of `like`'s element type that multiplies along `axis` of like;
 * axis -1: one number per microbatch, and then a microbatch has all of its samples or none (R207). */
Value *presence(Builder *b, const Value *like, int axis);
/* Counts labels that have the greatest score. */
Value *count_hits(Builder *b, const Node *ce);
/* Dropout and BatchNormalization learn what they do in evaluation. False after E0315. */
bool evaluation_modes(Module *m, PassCx *cx);

#endif
