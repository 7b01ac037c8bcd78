/* first_step.h: what a program tells of its first step (--first-step DIR) or of each (--each-step DIR): a file per rank, and per
 * further member of its tensor group (rank0.1), records one after another, each followed by the name and the elements. */
#ifndef FIRST_STEP_H
#define FIRST_STEP_H

#include <stdint.h>

typedef enum first_kind {
	FIRST_VALUE,    /* made by a forward or a backward */
	FIRST_RECEIVED, /* the same behind the message that brought it */
	FIRST_LOSS,     /* its sum over a microbatch, and the count of labels */
	FIRST_GRADIENT, /* of a parameter, summed over the step */
	FIRST_NORM,     /* of the gradient */
	FIRST_UPDATED,  /* a parameter behind the update */
	FIRST_VERSION /* of each: updates that the weights have behind them which the action reads, since the flow began */
} first_kind;

typedef struct first_record {
	int64_t at, n;                /* elements; the first one's place in the whole tensor */
	int64_t step;                 /* the step; of sums, norm and what is updated: how many updates were before */
	int32_t kind, mb, size, name; /* microbatch, -1: none; bytes of an element, 4 or 8; length of the name */
	char action[24];
} first_record;

#endif
