/* A loss of the model's own, and the batch. */
#ifndef PDCC_PASSES_BATCH_TERMS_H
#define PDCC_PASSES_BATCH_TERMS_H

#include "passes/common/pass.h"

/* Is a loss trained that is not the mean of a cross-entropy alone, so that it has to be looked at how it follows the batch? */
bool loss_of_its_own(const Module *m, const Training *t);
/* Labels that do not count (`value`) are divided out of each microbatch, not out of the batch: said where data have
 * them unevenly. */
void labels_uneven(Map *uneven, const Value *labels, int64_t value);
/* The scalar v so multiplied that the mean over microbatches is that of a step of `ratio` times as many samples. other: the same
 * graph at another batch. *coupled, where it is NULL: the node that makes it something of a microbatch alone. uneven:
 * labels_uneven of what v counts, or NULL. */
Value *batch_terms(
	Builder *b, Value *v, const Module *other, double ratio, Arena *a, const Node **coupled, Map *uneven);
/* *coupled, where it is NULL: the node because of which v, of samples, is not each one's own; only what is seen to
 * be that. */
void samples_meet(Builder *b, const Value *v, const Module *other, Arena *a, const Node **coupled);

#endif
