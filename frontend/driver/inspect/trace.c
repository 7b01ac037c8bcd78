/* pdcc trace DIR: the traces that a run under PD_TRACE=DIR left (runtime/run/trace.c), as a table of where each device's time
 * went, as one file for Perfetto, and as a picture, below the step that pdcc simulate predicted (--timeline FILE.json).
 * Both kinds of files are read by line, as they are written: one event a line. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "ir/base/buf.h"
#include "frontend/driver/compile/compile.h"
#include "trace_events.h"
#include "trace.h"

enum { E_TRACE = 808, DEVICES = 4096 };

static const char help[] = "usage: pdcc trace DIR [options]\n"
			   "what the devices of a run with --trace DIR did; step 0 is left out\n"
			   "  --timeline FILE          .json: all devices for Perfetto; .svg, .html: a\n"
			   "                           picture of one step\n"
			   "  --predicted FILE.json    of pdcc simulate --timeline: beside the measured\n"
			   "                           times, drawn above the measured step\n"
			   "  --step N                 the step to draw; the one of median length without it\n"
			   "example: pdcc run out --steps 30 --trace tr && pdcc trace tr\n";

/* ---- reading ---- */

static bool number(const char *line, const char *key, double *v)
{
	const char *at = strstr(line, key);
	char *end;

	if (!at)
		return false;
	at += strlen(key);
	*v = strtod(at, &end);
	return end > at && isfinite(*v);
}

/* Names of the runtime's actions, categories of the simulator's. */
static Kind kind_of(const char *line)
{
	static const struct {
		const char *text;
		Kind kind;
	} word[] = {
		{ "\"name\": \"F\"", FORWARD },
		{ "\"name\": \"B\"", BACKWARD },
		{ "\"name\": \"W\"", WEIGHTS },
		{ "\"name\": \"UPDATE\"", UPDATE },
		{ "\"name\": \"wait\"", WAIT },
		{ "\"name\": \"pack\"", PACK },
		{ "\"name\": \"evaluation\"", EVALUATION },
		{ "\"cat\": \"forward\"", FORWARD },
		{ "\"cat\": \"backward\"", BACKWARD },
		{ "\"cat\": \"weights\"", WEIGHTS },
		{ "\"cat\": \"update\"", UPDATE },
	};

	for (size_t i = 0; i < sizeof word / sizeof *word; i++)
		if (strstr(line, word[i].text))
			return word[i].kind;
	return TALK;
}

/* Of a computation or message, which way the microbatch goes; 0: neither. The simulator has none of messages, whose begin and end
 * are events of their own. */
static char way_of(const char *line)
{
	const Kind k = kind_of(line);

	return k == FORWARD || strstr(line, "_F\"") ? 'F' : k == BACKWARD || strstr(line, "_B\"") ? 'B' : 0;
}

static bool read_events(Ask *q, const char *path, Events *to)
{
	char *text = file_read(path, NULL), *save = NULL;
	int line = 0;

	if (!text)
		return diag_error(q->d, FILELOC(path), E_TRACE, "cannot read the trace: %s", strerror(errno));
	for (char *s = strtok_r(text, "\n", &save); s; s = strtok_r(NULL, "\n", &save)) {
		double ts, dur, pid, step = 0, mb = -1;

		line++;
		if (number(s, "\"devices\": ", &pid) && pid >= 1 && pid <= DEVICES)
			to->devices = (int)pid;
		to->only |= strstr(s, "\"only\": true") != NULL;
		if (number(s, "\"steps\": ", &step) && step >= 2 && step <= 1e9 &&
			number(s, "\"step_seconds\": ", &ts) && ts > 0) {
			to->steps = (int)step;
			to->each = ts;
		}
		if (!strstr(s, "\"ph\": \"X\""))
			continue;
		step = 0;
		number(s, "\"step\": ", &step);
		number(s, "\"microbatch\": ", &mb);
		if (!number(s, "\"ts\": ", &ts) || !number(s, "\"dur\": ", &dur) || !number(s, "\"pid\": ", &pid) ||
			dur < 0 || pid < 0 || pid >= DEVICES || fabs(step) > 1e15 || fabs(mb) > 1e9) {
			free(text);
			return diag_error(q->d, FILELOC(path), E_TRACE,
				"event %d of the file has no time, no device, or a wrong one", line);
		}
		PUSH(q->a, to->e, to->n, to->cap) =
			(Event){ kind_of(s), ts / 1e6, (ts + dur) / 1e6, (int)pid, (int)mb, (int64_t)step, way_of(s) };
		if (kind_of(s) == EVALUATION)
			to->e[to->n - 1].step = -1;
		if (pid >= to->devices)
			to->devices = (int)pid + 1;
	}
	free(text);
	return to->n > 0 || diag_error(q->d, FILELOC(path), E_TRACE, "there is no event in this file");
}

static const char *rank_file(const Ask *q, int rank) { return arena_printf(q->a, "%s/rank%d.json", q->folder, rank); }

static bool read_all(Ask *q)
{
	Events *m = &q->measured;

	while (q->first < DEVICES && access(rank_file(q, q->first), F_OK))
		q->first++;
	q->first %= DEVICES;
	m->devices = 1;
	if (!read_events(q, rank_file(q, q->first), m))
		return false;
	q->end = m->only ? q->first + 1 : m->devices;
	for (int r = m->only ? q->end : 0; r < q->end; r++)
		if (r != q->first && !read_events(q, rank_file(q, r), m))
			return false;
	return !q->predicted || read_events(q, q->predicted, &q->planned);
}

/* ---- the table ---- */

/* Seconds of each kind on a device, waits and packing taken out of what they interrupt (packing may lie in a wait, which
 * follows it in the list); step 0 is the warm-up, if there are others. Evaluations are no part of the steps' time. */
void trace_spent(const Ask *q, int rank, double *to, double *wall, int64_t *steps)
{
	const Events *m = &q->measured;
	int64_t first = INT64_MAX, last = -1;
	double begin = INFINITY, end = 0;
	const Event *within = NULL;

	for (int i = 0; i < m->n; i++)
		last = m->e[i].rank == rank && m->e[i].step > last ? m->e[i].step : last;
	memset(to, 0, KINDS * sizeof *to);
	for (int i = 0; i < m->n; i++) {
		const Event *e = &m->e[i];

		if (e->rank != rank || e->kind == EVALUATION || (e->step == 0 && last > 0))
			continue;
		first = e->step < first ? e->step : first;
		begin = fmin(begin, e->begin);
		end = fmax(end, e->end);
		double own = e->end - e->begin;
		for (int k = i; e->kind == WAIT && k > 0 && m->e[k - 1].kind == PACK && m->e[k - 1].begin >= e->begin;
			k--)
			own -= m->e[k - 1].end - m->e[k - 1].begin;
		to[e->kind] += own;
		if (e->kind < WAIT)
			within = e;
		else if (within && e->end <= within->end)
			to[within->kind] -= own;
	}
	*steps = first <= last ? last - first + 1 : 0;
	*wall = *steps ? end - begin : 0;
	for (int i = 0; i < m->n; i++)
		if (m->e[i].rank == rank && m->e[i].kind == EVALUATION && m->e[i].begin >= begin && m->e[i].end <= end)
			*wall -= m->e[i].end - m->e[i].begin;
}

static void table(const Ask *q)
{
	printf("device  step ms   compute           compression       communication     idle\n");
	for (int r = q->first; r < q->end; r++) {
		double t[KINDS], wall;
		int64_t steps;

		trace_spent(q, r, t, &wall, &steps);
		const double work = trace_work(t), talk = trace_talk(t), idle = wall - work - talk - t[PACK];
		const double ms = 1e3 / (double)(steps > 0 ? steps : 1), part = wall > 0 ? 100 / wall : 0;
		printf("%6d %8.3f   %8.3f %5.1f %%  %8.3f %5.1f %%  %8.3f %5.1f %%  %8.3f %5.1f %%\n", r, wall * ms,
			work * ms, work * part, t[PACK] * ms, t[PACK] * part, talk * ms, talk * part, idle * ms,
			idle * part);
	}
	printf("compression: packing and unpacking gradients, but for what the progress thread does beside\n");
	printf("communication: waiting for other devices, and sending; idle: between actions, such as reading samples\n");
}

/* Seconds of a step that pdcc simulate predicted. */
static double step_predicted(const Events *p)
{
	double begin = INFINITY, end = 0;

	for (int i = 0; i < p->n; i++) {
		begin = fmin(begin, p->e[i].begin);
		end = fmax(end, p->e[i].end);
	}
	return p->steps ? p->each : end - begin;
}

/* What pdcc simulate expected of each device, beside what was measured, per step. It plays no reading of samples: what is not
 * computing is waiting for other devices, messages and sums. Of several steps each has its share. */
static void table_of_both(const Ask *q)
{
	const double step = step_predicted(&q->planned);

	printf("device  predicted: step ms  compute  communication   measured: step ms  compute  communication  idle\n");
	for (int r = q->first; r < q->end && r < q->planned.devices; r++) {
		double t[KINDS], wall, work = 0;
		int64_t steps;

		for (int i = 0; i < q->planned.n; i++) {
			const Event *e = &q->planned.e[i];
			work += e->rank == r && e->kind <= UPDATE ? e->end - e->begin : 0;
		}
		trace_spent(q, r, t, &wall, &steps);
		work /= q->planned.steps ? q->planned.steps : 1;
		const double ms = 1e3 / (double)(steps > 0 ? steps : 1), busy = trace_work(t) + t[PACK],
			     talk = trace_talk(t);
		printf("%6d %19.3f %8.3f %14.3f %19.3f %8.3f %14.3f %5.3f\n", r, 1e3 * step, 1e3 * work,
			1e3 * (step - work), wall * ms, busy * ms, talk * ms, (wall - busy - talk) * ms);
	}
}

/* The events of all files, in one. */
static bool merge(Ask *q, Buf *b)
{
	buf_puts(b, "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n");
	for (int r = q->first; r < q->end; r++) {
		char *text = file_read(rank_file(q, r), NULL), *at = text ? strstr(text, "\"traceEvents\": [\n") : NULL;
		char *end = at ? strstr(at, "\n]}") : NULL;

		if (!end) {
			free(text);
			return diag_error(q->d, FILELOC(rank_file(q, r)), E_TRACE, "the list of events does not end");
		}
		*end = 0;
		buf_printf(b, "%s%s", r > q->first ? ",\n" : "", at + strlen("\"traceEvents\": [\n"));
		free(text);
	}
	buf_puts(b, "\n]}\n");
	return true;
}

static bool write_timeline(Ask *q, const char *path)
{
	const char *end = strrchr(path, '.');
	const bool json = strcmp(end, ".json") == 0, page = strcmp(end, ".html") == 0;
	Buf b = { 0 };
	bool ok = true;

	if (json)
		ok = merge(q, &b);
	else if (page)
		trace_page(q, &b);
	else
		trace_picture(q, &b, false);
	ok = ok &&
	     (file_write(path, b.s, b.n) || diag_error(q->d, NOLOC, 8, "cannot write %s: %s", path, strerror(errno)));
	if (ok)
		printf("wrote %s\n", path);
	buf_free(&b);
	return ok;
}

/* ---- flags ---- */

static bool timeline_flag(Ask *q, const char *path)
{
	const char *end = strrchr(path, '.');

	if (!end || (strcmp(end, ".json") && strcmp(end, ".svg") && strcmp(end, ".html")) || q->ntimeline == 8)
		return diag_error(
			q->d, NOLOC, 1, "--timeline: '%s' is no .json, .svg or .html file, or the ninth", path);
	q->timeline[q->ntimeline++] = path;
	return true;
}

static bool read_flags(Ask *q, int argc, char **argv, bool *asked)
{
	for (int i = 0; i < argc; i++) {
		const char *flag = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
		char *end;

		if (strcmp(flag, "--help") == 0 || strcmp(flag, "-h") == 0)
			return *asked = true;
		if (flag[0] != '-') {
			if (q->folder)
				return diag_error(
					q->d, NOLOC, 1, "one folder at a time, not '%s' and '%s'", q->folder, flag);
			q->folder = flag;
			continue;
		}
		if (strcmp(flag, "--timeline") && strcmp(flag, "--predicted") && strcmp(flag, "--step"))
			return diag_error(q->d, NOLOC, 1, "unknown flag '%s'; pdcc help trace lists them", flag);
		if (!value)
			return diag_error(q->d, NOLOC, 1, "%s takes a value", flag);
		if (strcmp(flag, "--timeline") == 0 && !timeline_flag(q, value))
			return false;
		if (strcmp(flag, "--predicted") == 0)
			q->predicted = value;
		if (strcmp(flag, "--step") == 0) {
			q->step = strtoll(value, &end, 10);
			if (end == value || *end || q->step < 0)
				return diag_error(q->d, NOLOC, 1, "--step: '%s' is no step", value);
		}
		i++;
	}
	return q->folder || diag_error(q->d, NOLOC, 1, "no folder is named; pdcc help trace shows how");
}

static int run(Ask *q)
{
	double begin, end;

	if (!read_all(q))
		return EXIT_INPUT;
	if (q->step >= 0 && !trace_extent(&q->measured, q->step, &begin, &end)) {
		diag_error(q->d, NOLOC, 1, "--step: step %" PRId64 " is not in the trace", q->step);
		return EXIT_USAGE;
	}
	table(q);
	if (q->predicted)
		table_of_both(q);
	for (int i = 0; i < q->ntimeline; i++)
		if (!write_timeline(q, q->timeline[i]))
			return EXIT_USAGE;
	return 0;
}

int trace_main(int argc, char **argv)
{
	Arena *a = arena_new(), *words = arena_new();
	Diag d;
	Ask q = { .a = a, .d = &d, .step = -1 };
	bool asked = false;
	int status = EXIT_USAGE;

	diag_init(&d, stderr, words);
	if (read_flags(&q, argc, argv, &asked))
		status = asked ? fputs(help, stdout) < 0 : run(&q);
	arena_free(words);
	arena_free(a);
	return status;
}
