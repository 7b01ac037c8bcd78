/* signals.c: a run is told to stop: SIGINT, SIGTERM, SIGHUP.
 *
 * What a handler interrupts is saved below the stack pointer of that thread. In some kernels there is no stack: oneDNN's
 * products (2.6 with AVX-512) let it point into memory of malloc, and whatever lies before that would be overwritten. So no
 * thread that computes takes these signals, but one that sleeps. */
#include "rt.h"
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

_Atomic int rt_signal;

/* The first signal ends the run after the running step, the second one at once. */
static void on_signal(int n)
{
	rt_signal = n;
	signal(n, SIG_DFL);
}

static void *take(void *ours)
{
	pthread_sigmask(SIG_UNBLOCK, ours, NULL);
	for (;;)
		pause();
	return NULL;
}

void rt_signals_open(void)
{
	static sigset_t ours;
	pthread_t thread;

	sigemptyset(&ours);
	sigaddset(&ours, SIGINT);
	sigaddset(&ours, SIGTERM);
	sigaddset(&ours, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &ours, NULL);
	const int e = pthread_create(&thread, NULL, take, &ours);

	if (e)
		rt_fail(RT_MEMORY, "R110", "no thread for signals: %s", strerror(e));
	pthread_detach(thread);
}

void rt_signals_take(void)
{
	signal(SIGINT, on_signal);
	signal(SIGTERM, on_signal);
	if (signal(SIGHUP, on_signal) == SIG_IGN)
		signal(SIGHUP, SIG_IGN); /* nohup */
}
