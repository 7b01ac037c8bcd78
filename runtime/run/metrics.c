/* metrics.c: what a run tells while it goes on: progress lines, losses.txt, metrics as JSON lines, as CSV and as TensorBoard
 * events; and whether it has reached what was asked for. Files go on behind the steps that a resumed run has done. */
#include "rt.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LOSSES, SCORES, JSONL, CSV, FILES };
enum { LOSS, EVAL_LOSS, ACCURACY, PERPLEXITY, METRICS };
#define REDRAWN 0.2 /* seconds: so often on a terminal */
static const char *const metric_name[METRICS] = { "loss", "eval_loss", "accuracy", "perplexity" };

static struct {
	const pd_program *p;
	const rt_options *o;
	int64_t first, last, steps; /* steps since the last line */
	double begin, since;        /* of the run; of that line */
	double waited, sent;        /* by then: seconds, mean over the devices; bytes of all */
	pd_metric m;
	FILE *file[FILES];
	char path[FILES][4096];
	bool reached;
	bool told;  /* TensorBoard has the evaluation behind the steps that an earlier run did */
	int metric; /* of --stop */
	double reach;
} w;

static _Noreturn void cannot(const char *path) { rt_fail(RT_ERROR, "R406", "%s: %s", path, strerror(errno)); }

/* A line of metrics that tells an evaluation, not a step: JSON says so, CSV leaves the loss of the step empty. */
static bool is_score(const char *line)
{
	return strstr(line, "\"eval_loss\"") || (*line != '{' && strstr(line, ",,,,,,"));
}

/* Opens a file of lines that begin with a step; those of `from` and later steps go, and scores of the step before, which the
 * run tells again if they are due. */
static FILE *journal(const char *path, int64_t from)
{
	FILE *f = rt_step ? fopen(path, "r+") : NULL;
	long end = 0;
	char line[512];

	while (f && fgets(line, sizeof line, f) && strchr(line, '\n')) {
		const char *digit = strpbrk(line, "0123456789");

		const int64_t at = digit ? strtoll(digit, NULL, 10) : -1;

		w.told |= path == w.path[SCORES] && at == rt_step;
		if (at >= from || (at == from - 1 && is_score(line)))
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
	rt_results_open(o);
	snprintf(w.path[LOSSES], sizeof w.path[0], "%s/losses.txt", o->out);
	if (w.p->eval.on)
		snprintf(w.path[SCORES], sizeof w.path[0], "%s/eval.txt", o->out);
	snprintf(w.path[JSONL], sizeof w.path[0], "%s", o->jsonl ? o->jsonl : "");
	snprintf(w.path[CSV], sizeof w.path[0], "%s", o->csv ? o->csv : "");
	for (int i = 0; i < FILES; i++)
		if (*w.path[i])
			w.file[i] = journal(w.path[i], i == LOSSES || i == SCORES ? rt_step : rt_step + 1);
	if (w.file[CSV] && ftell(w.file[CSV]) == 0)
		fprintf(w.file[CSV], "step,epoch,loss,loss_ema,lr,step_ms,samples_per_s,seconds%s%s%s\n",
			w.p->eval.on ? ",eval_loss,accuracy,perplexity" : "", w.p->peak > 0 ? ",mfu" : "",
			w.p->gnorm ? ",gnorm" : "");
	rt_checkpoint_journal(fileno(w.file[LOSSES]));
	if (o->tensorboard && rt_events_open(o->tensorboard, rt_step))
		w.told = false;
}

void rt_watch_open(const pd_program *p, const rt_options *o, int64_t last)
{
	w.p = p;
	w.o = o;
	w.first = rt_step;
	w.last = last;
	w.begin = w.since = rt_now();
	w.m = (pd_metric){ .steps = last, .loss_ema = w.m.loss_ema, .eval_step = -1 };
	if (rt_leads(p))
		open_files(o);
	rt_progress_open();
}

void rt_watch_flush(void)
{
	for (int i = 0; i < FILES; i++)
		if (w.file[i] && fflush(w.file[i]))
			cannot(w.path[i]);
	rt_events_flush();
}

/* Of the steps since the last line; in a flow, which tells what came of a block of steps at once, of those. */
static void measure(int64_t n)
{
	const double s = w.p->flow && rt_flow_seconds() > 0 ? rt_flow_seconds()
	                                                    : (rt_now() - w.since) / (double)(w.steps ? w.steps : 1);
	const int64_t samples = rt_input_span(), each = w.p->micro * w.p->microbatches;

	w.m.step = n;
	w.m.step_ms = 1e3 * s;
	w.m.samples_per_s = s > 0 ? (double)each / s : 0;
	w.m.mfu = s > 0 && w.p->peak > 0 ? w.p->flops / (s * w.p->peak) : NAN;
	w.m.epoch = samples ? (double)(n * each) / (double)samples : 0;
	w.m.seconds = rt_now() - w.begin;
	w.m.idle = w.m.sent = NAN;
	if (w.p->flow || w.p->world == 1)
		return;
	int busiest;
	const double waited = rt_totals_waited(&busiest), bytes = rt_totals_sent(), passed = s * (double)w.steps;

	w.m.idle = passed > 0 ? fmin((waited - w.waited) / passed, 1) : 0;
	w.m.sent = w.steps ? (bytes - w.sent) / (double)w.steps : 0;
}

static void write_metrics(void)
{
	const pd_metric *m = &w.m;
	char mfu[40] = "", norm[40] = "", last[80] = "";

	if (!isnan(m->mfu)) {
		snprintf(mfu, sizeof mfu, ", \"mfu\": %.6g", m->mfu);
		snprintf(last, sizeof last, ",%.6g", m->mfu);
	}
	if (isfinite(m->gradient_norm)) {
		snprintf(norm, sizeof norm, ", \"gnorm\": %.9g", m->gradient_norm);
		snprintf(last + strlen(last), sizeof last - strlen(last), ",%.9g", m->gradient_norm);
	} else if (w.p->gnorm) {
		strcat(last, ","); /* no update was made of this step's gradient */
	}
	if (w.file[JSONL])
		fprintf(w.file[JSONL],
			"{\"step\": %" PRId64
			", \"epoch\": %.6g, \"loss\": %.9g, \"loss_ema\": %.9g, \"lr\": %.9g, \"step_ms\": %.6g, "
			"\"samples_per_s\": %.6g, \"seconds\": %.3f%s%s}\n",
			m->step, m->epoch, m->loss, m->loss_ema, m->lr, m->step_ms, m->samples_per_s, m->seconds, mfu,
			norm);
	if (w.file[CSV])
		fprintf(w.file[CSV], "%" PRId64 ",%.6g,%.9g,%.9g,%.9g,%.6g,%.6g,%.3f%s%s\n", m->step, m->epoch, m->loss,
			m->loss_ema, m->lr, m->step_ms, m->samples_per_s, m->seconds, w.p->eval.on ? ",,," : "", last);
	if (w.o->tensorboard) {
		rt_event(m->step, "loss", m->loss);
		rt_event(m->step, "loss_ema", m->loss_ema);
		rt_event(m->step, "lr", m->lr);
		rt_event(m->step, "samples_per_s", m->samples_per_s);
		if (!isnan(m->mfu))
			rt_event(m->step, "mfu", m->mfu);
		if (isfinite(m->gradient_norm))
			rt_event(m->step, "gnorm", m->gradient_norm);
	}
}

/* Is this metric what --stop waits for? The accuracy has to come up to it, the others down. */
static void look(int metric, double v, int64_t n)
{
	if (!w.o->stop || w.reached || w.metric != metric || !(metric == ACCURACY ? v >= w.reach : v <= w.reach))
		return;
	w.reached = true;
	if (rt_leads(w.p))
		rt_progress_end();
	if (rt_leads(w.p) && rt_log >= RT_LOG_NOTE)
		printf("step %6" PRId64 ": the %s has reached %s after %.3f s\n", n, metric_name[metric],
			strchr(w.o->stop, '=') + 1, rt_now() - w.begin);
}

void rt_watch_check(const char *stop)
{
	const char *eq = stop ? strchr(stop, '=') : NULL;
	char *end = NULL;

	w.metric = METRICS;
	for (int i = 0; eq && i < METRICS; i++)
		if (strlen(metric_name[i]) == (size_t)(eq - stop) &&
			!strncmp(metric_name[i], stop, (size_t)(eq - stop)))
			w.metric = i;
	w.reach = eq ? strtod(eq + 1, &end) : 0;
	if (stop && (w.metric == METRICS || end == eq + 1 || *end || !(w.reach > 0 && w.reach < INFINITY)))
		rt_fail(RT_USAGE, "R001",
			"--stop wants loss=VALUE, eval_loss=VALUE, accuracy=VALUE or perplexity=VALUE, not '%s'", stop);
	if (stop && w.metric != LOSS && !rt_program->eval.on)
		rt_fail(RT_USAGE, "R001",
			"--stop %s: this program has no evaluation set; give pdcc one (data.eval, --eval-data)", stop);
	if (stop && w.metric == ACCURACY && w.reach > 1)
		rt_fail(RT_USAGE, "R001", "--stop %s: an accuracy is a share, 1 at most", stop);
	if (stop && w.metric > EVAL_LOSS && !rt_program->eval.accuracy)
		rt_fail(RT_USAGE, "R001", "--stop %s: the loss is no cross-entropy, so there is no accuracy", stop);
}

static void write_scores(const rt_score *s)
{
	const pd_metric *m = &w.m;
	const bool classes = w.p->eval.accuracy;
	const char *last = &",,"[!(w.p->peak > 0) + !w.p->gnorm]; /* no mfu, no gnorm */
	char perplexity[32] = "null";                             /* too large: JSON has no infinity */

	if (isfinite(m->perplexity))
		snprintf(perplexity, sizeof perplexity, "%.9g", m->perplexity);

	fprintf(w.file[SCORES], "%" PRId64 " %.17g %.17g %.17g %.17g\n", s->step, m->eval_loss, s->count, s->hits,
		s->labels);
	if (w.file[JSONL] && classes)
		fprintf(w.file[JSONL],
			"{\"step\": %" PRId64 ", \"epoch\": %.6g, \"eval_loss\": %.9g, \"accuracy\": %.9g, "
			"\"perplexity\": %s, \"eval_samples\": %" PRId64
			", \"eval_seconds\": %.3f, \"seconds\": %.3f}\n",
			s->step, m->epoch, m->eval_loss, m->accuracy, perplexity, rt_input_eval_samples(), s->seconds,
			m->seconds);
	else if (w.file[JSONL])
		fprintf(w.file[JSONL],
			"{\"step\": %" PRId64 ", \"epoch\": %.6g, \"eval_loss\": %.9g, \"eval_samples\": %" PRId64
			", \"eval_seconds\": %.3f, \"seconds\": %.3f}\n",
			s->step, m->epoch, m->eval_loss, rt_input_eval_samples(), s->seconds, m->seconds);
	if (w.file[CSV] && classes)
		fprintf(w.file[CSV], "%" PRId64 ",%.6g,,,,,,%.3f,%.9g,%.9g,%.9g%s\n", s->step, m->epoch, m->seconds,
			m->eval_loss, m->accuracy, m->perplexity, last);
	else if (w.file[CSV])
		fprintf(w.file[CSV], "%" PRId64 ",%.6g,,,,,,%.3f,%.9g,,%s\n", s->step, m->epoch, m->seconds,
			m->eval_loss, last);
	if (!w.o->tensorboard || (w.told && s->step == w.first))
		return;
	rt_event(s->step, "eval/loss", m->eval_loss);
	if (classes) {
		rt_event(s->step, "eval/accuracy", m->accuracy);
		rt_event(s->step, "eval/perplexity", m->perplexity);
	}
}

void rt_watch_score(const rt_score *s)
{
	char text[32];
	pd_metric *m = &w.m;
	const double n = s->count;
	const int64_t each = w.p->micro * w.p->microbatches;

	if (!(n > 0))
		rt_fail(RT_NUMERIC, "R304",
			"no label counts in the evaluation after step %" PRId64 ": all of them are the ignored "
			"index",
			s->step);
	w.since += s->seconds; /* no part of the steps' time */
	w.waited += s->waited;
	w.sent += s->sent;
	m->eval_step = s->step;
	m->eval_loss = s->loss / n;
	m->accuracy = w.p->eval.accuracy ? s->hits / s->labels : NAN;
	m->perplexity = exp(m->eval_loss);
	m->epoch = (double)(s->step * each) / (double)rt_input_span();
	m->seconds = rt_now() - w.begin;
	look(EVAL_LOSS, m->eval_loss, s->step);
	look(ACCURACY, m->accuracy, s->step);
	look(PERPLEXITY, m->perplexity, s->step);
	if (!rt_leads(w.p))
		return;
	write_scores(s);
	if (rt_log >= RT_LOG_NOTE) {
		rt_progress_end();
		printf("eval %6" PRId64 "  ep %.2f  loss %.6g", s->step, m->epoch, m->eval_loss);
		if (w.p->eval.accuracy)
			printf("  accuracy %.4f  perplexity %.6g", m->accuracy, m->perplexity);
		printf("%s  %" PRId64 " samples in %s%s\n", rt_progress_drawn_over() ? "\n" : "",
			rt_input_eval_samples(), rt_seconds(text, s->seconds),
			rt_input_synthetic() ? "  synthetic data" : "");
	}
	rt_watch_flush();
}

void rt_watch(int64_t step)
{
	const int64_t n = step + 1;
	const double since = rt_now() - w.since;
	const bool line = n % w.o->log_every == 0 || n == w.last || since >= w.o->log_seconds ||
	                  (rt_progress_drawn_over() && since >= REDRAWN);
	const bool mark = n % w.o->metrics_every == 0 || n == w.last;

	w.steps++;
	w.m.loss = rt_loss();
	w.m.loss_ema = step == 0 || w.m.loss_ema == 0 ? w.m.loss : w.m.loss_ema + 0.05 * (w.m.loss - w.m.loss_ema);
	w.m.lr = w.p->lr * rt_rate(step);
	w.m.step_accuracy = rt_labels() > 0 ? rt_hits() / rt_labels() : NAN;
	w.m.gradient_norm = w.p->gnorm && rt_norm(step) >= 0 ? rt_norm(step) / rt_count() : NAN;
	w.m.step = n;
	look(LOSS, w.m.loss_ema, n);
	if (!rt_leads(w.p))
		return;
	fprintf(w.file[LOSSES], "%lld %.9g\n", (long long)step, rt_loss());
	if (!line && !mark)
		return;
	measure(n);
	if (mark)
		write_metrics();
	if (line && rt_log >= RT_LOG_NOTE)
		rt_progress_line(&w.m, w.last, (double)w.p->arena);
	if (line) {
		int busiest;

		w.steps = 0;
		w.since = rt_now();
		w.waited = rt_totals_waited(&busiest);
		w.sent = rt_totals_sent();
		rt_watch_flush();
	}
}

double rt_watch_average(void) { return w.m.loss_ema; }

void rt_watch_resume(double average) { w.m.loss_ema = average; }

bool rt_watch_reached(void) { return w.reached; }

void pd_metrics(pd_metric *m) { *m = w.m; }

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
	rt_progress_end();
}
