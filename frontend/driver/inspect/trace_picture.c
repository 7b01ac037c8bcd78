/* Pictures of pdcc trace: a step as it was measured, below what was predicted. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include "ir/base/human.h"
#include "passes/common/page.h"
#include "trace_events.h"

enum { LEFT = 90, WIDTH = 1060, NUMBERED = 14 };

typedef struct Drawing {
	Arena *a;
	Buf *b;
	double x0, scale; /* seconds at the left, pixels per second */
	int rows;         /* drawn so far */
	bool page, used[KINDS];
} Drawing;

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

bool trace_extent(const Events *m, int64_t step, double *begin, double *end)
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
		if (trace_extent(m, s, &begin, &end))
			length[n++] = end - begin;
	qsort(length, (size_t)n, sizeof *length, by_value);
	for (int64_t s = from; s <= last; s++)
		if (trace_extent(m, s, &begin, &end) && end - begin == length[n / 2])
			best = s;
	return best;
}

static const char *const class_of[KINDS] = { "f", "b", "w", "u", "c", "q", "z" };
static const char *const word_of[KINDS] = { "forward", "backward", "weight gradients", "update", "communication",
	"waiting", "compression" };

/* All of a microbatch on its way forward, or back, has the same data-p, predicted and measured. */
static void bar(Drawing *d, const Event *e, int row, double y, double height)
{
	const double x = LEFT + (e->begin - d->x0) * d->scale, w = fmax((e->end - e->begin) * d->scale, 0.4);

	if (e->kind >= KINDS || !class_of[e->kind])
		return;
	d->used[e->kind] = true;
	buf_printf(d->b, "<rect class=\"t %s\" x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\"", class_of[e->kind],
		x, y, w, height);
	if (d->page)
		buf_printf(d->b, " data-r=\"%d\"", row);
	if (d->page && e->way && e->mb >= 0)
		buf_printf(d->b, " data-p=\"%c%d\"", e->way, e->mb);
	buf_printf(d->b, "><title>%s", word_of[e->kind]);
	if (e->mb >= 0)
		buf_printf(d->b, " of microbatch %d", e->mb);
	buf_printf(d->b, ", %s from %s on</title></rect>\n", time_text(d->a, e->end - e->begin),
		time_text(d->a, e->begin - d->x0));
}

/* The microbatch, where the event is wide enough behind the waits and packing in it, which follow it in the list. */
static void label(const Drawing *d, const Events *m, int i, double y, double height)
{
	const Event *e = &m->e[i];
	double from = e->begin;

	if (e->mb < 0 || e->kind > WEIGHTS || height < 10)
		return;
	for (int k = i + 1; k < m->n && m->e[k].kind >= WAIT && m->e[k].rank == e->rank; k++)
		from = m->e[k].end < e->end ? m->e[k].end : from;
	if ((e->end - from) * d->scale >= NUMBERED)
		buf_printf(d->b, "<text class=\"n\" x=\"%.2f\" y=\"%.1f\">%d</text>\n",
			LEFT + ((from + e->end) / 2 - d->x0) * d->scale, y + height / 2 + 3.5, e->mb);
}

/* Rows of devices from `top` on; where they end. step -1: every event. Waits and packing lie on what they interrupt. */
static double rows(Drawing *d, const Events *m, int64_t step, double x0, double top, const char *title)
{
	const double height = m->devices <= 8 ? 28 : m->devices <= 24 ? 18 : 11;

	d->x0 = x0;
	buf_printf(d->b, "<text class=\"h\" x=\"%d\" y=\"%.1f\">%s</text>\n", LEFT, top - 6, title);
	for (int r = 0; r < m->devices; r++)
		buf_printf(d->b,
			"<rect class=\"k\" x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%.1f\"/>"
			"<text class=\"r\" x=\"%d\" y=\"%.1f\">device %d</text>\n",
			LEFT, top + r * height + 1, WIDTH, height - 2, LEFT - 8, top + (r + 0.5) * height + 4, r);
	for (int pass = 0; pass < 4; pass++)
		for (int i = 0; i < m->n; i++) {
			const double y = top + m->e[i].rank * height + 1;

			if (step >= 0 && m->e[i].step != step)
				continue;
			if (pass == 3)
				label(d, m, i, y, height - 2);
			else if ((m->e[i].kind < WAIT ? 0 : m->e[i].kind == WAIT ? 1 : 2) == pass)
				bar(d, &m->e[i], d->rows + m->e[i].rank, y, height - 2);
		}
	d->rows += m->devices;
	return top + m->devices * height;
}

static void axis(Arena *a, Buf *b, double scale, double length, double top, double bottom)
{
	const double ten = pow(10, floor(log10(length / 5))), each = length / ten > 25   ? 5 * ten
	                                                             : length / ten > 10 ? 2 * ten
	                                                                                 : ten;

	for (int i = 0; i * each <= length * 1.0001 && i < 100; i++)
		buf_printf(b,
			"<path class=\"g\" d=\"M%.2f %.1fV%.1f\"/>"
			"<text class=\"x\" x=\"%.2f\" y=\"%.1f\">%s</text>\n",
			LEFT + i * each * scale, top, bottom, LEFT + i * each * scale, bottom + 14,
			i ? time_text(a, i * each) : "0");
}

static void frame(const Drawing *d, Buf *b, double height, double all)
{
	double x = LEFT;

	buf_printf(b,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" viewBox=\"0 0 %d %.0f\"%s>\n<style>\n%s"
		"</style>\n<rect class=\"back\" width=\"100%%\" height=\"100%%\"/>\n",
		LEFT + WIDTH + 40, height, LEFT + WIDTH + 40, height,
		d->page ? " tabindex=\"0\" role=\"application\" aria-label=\"timeline: arrow keys go from bar to bar\""
			: "",
		page_svg_style);
	for (int i = 0; i < KINDS; i++)
		if (d->used[i])
			x = page_key(b, x, 18, class_of[i], word_of[i]);
	buf_printf(b, "<text x=\"%g\" y=\"28\">number: microbatch</text>\n", x);
	axis(d->a, b, d->scale, all, 62, height - 26);
	buf_puts(b, buf_str(d->b));
	buf_puts(b, "</svg>\n");
}

/* Of a prediction that shows several steps one in the middle is drawn, as one of the run's is: from its first forward to its last
 * update, while others go on. */
void trace_picture(Ask *q, Buf *b, bool page)
{
	const Events *m = &q->measured, *p = &q->planned;
	const int64_t step = q->step < 0 ? median_step(q) : q->step;
	double begin, end, from, last, length = 0, y = 80;
	Buf in = { 0 };

	trace_extent(m, step, &begin, &end);
	for (int i = 0; i < p->n; i++)
		length = fmax(length, p->e[i].end);
	const int64_t middle = p->steps && trace_extent(p, p->steps / 2, &from, &last) ? p->steps / 2 : -1;
	from = middle < 0 ? 0 : from;
	length = middle < 0 ? length : last - from;
	const double all = fmax(fmax(length, end - begin), 1e-9);
	Drawing d = { .b = &in, .scale = WIDTH / all, .page = page, .a = q->a };
	const char *several =
		middle >= 0 ? arena_printf(q->a, ", step %" PRId64 "; a step each %s", middle, time_text(q->a, p->each))
			    : "";
	if (p->n)
		y = rows(&d, p, middle, from, y,
			    arena_printf(q->a, "predicted%s: %s", several, time_text(q->a, length))) +
		    34;
	y = rows(&d, m, step, begin, y,
		arena_printf(q->a, "measured, step %" PRId64 ": %s", step, time_text(q->a, end - begin)));
	frame(&d, b, y + 30, all);
	buf_free(&in);
}

/* Where each device's time went, as pdcc trace prints it. */
static void table(const Ask *q, Buf *b)
{
	page_wide(b, "where the time went");
	buf_puts(b,
		"<table>\n<tr><th class=\"v\">device</th><th class=\"v\">step, ms</th><th class=\"v\">compute, ms</th>"
		"<th class=\"v\">compression, ms</th><th class=\"v\">communication, ms</th><th class=\"v\">idle, ms</th>"
		"<th class=\"v\">idle, %</th></tr>\n");
	for (int r = q->first; r < q->end; r++) {
		double t[KINDS], wall;
		int64_t steps;

		trace_spent(q, r, t, &wall, &steps);
		const double work = trace_work(t), talk = trace_talk(t), idle = wall - work - talk - t[PACK],
			     ms = 1e3 / (double)(steps > 0 ? steps : 1);
		const double cell[] = { wall * ms, work * ms, t[PACK] * ms, talk * ms, idle * ms,
			wall > 0 ? 100 * idle / wall : 0 };
		buf_printf(b, "<tr><td class=\"v\">%d</td>", r);
		for (size_t i = 0; i < sizeof cell / sizeof *cell; i++)
			buf_printf(b, "<td class=\"v\">%.*f</td>", i < 5 ? 3 : 1, cell[i]);
		buf_puts(b, "</tr>\n");
	}
	buf_puts(b, "</table>\n");
	page_wide_end(b);
}

void trace_page(Ask *q, Buf *b)
{
	page_begin(b, arena_printf(q->a, "pdcc trace %s", q->folder), "");
	buf_puts(b, "<div class=\"wide\">\n");
	trace_picture(q, b, true);
	buf_puts(b,
		"</div>\n<p class=\"said\" role=\"status\">Point at a bar, or go from bar to bar with the arrow keys, and it is "
		"told here, and all that is done with the same microbatch in the same direction is marked: computed, sent "
		"and received, predicted and measured. --step N draws another step.</p>\n");
	table(q, b);
	buf_printf(b, "<script>\n//<![CDATA[\nconst LEFT = %d;\n", LEFT);
	page_bars_script(b);
	buf_puts(b, "//]]>\n</script>\n");
	page_end(b);
}
