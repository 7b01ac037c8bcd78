/* LD_PRELOAD: a clock that counts how often it is read. A microsecond lies between two readings; with PD_CLOCK_SWING=X it
 * swings by that share of itself, once round in 1,000 readings. So programs that time their parts see the same times on
 * every machine, and as much noise as a test wants. */
#define _GNU_SOURCE
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

enum { ROUND = 1000 };

int clock_gettime(clockid_t id, struct timespec *t)
{
	static atomic_long readings;
	const char *swing = getenv("PD_CLOCK_SWING");
	const double turn = 2 * acos(-1) / ROUND, k = (double)atomic_fetch_add(&readings, 1);
	/* microseconds so far: those of a steady clock, and what the swing has added */
	const double at = k + (swing ? atof(swing) : 0) * (1 - cos(turn * k)) / turn;

	(void)id;
	*t = (struct timespec){ (time_t)(at / 1e6), (long)(1e3 * fmod(at, 1e6)) };
	return 0;
}
