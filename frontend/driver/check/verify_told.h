/* What the programs of pdcc verify told of their first step, as verify_first_step.c compares it and verify_slack.c bounds it. */
#ifndef PDCC_CHECK_VERIFY_TOLD_H
#define PDCC_CHECK_VERIFY_TOLD_H

#include "runtime/state/first_step.h"
#include "frontend/driver/check/verify.h"

typedef struct Told {
	first_record r;
	const char *name, *data;
	int64_t micro;    /* microbatches and, of sums and what is updated, updates before it */
	int rank, member; /* which of its tensor group */
	bool used;
	double apart; /* of the one device: from itself in f32, as part of its largest value */
} Told;

typedef struct Tells {
	Told *v;
	int n, cap;
	int64_t per_step; /* microbatches */
} Tells;

typedef struct Step {
	Compile *c;
	const Rule *rule;      /* NULL: the first step alone is told */
	Tells many, one, wide; /* wide: one device in f32, where one is in 16 bits; else none */
	bool exact;
	double gradient; /* the largest of any gradient of the one device */
	double norm;     /* what roundings and packing may make of the norm of all, as part of it */
	double count;    /* labels of the first step, which divide its gradients */
} Step;

/* Where a gradient is at most `noise`, what an optimizer makes of it may be so far apart. */
typedef struct Stride {
	const Told *gradient; /* NULL: nowhere */
	double noise, far;
} Stride;

double told_element(const Told *t, int64_t i);
double told_largest(const Told *t);

/* What a value is called where nothing is in 16 bits (passes/graph/amp.c casts x to x.f32, and to x.bf16 or x.f16). */
const char *slack_name_in_f32(Arena *a, const char *name);

void slack_measure(Step *s);                   /* before all that follows */
void slack_later(const Step *s, Slacks *to);   /* what it comes to behind later updates */
double slack_of(const Step *s, const Told *y); /* what elements of y may differ by; negative: not a bit */
Stride slack_strides(const Step *s, const Told *y);
double slack_stride(const Stride *most, int64_t i); /* what element i may differ by for all that */

#endif
