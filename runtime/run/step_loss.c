/* step_loss.c: the loss of a step and the number of counted labels, joined over all ranks.
 *
 * Each microbatch has one report; rank 0 gathers them, adds them in microbatch order and tells
 * everyone the totals. So the loss of a plan has the bits of the loss of one device with the
 * same microbatches.
 *
 * Where nothing depends on them (rt_late), that is done in the next step, so that nobody waits for a GPU that has nothing else
 * to do; signals and checkpoints that are due go with them, and are heard of in the step in which they come. */
#include "rt.h"

typedef struct report {
	double loss, count, hits, labels, seen;
} report;
typedef struct totals {
	double loss, count, hits, labels, stop; /* stop: above 0 a signal, below 0 a checkpoint is due */
} totals;

static report *reports; /* microbatches of them, and one more: see last_report */
static report *theirs;
static totals sum;
static double *waited;        /* rank 0: seconds that each rank waited for others; -1: it is a server */
static double sent;           /* bytes, all ranks, up to the last step */
static double ask = INFINITY; /* when the next checkpoint is due */
static int n;
static bool done, trains;
static int64_t step = -1, behind = -1; /* that sum is of; one whose reports are not joined yet */

bool rt_late;
static int64_t later_steps; /* whose totals came in the next one */

void rt_totals_setup(int microbatches)
{
	n = microbatches;
	reports = rt_alloc((size_t)(n + 1) * sizeof *reports);
	theirs = rt_alloc((size_t)(n + 1) * sizeof *theirs);
	waited = rt_alloc((size_t)rt_program->world * sizeof *waited);
}

void rt_totals_begin(bool train)
{
	memset(reports, 0, (size_t)(n + 1) * sizeof *reports);
	done = false;
	trains = train;
}

void pd_report(int mb, double loss, double count)
{
	if (rt_virtual) { /* nothing was computed */
		loss = 0;
		count = 1;
	}
	rt_first_loss(mb, loss, count);
	if (rt_program->flow) {
		rt_flow_report(mb, loss, count);
		return;
	}
	if (mb < 0 || mb >= n)
		rt_fail(RT_ERROR, "R302", "loss reported for microbatch %d of %d", mb, n);
	reports[mb].loss += loss;
	reports[mb].count += count;
	reports[mb].seen = 1;
}

void pd_hits(int mb, double hits, double of)
{
	if (rt_program->flow) {
		rt_flow_hits(mb, hits, of);
	} else if (mb >= 0 && mb < n) {
		reports[mb].hits += hits;
		reports[mb].labels += of;
	}
}

static void guard(int mb, int rank)
{
	const double loss = reports[mb].loss;

	if (!isfinite(loss))
		rt_fail(RT_NUMERIC, "R301",
			"the loss is %s in microbatch %d of step %lld%s, reported by %s; parameters were last good after "
			"step %lld",
			isnan(loss) ? "NaN" : "infinite", mb, (long long)step,
			pd_evaluating() ? " of the evaluation" : "", rt_name(rank), (long long)step - 1);
}

/* What goes beside the microbatches: `seen` is a signal, `loss` the time this rank waited, -1 of a server, `count` the bytes that
 * it has sent. */
static report last_report(void)
{
	const double s = rt_spent_waited();

	return (report){ .seen = rt_signal, .loss = rt_program->server ? -1 : s, .count = (double)rt_traffic_sent() };
}

static void watch(int r, const report *x)
{
	waited[r] = x->loss < 0 ? -1 : waited[r] + x->loss;
	sent += x->count;
}

/* Rank 0: takes over what rank r saw. */
static void merge(int r)
{
	watch(r, &theirs[n]);
	if (theirs[n].seen != 0)
		reports[n].seen = theirs[n].seen;
	for (int i = 0; i < n; i++)
		if (theirs[i].seen != 0) {
			reports[i].loss += theirs[i].loss;
			reports[i].count += theirs[i].count;
			reports[i].hits += theirs[i].hits;
			reports[i].labels += theirs[i].labels;
			reports[i].seen = theirs[i].seen;
			guard(i, r);
		}
}

static void add_up(void)
{
	sum = (totals){ .stop = reports[n].seen != 0 ? reports[n].seen : rt_now() >= ask ? -1 : 0 };
	for (int mb = 0; mb < n; mb++) {
		if (reports[mb].seen == 0)
			rt_fail(RT_ERROR, "R303", "no device reported the loss of microbatch %d in step %lld", mb,
				(long long)step);
		sum.loss += reports[mb].loss;
		sum.count += reports[mb].count;
		sum.hits += reports[mb].hits;
		sum.labels += reports[mb].labels;
	}
	if (!(sum.count > 0) && !pd_evaluating())
		rt_fail(RT_NUMERIC, "R304", "no label counts in step %lld: all of them are the ignored index",
			(long long)step);
}

/* The reports of `step`, over all ranks. */
static void join(void)
{
	const size_t bytes = (size_t)(n + 1) * sizeof *reports;
	const int world = rt_program->world;

	if (rt_alone) { /* its own labels: weights shall stay such as training makes them */
		sum = (totals){ .stop = rt_signal };
		for (int mb = 0; mb < n; mb++)
			sum.count += reports[mb].count;
		if (!(sum.count > 0))
			sum.count = 1;
		return;
	}
	reports[n] = last_report();
	for (int mb = 0; mb < n; mb++)
		if (reports[mb].seen != 0)
			guard(mb, rt_program->rank);
	if (rt_program->rank != 0) {
		rt_send(0, RT_TAG_GATHER, reports, bytes);
		rt_recv(0, RT_TAG_GATHER, &sum, sizeof sum);
		return;
	}
	sent = 0;
	watch(0, &reports[n]);
	for (int r = 1; r < world; r++) {
		rt_recv(r, RT_TAG_GATHER, theirs, bytes);
		merge(r);
	}
	add_up();
	rt_tensor_tell(&sum, sizeof sum); /* when to stop, too */
	for (int r = 1; r < world; r++)
		rt_send(r, RT_TAG_GATHER, &sum, sizeof sum);
}

void pd_totals(void)
{
	const bool later = rt_late && trains;

	rt_pause();
	rt_inputs_ahead();
	rt_record("totals", -1, -1, -1);
	done = true;
	step = later ? behind : rt_step;
	if (!later) {
		rt_gpu_reports();
		join();
		return;
	}
	rt_gpu_reports_before();
	rt_gpu_reports_later();
	behind = rt_step;
	if (step < 0) {
		sum = (totals){ 0 };
		return;
	}
	join();
	later_steps++;
}

void rt_totals_end(void)
{
	if (later_steps && rt_log >= RT_LOG_DEBUG)
		printf("debug: %s had the losses of %lld steps in the next one\n", rt_name(rt_program->rank),
			(long long)later_steps);
}

int64_t rt_totals_of(void) { return step; }

bool rt_totals_rest(void)
{
	if (behind < 0)
		return false;
	rt_totals_begin(true);
	step = behind;
	behind = -1;
	rt_gpu_reports_before();
	join();
	return true;
}

void pd_check(const char *what, pd_dtype t, const void *v, int64_t count)
{
	char doing[64];

	for (int64_t i = 0; i < count; i++) {
		const double x = t == PD_F64 ? ((const double *)v)[i] : (double)((const float *)v)[i];

		if (isfinite(x) || x == -INFINITY) /* masks are made of -inf */
			continue;
		rt_doing(doing, sizeof doing);
		rt_fail(RT_NUMERIC, "R307", "%s: element %lld of %lld is %s, in %s", what, (long long)i,
			(long long)count, isnan(x) ? "NaN" : "infinite", doing);
	}
}

double pd_total_count(void)
{
	rt_section_spoil("a kernel is told the number of labels");
	if (rt_replays())
		return rt_replay_count();
	return rt_program->flow ? rt_flow_count() : sum.count;
}

void rt_totals_put(double loss, double count, double hits, double labels, double stop)
{
	sum.loss = loss;
	sum.count = count;
	sum.hits = hits;
	sum.labels = labels;
	if (stop != 0)
		sum.stop = stop;
}

bool rt_totals_done(void) { return done; }

double rt_loss_sum(void) { return sum.loss; }

double rt_loss(void) { return sum.loss / sum.count; }

double rt_hits(void) { return sum.hits; }

double rt_labels(void) { return sum.labels; }

double rt_count(void) { return sum.count; }

bool rt_stop(void) { return sum.stop > 0; }

void rt_totals_ask(double at) { ask = at; }

bool rt_totals_asked(void) { return sum.stop < 0; }

double rt_totals_waited(int *least)
{
	double all = 0;
	int k = 0;

	*least = -1;
	for (int r = 0; waited && r < rt_program->world; r++)
		if (waited[r] >= 0) {
			all += waited[r];
			k++;
			*least = *least < 0 || waited[r] < waited[*least] ? r : *least;
		}
	return k ? all / k : 0;
}

double rt_totals_waited_of(int rank) { return waited[rank]; }

double rt_totals_sent(void) { return sent; }
