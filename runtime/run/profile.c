/* profile.c: programs with clocks (profile/stageN.c), where every statement asks pd_timed() first.
 *
 * --profile FILE: one device alone. What it would receive are zeros, nothing is sent. Steps are
 * repeated until the mean of their time is known well enough, or for so many steps or seconds; the
 * time of a statement in a step, divided by how often it was done, is one sample. Its typical time
 * is the mean over the middle half of the steps, ordered by the time of all statements together:
 * so typical times add up to a typical step, which medians of statements do not. FILE gets a
 * record per statement, added to those that are there. With --profile-copies N it is done N times
 * over by as many processes, as devices of one host compute beside each other: they share caches and
 * memory. The first one's times are written.
 *
 * --virtual: all devices, real messages, but instead of computing a device sleeps for the times
 * that the plan was made with. Only what says which rows of tables travel is
 * done (not by GPU programs): inputs, lists of rows. So a plan for many devices can be watched on few cores. */
#include "rt.h"
#include <errno.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WARM = 3, LEAST = 30 }; /* steps that are not counted; fewest that are */

bool rt_alone, rt_virtual;

static const pd_record **records; /* of all stages of this device */
static double *planned;           /* seconds on this device */
static int nrecords;
static int open_record = -1;
static double since;  /* when it began; virtual: when the sleep that is owed did */
static double owed;   /* virtual: seconds */
static double *spent; /* in this step; NULL: not yet measuring */
static int64_t *calls;
static float *sample; /* [record][steps] */
static double *whole; /* by step: seconds of all statements */
static bool *typical; /* by step: it is one of the middle half */

int pd_records(const pd_record *r, int n)
{
	const int first = nrecords;

	nrecords += n;
	records = realloc(records, (size_t)(nrecords + 1) * sizeof *records);
	planned = realloc(planned, (size_t)(nrecords + 1) * sizeof *planned);
	if (!records || !planned)
		rt_fail(RT_MEMORY, "R501", "no memory for %d records", nrecords);
	for (int i = 0; i < n; i++) {
		records[first + i] = &r[i];
		planned[first + i] = r[i].planned;
	}
	return first;
}

void pd_pace(int first, const double *times)
{
	for (int i = first; i < nrecords; i++)
		planned[i] *= times[records[i]->phase[0] == 'f' ? 0 : records[i]->phase[0] == 'b' ? 1 : 2];
}

void rt_profile_check(const pd_program *p)
{
	if (rt_alone && p->flow)
		rt_fail(RT_USAGE, "R001",
			"a device of an asynchronous plan cannot run alone; `pdcc profile` measures the model");
	if (!records)
		rt_fail(RT_USAGE, "R001",
			"this program has no clocks; make profile and make virtual build those that do");
}

/* Waking up takes a while: the last moment is waited for awake. */
static void sleep_until(double t)
{
	static const double AWAKE = 60e-6;
	const double s = floor(t - AWAKE);

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME,
		       &(struct timespec){ (time_t)s, (long)((t - AWAKE - s) * 1e9) }, NULL) == EINTR)
		;
	while (rt_now() < t)
		sched_yield();
}

/* Virtual: what names the rows of tables that travel is done all the same. */
static bool names_rows(int k)
{
#if defined RT_GPU
	(void)k;
	return false;
#else
	return !strcmp(records[k]->op, "Input") || !strcmp(records[k]->op, "GatherRows");
#endif
}

bool pd_timed(int k)
{
	if (rt_alone)
		rt_gpu_wait(); /* what was started belongs to the statement that started it */
	const double now = rt_alone || rt_virtual ? rt_now() : 0;

	if (rt_virtual) {
		if (owed <= 0)
			since = now;
		if (k >= 0) {
			owed += planned[k];
			return names_rows(k);
		}
		if (owed > 0 && since + owed > now) {
			sleep_until(since + owed);
			rt_spent_slept(rt_now() - now);
		}
		owed = 0;
		return false;
	}
	if (!rt_alone)
		return true;
	if (open_record >= 0 && spent) {
		spent[open_record] += now - since;
		calls[open_record]++;
	}
	open_record = k;
	since = now;
	return true;
}

void rt_pause(void)
{
	if (records)
		pd_timed(-1);
}

/* ---- copies ---- */

enum { COPIES = 64 };
static pid_t copy[COPIES];
static int ncopies; /* beside this one */
static bool beside; /* this is one of them */

/* Before there is anything that a child would share: threads, memory, objects of the library. */
void rt_profile_copies(const rt_profile_options *o)
{
	if (o->copies > COPIES)
		rt_fail(RT_USAGE, "R001", "--profile-copies wants at most %d", COPIES);
	fflush(NULL);
	while (ncopies + 1 < o->copies && !beside) {
		const pid_t child = fork();

		if (child < 0)
			rt_fail(RT_MEMORY, "R110", "no process for a copy: %s", strerror(errno));
		beside = child == 0;
		copy[ncopies++] = child;
	}
	if (beside)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
}

static void end_copies(void)
{
	for (int i = 0; i < ncopies; i++) {
		kill(copy[i], SIGKILL);
		waitpid(copy[i], NULL, 0);
	}
}

/* ---- what was measured ---- */

typedef struct summary {
	double mean, typical, deviation, p50, p99;
} summary;

static int by_size(const void *a, const void *b)
{
	const float x = *(const float *)a, y = *(const float *)b;

	return (x > y) - (x < y);
}

static int by_whole(const void *a, const void *b)
{
	const double x = whole[*(const int64_t *)a], y = whole[*(const int64_t *)b];

	return (x > y) - (x < y);
}

/* Which of n steps are the middle half; seconds of the one in the middle. */
static double find_typical(int64_t n)
{
	int64_t *step = rt_alloc((size_t)n * sizeof *step);

	typical = rt_alloc((size_t)n * sizeof *typical);
	for (int64_t i = 0; i < n; i++)
		step[i] = i;
	qsort(step, (size_t)n, sizeof *step, by_whole);
	for (int64_t i = 0; i < n; i++)
		typical[step[i]] = i >= n / 4 && i < n - n / 4;
	const double middle = whole[step[n / 2]];

	free(step);
	return middle;
}

/* Sorts x. */
static summary summarize(float *x, int64_t n)
{
	summary s = { 0 };
	double squares = 0;
	int64_t k = 0;

	for (int64_t i = 0; i < n; i++)
		if (typical[i]) {
			s.typical += (double)x[i];
			k++;
		}
	s.typical /= (double)(k ? k : 1);
	qsort(x, (size_t)n, sizeof *x, by_size);
	for (int64_t i = 0; i < n; i++)
		s.mean += (double)x[i] / (double)n;
	for (int64_t i = 0; i < n; i++)
		squares += ((double)x[i] - s.mean) * ((double)x[i] - s.mean);
	s.deviation = n > 1 ? sqrt(squares / (double)(n - 1)) : 0;
	s.p50 = n % 2 ? (double)x[n / 2] : ((double)x[n / 2 - 1] + (double)x[n / 2]) / 2;
	s.p99 = (double)x[n * 99 / 100];
	return s;
}

static void text(FILE *f, const char *key, const char *s, const char *end)
{
	fprintf(f, "\"%s\": ", key);
	rt_json_text(f, s);
	fputs(end, f);
}

static void write_record(FILE *f, int k, int64_t n, int64_t cap)
{
	const pd_record *r = records[k];
	const summary s = summarize(sample + k * cap, n);

	fprintf(f, "{ ");
	text(f, "phase", r->phase, ", ");
	text(f, "op", r->op, ", ");
	text(f, "value", r->value, ", ");
	text(f, "node", r->node, ", ");
	text(f, "type", r->type, ", ");
	fprintf(f, "\"threads\": %d, ", rt_program->threads);
	text(f, "device", pd_device_name(), ", ");
	fprintf(f, "\"activation\": %lld, \"weight\": %lld, ", (long long)r->activation, (long long)r->weight);
	fprintf(f, "\"mean\": %.9g, \"typical\": %.9g, \"p50\": %.9g, \"p99\": %.9g, \"cov\": %.6g, \"n\": %lld }",
		s.mean, s.typical, s.p50, s.p99, s.mean > 0 ? s.deviation / s.mean : 0, (long long)n);
}

/* Adds to a file that another device of the plan has begun: its end is taken off and written again. */
static void write_file(const pd_program *p, const char *path, int64_t n, int64_t cap)
{
	static const char end[] = "\n]\n}\n";
	FILE *f = fopen(path, "r+");
	const bool first = !f;

	if (first && errno == ENOENT)
		f = fopen(path, "w");
	if (!f || (!first && fseek(f, -(long)strlen(end), SEEK_END)))
		rt_fail(RT_ERROR, "R406", "%s: %s", path, strerror(errno));
	if (first) {
		fprintf(f, "{\n");
		text(f, "kind", "pdcc profile", ", ");
		text(f, "model", p->model, ", ");
		fprintf(f, "\"micro\": %lld, \"threads\": %d, \"copies\": %d, ", (long long)p->micro, p->threads,
			ncopies + 1);
		text(f, "device", pd_device_name(), ",\n\"nodes\": [");
	}
	for (int k = 0; k < nrecords; k++) {
		fprintf(f, first && k == 0 ? "\n" : ",\n");
		write_record(f, k, n, cap);
	}
	fprintf(f, "%s", end);
	if (fclose(f))
		rt_fail(RT_ERROR, "R406", "%s: %s", path, strerror(errno));
}

/* ---- measuring ---- */

/* Seconds of this step's statements; their samples go to column n (-1: nowhere). */
static double collect(int64_t n, int64_t cap)
{
	double all = 0;

	for (int k = 0; k < nrecords; k++) {
		all += spent[k];
		if (n >= 0)
			sample[k * cap + n] = (float)(calls[k] ? spent[k] / (double)calls[k] : 0);
		spent[k] = 0;
		calls[k] = 0;
	}
	if (n >= 0)
		whole[n] = all;
	return all;
}

void rt_profile_run(const pd_program *p, const rt_profile_options *o, void (*step)(const pd_program *, bool))
{
	const int64_t cap = o->steps > LEAST ? o->steps : LEAST;
	const double begin = rt_now();
	double mean = 0, squares = 0, half = INFINITY; /* of the steps; of the mean's confidence */
	int64_t n = 0;

	while (beside) { /* until it is killed */
		step(p, true);
		rt_step++;
	}
	spent = rt_alloc((size_t)nrecords * sizeof *spent);
	calls = rt_alloc((size_t)nrecords * sizeof *calls);
	sample = rt_alloc((size_t)cap * (size_t)(nrecords + 1) * sizeof *sample);
	whole = rt_alloc((size_t)cap * sizeof *whole);
	for (int i = 0; i < WARM; i++, rt_step++) {
		step(p, true);
		collect(-1, cap);
	}
	while (n < cap && !rt_signal && (n < LEAST || (rt_now() - begin < o->seconds && half > o->bound * mean))) {
		step(p, true);
		rt_step++;
		const double t = collect(n, cap), d = t - mean;

		mean += d / (double)++n; /* Welford */
		squares += d * (t - mean);
		if (n > 1)
			half = 1.96 * sqrt(squares / (double)(n - 1) / (double)n);
	}
	const double cov = n > 1 && mean > 0 ? sqrt(squares / (double)(n - 1)) / mean : 0;

	const double middle = find_typical(n);

	end_copies();
	write_file(p, o->file, n, cap);
	printf("profile: stage %d of %d, %d statements, %lld steps of %.3g ms (median %.3g), mean known to +-%.1f %%%s\n",
		p->stage, p->stages, nrecords, (long long)n, 1e3 * mean, 1e3 * middle, mean > 0 ? 100 * half / mean : 0,
		cov > 0.1 ? "; warning: step times vary by more than 10 %" : "");
	if (cov > 0.1)
		fprintf(stderr,
			"profile: the standard deviation of a step is %.0f %% of its mean; is the machine busy with other things?\n",
			100 * cov);
}
