/* spent.c: where this device's seconds went: computing, packing gradients for the wire, waiting for others (Pipe-SGD,
 * figure 4). Each is measured by itself: waits and packing by the clock, computing as processor time of the main thread
 * outside them (one thread per device; with --virtual the time that passes instead of computing, too), so that their sum can
 * be held against the run's. Packing that the progress thread does beside is told apart. */
#include "rt.h"
#include <time.h>

static _Thread_local bool here;         /* the main thread */
static bool   in_wait;
static double waited, since;            /* seconds in waits; when this one began */
static double computed, mark;           /* processor seconds outside waits; at the end of the last one */
static double packed, packed_waiting, packed_beside, slept;

static double processor(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void rt_spent_begin(void)
{
	here = true;
	waited = computed = packed = packed_waiting = packed_beside = slept = 0;
	mark = processor();
}

void rt_spent_wait(bool begins)
{
	if (!here || begins == in_wait)
		return;
	in_wait = begins;
	if (begins) {
		since = rt_now();
		computed += processor() - mark;
		return;
	}
	waited += rt_now() - since;
	mark = processor();
}

void rt_spent_packed(double from)
{
	const double s = rt_now() - from;

	if (!here)
		packed_beside += s;
	else if (in_wait)
		packed_waiting += s;
	else
		packed += s;
	if (here)
		rt_trace_packed(from);
}

void rt_spent_slept(double seconds)
{
	slept += seconds;
}

double rt_spent_waited(void)
{
	static double before;
	const double  s = waited - before;

	before = waited;
	return s > 0 ? s : 0;   /* the loop has begun since */
}

void rt_spent_write(FILE *f)
{
	const double outside = computed + (in_wait ? 0 : processor() - mark);

	fprintf(f, " \"spent_s\": {\"compute\": %.6f, \"compress\": %.6f, \"communicate\": %.6f, \"compress_beside\": %.6f},\n",
	        outside - packed + slept, packed + packed_waiting, waited - packed_waiting, packed_beside);
}
