/* watch.c: what a run tells while it goes on: progress lines, losses.txt, metrics as JSON lines, as CSV and as TensorBoard
 * events; and whether it has reached what was asked for. Files go on behind the steps that a resumed run has done. */
#include "rt.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LOSSES, JSONL, CSV, FILES };

static struct {
	const pd_program *p;
	const rt_options *o;
	int64_t           first, last, steps;   /* steps since the last line */
	double            begin, since;         /* of the run; of that line */
	pd_metric         m;
	FILE             *file[FILES];
	char              path[FILES][4096];
	bool              reached;
} w;

static _Noreturn void cannot(const char *path)
{
	rt_fail(RT_ERROR, "R406", "%s: %s", path, strerror(errno));
}

/* Opens a file of lines that begin with a step; those of `from` and later steps go. */
static FILE *journal(const char *path, int64_t from)
{
	FILE *f = rt_step ? fopen(path, "r+") : NULL;
	long  end = 0;
	char  line[512];

	while (f && fgets(line, sizeof line, f) && strchr(line, '\n')) {
		const char *digit = strpbrk(line, "0123456789");

		if (digit && strtoll(digit, NULL, 10) >= from)
			break;
		end = ftell(f);
	}
	if (f && (fseek(f, end, SEEK_SET) || ftruncate(fileno(f), end)))
		cannot(path);
	if (!f && !(f = fopen(path, "w")))
		cannot(path);
	return f;
}

static void open_files(const rt_options *o)
{
	if (mkdir(o->out, 0777) && errno != EEXIST)
		cannot(o->out);
	snprintf(w.path[LOSSES], sizeof w.path[0], "%s/losses.txt", o->out);
	snprintf(w.path[JSONL], sizeof w.path[0], "%s", o->jsonl ? o->jsonl : "");
	snprintf(w.path[CSV], sizeof w.path[0], "%s", o->csv ? o->csv : "");
	for (int i = 0; i < FILES; i++)
		if (*w.path[i])
			w.file[i] = journal(w.path[i], i == LOSSES ? rt_step : rt_step + 1);
	if (w.file[CSV] && ftell(w.file[CSV]) == 0)
		fprintf(w.file[CSV], "step,epoch,loss,loss_ema,lr,step_ms,samples_per_s,seconds\n");
	rt_checkpoint_journal(fileno(w.file[LOSSES]));
	if (o->tensorboard)
		rt_events_open(o->tensorboard, rt_step);
}

void rt_watch_open(const pd_program *p, const rt_options *o, int64_t last)
{
	w.p = p;
	w.o = o;
	w.first = rt_step;
	w.last = last;
	w.begin = w.since = rt_now();
	w.m = (pd_metric){ .steps = last, .loss_ema = w.m.loss_ema };
	if (p->rank == 0)
		open_files(o);
}

void rt_watch_flush(void)
{
	for (int i = 0; i < FILES; i++)
		if (w.file[i] && fflush(w.file[i]))
			cannot(w.path[i]);
	rt_events_flush();
}

/* Of the steps since the last line. */
static void measure(int64_t n)
{
	const double  s = (rt_now() - w.since) / (double)(w.steps ? w.steps : 1);
	const int64_t samples = rt_input_samples(), each = w.p->micro * w.p->microbatches;

	w.m.step = n;
	w.m.step_ms = 1e3 * s;
	w.m.samples_per_s = s > 0 ? (double)each / s : 0;
	w.m.epoch = samples ? (double)(n * each) / (double)samples : 0;
	w.m.seconds = rt_now() - w.begin;
}

static void write_metrics(void)
{
	const pd_metric *m = &w.m;

	if (w.file[JSONL])
		fprintf(w.file[JSONL],
		        "{\"step\": %" PRId64 ", \"epoch\": %.6g, \"loss\": %.9g, \"loss_ema\": %.9g, \"lr\": %.9g, \"step_ms\": %.6g, "
		        "\"samples_per_s\": %.6g, \"seconds\": %.3f}\n",
		        m->step, m->epoch, m->loss, m->loss_ema, m->lr, m->step_ms, m->samples_per_s, m->seconds);
	if (w.file[CSV])
		fprintf(w.file[CSV], "%" PRId64 ",%.6g,%.9g,%.9g,%.9g,%.6g,%.6g,%.3f\n", m->step, m->epoch, m->loss,
		        m->loss_ema, m->lr, m->step_ms, m->samples_per_s, m->seconds);
	if (w.o->tensorboard) {
		rt_event(m->step, "loss", m->loss);
		rt_event(m->step, "loss_ema", m->loss_ema);
		rt_event(m->step, "lr", m->lr);
		rt_event(m->step, "samples_per_s", m->samples_per_s);
	}
}

static void write_line(void)
{
	const pd_metric *m = &w.m;
	const double     left = (double)(w.last - m->step) * m->step_ms / 1e3;
	char             eta[32] = "";

	if (m->step < w.last)
		snprintf(eta, sizeof eta, left < 60 ? "  eta %.0fs" : "  eta %.0fm%02ds", left < 60 ? left : left / 60 - 0.5,
		         (int)left % 60);
	printf("step %6" PRId64 "/%" PRId64 "  ep %.2f  loss %.6g (ema %.6g)  lr %.3g  %.3g ms  %.0f samples/s%s%s\n", m->step,
	       w.last, m->epoch, m->loss, m->loss_ema, m->lr, m->step_ms, m->samples_per_s, eta,
	       rt_input_synthetic() ? "  synthetic data" : "");
	fflush(stdout);
}

void rt_watch(int64_t step)
{
	const int64_t n = step + 1;
	const bool    line = n % w.o->log_every == 0 || n == w.last, mark = n % w.o->metrics_every == 0 || n == w.last;

	w.steps++;
	w.m.loss = rt_loss();
	w.m.loss_ema = step == 0 || w.m.loss_ema == 0 ? w.m.loss : w.m.loss_ema + 0.05 * (w.m.loss - w.m.loss_ema);
	w.m.lr = w.p->lr * rt_rate(step);
	w.m.step = n;
	if (w.o->stop && w.m.loss_ema <= atof(w.o->stop + 5) && !w.reached) {
		w.reached = true;
		if (w.p->rank == 0 && !w.o->quiet)
			printf("step %6" PRId64 ": the loss has reached %s after %.3f s\n", n, w.o->stop + 5, rt_now() - w.begin);
	}
	if (w.p->rank != 0)
		return;
	fprintf(w.file[LOSSES], "%lld %.9g\n", (long long)step, rt_loss());
	if (!line && !mark)
		return;
	measure(n);
	if (mark)
		write_metrics();
	if (line && !w.o->quiet)
		write_line();
	if (line) {
		w.steps = 0;
		w.since = rt_now();
		rt_watch_flush();
	}
}

double rt_watch_average(void)
{
	return w.m.loss_ema;
}

void rt_watch_resume(double average)
{
	w.m.loss_ema = average;
}

bool rt_watch_reached(void)
{
	return w.reached;
}

void pd_metrics(pd_metric *m)
{
	*m = w.m;
}

void rt_watch_then(void)
{
	if (w.file[LOSSES])
		fprintf(w.file[LOSSES], "%lld %.9g\n", (long long)rt_step, rt_loss());
}

void rt_watch_close(void)
{
	for (int i = 0; i < FILES; i++) {
		if (w.file[i] && fclose(w.file[i]))
			cannot(w.path[i]);
		w.file[i] = NULL;
	}
	rt_events_close();
}
