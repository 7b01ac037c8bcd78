/* time_spent.c: where this device's seconds went: computing, packing gradients for the wire, waiting for others (Pipe-SGD,
 * figure 4). The clock is read wherever a wait or packing begins or ends, and every interval between two readings counts
 * for one of the three, so their sum is the run's time at any load. In computing there may be time in which the main thread had no
 * core (the clock's time less the thread's processor time, less what --virtual sleeps): it is told apart. Packing that the
 * progress thread does beside is in none of the three. */
#include "rt.h"
#include <time.h>

static _Thread_local bool here; /* the main thread */
static bool in_wait;
static double waited, outside,
	since;                /* seconds in waits and outside of them; when this one, or the time outside, began */
static double computed, mark; /* processor seconds outside waits; when the time outside began */
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
	in_wait = false;
	waited = outside = computed = packed = packed_waiting = packed_beside = slept = 0;
	since = rt_now();
	mark = processor();
}

void rt_spent_wait(bool begins)
{
	if (!here || begins == in_wait)
		return;
	const double now = rt_now();

	in_wait = begins;
	*(begins ? &outside : &waited) += now - since;
	since = now;
	if (begins)
		computed += processor() - mark;
	else
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

void rt_spent_slept(double seconds) { slept += seconds; }

double rt_spent_waited(void)
{
	static double before;
	const double s = waited - before;

	before = waited;
	return s > 0 ? s : 0; /* the loop has begun since */
}

void rt_spent_write(FILE *f)
{
	const double now = rt_now() - since, working = outside + (in_wait ? 0 : now),
		     waits = waited + (in_wait ? now : 0);
	const double idle = working - (computed + (in_wait ? 0 : processor() - mark)) - slept;

	fprintf(f,
		" \"spent_s\": {\"compute\": %.6f, \"compress\": %.6f, \"communicate\": %.6f, \"compress_beside\": %.6f, "
		"\"without_core\": %.6f},\n",
		working - packed, packed + packed_waiting, waits - packed_waiting, packed_beside, idle > 0 ? idle : 0);
}
