/* What the files of pdcc verify share. */
#ifndef PDCC_CHECK_VERIFY_H
#define PDCC_CHECK_VERIFY_H

#include "frontend/driver/compile/compile.h"

/* verify_rule.c: how an asynchronous plan updates. */
typedef struct Rule {
	const char *name; /* of the schedule */
	bool servers;     /* they update in the order in which gradients arrive; nothing below but per_step */
	bool each;        /* a step is a minibatch, and stages update for themselves; else all of them once a step */
	bool vertical, none;
	int nstage;
	int64_t *replicas, *depth, *empties; /* by stage; empties: rounds until nothing is under way, 0: never */
	int64_t late;                        /* not each: updates that a step's weights lack */
	int64_t warm, per_step;              /* steps that are flushed; microbatches of a step */
} Rule;

/* Of a planned module; *rule NULL: one device has it by itself, as synchronous plans have. False after E0520. */
bool verify_rule(Compile *c, const Rule **rule);
int64_t verify_version(
	const Rule *r, int stage, int64_t step, bool backward); /* updates behind the weights that are read */
int64_t verify_began(const Rule *r, int64_t step);              /* those that are behind the flow which has this step */
/* Running statistics of replicas that take minibatches in turn: they follow no order of one device. */
bool verify_skips(const Rule *r, const Module *m, const char *name);
int64_t verify_steps(const Compile *c, const Rule *r); /* how many are compared */
bool verify_trained(const Value *v);
/* What one device plays, to a file. */
bool verify_script(Compile *c, const Rule *r, const char *path, int64_t steps);
/* verify_arrivals.c: the same where servers update as gradients arrive, from what those in folder `many` recorded. */
bool verify_arrivals(Compile *c, const Rule *r, const char *many, const char *path, int64_t steps);

/* verify_first_step.c: which values both programs tell of, from the planned module; then those of the folders' runs compared. */
void verify_tell(Compile *c, const Rule *r);
/* How far apart two runs' weights may be behind one update where the gradient is roundings alone: Adam and its like divide it by
 * its own size, so that what is left is a step of full length in any direction. 0: the optimizer does not. */
double verify_stride(const Compile *c);
/* What a gradient is beside the largest of all where it may be roundings alone. */
double verify_noise(const Compile *c);

/* verify_slack.c: what the roundings of the first step may make of what is compared behind the last. */
typedef struct Slack {
	const char *name;     /* a trained parameter, or a state of one */
	double gradient, far; /* how far its gradient may lie apart; itself, by an update */
} Slack;

typedef struct Slacks {
	Slack *v;
	int n, cap;
	double loss; /* the same of the loss, by an update */
} Slacks;

const Slack *slack_find(const Slacks *s, const char *name); /* NULL: none */

/* wide: the folder of one device's run in f32 where that of `one` is in 16 bits; NULL: they are in f32. */
bool verify_first_step(
	Compile *c, const Rule *r, const char *many, const char *one, const char *wide, bool exact, Slacks *later);

#endif
