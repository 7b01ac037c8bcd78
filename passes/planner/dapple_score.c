/* The published DAPPLE program's scores: the analytic one that ranks its candidates, the event recursion, and its
 * estimates of data parallelism. Formulas at the declarations in dapple.h. */
#include <math.h>
#include <stdlib.h>
#include "dapple.h"

static double factor(const DappleOptions *o) { return o->batch / o->profiled; }

/* States from..to, both inclusive, out of sums over ancestors. */
static double span(const double *sum, int from, int to) { return sum[to] - (from ? sum[from - 1] : 0); }

/* The last state of stage s as the published program passes it on: of the next stage the first, of the last the last. */
static int last_state(const DappleProfile *p, const DapplePlan *plan, int s)
{
	return s + 1 < plan->n ? plan->stage[s].end : p->n - 1;
}

static int count(const DappleOptions *o, int copies) { return (int)((int64_t)o->batch / copies / (int64_t)o->least); }

double dapple_block(
	const DappleProfile *p, const DappleCluster *c, const DappleOptions *o, const DapplePlan *plan, double times)
{
	double block = 0;

	for (int s = 0; s < plan->n; s++) {
		const DappleStage *g = &plan->stage[s];
		block = fmax(block, span(p->time, g->begin, g->end - 1) * factor(o) / __builtin_popcountll(g->devices));
		if (s + 1 < plan->n)
			block = fmax(block,
				dapple_transfer(c, g->devices, g[1].devices, times * p->cut[g->end - 1] * factor(o)));
	}
	return block;
}

void dapple_score(const DappleProfile *p, const DappleCluster *c, const DappleOptions *o, DapplePlan *plan)
{
	const int m = count(o, plan->copies);
	const double total = p->time[p->n - 1] * factor(o), b = plan->block / m;
	double late = 0;

	plan->microbatches = m;
	plan->latency = INFINITY;
	plan->speedup = 0;
	if (!m)
		return;
	plan->latency = b * (m - 1) + total / plan->copies / m;
	for (int s = 0; s < plan->n; s++) {
		const DappleStage *g = &plan->stage[s];
		if (s + 1 < plan->n)
			plan->latency += dapple_transfer(
				c, g->devices, g[1].devices, p->cut[g->end - 1] * factor(o) / plan->copies / m);
		late = fmax(late,
			dapple_allreduce(c, g->devices, span(p->params, g->begin, last_state(p, plan, s))) - s * b);
	}
	plan->latency += late;
	plan->speedup = total / plan->latency;
}

/* Stage x of the pipeline with transfers: forward of microbatch i begins behind its forward in stage x-1, the forward of
 * i-1 here and the backward of i-n+x here; backward behind its backward in x+1 and the forward of i+n-x-1 here. What lies
 * outside of 0..m-1 takes no time. */
typedef struct Events {
	int n, m;
	const double *t;
	double *f, *b;
} Events;

static double backward_end(const Events *e, int i, int x);

static double forward_end(const Events *e, int i, int x)
{
	if (i < 0 || i >= e->m || x < 0)
		return 0;
	double *end = &e->f[i * e->n + x];
	if (isnan(*end))
		*end = fmax(backward_end(e, i - e->n + x, x),
			       fmax(forward_end(e, i - 1, x), forward_end(e, i, x - 1))) +
		       e->t[x];
	return *end;
}

static double backward_end(const Events *e, int i, int x)
{
	if (i < 0 || i >= e->m || x >= e->n)
		return 0;
	double *end = &e->b[i * e->n + x];
	if (isnan(*end))
		*end = fmax(backward_end(e, i, x + 1), forward_end(e, i + e->n - x - 1, x)) + e->t[x];
	return *end;
}

double dapple_recursion(const DappleProfile *p, const DappleCluster *c, const DappleOptions *o, const DapplePlan *plan)
{
	const int m = count(o, plan->copies), n = 2 * plan->n - 1;
	double t[2 * DAPPLE_DEVICES], end = 0;

	if (!m)
		return 0;
	double *times = malloc(2 * (size_t)n * (size_t)m * sizeof *times);
	const Events e = { .n = n, .m = m, .t = t, .f = times, .b = times + (size_t)n * (size_t)m };
	if (!times)
		bug("no memory for %d microbatches in %d stages", m, n);
	for (int i = 0; i < 2 * n * m; i++)
		times[i] = NAN;
	for (int s = 0; s < plan->n; s++) {
		const DappleStage *g = &plan->stage[s];
		const double work = span(p->time, g->begin, last_state(p, plan, s)) * factor(o);
		t[2 * s] = work / __builtin_popcountll(g->devices) / m / 2;
		if (s + 1 < plan->n)
			t[2 * s + 1] = dapple_transfer(c, g->devices, g[1].devices, p->cut[g->end - 1] * factor(o) / m);
	}
	for (int i = 0; i < m; i++) /* in an order that keeps the recursion shallow */
		for (int x = n - 1; x >= 0; x--)
			backward_end(&e, i, x);
	for (int x = 0; x < n; x++) {
		double stage = backward_end(&e, m - 1, x);
		if (x % 2 == 0) {
			const DappleStage *g = &plan->stage[x / 2];
			stage += dapple_allreduce(c, g->devices, span(p->params, g->begin, last_state(p, plan, x / 2)));
		}
		end = fmax(end, stage);
	}
	free(times);
	return p->time[p->n - 1] * factor(o) / end;
}

/* The time by which the AllReduces outlast the computing that hides them: state after state, the last first. `part`: the
 * share of the global batch that one accumulation step computes. */
static double outlasts(const DappleProfile *p, const DappleCluster *c, const DappleOptions *o, double part, bool inter)
{
	const int n = dapple_devices(c);
	const DappleSet all = n == 64 ? ~(DappleSet)0 : ((DappleSet)1 << n) - 1;
	double excess = 0, late = dapple_allreduce(c, all, span(p->params, 0, 0));

	/* block i of the published list is state N-1-i, its following forward that of state i */
	for (int i = p->n - 2; i >= 0; i--) {
		const int state = p->n - 1 - i;
		const double need = dapple_allreduce(c, all, span(p->params, state, state));
		const double hidden = span(p->time, state - 1, state - 1) * factor(o) * part / 2 +
		                      (inter ? span(p->time, i + 1, i + 1) * factor(o) * part / 2 : 0);
		if (hidden >= need) {
			excess += hidden - need;
		} else if (need - hidden < excess) {
			excess -= need - hidden;
		} else {
			late += need - hidden - excess;
			excess = 0;
		}
	}
	return late;
}

/* Samples of one accumulation step: what fits, made smaller until the number of steps divides the batch. */
static int step_samples(const DappleProfile *p, const DappleOptions *o, double memory)
{
	const double params = p->params[p->n - 1] * (o->scaling > 0 ? o->scaling : 1);
	const double fits = o->peak > 0 && memory > 0 ? floor((memory - params) / o->peak) : o->batch;
	const int batch = (int)o->batch;

	if (fits >= batch)
		return batch;
	if (fits < 1)
		return 0;
	int steps = (int)ceil(batch / fits);
	while (steps < batch / 2 + 1 && batch % steps)
		steps++;
	return batch / steps;
}

DappleDp dapple_dp(const DappleProfile *p, const DappleCluster *c, const DappleOptions *o)
{
	const int n = dapple_devices(c), samples = step_samples(p, o, c->memory);
	const DappleSet all = n == 64 ? ~(DappleSet)0 : ((DappleSet)1 << n) - 1;
	const double total = p->time[p->n - 1] * factor(o), part = samples / o->batch;
	DappleDp dp = { .plain = total / (total / n + dapple_allreduce(c, all, p->params[p->n - 1])) };

	if (samples) {
		dp.overlap = total / (total / n + outlasts(p, c, o, part, false));
		dp.inter = total / (total / n + outlasts(p, c, o, part, true));
	}
	return dp;
}
