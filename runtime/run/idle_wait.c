/* idle_wait.c: how those who wait leave the cores to those who compute. */
#include "rt.h"
#include <sched.h>
#include <sys/prctl.h>
#include <time.h>

static int crowd = 1; /* threads that want to compute, by core of this host */

void rt_crowd(const pd_program *p)
{
	const int cores = pd_cores("");
	const char *host = rt_process_of(rt_task_of(p->rank))->host;
	int here = 0;

	for (int r = 0; r < rt_tasks(); r++)
		here += strcmp(rt_process_of(r)->host, host) == 0;
	if (!rt_virtual)
		crowd = (here * p->threads + cores - 1) / cores;
	prctl(PR_SET_TIMERSLACK, 1UL, 0, 0, 0); /* naps of 10 us shall not become 60 */
}

/* Some 15 us longer than asked for: so long it takes to wake somebody. */
void rt_nap(long us) { nanosleep(&(struct timespec){ us / 1000000, us % 1000000 * 1000 }, NULL); }

/* A few polls in a row first: the answer is often on its way. Then naps as short as those who compute on
 * the same cores can bear. */
void rt_rest(int idle)
{
	enum { ROW = 60, SOON = 600 };

	if (idle < ROW || rt_alone) /* what is measured is no nap */
		sched_yield();
	else
		rt_nap(idle < SOON ? 10 * crowd : 100 * crowd);
}
