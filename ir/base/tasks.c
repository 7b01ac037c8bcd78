/* Independent pieces of work: tasks.h. */
#define _GNU_SOURCE
#include "tasks.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { MOST_THREADS = 8, STACK = 16 << 20 }; /* bytes: as a program's own has, and twice that */

typedef struct Tasks {
	int n;
	void (*of)(void *x, int i);
	void *x;
	atomic_int next;
} Tasks;

static void *work(void *arg)
{
	Tasks *t = arg;

	for (int i; (i = atomic_fetch_add(&t->next, 1)) < t->n;)
		t->of(t->x, i);
	return NULL;
}

static int cores(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof set, &set)
	               ? 1
	               : CPU_COUNT(&set); /* 1: a machine of more than 1,024 is not met */
}

void tasks_run(int n, int most, void (*of)(void *x, int i), void *x)
{
	Tasks t = { .n = n, .of = of, .x = x };
	pthread_t thread[MOST_THREADS];
	pthread_attr_t attr;
	const int limit[] = { n, cores(), MOST_THREADS };
	int beside = 0;

	for (int i = 0; i < 3; i++)
		most = limit[i] < most ? limit[i] : most;
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK);
	while (beside < most - 1 && !pthread_create(&thread[beside], &attr, work, &t))
		beside++;
	pthread_attr_destroy(&attr);
	work(&t);
	while (beside)
		pthread_join(thread[--beside], NULL);
}
