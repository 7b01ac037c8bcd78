/* What pdcc trace has read, for its table (trace.c) and its pictures (trace_picture.c). */
#ifndef PDCC_FRONTEND_TRACE_EVENTS_H
#define PDCC_FRONTEND_TRACE_EVENTS_H

#include "ir/base/arena.h"
#include "ir/base/buf.h"
#include "ir/base/diag.h"

typedef enum Kind { FORWARD, BACKWARD, WEIGHTS, UPDATE, TALK, WAIT, PACK, EVALUATION, KINDS } Kind;

typedef struct Event {
	Kind kind;
	double begin, end; /* seconds */
	int rank, mb;
	int64_t step; /* -1: an evaluation, between steps */
	char way;     /* 'F', 'B': of a microbatch that goes forward or back; 0 */
} Event;

/* Of a prediction: how many steps it shows, and seconds of one in the middle; 0: what the file shows is one. */
typedef struct Events {
	Event *e;
	int n, cap, devices, steps;
	double each;
	bool only;
} Events; /* only: of --trace-rank */

typedef struct Ask {
	Arena *a;
	Diag *d;
	const char *folder, *predicted, *timeline[8];
	int ntimeline;
	int64_t step;   /* -1: the one of median length */
	int first, end; /* devices whose files there are */
	Events measured, planned;
} Ask;

/* Seconds of a device: of all kinds of computing, of messages. */
static inline double trace_work(const double *t) { return t[FORWARD] + t[BACKWARD] + t[WEIGHTS] + t[UPDATE]; }
static inline double trace_talk(const double *t) { return t[TALK] + t[WAIT]; }

/* Seconds of each kind on a device behind step 0, from begin to end, and how many steps. */
void trace_spent(const Ask *q, int rank, double *to, double *wall, int64_t *steps);
/* Begin and end of a step over all devices; false: there is no such step. */
bool trace_extent(const Events *m, int64_t step, double *begin, double *end);
/* As SVG; page: with what the script of a page asks for. */
void trace_picture(Ask *q, Buf *b, bool page);
void trace_page(Ask *q, Buf *b);

#endif
