/* progress.c: the line that says how far a run is. Into a file or a pipe each is a line, with everything; on a terminal, whose
 * width pdrun says (PD_COLUMNS: the programs themselves write to MPI's launcher), it is drawn again and again in its place, with
 * as much as fits. */
#include "rt.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PARTS = 16, NARROW = 40 };

typedef struct part {
	char text[64];
	int weight; /* those of the least weight go first where the terminal is too narrow */
} part;

static struct {
	part part[PARTS];
	int n;
	size_t width; /* of the terminal; 0: there is none */
	bool drawn;
} w;

void rt_progress_open(void)
{
	const char *columns = getenv("PD_COLUMNS");
	const int n = columns ? atoi(columns) : 0;

	w.width = n >= NARROW ? (size_t)n : 0;
}

bool rt_progress_drawn_over(void) { return w.width > 0; }

static void add(int weight, const char *fmt, ...) RT_PRINTF(2, 3);

static void add(int weight, const char *fmt, ...)
{
	va_list ap;

	if (w.n == PARTS)
		return;
	va_start(ap, fmt);
	vsnprintf(w.part[w.n].text, sizeof w.part->text, fmt, ap);
	va_end(ap);
	w.part[w.n++].weight = weight;
}

/* 1536 -> "1.5 KiB"; three digits. */
static void add_bytes(int weight, const char *what, double n)
{
	static const char *const unit[] = { "B", "KiB", "MiB", "GiB", "TiB" };
	int k = 0;

	for (; n >= 999.5 && k < 4; k++)
		n /= 1024;
	add(weight, "  %s %.3g %s", what, n, unit[k]);
}

const char *rt_seconds(char to[32], double s)
{
	const bool whole = s >= 999.5;

	snprintf(to, 32, whole ? "%.0f %s" : "%.3g %s", s < 0.9995 ? 1e3 * s : s, s < 0.9995 ? "ms" : "s");
	return to;
}

const char *rt_speed(char to[32], double x)
{
	snprintf(to, 32, x < 99.5 ? "%.3g" : "%.0f", x);
	return to;
}

static size_t length(void)
{
	size_t n = 0;

	for (int i = 0; i < w.n; i++)
		n += strlen(w.part[i].text);
	return n;
}

static void fit(void)
{
	while (w.width && w.n > 1 && length() >= w.width) {
		int least = 0;

		for (int i = 1; i < w.n; i++)
			least = w.part[i].weight < w.part[least].weight ? i : least;
		w.n--;
		memmove(&w.part[least], &w.part[least + 1], (size_t)(w.n - least) * sizeof *w.part);
	}
}

static void add_eta(double left)
{
	if (left < 60)
		add(12, "  eta %.0fs", left);
	else if (left < 3600)
		add(12, "  eta %dm%02ds", (int)left / 60, (int)left % 60);
	else
		add(12, "  eta %.0fh%02dm", left / 3600 - 0.5, (int)(left / 60) % 60);
}

void rt_progress_line(const pd_metric *m, int64_t last, double memory)
{
	char s[32];

	w.n = 0;
	add(15, "step %6" PRId64 "/%" PRId64, m->step, last);
	add(8, "  ep %.2f", m->epoch);
	add(14, "  loss %.6g", m->loss);
	add(4, " (ema %.6g)", m->loss_ema);
	if (!isnan(m->step_accuracy))
		add(11, "  acc %.3f", m->step_accuracy);
	if (!isnan(m->gradient_norm))
		add(5, "  gnorm %.3g", m->gradient_norm);
	add(7, "  lr %.3g", m->lr);
	add(13, "  %s", rt_seconds(s, m->step_ms / 1e3));
	add(10, "  %s samples/s", rt_speed(s, m->samples_per_s));
	if (!isnan(m->mfu))
		add(6, "  mfu %.1f%%", 100 * m->mfu);
	if (!isnan(m->idle)) {
		add(3, "  idle %.0f%%", 100 * m->idle);
		add_bytes(1, "comm", m->sent);
	}
	add_bytes(2, "mem", memory);
	if (m->step < last)
		add_eta((double)(last - m->step) * m->step_ms / 1e3);
	if (rt_input_synthetic())
		add(9, "  synthetic data");
	fit();
	if (w.drawn)
		printf("\r\033[K");
	for (int i = 0; i < w.n; i++)
		printf("%s", w.part[i].text);
	w.drawn = w.width && m->step < last;
	printf(w.drawn ? "\r" : "\n"); /* what others print writes over it */
	fflush(stdout);
}

void rt_progress_end(void)
{
	if (w.drawn)
		printf("\n");
	w.drawn = false;
}
