/* order.h: what is ordered by what: of everything that a stream, the host or a message does with memory, which of it has ended before
 * which other began. In a watched stand-in (build.sh with STANDIN_WATCH=order); in others these are empty.
 *
 * A line is whose deeds follow one another: a stream, a thread of the host, a message under way. A line counts its deeds and knows, of
 * every other one, up to which deed they had ended before its next one begins: a vector clock. */
#ifndef STANDIN_ORDER_H
#define STANDIN_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

typedef struct order_point order_point; /* a deed, or an event: what has ended before */
typedef enum order_use { ORDER_READS, ORDER_WRITES } order_use;

#if defined STANDIN_ORDER
int order_stream(void);                        /* a new stream's line */
order_point *order_told(int line);             /* the host, this thread, tells a stream to do something */
void order_begins(order_point *deed);          /* this thread does it; what it touches is the deed's */
void order_ends(order_point *deed, bool over); /* not over: it will be begun again */
void order_recorded(order_point **event, int line);
void order_waits(int line, const order_point *event);
void order_passed(const order_point *event); /* the host, this thread, knows that it has; NULL: it was never recorded */
void order_idle(int line);                   /* the host knows that all of the stream has ended */
void order_touch(const char *who, order_use use, const void *p, size_t bytes); /* by the deed that this thread does */
void order_piece(const void *p, size_t bytes);                                 /* device memory, whole pages */
void *order_pinned(size_t bytes);                                              /* pinned memory, as malloc has it */
void order_piece_gone(const void *p);
#else
static inline int order_stream(void) { return 0; }
static inline order_point *order_told(int line)
{
	(void)line;
	return NULL;
}
static inline void order_begins(order_point *deed) { (void)deed; }
static inline void order_ends(order_point *deed, bool over)
{
	(void)deed;
	(void)over;
}
static inline void order_recorded(order_point **event, int line)
{
	(void)event;
	(void)line;
}
static inline void order_waits(int line, const order_point *event)
{
	(void)line;
	(void)event;
}
static inline void order_passed(const order_point *event) { (void)event; }
static inline void order_idle(int line) { (void)line; }
static inline void order_touch(const char *who, order_use use, const void *p, size_t bytes)
{
	(void)who;
	(void)use;
	(void)p;
	(void)bytes;
}
static inline void order_piece(const void *p, size_t bytes)
{
	(void)p;
	(void)bytes;
}
static inline void order_piece_gone(const void *p) { (void)p; }
static inline void *order_pinned(size_t bytes) { return malloc(bytes); }
#endif

#if defined STANDIN_ORDER
/* ---- order_host.c: threads of the host ---- */
void order_tells(const void *lock); /* what this thread did is known to whoever next hears of the lock */
void order_hears(const void *lock);
void *order_leaves(void); /* for another thread, which takes it over: what this one knows */
void order_takes(void *left);
/* A message by MPI: `from` is read, `to` written, between its call and the end of its request. */
void order_message(const void *request, const char *call, const void *from, size_t bytes, void *to, size_t room);
void order_message_over(const void *request);
#endif

#endif
