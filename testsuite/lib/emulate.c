/* emulate.c: what an emitted stage calls, for lib/emulate.py: one microbatch at a time, in slot 0, without messages, sums
 * or ranks. Linked with the stage and the runtime's cpu*.c into a library. */
#include "pd.h"
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 256 };

/* set before a call */
const char *em_in[MOST]; /* one microbatch of each input */
size_t em_bytes[MOST];
int64_t em_step, em_sample;
char *em_leaf;           /* memory for one gradient of the stage */
char *em_gradient[MOST]; /* memory for that of params[i] */
size_t em_gradient_bytes[MOST];
/* set by the calls */
double em_loss, em_count;
size_t em_leaf_bytes;

static _Noreturn void never(const char *what)
{
	fprintf(stderr, "emulate: a stage on one device calls %s\n", what);
	exit(70);
}

#if defined RT_GPU
void em_put(char *tensor, const char *host, size_t bytes); /* emulate_gpu.c */
void em_get(char *host, const char *tensor, size_t bytes);
#else
static void em_put(char *tensor, const char *host, size_t bytes) { memcpy(tensor, host, bytes); }
static void em_get(char *host, const char *tensor, size_t bytes) { memcpy(host, tensor, bytes); }
#endif

int64_t pd_step_index(void) { return em_step; }
int64_t pd_update_index(void) { return em_step; }
double pd_rate(void) { return 1; }
int64_t pd_sample(int mb) { return em_sample + 0 * mb; }
bool pd_evaluating(void) { return false; }
void pd_hits(int mb, double hits, double of) { (void)mb, (void)hits, (void)of; }
void pd_totals(void) {}
double pd_total_count(void) { return 1; }
void pd_square(int index, double sum) { (void)index, (void)sum; }
double pd_clip(double n, double most)
{
	(void)most;
	return n;
}

void pd_input(int i, int mb, void *dst)
{
	(void)mb;
	em_put(dst, em_in[i], em_bytes[i]);
}

void pd_report(int mb, double loss, double count)
{
	(void)mb;
	em_loss += loss;
	em_count += count;
}

void pd_gradient(int i, const void *sum) { em_get(em_gradient[i], sum, em_gradient_bytes[i]); }

void pd_gradient_rows(int i, const int32_t *ids, const void *rows, int64_t n, int64_t width, int add)
{
	(void)i, (void)ids, (void)rows, (void)n, (void)width, (void)add;
	never("pd_gradient_rows");
}

size_t pd_tree_bytes(int grains, size_t count, const int *mine, int nmine)
{
	(void)grains, (void)mine, (void)nmine;
	return count * sizeof(float);
}

pd_tree *pd_tree_new(int grains, size_t count, const int *mine, int nmine, void *mem)
{
	(void)grains, (void)mine, (void)nmine;
	em_leaf_bytes = count * sizeof(float);
	return mem;
}

float *pd_tree_leaf(pd_tree *t, int mb)
{
	(void)t, (void)mb;
	memset(em_leaf, 0, em_leaf_bytes);
	return (float *)(void *)em_leaf;
}

void pd_tree_done(pd_tree *t, int mb) { (void)t, (void)mb; }
float *pd_tree_root(pd_tree *t, const pd_group *g)
{
	(void)t, (void)g;
	return (float *)(void *)em_leaf;
}

void pd_allreduce(const pd_group *g, float *buf, size_t n)
{
	(void)buf, (void)n;
	if (g->n > 1)
		never("pd_allreduce");
}
void pd_allreduce_start(const pd_group *g, float *buf, size_t n, const pd_sum *how)
{
	(void)how;
	pd_allreduce(g, buf, n);
}
void pd_allreduce_wait(void) {}
void pd_broadcast(const pd_group *g, int from, void *buf, size_t n)
{
	(void)from, (void)buf, (void)n;
	if (g->n > 1)
		never("pd_broadcast");
}
void pd_allgather(const pd_group *g, const void *in, void *out, size_t n)
{
	if (g->n > 1)
		never("pd_allgather");
	memmove(out, in, n);
}
