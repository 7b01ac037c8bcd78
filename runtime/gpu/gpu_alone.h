/* gpu_alone.h: what gpu_*.c ask of the files that are about other devices, graphs and the running step (gpu_nccl.c, gpu_graph.c,
 * gpu_host.c), for a program that has none of them: cases of operators, and an emulated device. Included by one file of it. */
#ifndef GPU_ALONE_H
#define GPU_ALONE_H

#include "gpu_rt.h"

bool rt_nccl_on(void) { return false; }
bool rt_nccl_may(void) { return false; }
bool rt_capturing(void) { return false; }
bool rt_gathers(void) { return false; }
bool rt_graphs_made(void) { return false; }
int rt_log;
void rt_nccl_look(void) {}
const rt_process *rt_process_of(int rank)
{
	(void)rank;
	return NULL;
}
int rt_group(void) { return 1; }
int rt_first_task(int rank) { return rank; }
int rt_task_of(int peer) { return peer; }
bool rt_serves(int rank)
{
	(void)rank;
	return false;
}
void rt_sums_return(void) {}
bool rt_capture_refused(const char *what, const char *why)
{
	(void)what;
	(void)why;
	return false;
}
void rt_rest(int idle) { (void)idle; }
void rt_section_spoil(const char *why) { (void)why; }
void rt_section_note(int mb, bool hits)
{
	(void)mb;
	(void)hits;
}
void pd_sum_open(size_t count, const pd_sum *how)
{
	(void)count;
	(void)how;
}
void pd_call_open(pd_call of, size_t bytes, size_t more)
{
	(void)of;
	(void)bytes;
	(void)more;
}
bool rt_late;
void rt_join_counts(float *all, const float *mine, size_t n)
{
	(void)all;
	(void)mine;
	(void)n;
}
void pd_set_count(float *to) { pd_set(to, 1); }

const double *pd_late(void (*make)(double *numbers), int n)
{
	double now[16];

	make(now);
	return pd_constant(now, (size_t)n * sizeof *now);
}

#endif
