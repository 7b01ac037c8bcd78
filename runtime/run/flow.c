/* flow.c: steps that flow through an asynchronous pipeline.
 *
 * No device waits for another but for the tensors that it reads. Losses come together on the
 * side: every BLOCK steps a device adds what it saw of them to a gathering of all ranks, and goes
 * on; it looks at what came of it a block later. As BLOCK is more than any device is behind
 * another, nobody stands still for that. A signal travels the same way, so all ranks hear of it
 * in the same step, and end the flow behind the same one: the one that it was begun for where a run that nobody
 * stops is drained too, so that a resume goes on with its bits; soon where the flow would last until the end of the run. */
#include "rt.h"

enum { BLOCK = 16 };

typedef struct report {
	double loss, count, hits, labels, seen;
} report;

int64_t rt_update = -1, rt_update_step;
static int64_t flow, end;       /* the running step of the flow; behind its last */
static report *mine[2], *all;   /* of a block, and one more whose `seen` is a signal */
static int at;                  /* mine[at] is being filled */
static int64_t first, gathered; /* steps at which this block and the one under way begin */
static int64_t block;           /* steps */
static int64_t under_way;       /* how many steps of that one count; 0: there is none */
static double handed, each;     /* when the last block was over; seconds of one of its steps */
static double *counts;          /* by microbatch, in a ring */
static int64_t ncounts;
static double sum;            /* counted labels of the next update */
static float *joined, *taken; /* of all replicas, by step where sums come later; this update's */
static int64_t *begun;        /* by step as joined: sums since the start, with the last of that step */
static int64_t njoined;
static bool by_step, whole;

int64_t pd_flow(void) { return flow; }

bool pd_flows(int64_t step) { return step >= 0 && step < end; }

/* ---- counted labels ---- */

static int64_t global(int mb) { return rt_step * rt_program->microbatches + mb; }

static double *count_of(int mb) { return &counts[global(mb) % ncounts]; }

void pd_tag_write(pd_tag *tag, int mb, int64_t version) { *tag = (pd_tag){ global(mb), version, *count_of(mb) }; }

int64_t pd_tag_read(const pd_tag *tag, int mb)
{
	if (tag->mb != global(mb))
		rt_fail(RT_LOST, "R114", "microbatch %lld was due, microbatch %lld came", (long long)global(mb),
			(long long)tag->mb);
	*count_of(mb) = tag->count;
	return tag->version;
}

void pd_count(int mb) { sum += *count_of(mb); }

void pd_count_join(const pd_group *g, bool later)
{
	float *n = later ? &joined[rt_step % njoined] : &joined[0];

	*n = (float)sum;
	sum = 0;
	if (g && g->n > 1)
		pd_allreduce_start(g, n, 1, NULL);
	if (g && g->n > 1 && !later)
		pd_allreduce_wait();
	if (later)
		begun[rt_step % njoined] = rt_ring_begun();
	taken = n;
	by_step = later;
	if (!later && !(*n > 0))
		rt_fail(RT_NUMERIC, "R304",
			"no label counts in the update after step %lld: all of them are the ignored index",
			(long long)rt_step);
}

int64_t rt_flow_sums(void) { return begun[rt_update_step % njoined]; }

void pd_sums_wait(void)
{
	if (rt_program->world > 1 && !rt_alone)
		rt_wait_sum(rt_flow_sums());
}

double rt_flow_count(void) { return *taken; }

double rt_flow_labels(void) { return sum; }

void rt_flow_next(void) { sum = 0; }

void rt_flow_update(double count, int64_t updates, int64_t step)
{
	*taken = (float)count;
	rt_update = updates;
	rt_update_step = step;
}

void pd_update_of(int lag, int every)
{
	rt_update_step = rt_step - lag;
	rt_update = rt_update_step / every;
	if (by_step)
		taken = &joined[rt_update_step % njoined];
}

/* ---- losses ---- */

static size_t block_reports(void) { return (size_t)block * (size_t)rt_program->microbatches + 1; }

int64_t rt_flow_block(const pd_program *p) { return p->flow >= BLOCK ? p->flow + 1 : BLOCK; }

static void setup(const pd_program *p)
{
	if (all)
		return;
	block = rt_flow_block(p);
	ncounts = (2 * (int64_t)p->flow + 4) * p->microbatches;
	counts = rt_alloc((size_t)ncounts * sizeof *counts);
	for (int i = 0; i < 2; i++)
		mine[i] = rt_alloc(block_reports() * sizeof *all);
	all = rt_alloc((size_t)p->world * block_reports() * sizeof *all);
	njoined = p->flow + 2;
	joined = taken = rt_alloc((size_t)njoined * sizeof *joined);
	begun = rt_alloc((size_t)njoined * sizeof *begun);
	rt_update = 0;
}

void rt_flow_report(int mb, double loss, double count)
{
	report *r = &mine[at][(rt_step - first) * rt_program->microbatches + mb];

	if (mb < 0 || mb >= rt_program->microbatches)
		rt_fail(RT_ERROR, "R302", "loss reported for microbatch %d of %d", mb, rt_program->microbatches);
	if (!isfinite(loss))
		rt_fail(RT_NUMERIC, "R301", "the loss is %s in microbatch %d of step %lld",
			isnan(loss) ? "NaN" : "infinite", mb, (long long)rt_step);
	r->loss += loss;
	r->count += count;
	r->seen = 1;
	*count_of(mb) = r->count;
}

void rt_flow_hits(int mb, double hits, double of)
{
	report *r = &mine[at][(rt_step - first) * rt_program->microbatches + mb];

	r->hits += hits;
	r->labels += of;
}

/* Step k of the block that was gathered: the reports of all ranks in the order of microbatches. */
static void add_up(int64_t k, double stop)
{
	const int n = rt_program->microbatches;
	double loss = 0, count = 0, hits = 0, labels = 0;

	for (int mb = 0; mb < n; mb++) {
		report x = { 0, 0, 0, 0, 0 };

		for (int r = 0; r < rt_program->world; r++) {
			const report *y = &all[(size_t)r * block_reports() + (size_t)(k * n + mb)];

			x.loss += y->loss;
			x.count += y->count;
			x.hits += y->hits;
			x.labels += y->labels;
			x.seen += y->seen;
		}
		if (!(x.seen > 0))
			rt_fail(RT_ERROR, "R303", "no device reported the loss of microbatch %d in step %lld", mb,
				(long long)(gathered + k));
		loss += x.loss;
		count += x.count;
		hits += x.hits;
		labels += x.labels;
	}
	if (!(count > 0) && !pd_evaluating())
		rt_fail(RT_NUMERIC, "R304", "no label counts in step %lld: all of them are the ignored index",
			(long long)(gathered + k));
	rt_totals_put(loss, count, hits, labels, stop);
}

double rt_flow_seconds(void) { return each; }

static void deliver(void (*result)(int64_t, void *), void *to)
{
	double stop = 0;

	if (!under_way)
		return;
	rt_gather_wait();
	for (int r = 0; r < rt_program->world; r++)
		if (all[(size_t)(r + 1) * block_reports() - 1].seen != 0)
			stop = 1;
	if (stop != 0 && !whole && flow + 1 + rt_program->flow < end)
		end = flow + 1 + rt_program->flow;
	for (int64_t k = 0; k < under_way; k++) {
		add_up(k, stop);
		result(gathered + k, to);
	}
	under_way = 0;
}

static void hand_in(int64_t steps)
{
	const double now = rt_now();

	each = steps ? (now - handed) / (double)steps : 0;
	handed = now;
	mine[at][block_reports() - 1].seen = rt_signal != 0;
	rt_gather_start(mine[at], all, block_reports() * sizeof *all);
	gathered = first;
	under_way = steps;
	at = !at;
	memset(mine[at], 0, block_reports() * sizeof *all);
	first += steps;
}

/* ---- the flow ---- */

/* The progress thread notes the step with what it sends for sums that go on meanwhile. */
static void go_to(int64_t step)
{
	rt_lock();
	rt_step = step;
	rt_unlock();
}

void rt_flow_run(const pd_program *p, int64_t steps, rt_flow_kind kind, void (*result)(int64_t, void *), void *to)
{
	const bool train = kind != RT_FLOW_FORWARD;

	setup(p);
	handed = rt_now();
	whole = kind == RT_FLOW_WHOLE;
	first = rt_step;
	for (flow = 0, end = steps; flow < end; flow++, go_to(rt_step + 1)) {
		p->step(train);
		rt_first_settle();
		rt_trace_action(NULL, 0, -1);
		if (rt_step + 1 - first < block || flow + 1 == end)
			continue;
		deliver(result, to);
		hand_in(block);
	}
	const int64_t done = rt_step;

	for (; train && flow < end + p->lag; flow++, go_to(rt_step + 1)) {
		p->step(true);
		rt_first_settle();
		rt_trace_action(NULL, 0, -1);
	}
	go_to(done);
	flow = 0;
	if (train && p->settle)
		p->settle();
	deliver(result, to);
	hand_in(done - first);
	deliver(result, to);
}
