/* prefetch.c: files of samples are brought into memory beside the computation.
 *
 * Who has read a microbatch's samples of one step says where those of the next step lie; a thread then has the system map their
 * pages, so the disk and the first touch of a page are waited for there. Where it is behind, requests are dropped: reading
 * a page that is not there yet is slow, not wrong. PD_PREFETCH=0 turns it off. */
#include "rt.h"
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#if !defined MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

enum { REQUESTS = 4096 };

static struct {
	const char *at;
	size_t      bytes;
} ring[REQUESTS];
static size_t          head, tail;      /* taken up to head, put up to tail */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t  some = PTHREAD_COND_INITIALIZER;
static bool            running;
static uintptr_t       page;

static void bring(const char *at, size_t bytes)
{
	const uintptr_t first = (uintptr_t)at / page * page, end = (uintptr_t)at + bytes;

	if (madvise((void *)first, end - first, MADV_POPULATE_READ))    /* Linux before 5.14 */
		madvise((void *)first, end - first, MADV_WILLNEED);
}

static void *work(void *none)
{
	(void)none;
	for (;;) {
		pthread_mutex_lock(&lock);
		while (head == tail)
			pthread_cond_wait(&some, &lock);
		const char  *at = ring[head % REQUESTS].at;
		const size_t bytes = ring[head % REQUESTS].bytes;

		head++;
		pthread_mutex_unlock(&lock);
		bring(at, bytes);
	}
	return NULL;
}

void rt_prefetch_open(void)
{
	const char *off = getenv("PD_PREFETCH");
	pthread_t   thread;

	page = (uintptr_t)sysconf(_SC_PAGESIZE);
	if (!running && !(off && !strcmp(off, "0")))
		running = pthread_create(&thread, NULL, work, NULL) == 0 && pthread_detach(thread) == 0;
}

void rt_prefetch(const char *at, size_t bytes)
{
	if (!running)
		return;
	pthread_mutex_lock(&lock);
	if (tail > head && ring[(tail - 1) % REQUESTS].at + ring[(tail - 1) % REQUESTS].bytes == at) {
		ring[(tail - 1) % REQUESTS].bytes += bytes;     /* the sample behind the one before */
	} else if (tail - head < REQUESTS) {
		ring[tail % REQUESTS].at = at;
		ring[tail++ % REQUESTS].bytes = bytes;
		pthread_cond_signal(&some);
	}
	pthread_mutex_unlock(&lock);
}
