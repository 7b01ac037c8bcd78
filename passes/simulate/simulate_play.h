/* The state of a simulation while it is played: simulate.c (devices, messages), simulate_sums.c (what several do together). */
#ifndef PDCC_PASSES_SIMULATE_PLAY_H
#define PDCC_PASSES_SIMULATE_PLAY_H

#include "simulate_ports.h"

typedef enum EventKind { EV_DONE, EV_LEFT, EV_HERE, EV_JOINED, EV_READY } EventKind;

/* DONE: the device's action has ended; LEFT: a message has left its ports; HERE: it has arrived; JOINED: a sum is
 * made; READY: what a device has for its next sum is there, though it computes on. */
typedef struct Event {
	double time;
	int rank, action;
	EventKind kind;
	int id;
} Event;

/* A message waits in the queues of both of its ports: OUT of the sender, IN of the receiver. */
enum { POSTED = 1, SENT = 2 };

/* A device of asynchronous servers: steps that it has done, exchanges under way and since when, what it did of this step. */
typedef struct SimEach {
	int done, left, span;
	double since;
	bool pulled, pushed, waits;
} SimEach;

/* A server hears of a device: the next device of that server, and the next server of that device. */
typedef struct SimHears {
	int worker, server;
	const struct SimHears *next, *also;
} SimHears;

typedef struct Player {
	Arena *a;
	const SimModel *m;
	const Schedule *s;
	Sim *out;
	Diag *d;
	double now;
	Event *heap;
	int nheap, capheap;
	int *ends; /* by flow (simulate_ports.h): where its end lies in the heap, + 1; 0: it has none */
	int capspan;
	/* by rank */
	int *at; /* the action that is next, or runs */
	bool *running;
	double *since;             /* when it came to its SYNC or UPDATE */
	int *ready, *joined;       /* sums that it can take part in, that it is through with, since the begin */
	int *syncs, *updates;      /* that it is through with */
	int *told;                 /* 1: it has heard of the losses of all */
	bool *summing;             /* it takes part in one, or waits there for others */
	bool *waits;               /* its SYNC or UPDATE waits for one */
	int **join_of, *njoin_of;  /* indices into SimModel.join */
	SimEach *each;             /* NULL: servers are synchronous */
	double *ended;             /* by step: when the last device had done it */
	SimHears **hears, **heard; /* by device, by server */
	int *slots;
	int64_t *held;          /* bytes of them */
	int **sent_f, **sent_b; /* by stage from `base` on, and slot, or entry: the microbatch last sent from it, + 1 */
	int *base;              /* by rank: its first stage */
	int depth;              /* most slots, or entries, of a stage */
	bool **frees;           /* by action: the last of its microbatch on this device */
	/* by message */
	char *state;
	int (*next)[2], (*prev)[2];
	int *of_action; /* SEND action that started it */
	/* by direction, stage and microbatch: messages that have arrived, that have left */
	int *here[2], *left[2];
	int *want[2], *gives[2];    /* by stage: how many there will be */
	int **reads[2], **sends[2]; /* by stage: which */
	/* by join, the totals last */
	int *present;
	int *last; /* the rank that came last */
	Ports ports;
	int *span_of; /* by flow (simulate_ports.h): the first of its intervals */
} Player;

void sim_push(Player *p, Event e);
SimSpan *sim_span(Player *p, int rank, double end); /* of the device's action, from now */
void sim_advance(Player *p, int rank);              /* a device goes on until it computes, waits or is at its end */

/* Sums: their lists by device; those of buckets become ready in a computation of t seconds that begins now; a SYNC or
 * UPDATE: true when it waits for one; it is over; events. */
void sim_prepare_joins(Player *p);
void sim_buckets(Player *p, int rank, const Action *x, double t);
bool sim_waits_for_sum(Player *p, int rank, ActKind kind);
void sim_sums_done(Player *p, int rank, ActKind kind);
void sim_join_ready(Player *p, const Event *e);
void sim_joined(Player *p, const Event *e);

/* Asynchronous servers: true when the device waits for one; events; the result. */
void sim_prepare_each(Player *p);
bool sim_waits_for_server(Player *p, int rank, const Action *x);
void sim_served(Player *p, const Event *e);
void sim_each_steps(const Player *p, Sim *out);

#endif
