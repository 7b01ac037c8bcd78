/* Ports of devices and hosts, and what moves through them: for simulate.c alone. */
#ifndef PDCC_PASSES_SIMULATE_PORTS_H
#define PDCC_PASSES_SIMULATE_PORTS_H

#include "simulate.h"

enum { OUT, IN, NONE = -1 };

typedef struct User {
	int flow;
	double share;
} User;
/* Messages wait in its queue; one at a time is taken, and sums take part of it beside that one. */
typedef struct Port {
	int first, last;
	bool taken, marked, full;
	double busy;
	int line;
	User *user;
	int nuser, cap;
	double asked;
} Port;

/* What a sum needs of a port, as a share of the time that it takes alone. */
typedef struct Need {
	int port;
	double share;
} Need;

/* A message under way or a sum: `left` seconds if it were alone, at `now`; `rate` of them pass in a second. */
typedef struct Flow {
	double left, now, rate;
	int seen;
} Flow;

/* Scratch, by port: what a round of a sum, and what all of them move. */
typedef struct Load {
	double *now, *all;
	int *touched, n;
	double latency;
} Load;

typedef struct Ports {
	Arena *a;
	const SimModel *m;
	Port *port;
	int nmsg; /* flows: messages first (message kind x microbatch), then sums */
	Flow *flow;
	Need **need;
	int *nneed;    /* by sum: made when it first begins */
	double *alone; /* by sum: seconds */
	Load load;
	int seen;
	int *marked, nmarked, capmarked; /* ports at which somebody began or ended at this moment; who began */
	int *begun, nbegun, capbegun;
	void (*timed)(void *to, int flow, double end); /* told whenever the end of a flow is another */
	void *to;
} Ports;

int ports_sender(const SimModel *m, int id);
int ports_receiver(const SimModel *m, int id);
int ports_line(const SimModel *m, int from, int to);
/* The port of a message's sender or receiver. */
int ports_of(const SimModel *m, int id, int way);
/* The port that a message between two ranks takes on its way OUT of the one, IN to the other. */
int ports_between(const SimModel *m, int from, int to, int way);
/* A sum needs so many seconds of a port, in the round that is being counted. */
void ports_load(Ports *p, int port, double t);
/* What devices and servers tell each other in a step: seconds if nothing else moves, and loads the ports (simulate_exchange.c). */
double exchange_seconds(Ports *p);
void ports_init(Ports *p, Arena *a, const SimModel *m);
/* A flow that takes `alone` seconds if nothing else moves, from now on; and its end. All ends are known behind ports_settle. */
void ports_begin(Ports *p, int flow, double alone, double now);
void ports_end(Ports *p, int flow);
void ports_settle(Ports *p, double now);
/* Seconds of a sum if nothing else moves; its needs are known from then on. */
double ports_sum(Ports *p, int join);
/* The same of devices of a cluster (indices into Cluster.device), the members of `j`, by themselves. */
double ports_alone(const Cluster *c, const int *device, SimJoin j);
/* Seconds that the busiest port of each link line is held by messages. */
double *ports_busy(const Ports *p);

#endif
