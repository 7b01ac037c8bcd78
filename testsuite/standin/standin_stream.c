/* standin_stream.c: streams, events and graphs. The first stream does everything at once, others as late as they may: when somebody
 * waits. What processes do together (standin_nccl.c) is tried whenever this one waits; where it can never be done, the streams that
 * wait for it stand still, which an event tells and a wait of the host would not outlive. A graph keeps what was started while
 * its stream was captured, with the arguments of then, and does that again.
 *
 * STANDIN_REFUSE=WHAT:N refuses the N-th capture of this process: its `begin`, its `end`, or the first thing that is started in it
 * (`launch`); or the N-th graph (`instantiate`).
 *
 * STANDIN_WAITS=FILE: a process that ends adds a line, how often its host asked whether the first stream has done all that it was told. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "standin.h"

typedef struct work {
	standin_run *run;
	void *what;
	int shared;
	order_point *deed;
} work;
struct CUstream_st {
	int lazy, stuck, line;
	work *todo;
	size_t base, done, n, room, told;
}; /* base: number of todo[0]; done, n, told (at once): since the start */
struct CUevent_st {
	cudaStream_t on;
	size_t at, told;
	int asked, stuck, timed, behind_first;
	double us;
	order_point *behind;
}; /* stuck: the stream was, when it was told; us: the device's clock then */
struct CUgraph_st {
	work *v;
	size_t n, room;
};
struct CUgraphExec_st {
	struct CUgraph_st of;
};

enum { MOST = 256 };
static cudaStream_t made[MOST];
static int nmade;
static struct CUgraph_st *captured; /* what the first stream is told goes there */
static _Thread_local int capturing; /* this thread does so: it may not do what could make the device wait */
static int spoiled;                 /* it did: there will be no graph */
static int captures, instantiated;  /* since the start */

/* Whether STANDIN_REFUSE means the n-th of these. */
static int refuses(const char *what, int nth)
{
	const char *s = getenv("STANDIN_REFUSE"), *n = s ? strchr(s, ':') : NULL;

	return n && !strncmp(s, what, (size_t)(n - s)) && !what[n - s] && atoi(n + 1) == nth;
}

cudaStream_t standin_stream(cudaStream_t s)
{
	static struct CUstream_st legacy;

	if (!s && !legacy.line)
		legacy.line = order_stream();
	return s ? s : &legacy;
}

/* ---- what is to be done ---- */

static void push(work **v, size_t *room, size_t n, work w)
{
	if (n == *room) {
		*room = 2 * *room + 16;
		*v = realloc(*v, *room * sizeof **v);
		if (!*v)
			abort();
	}
	(*v)[n] = w;
}

static void *copy_of(const void *what, size_t bytes)
{
	void *p = malloc(bytes ? bytes : 1);

	if (!p)
		abort();
	return memcpy(p, what, bytes);
}

/* The next thing of a stream; false: it has to wait. */
static int advance(cudaStream_t s)
{
	const work *w = &s->todo[s->done - s->base];
	order_begins(w->deed);
	const standin_end e = w->run(w->what);

	order_ends(w->deed, e != STANDIN_WAITS);
	if (e == STANDIN_WAITS)
		return 0;
	s->stuck |= e == STANDIN_LOST;
	if (!w->shared)
		free(w->what);
	if (++s->done == s->n)
		s->base = s->n;
	return 1;
}

void standin_progress(void)
{
	for (int i = 0; i < nmade; i++) {
		cudaStream_t s = made[i];
		size_t shared = s->done;

		for (size_t k = s->done; k < s->n; k++)
			if (s->todo[k - s->base].shared)
				shared = k + 1;
		while (s->done < shared && advance(s))
			;
	}
}

static void do_until(cudaStream_t s, size_t at)
{
	for (int idle = 0; s && s->done < at;)
		if (!advance(s)) {
			standin_progress();
			nanosleep(&(struct timespec){ 0, idle++ < 100 ? 10000 : 200000 }, NULL);
		}
}

static void queue(cudaStream_t s, work w)
{
	if (s->base == s->n)
		s->base = s->done = s->n;
	push(&s->todo, &s->room, s->n - s->base, w);
	s->n++;
}

/* Of the first stream, where nothing was told behind what is asked for: on a GPU it would be without work. */
static long waits;

static void tell_waits(void)
{
	FILE *f = fopen(getenv("STANDIN_WAITS"), "a");

	if (f) {
		fprintf(f, "%ld\n", waits);
		fclose(f);
	}
}

static void waited(cudaStream_t s, size_t told)
{
	static int opened;

	if (!getenv("STANDIN_WAITS") || s->lazy)
		return;
	if (!opened++)
		atexit(tell_waits);
	waits += told == s->told;
}

static void do_now(cudaStream_t s, standin_run *run, void *what)
{
	order_point *deed = order_told(s ? s->line : 0);

	if (s)
		s->told++;
	order_begins(deed);
	if (run(what) != STANDIN_DONE)
		abort();
	order_ends(deed, true);
}

API void standin_do(cudaStream_t s, standin_run *run, const void *what, size_t bytes)
{
	if ((!s || !s->lazy) && captured) {
		if (refuses("launch", captures) && !spoiled) {
			spoiled = 1;
			standin_said(cudaErrorStreamCaptureUnsupported);
			return;
		}
		push(&captured->v, &captured->room, captured->n, (work){ .run = run, .what = copy_of(what, bytes) });
		captured->n++;
	} else if (!s || !s->lazy) {
		do_now(s ? s : made[0], run,
			(void *)what); /* kernels name no stream: the first, where there is one yet */
	} else {
		queue(s, (work){ .run = run, .what = copy_of(what, bytes), .deed = order_told(s->line) });
	}
}

void standin_meet(cudaStream_t s, standin_run *run, void *what)
{
	queue(s, (work){ run, what, 1, order_told(s->line) });
	standin_progress();
}

/* What may wait for all that the device was told, and so for other processes: on a GPU they may wait for this one. */
static void idle(const char *call)
{
	standin_progress();
	for (int i = 0; i < nmade; i++)
		for (size_t k = made[i]->done; k < made[i]->n; k++)
			if (made[i]->todo[k - made[i]->base].shared) {
				fprintf(stderr,
					"stand-in: %s while a message or sum is under way: on a GPU it waits for other ranks\n",
					call);
				abort();
			}
}

static int joined; /* communicators that there are */

void standin_joined(int n) { joined += n; }

/* Memory that is asked for or given back, and what makes some, may wait for all that the device was told, and so for other processes: on
 * a GPU they may wait for this one. While there are communicators a message may be under way at any time, whether one is just now or not. */
void standin_asks(const char *call)
{
	if (joined > 0) {
		fprintf(stderr,
			"stand-in: %s while messages and sums may be under way: on a GPU it waits for other ranks\n",
			call);
		abort();
	}
}

void standin_frees(const char *call)
{
	standin_asks(call);
	for (int i = 0; i < nmade; i++) {
		do_until(made[i], made[i]->n);
		order_idle(made[i]->line);
	}
}

/* ---- copies ---- */

typedef struct move {
	const char *name;
	void *to;
	const void *from;
	size_t bytes, to_pitch, from_pitch, rows;
} move;

static const char *const copies[] = { "a copy of the host", "a copy to the device", "a copy to the host",
	"a copy on the device", "a copy" };

static standin_end copy(void *what)
{
	const move *m = what;

	standin_device(1);
	for (size_t i = 0; i < m->rows; i++) {
		standin_touch(m->name, ORDER_READS, (const char *)m->from + i * m->from_pitch, m->bytes);
		standin_touch(m->name, ORDER_WRITES, (const char *)m->to + i * m->to_pitch, m->bytes);
		memmove((char *)m->to + i * m->to_pitch, (const char *)m->from + i * m->from_pitch, m->bytes);
	}
	standin_device(0);
	return STANDIN_DONE;
}

/* What the runtime leaves undefined ends the program: a direction that is not that of the pointers, areas that overlap. */
static void moves(const void *to, size_t written, const void *from, size_t read, enum cudaMemcpyKind kind)
{
	const char *t = to, *f = from;
	const int wrong = standin_within(t, written) != (kind != cudaMemcpyDeviceToHost) ||
	                  standin_within(f, read) != (kind != cudaMemcpyHostToDevice);

	if (written && (wrong || (t != f && t < f + read && f < t + written))) {
		fprintf(stderr, "stand-in: a copy of %zu bytes, kind %d: %s\n", written, (int)kind,
			wrong ? "its ends lie elsewhere" : "its ends overlap");
		abort();
	}
}

/* Of memory of the host that is not pinned a GPU copies no more than some KiB beside the host. */
static void at_once(const void *host, size_t bytes)
{
	const char *most = getenv("STANDIN_PAGEABLE");

	if (most && bytes > strtoull(most, NULL, 10) && !standin_pinned(host, bytes)) {
		fprintf(stderr,
			"stand-in: %zu bytes are copied from or to memory that is not pinned: on a GPU the host waits for that\n",
			bytes);
		abort();
	}
}

API cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t s)
{
	moves(to, bytes, from, bytes, kind);
	if (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyHostToDevice)
		at_once(kind == cudaMemcpyDeviceToHost ? to : from, bytes);
	standin_do(standin_stream(s), copy, &(move){ copies[kind], to, from, bytes, 0, 0, 1 }, sizeof(move));
	return cudaSuccess;
}

API cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
	size_t height, enum cudaMemcpyKind kind, cudaStream_t s)
{
	if (width > to_pitch || width > from_pitch || to_pitch > 2147483647 || from_pitch > 2147483647)
		return standin_said(cudaErrorInvalidValue);
	moves(to, height ? (height - 1) * to_pitch + width : 0, from, height ? (height - 1) * from_pitch + width : 0,
		kind);
	standin_do(standin_stream(s), copy, &(move){ copies[kind], to, from, width, to_pitch, from_pitch, height },
		sizeof(move));
	return cudaSuccess;
}

typedef struct fill {
	void *to;
	int byte;
	size_t bytes;
} fill;

static standin_end set(void *what)
{
	const fill *f = what;

	standin_device(1);
	standin_touch("cudaMemset", ORDER_WRITES, f->to, f->bytes);
	memset(f->to, f->byte, f->bytes);
	standin_device(0);
	return STANDIN_DONE;
}

API cudaError_t cudaMemsetAsync(void *to, int byte, size_t bytes, cudaStream_t s)
{
	standin_do(standin_stream(s), set, &(fill){ to, byte, bytes }, sizeof(fill));
	return cudaSuccess;
}

/* ---- streams and events ---- */

int standin_forbidden(void)
{
	spoiled |= capturing;
	return capturing;
}

static _Noreturn void hangs(const char *what)
{
	fprintf(stderr, "stand-in: %s of something that will never be done: on a GPU the program hangs here\n", what);
	abort();
}

API cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags)
{
	if (flags != cudaStreamNonBlocking)
		return standin_said(cudaErrorInvalidValue); /* the NULL stream would wait for it, and it for that */
	standin_asks("cudaStreamCreate");
	*s = nmade < MOST ? calloc(1, sizeof **s) : NULL;
	if (!*s)
		return cudaErrorMemoryAllocation;
	(*s)->lazy = nmade > 0;
	(*s)->line = order_stream();
	made[nmade++] = *s;
	return cudaSuccess;
}

API cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
	if (standin_forbidden())
		return standin_said(cudaErrorStreamCaptureUnsupported);
	waited(s, s->told);
	do_until(s, s->n);
	if (s->stuck)
		hangs("cudaStreamSynchronize");
	order_idle(s->line);
	return cudaSuccess;
}

static double caught_up; /* when the device has done what it was told */

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void standin_behind(double s) { caught_up = seconds() + s; }

static int behind(void) { return caught_up > 0 && seconds() < caught_up; }

API cudaError_t cudaStreamQuery(cudaStream_t s)
{
	if (standin_forbidden())
		return standin_said(cudaErrorStreamCaptureUnsupported);
	waited(s, s->told);
	standin_progress();
	if (behind() || s->stuck || s->done < s->n)
		return standin_said(cudaErrorNotReady);
	order_idle(s->line);
	return cudaSuccess;
}

static double clock_us; /* what the device took by its own clock, for what has a time there */

void standin_takes(double us)
{
	clock_us += us;
	if (us >= 1e4)
		nanosleep(&(struct timespec){ (time_t)(us / 1e6), (long)(us * 1e3) % 1000000000 }, NULL);
}

API cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags)
{
	*e = calloc(1, sizeof **e);
	if (!*e)
		return cudaErrorMemoryAllocation;
	(*e)->timed = !(flags & cudaEventDisableTiming);
	return cudaSuccess;
}

/* Of events of the first stream, which does all at once, that have passed. */
API cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
	if (!from->timed || !to->timed || !from->behind_first || !to->behind_first)
		return standin_said(cudaErrorInvalidValue);
	if (to->on)
		return standin_said(cudaErrorNotReady);
	*ms = (float)((to->us - from->us) / 1e3);
	return cudaSuccess;
}

API cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
	if (captured && !s->lazy)
		return cudaErrorStreamCaptureUnsupported; /* the runtime captures one stream alone */
	*e = (struct CUevent_st){ .on = s,
		.at = s->n,
		.told = s->told,
		.stuck = s->stuck,
		.timed = e->timed,
		.behind_first = !s->lazy,
		.us = clock_us,
		.behind = e->behind };
	order_recorded(&e->behind, s->line);
	return cudaSuccess;
}

/* What it waits for will never be done: the first stream has done at once what came before it stood still. */
static int never(cudaEvent_t e) { return e->on && (e->on->lazy ? e->on->stuck : e->stuck); }

API cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
	if (standin_forbidden())
		return standin_said(cudaErrorStreamCaptureUnsupported);
	do_until(e->on, e->at);
	if (never(e))
		hangs("cudaEventSynchronize");
	order_passed(e->behind);
	e->on = NULL;
	return cudaSuccess;
}

/* Not at the first asking. What processes share is not waited for. */
API cudaError_t cudaEventQuery(cudaEvent_t e)
{
	if (standin_forbidden())
		return standin_said(cudaErrorStreamCaptureUnsupported);
	standin_progress();
	if (!e->on) {
		order_passed(e->behind);
		return cudaSuccess;
	}
	waited(e->on, e->told);
	if (behind() || never(e) || (e->on->lazy && !e->asked++))
		return standin_said(cudaErrorNotReady);
	for (size_t k = e->on->done; k < e->at; k++)
		if (e->on->todo[k - e->on->base].shared)
			return standin_said(cudaErrorNotReady);
	return cudaEventSynchronize(e);
}

API cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags)
{
	(void)flags;
	if (captured && !s->lazy)
		return cudaErrorStreamCaptureUnsupported;
	if (e->on != s && !s->stuck)
		do_until(e->on, e->at);
	s->stuck |= never(e);
	order_waits(s->line, e->behind);
	return cudaSuccess;
}

/* ---- graphs ---- */

API cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode)
{
	if (captured || s->lazy)
		return cudaErrorStreamCaptureUnsupported;
	captures++;
	if (refuses("begin", captures))
		return standin_said(cudaErrorStreamCaptureUnsupported);
	captured = calloc(1, sizeof *captured);
	capturing = mode != cudaStreamCaptureModeRelaxed;
	spoiled = 0;
	return captured ? cudaSuccess : cudaErrorMemoryAllocation;
}

API cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *g)
{
	if (!captured || s->lazy)
		return cudaErrorInvalidValue;
	spoiled |= refuses("end", captures);
	*g = spoiled ? NULL : captured;
	captured = NULL;
	capturing = 0;
	return spoiled ? standin_said(cudaErrorStreamCaptureInvalidated) : cudaSuccess;
}

API cudaError_t cudaGraphInstantiate(cudaGraphExec_t *x, cudaGraph_t g, unsigned long long flags)
{
	(void)flags;
	idle("cudaGraphInstantiate");
	instantiated++;
	*x = refuses("instantiate", instantiated) ? NULL : malloc(sizeof **x);
	if (!*x)
		return standin_said(cudaErrorMemoryAllocation);
	(*x)->of = *g;
	*g = (struct CUgraph_st){ 0 };
	return cudaSuccess;
}

API cudaError_t cudaGraphUpload(cudaGraphExec_t x, cudaStream_t s)
{
	(void)x;
	idle("cudaGraphUpload");
	return s->lazy ? standin_said(cudaErrorInvalidValue) : cudaSuccess;
}

API cudaError_t cudaGraphDestroy(cudaGraph_t g)
{
	free(g->v);
	free(g);
	return cudaSuccess;
}

API cudaError_t cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t s)
{
	if (captured || s->lazy)
		return cudaErrorStreamCaptureUnsupported;
	for (size_t i = 0; i < x->of.n; i++)
		do_now(s, x->of.v[i].run, x->of.v[i].what);
	return cudaSuccess;
}
