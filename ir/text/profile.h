/* Measured times as plain data: profile.json, read by the front end, used by cost. A record is a node of some stage as it
 * was emitted, so behind fusion; it is known by the value it makes. Times are seconds per microbatch, of the update per
 * step. */
#ifndef PDCC_IR_PROFILE_H
#define PDCC_IR_PROFILE_H

#include "ir/ir.h"

struct Buf;

typedef struct ProfileNode {
	Phase phase;
	const char *op, *value, *node, *type; /* "Input" has no node: reading one microbatch of an input */
	int threads;
	const char *device;
	int64_t activation, weight; /* bytes of its results; of the weights that it reads */
	double mean, typical, p50, p99,
		cov; /* typical: what planners take (runtime/run/profile.c); cov: standard deviation by mean */
	int64_t n;   /* steps that were measured */
} ProfileNode;

typedef struct Profile {
	const char *file, *model, *device;
	int threads, copies; /* copies that computed beside each other; 0, 1: one */
	int64_t micro;       /* samples of a microbatch */
	ProfileNode *node;
	int nnode, capnode;
	Map of; /* "PHASE OP VALUE" -> ProfileNode */
} Profile;

/* The value that a node is known by: its first result, or of an update the parameter. NULL: it has neither. */
const Value *node_known_by(const Node *n);
/* Has it a time of its own where it is emitted? Not messages, views, what only moves rows between microbatches, and copies of weights in
 * 16 bits, which an update makes with the weight. */
bool node_is_timed(const Node *n);
/* Everything that its time depends on but machine and threads: op, attributes, types of operands and results. */
const char *node_kind_text(Arena *a, const Node *n);

/* What is said of a node, or of an input (n NULL); no times. */
ProfileNode profile_record(Arena *a, const Node *n, const Value *input);
/* The records that the programs of a planned module will write, in their order, without times. node: by record, NULL for
 * inputs. */
Profile *profile_expected(Arena *a, const Module *m, const Node ***node);
void profile_index(Arena *a, Profile *p); /* fills .of; the first of several equal records counts */
/* NULL: no record of that phase, op and value. */
const ProfileNode *profile_find(const Profile *p, Phase phase, const char *op, const char *value);
void profile_print(
	struct Buf *b, const Profile *p); /* profile.json; the runtime writes the same (runtime/run/profile.c) */

extern const char *const profile_phase[3]; /* "forward", "backward", "update" */

#endif
