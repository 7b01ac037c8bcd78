/* What stages and servers have to do with each other in a step, for the simulator: of a module (simulate_servers.c), of a plan
 * that is tried (plan_servers.c). */
#ifndef PDCC_PASSES_SIMULATE_SERVERS_H
#define PDCC_PASSES_SIMULATE_SERVERS_H

#include "simulate.h"

/* Of a parameter, or a piece of one: bytes of a row, rows here, bytes that are pulled of a whole one, bytes that travel of
 * each (opsw.c: 16 bits or 32), what a microbatch looks up in how many pulls. */
typedef struct Rows {
	bool whole;
	double row, all, cut, down, up;
	int64_t lookups;
	int pulls;
} Rows;

/* What a stage and a server have to do with each other about it: the same for all replicas. Orders: first of PULL or GIVE, then
 * of PUSH or RETURN. */
typedef struct Dealing {
	bool give, pull;
	Rows rows;
	const Value *w;
	int first, then;
} Dealing;

/* Replicas whose sums leave together: of one host, or r alone. */
typedef struct Team {
	int chief, n;
	double sums;
	int64_t grains;
} Team;
/* Replicas of a stage: alone, and with those of the host. */
typedef struct Teams {
	Team one, all;
} Teams;

/* joined: all that a replica and a server tell each other of one kind is one. */
typedef struct ServeList {
	Arena *a;
	SimModel *x;
	int cap;
	bool joined;
} ServeList;

Teams *sim_teams(Arena *a, const Schedule *x, const Cluster *c, const Stage *s, const Training *t);
/* Replica r of the stage, on device[r], and a server by its rank. */
void sim_deal(
	ServeList *l, const int *device, const Stage *s, int r, int server, const Dealing *deal, int n, const Teams *t);
/* What is listed becomes a part of SYNC. */
void sim_join_servers(Arena *a, SimModel *x, int *capjoin);

#endif
