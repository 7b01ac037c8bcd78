/* rounds.h: sums over a group as rounds in which members exchange parts of the buffer. The runtime does them, pdcc counts
 * their bytes and time. */
#ifndef ROUNDS_H
#define ROUNDS_H

#include <stdbool.h>
#include <stddef.h>

typedef enum rounds_kind { ROUNDS_DOUBLING, ROUNDS_HALVING, ROUNDS_PAIRWISE, ROUNDS_HOSTS } rounds_kind;

/* What a member does in a round: to and from are places in the group, -1: nobody. Parts in elements. */
typedef struct rounds_step {
	int    to, from;
	size_t send_at, send_n, recv_at, recv_n;
	bool   add;             /* what arrives is added; else it is put in its place */
} rounds_step;

/* Round k of member `self` of n over `count` elements; false behind the last round, which is the same for all. host: of
 * each member, for ROUNDS_HOSTS; NULL: all are on one. */
bool rounds_step_of(rounds_kind kind, int n, const int *host, int self, int k, size_t count, rounds_step *x);

#endif
