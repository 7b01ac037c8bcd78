/* Where a layer graph can be cut: the antichain states that both published planners use as their "layers". */
#ifndef PDCC_PASSES_PLANNER_STATES_H
#define PDCC_PASSES_PLANNER_STATES_H

#include <stdint.h>
#include "profile.h"

/* One place to cut: what lies on or above its layers comes first. */
typedef struct State {
	int *layer;
	int n;             /* the cut's layers: their outputs cross it */
	double time;       /* seconds, forward and backward, of all layers up to here */
	double activation; /* bytes of all outputs up to here */
	double parameters; /* bytes of all parameters up to here */
	double cut;        /* bytes that cross: the cut's layers' outputs */
} State;

/* The states in an order in which every state comes behind its predecessors. A number is a name, not a place: a cut
 * behind k is legal for a stage that ends at j when k precedes j. */
typedef struct States {
	const Profile *p; /* trimmed */
	State *s;
	int n;
	int words;        /* of 64 bits, per state, for n bits */
	uint64_t *before; /* n x words: bit k of row j: k precedes j */
	int layer_words;
	uint64_t *under; /* n x layer_words: the layers up to the state */
	int *first, *to; /* consumers of layer u: to[first[u] .. first[u + 1]) */
	bool total;      /* every state precedes the next: a chain */
} States;

static inline bool state_before(const States *st, int k, int j)
{
	return st->before[(size_t)j * (size_t)st->words + (size_t)k / 64] >> (k % 64) & 1;
}

/* The antichains of the layer DAG, from its first source on, as in the graph code published with PipeDream (the
 * paper's section 3.2 has chains only). A state's cut has its antichain and every layer above one of the antichain's
 * layers whose output goes to one that is not above that layer: with `live` only those with a consumer that is not up
 * to the state at all, which is what really crosses. A second source belongs to the state that first needs it. Refused
 * (E0464) with more than `limit` states: wide graphs have too many, profile_compress helps. */
bool states_build(Arena *a, const Profile *p, bool live, int limit, States *st, Diag *d);

/* Bytes that a stage (k, j] takes in: outputs of layers up to k, each once, that a layer of the stage reads. */
double states_input(const States *st, int k, int j);

#endif
