/* prefetch.c: files of samples are brought into memory beside the computation.
 *
 * A thread has the system map their pages, so the disk and the first touch of a page are waited for there. What
 * fits into a quarter of the machine's memory is brought in whole, once. Of larger files, who has read a
 * microbatch's samples of one step says where those of the next step lie. Where the thread is behind, requests
 * are dropped: reading a page that is not there yet is slow, not wrong. PD_PREFETCH=0 turns it off. */
#include "rt.h"
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#if !defined MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

enum { REQUESTS = 4096, PART = 4 << 20 };

static struct {
	const char *at;
	size_t bytes;
} ring[REQUESTS];
static _Atomic size_t head, tail; /* taken up to head, put up to tail; one thread each */
static sem_t some;
static bool running, asked;
static uintptr_t page;

/* In parts, so that a request behind a file of gigabytes is not waited for longer than a disk must be. */
static void bring(const char *at, size_t bytes)
{
	const uintptr_t first = (uintptr_t)at / page * page, end = (uintptr_t)at + bytes;

	for (uintptr_t p = first; p < end; p += PART) {
		const size_t n = end - p < PART ? end - p : PART;

		if (madvise((void *)p, n, MADV_POPULATE_READ)) /* Linux before 5.14 */
			madvise((void *)p, n, MADV_WILLNEED);
	}
}

static void *work(void *none)
{
	(void)none;
	for (;;) {
		while (sem_wait(&some))
			;
		for (; head != tail; head++)
			bring(ring[head % REQUESTS].at, ring[head % REQUESTS].bytes);
	}
	return NULL;
}

static bool start(void)
{
	static bool tried;
	const char *off = getenv("PD_PREFETCH");
	pthread_t thread;

	if (!tried && !(off && !strcmp(off, "0"))) {
		page = (uintptr_t)sysconf(_SC_PAGESIZE);
		running = sem_init(&some, 0, 0) == 0 && pthread_create(&thread, NULL, work, NULL) == 0 &&
		          pthread_detach(thread) == 0;
	}
	tried = true;
	return running;
}

bool rt_prefetch_file(const char *at, size_t bytes)
{
	const long pages = sysconf(_SC_PHYS_PAGES);

	if (!start())
		return false;
	if (pages > 0 && bytes / page > (size_t)pages / 4)
		return true;
	rt_prefetch(at, bytes);
	rt_prefetch_go();
	return false;
}

void rt_prefetch(const char *at, size_t bytes)
{
	const size_t t = tail;

	if (!running || t - head >= REQUESTS)
		return;
	ring[t % REQUESTS].at = at;
	ring[t % REQUESTS].bytes = bytes;
	tail = t + 1;
	asked = true;
}

void rt_prefetch_go(void)
{
	if (asked)
		sem_post(&some);
	asked = false;
}
