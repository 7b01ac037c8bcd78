/* rounds.h: sums over a group as rounds in which members exchange parts of the buffer. The runtime does them, pdcc counts
 * their bytes and time. */
#ifndef ROUNDS_H
#define ROUNDS_H

#include <stdbool.h>
#include <stddef.h>

typedef enum rounds_kind { ROUNDS_DOUBLING, ROUNDS_HALVING, ROUNDS_PAIRWISE, ROUNDS_HOSTS } rounds_kind;

/* What a member does in a round: to and from are places in the group, -1: nobody. Parts in elements. */
typedef struct rounds_step {
	int to, from;
	size_t send_at, send_n, recv_at, recv_n;
	bool add; /* what arrives is added; else it is put in its place */
} rounds_step;

/* Members by their hosts, for ROUNDS_HOSTS. Hosts are numbered as their first members stand, the chiefs. */
typedef struct rounds_hosts {
	int n, depth;        /* hosts; rounds of the tree inside the largest */
	int *number, *at;    /* by member: its host; its place among the host's members */
	int *begin, *member; /* member[begin[h] ...]: those of host h; begin[n]: behind the last */
} rounds_hosts;

enum { ROUNDS_SPACE = 4 }; /* ints per member, and one more */

/* host: of each of n members; NULL: all are on one. space: ROUNDS_SPACE * n + 1 ints, which h keeps. */
void rounds_number(int n, const int *host, int *space, rounds_hosts *h);

/* Round k of member `self` of n over `count` elements; false behind the last round, which is the same for all. h: for
 * ROUNDS_HOSTS. */
bool rounds_step_of(rounds_kind kind, int n, const rounds_hosts *h, int self, int k, size_t count, rounds_step *x);

#endif
