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
#include "trace.h"

enum { E_TRACE = 808, DEVICES = 4096, LEFT = 90, WIDTH = 1060, NUMBERED = 14 };

typedef enum Kind { FORWARD, BACKWARD, UPDATE, TALK, WAIT, PACK, EVALUATION, KINDS } Kind;

typedef struct Event {
	Kind kind;
	double begin, end; /* seconds */
	int rank, mb;
	int64_t step; /* -1: an evaluation, between steps */
} Event;

/* Of a prediction: how many steps it shows, and seconds of one in the middle; 0: what the file shows is one. */
typedef struct Events {
	Event *e;
	int n, cap, devices, steps;
	double each;
	bool only;
} Events; /* only: of --trace-rank */

typedef struct Ask {
	Arena *a;
	Diag *d;
	const char *folder, *predicted, *timeline[8];
	int ntimeline;
	int64_t step;   /* -1: the one of median length */
	int first, end; /* devices whose files there are */
	Events measured, planned;
} Ask;

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
		{ "\"name\": \"W\"", BACKWARD },
		{ "\"name\": \"UPDATE\"", UPDATE },
		{ "\"name\": \"wait\"", WAIT },
		{ "\"name\": \"pack\"", PACK },
		{ "\"name\": \"evaluation\"", EVALUATION },
		{ "\"cat\": \"forward\"", FORWARD },
		{ "\"cat\": \"backward\"", BACKWARD },
		{ "\"cat\": \"weights\"", BACKWARD },
		{ "\"cat\": \"update\"", UPDATE },
	};

	for (size_t i = 0; i < sizeof word / sizeof *word; i++)
		if (strstr(line, word[i].text))
			return word[i].kind;
	return TALK;
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
			(Event){ kind_of(s), ts / 1e6, (ts + dur) / 1e6, (int)pid, (int)mb, (int64_t)step };
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
static void spent(const Ask *q, int rank, double *to, double *wall, int64_t *steps)
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

		spent(q, r, t, &wall, &steps);
		const double work = t[FORWARD] + t[BACKWARD] + t[UPDATE], talk = t[TALK] + t[WAIT],
			     idle = wall - work - talk - t[PACK];
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
			work += e->rank == r && (e->kind == FORWARD || e->kind == BACKWARD || e->kind == UPDATE)
			                ? e->end - e->begin
			                : 0;
		}
		spent(q, r, t, &wall, &steps);
		work /= q->planned.steps ? q->planned.steps : 1;
		const double ms = 1e3 / (double)(steps > 0 ? steps : 1),
			     busy = t[FORWARD] + t[BACKWARD] + t[UPDATE] + t[PACK];
		const double talk = t[TALK] + t[WAIT];
		printf("%6d %19.3f %8.3f %14.3f %19.3f %8.3f %14.3f %5.3f\n", r, 1e3 * step, 1e3 * work,
			1e3 * (step - work), wall * ms, busy * ms, talk * ms, (wall - busy - talk) * ms);
	}
}

/* ---- pictures ---- */

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Begin and end of a step over all devices; false: there is no such step. */
static bool extent(const Events *m, int64_t step, double *begin, double *end)
{
	*begin = INFINITY;
	*end = -INFINITY;
	for (int i = 0; i < m->n; i++)
		if (m->e[i].step == step) {
			*begin = fmin(*begin, m->e[i].begin);
			*end = fmax(*end, m->e[i].end);
		}
	return *begin <= *end;
}

static int64_t median_step(const Ask *q)
{
	const Events *m = &q->measured;
	int64_t last = 0, best = 0;
	double *length, begin, end;
	int n = 0;

	for (int i = 0; i < m->n; i++)
		last = m->e[i].step > last ? m->e[i].step : last;
	const int64_t from = last > 1000 ? last - 999 : last > 0;
	length = NEWN(q->a, double, last - from + 1);
	for (int64_t s = from; s <= last; s++)
		if (extent(m, s, &begin, &end))
			length[n++] = end - begin;
	qsort(length, (size_t)n, sizeof *length, by_value);
	for (int64_t s = from; s <= last; s++)
		if (extent(m, s, &begin, &end) && end - begin == length[n / 2])
			best = s;
	return best;
}

static void bar(Buf *b, const Event *e, double x0, double scale, double y, double height)
{
	static const char *const colour[KINDS] = { "#3b75b5", "#3f9454", "#9a5fa3", "#e8842a", "#fbe6cf", "#c2412d" };
	static const char *const word[KINDS] = { "forward", "backward", "update", "communication", "wait",
		"compression" };
	const double x = LEFT + (e->begin - x0) * scale, w = fmax((e->end - e->begin) * scale, 0.4);

	buf_printf(b, "<rect fill=\"%s\" x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\"><title>%s",
		colour[e->kind], x, y, w, height, word[e->kind]);
	if (e->mb >= 0)
		buf_printf(b, " of microbatch %d", e->mb);
	buf_printf(b, ", %.4g ms from %.4g ms on</title></rect>\n", (e->end - e->begin) * 1e3, (e->begin - x0) * 1e3);
}

/* The microbatch, where the event is wide enough behind the waits and packing in it, which follow it in the list. */
static void label(Buf *b, const Events *m, int i, double x0, double scale, double y, double height)
{
	const Event *e = &m->e[i];
	double from = e->begin;

	if (e->mb < 0 || e->kind > BACKWARD || height < 10)
		return;
	for (int k = i + 1; k < m->n && m->e[k].kind >= WAIT && m->e[k].rank == e->rank; k++)
		from = m->e[k].end < e->end ? m->e[k].end : from;
	if ((e->end - from) * scale >= NUMBERED)
		buf_printf(b, "<text class=\"n\" x=\"%.2f\" y=\"%.1f\">%d</text>\n",
			LEFT + ((from + e->end) / 2 - x0) * scale, y + height / 2 + 3.5, e->mb);
}

/* Rows of devices from `top` on; where they end. step -1: every event. Waits and packing lie on what they interrupt. */
static double rows(Buf *b, const Events *m, int64_t step, double x0, double scale, double top, const char *title)
{
	const double height = m->devices <= 8 ? 26 : m->devices <= 24 ? 18 : 11;

	buf_printf(b, "<text class=\"h\" x=\"%d\" y=\"%.1f\">%s</text>\n", LEFT, top - 6, title);
	for (int r = 0; r < m->devices; r++)
		buf_printf(b,
			"<rect fill=\"#f4f4f4\" x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%.1f\"/>"
			"<text class=\"r\" x=\"%d\" y=\"%.1f\">device %d</text>\n",
			LEFT, top + r * height + 1, WIDTH, height - 2, LEFT - 8, top + (r + 0.5) * height + 4, r);
	for (int pass = 0; pass < 4; pass++)
		for (int i = 0; i < m->n; i++) {
			const double y = top + m->e[i].rank * height + 1;

			if (step >= 0 && m->e[i].step != step)
				continue;
			if (pass == 3)
				label(b, m, i, x0, scale, y, height - 2);
			else if ((m->e[i].kind < WAIT ? 0 : m->e[i].kind == WAIT ? 1 : 2) == pass)
				bar(b, &m->e[i], x0, scale, y, height - 2);
		}
	return top + m->devices * height;
}

static void axis(Buf *b, double scale, double length, double top, double bottom)
{
	const double ten = pow(10, floor(log10(length / 5))), each = length / ten > 25   ? 5 * ten
	                                                             : length / ten > 10 ? 2 * ten
	                                                                                 : ten;

	for (int i = 0; i * each <= length * 1.0001 && i < 100; i++)
		buf_printf(b,
			"<path stroke=\"#bbb\" stroke-width=\".5\" d=\"M%.2f %.1fV%.1f\"/>"
			"<text class=\"x\" x=\"%.2f\" y=\"%.1f\">%.6g ms</text>\n",
			LEFT + i * each * scale, top, bottom, LEFT + i * each * scale, bottom + 14, i * each * 1e3);
}

/* Of a prediction that shows several steps one in the middle is drawn, as one of the run's is: from its first forward to its last
 * update, while others go on. */
static void picture(Ask *q, Buf *b)
{
	const Events *m = &q->measured, *p = &q->planned;
	const int64_t step = q->step < 0 ? median_step(q) : q->step;
	double begin, end, from, last, length = 0, y = 80;
	Buf in = { 0 };

	extent(m, step, &begin, &end);
	for (int i = 0; i < p->n; i++)
		length = fmax(length, p->e[i].end);
	const int64_t middle = p->steps && extent(p, p->steps / 2, &from, &last) ? p->steps / 2 : -1;
	from = middle < 0 ? 0 : from;
	length = middle < 0 ? length : last - from;
	const double all = fmax(fmax(length, end - begin), 1e-9), scale = WIDTH / all;
	const char *several =
		middle >= 0 ? arena_printf(q->a, ", step %" PRId64 "; a step each %.4g ms", middle, p->each * 1e3) : "";
	if (p->n)
		y = rows(&in, p, middle, from, scale, y,
			    arena_printf(q->a, "predicted%s: %.4g ms", several, length * 1e3)) +
		    34;
	y = rows(&in, m, step, begin, scale, y,
		arena_printf(q->a, "measured, step %" PRId64 ": %.4g ms", step, (end - begin) * 1e3));
	buf_printf(b,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\">\n<style>text { font: 11px sans-serif; "
		"fill: #333 } .h { font-weight: bold; font-size: 13px } .n { fill: #fff; font-size: 10px; text-anchor: middle } "
		".r { text-anchor: end } .x { text-anchor: middle }</style>\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
		LEFT + WIDTH + 40, y + 30);
	static const char *const name[][2] = { { "#3b75b5", "forward" }, { "#3f9454", "backward" },
		{ "#9a5fa3", "update" }, { "#e8842a", "communication" }, { "#fbe6cf", "waiting" },
		{ "#c2412d", "compression" } };
	for (int i = 0; i < 6; i++)
		buf_printf(b,
			"<rect fill=\"%s\" x=\"%d\" y=\"18\" width=\"12\" height=\"12\"/><text x=\"%d\" y=\"28\">%s</text>\n",
			name[i][0], LEFT + i * 120, LEFT + i * 120 + 17, name[i][1]);
	axis(b, scale, all, 62, y + 4);
	buf_puts(b, buf_str(&in));
	buf_puts(b, "</svg>\n");
	buf_free(&in);
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

	if (page)
		buf_puts(&b,
			"<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>pdcc trace</title></head>\n<body>\n");
	if (json)
		ok = merge(q, &b);
	else
		picture(q, &b);
	if (page)
		buf_puts(&b, "</body></html>\n");
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

		if (strcmp(flag, "--help") == 0)
			return *asked = true;
		if (flag[0] != '-') {
			if (q->folder)
				return diag_error(
					q->d, NOLOC, 1, "one folder at a time, not '%s' and '%s'", q->folder, flag);
			q->folder = flag;
			continue;
		}
		if (strcmp(flag, "--timeline") && strcmp(flag, "--predicted") && strcmp(flag, "--step"))
			return diag_error(q->d, NOLOC, 1, "unknown flag '%s'; --help lists them", flag);
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
	return q->folder || diag_error(q->d, NOLOC, 1, "no folder is named; --help shows how");
}

static int run(Ask *q)
{
	double begin, end;

	if (!read_all(q))
		return EXIT_INPUT;
	if (q->step >= 0 && !extent(&q->measured, q->step, &begin, &end)) {
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
