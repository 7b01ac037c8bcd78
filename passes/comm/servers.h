/* Parameters at servers: what the passes hybrid (who travels how) and servers (the rewriting) share. */
#ifndef PDCC_PASSES_SERVERS_H
#define PDCC_PASSES_SERVERS_H

#include "passes/common/plan.h"

/* A trained parameter of a stage, as far as its way to the update matters. */
typedef struct Travel {
	Value *w;
	Stage *s;
	int64_t bytes;   /* all of it */
	int64_t lookups; /* ids that one replica looks up in a step */
	double alpha;    /* share of it that they touch, expected, or that slices read (opsw.c); else 1 */
	bool rows;       /* it is only looked up in the forward: rows of it are enough */
	const char *pull,
		*push;   /* values become 16-bit floats of this type on their way from the server, to it; NULL: f32 */
	double down, up; /* bytes that travel of each byte in f32 (opsw.c) */
	const char *why; /* a server cannot have it because; NULL: it can */
	bool many;       /* several stages hold it */
} Travel;

/* The trained parameters of all stages, in module order within stages. */
Travel *travel_list(Module *m, PassCx *cx, int *n);

/* The same without stages, of Travel.w: lookups are those of a microbatch, alpha is what slices read; then those of so many
 * microbatches. Why no server can have it, wherever stages end; NULL: one can. */
void travel_measure(const Training *train, Travel *t);
void travel_step(Travel *t, int64_t grains);
const char *travel_reason(const Value *w);
/* Does it go by a server (--comm; hybrid.c)? */
bool travel_served(const Training *train, const Cluster *c, const Travel *t);

/* Bytes that one device sends and receives in a step for parameter t (Parallax Table 3). */
double travel_ps(const Travel *t);        /* dense 2 b, rows 2 alpha b; halves of it where 16 bits travel */
double travel_allreduce(const Travel *t); /* 2 (N - 1) b / N */

/* Bytes of a step that a host sends and receives for t, servers and parameters being spread evenly over hosts: its devices each
 * pull from the servers of others and push, what local aggregation left, to them; its server answers as many. A ring crosses
 * a host's border once each way. On one host the bytes of a device, as above. */
void travel_hosts(const Travel *t, const Cluster *c, const Training *train, double *ps, double *allreduce);

/* Is w read by slices along its first axis alone? Then the elements from the first to behind the last that they read. */
bool slices_of(const Value *w, int64_t *lo, int64_t *hi);

/* An operation of a user between sums and updates reads the parameter. */
bool update_reads(const Use *u);

/* --sync async (servers_async.c): refuses, with E0520, what has no meaning; then, behind the move, what is left to be joined. */
bool async_servers(const Module *m, const PassCx *cx, const Travel *t, int n);
bool async_moved(const Module *m, const PassCx *cx);

/* Into how many pieces --partitions cuts a table at so many servers. */
int table_cut(PassCx *cx, const Travel *t, int servers);
/* Into so many pieces a table can be cut at most; of n pieces, the i-th: its first row, how many. */
int table_pieces(const Value *w);
void table_piece(const Value *w, int n, int i, int64_t *row, int64_t *rows);

/* PipeDream's server of a replicated stage, --comm ps where minibatches go round (owners.c). */
bool stage_servers(const Module *m, const Training *t);
bool choose_owners(Node *sum, const Stage *s, PassCx *cx); /* of an AllReduce over replicas */

/* Hosts that may have a server, of those the plan uses; a device on each. Gives how many. */
int server_hosts(const Module *m, const Cluster *c, int *device);

/* What a server is to hold: a parameter or a piece of one. servers_spread decides which (server), and gives a device at the host
 * of each of the *nserver servers; NULL after E0431, E0433. */
typedef struct Held {
	const Value *w;
	int64_t bytes;
	int server;
} Held;
int *servers_spread(const Module *m, PassCx *cx, Held *held, int n, int *nserver);

#endif
