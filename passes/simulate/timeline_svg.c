/* The picture of a simulated step as SVG: a row per device, in it computations between what it receives (above) and what it
 * sends (below), and under all of them memory over time. Every rectangle has a title,
 * which browsers show under the pointer. The page of timeline_html.c is this picture with a script that stretches the
 * elements of class t, so those have no time of their own but x and width. */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include "passes/common/page.h"
#include "timeline_svg.h"

enum { MAX_ROWS = 64, MAX_CURVES = 8, CURVES_HEIGHT = 130, LANE = 4, GAP = 3, EDGED = 3 };
static const double LEFT = SVG_LEFT, WIDTH = SVG_WIDTH, TOP = 96;

static const char *const curve_colour[MAX_CURVES] = { "#3b75b5", "#d1495b", "#2e8b57", "#a07400", "#8a63d2", "#008b8b",
	"#a0623a", "#7a7f87" };

typedef struct Drawing {
	Arena *a;
	Buf *b;
	const Sim *s;
	bool page;        /* for timeline_html: numbers are the script's */
	int *row, nrow;   /* ranks that are shown */
	int *head, *next; /* spans by rank */
	int *came, *then; /* messages by who gets them */
	bool used[128];   /* classes of bars that were drawn, by their letter */
	double height;    /* of a row */
	double scale;     /* pixels per second */
} Drawing;

/* All devices, or one of each stage, or one of some stages. */
static void pick_rows(Drawing *d)
{
	const Schedule *p = d->s->model->s;

	d->row = NEWN(d->a, int, MAX_ROWS);
	if (p->ndevice <= MAX_ROWS) {
		while (d->nrow < p->ndevice) {
			d->row[d->nrow] = d->nrow;
			d->nrow++;
		}
		return;
	}
	const int n = p->nstage < MAX_ROWS ? p->nstage : MAX_ROWS;
	while (d->nrow < n) {
		d->row[d->nrow] = p->device[(int64_t)d->nrow * p->nstage / n][0];
		d->nrow++;
	}
}

static void sort_spans(Drawing *d)
{
	const int n = d->s->model->s->ndevice;

	d->head = NEWN(d->a, int, n);
	d->next = NEWN(d->a, int, d->s->nspan);
	d->came = NEWN(d->a, int, n);
	d->then = NEWN(d->a, int, d->s->nspan);
	for (int r = 0; r < n; r++)
		d->head[r] = d->came[r] = -1;
	for (int i = d->s->nspan - 1; i >= 0; i--) {
		d->next[i] = d->head[d->s->span[i].rank];
		d->head[d->s->span[i].rank] = i;
		if (d->s->span[i].peer < 0)
			continue;
		d->then[i] = d->came[d->s->span[i].peer];
		d->came[d->s->span[i].peer] = i;
	}
}

/* ---- the axis ---- */

/* 1, 2 or 5 times a power of ten: 5 to 12 ticks. */
static double tick_step(double all)
{
	const double ten = pow(10, floor(log10(all / 12)));

	for (int k = 1; k <= 5; k += k == 1 ? 1 : 3)
		if (k * ten >= all / 12 * (1 - 1e-9))
			return k * ten;
	return 10 * ten;
}

static void axis(Drawing *d, double top, double bottom)
{
	const double step = d->s->step;
	const double unit = step >= 1 ? 1 : step >= 1e-3 ? 1e-3 : 1e-6;

	buf_printf(d->b, "<text class=\"r\" x=\"%g\" y=\"%g\">%s</text>\n<g id=\"axis\">\n", LEFT - 12, top - 6,
		step >= 1      ? "time, s"
		: step >= 1e-3 ? "time, ms"
			       : "time, us");
	const double each = step > 0 ? tick_step(step) : 1;
	for (int i = 0; i * each <= step * (1 + 1e-9); i++) {
		const double x = LEFT + i * each * d->scale;
		buf_printf(d->b,
			"<line class=\"g\" x1=\"%.2f\" x2=\"%.2f\" y1=\"%g\" y2=\"%g\"/>"
			"<text class=\"x\" x=\"%.2f\" y=\"%g\">%.6g</text>\n",
			x, x, top, bottom, x, top - 6, i * each / unit);
	}
	buf_puts(d->b, "</g>\n");
}

/* ---- rows ---- */

/* A span on a row: on that of who does it, or of who receives it. */
typedef struct Bar {
	SimSpan x;
	int id; /* its index; messages have the same on both rows */
	bool received;
} Bar;

static void bar_title(Drawing *d, const Bar *r)
{
	const SimSpan *x = &r->x;

	buf_printf(d->b, "><title>%s", span_text(d->a, d->s, x));
	if (r->received)
		buf_printf(d->b, ", received from device %d", x->rank);
	buf_printf(d->b, "\n%s", time_text(d->a, x->begin));
	buf_printf(d->b, " to %s: %s</title></rect>", time_text(d->a, x->end), time_text(d->a, x->end - x->begin));
}

static void rectangle(Drawing *d, const Bar *r, double y)
{
	const SimSpan *x = &r->x;
	const double at = LEFT + x->begin * d->scale, wide = (x->end - x->begin) * d->scale;
	const bool message = x->peer >= 0;
	const double tall = message ? LANE : d->height - 2 * LANE - GAP;
	const double top = r->received ? y : message ? y + d->height - LANE - GAP : y + LANE;
	const char *class = r->received ? "v" : span_class(x);

	d->used[(unsigned char)*class] = true;
	buf_printf(d->b, "<rect class=\"t %s%s\" x=\"%.3f\" y=\"%.2f\" width=\"%.3f\" height=\"%.2f\"", class,
		wide > EDGED && !message ? " o" : "", at, top, wide, tall);
	if (d->page)
		buf_printf(d->b, " data-r=\"%d\"", r->received ? x->peer : x->rank);
	if (d->page && message)
		buf_printf(d->b, " data-p=\"%d\"", r->id);
	if (d->page && x->mb >= 0 && !message)
		buf_printf(d->b, " data-n=\"%d\"", x->mb);
	bar_title(d, r);
	const int digits = x->mb > 99 ? 3 : x->mb > 9 ? 2 : 1;
	if (!d->page && x->mb >= 0 && !message && wide >= 6 * digits + 4 && tall >= 10)
		buf_printf(d->b, "<text class=\"n\" x=\"%.2f\" y=\"%.2f\">%d</text>", at + wide / 2,
			top + tall / 2 + 3.5, x->mb);
	buf_putc(d->b, '\n');
	arena_reset(d->a);
}

/* Spans thinner than a hair that touch others of their kind become one. */
static void row_spans(Drawing *d, int first, const int *next, bool received, double y)
{
	const double hair = d->scale > 0 ? 0.3 / d->scale : 0;
	Bar held[2] = { { .id = -1 }, { .id = -1 } }; /* computations, messages */

	for (int i = first; i >= 0; i = next[i]) {
		const SimSpan *x = &d->s->span[i];
		Bar *h = &held[x->peer >= 0];
		const bool thin = x->end - x->begin < hair;

		if (x->end <= x->begin)
			continue;
		if (h->id >= 0 && thin && h->x.kind == x->kind && x->begin - h->x.end < hair &&
			h->x.end - h->x.begin < 10 * hair) {
			h->x.end = x->end > h->x.end ? x->end : h->x.end;
			continue;
		}
		if (h->id >= 0)
			rectangle(d, h, y);
		*h = (Bar){ *x, i, received };
	}
	for (int k = 0; k < 2; k++)
		if (held[k].id >= 0)
			rectangle(d, &held[k], y);
}

static void rows(Drawing *d)
{
	const Schedule *p = d->s->model->s;

	for (int i = 0; i < d->nrow; i++) {
		const double y = TOP + i * d->height;
		const int r = d->row[i], stage = p->dev[r].n ? p->dev[r].act[0].stage : 0;
		buf_printf(d->b, "<rect class=\"k\" x=\"%g\" y=\"%.2f\" width=\"%g\" height=\"%.2f\"/>\n", LEFT, y,
			WIDTH, d->height - GAP);
		buf_printf(d->b, "<text class=\"r\" x=\"%g\" y=\"%.2f\">stage %d  device %d<title>", LEFT - 6,
			y + (d->height - GAP) / 2 + 4, stage, r);
		buf_xml(d->b, device_text(d->s, r));
		buf_puts(d->b, "</title></text>\n");
	}
	axis(d, TOP, TOP + d->nrow * d->height - GAP);
	buf_puts(d->b, "<g id=\"rows\" clip-path=\"url(#plot)\">\n");
	for (int i = 0; i < d->nrow; i++) {
		const int r = d->row[i];

		row_spans(d, d->head[r], d->next, false, TOP + i * d->height);
		row_spans(d, d->came[r], d->then, true, TOP + i * d->height);
	}
	buf_puts(d->b, "</g>\n");
}

/* ---- memory ---- */

/* A round amount of which two to five fill the axis. */
static double memory_step(const Sim *s, int64_t most)
{
	double unit = 1;

	while (s->model->fixed && (double)most >= 1024 * unit)
		unit *= 1024;
	const double step = tick_step((double)most / unit * 12 / 5) * unit;
	return step < 1 ? 1 : step;
}

static const char *amount(Arena *a, const Sim *s, double n)
{
	static const char *const unit[] = { "B", "KiB", "MiB", "GiB", "TiB" };
	int k = 0;

	if (!s->model->fixed)
		return arena_printf(a, "%.0f slots", n);
	for (; n >= 1024 && k < 4; k++)
		n /= 1024;
	return arena_printf(a, "%.4g %s", n, unit[k]);
}

static void curve(Drawing *d, int rank, const char *colour, double bottom, double per_byte)
{
	const double base = bottom - (double)bytes_in_use(d->s, rank, 0) * per_byte;

	buf_printf(d->b, "<path class=\"t m\" stroke=\"%s\" d=\"M%.2f %.2f", colour, LEFT, base);
	for (int i = 0; i < d->s->nuse; i++)
		if (d->s->use[i].rank == rank)
			buf_printf(d->b, "H%.2fV%.2f", LEFT + d->s->use[i].time * d->scale,
				bottom - (double)bytes_in_use(d->s, rank, d->s->use[i].held) * per_byte);
	buf_printf(d->b, "H%.2f\"/>\n", LEFT + d->s->step * d->scale);
}

/* One curve for the first device of a stage, of eight stages at most. */
static void curves(Drawing *d, double top)
{
	const Schedule *p = d->s->model->s;
	const int n = p->nstage < MAX_CURVES ? p->nstage : MAX_CURVES;
	const double bottom = top + CURVES_HEIGHT;
	int64_t most = 1;

	for (int r = 0; r < p->ndevice; r++)
		if (p->dev[r].n && bytes_in_use(d->s, r, d->s->most[r]) > most)
			most = bytes_in_use(d->s, r, d->s->most[r]);
	buf_printf(d->b, "<text class=\"r\" x=\"%g\" y=\"%g\">%s</text>\n", LEFT - 6, top - 12,
		d->s->model->fixed ? "memory" : "in flight");
	const double each = memory_step(d->s, most);
	for (int k = 0; k * each <= (double)most; k++) {
		const double y = bottom - k * each * CURVES_HEIGHT / (double)most;
		buf_printf(
			d->b, "<line class=\"g\" x1=\"%g\" x2=\"%g\" y1=\"%g\" y2=\"%g\"/>", LEFT, LEFT + WIDTH, y, y);
		buf_printf(d->b, "<text class=\"y\" x=\"%g\" y=\"%g\">%s</text>\n", LEFT - 6, y + 4,
			amount(d->a, d->s, k * each));
	}
	for (int k = 0; k < n; k++) {
		const double x = LEFT + k * 100;
		buf_printf(d->b,
			"<line class=\"key\" x1=\"%g\" x2=\"%g\" y1=\"%g\" y2=\"%g\" stroke=\"%s\" stroke-width=\"2\"/>",
			x, x + 18, top - 12, top - 12, curve_colour[k]);
		buf_printf(d->b, "<text x=\"%g\" y=\"%g\">stage %d</text>\n", x + 23, top - 8,
			(int)((int64_t)k * p->nstage / n));
	}
	buf_puts(d->b, "<g id=\"curves\" clip-path=\"url(#plot)\">\n");
	for (int k = 0; k < n; k++)
		curve(d, p->device[(int64_t)k * p->nstage / n][0], curve_colour[k], bottom,
			CURVES_HEIGHT / (double)most);
	buf_puts(d->b, "</g>\n");
}

/* ---- all of it ---- */

/* The colours that were drawn. */
static void legend(Drawing *d)
{
	static const struct {
		const char *class, *text;
	} item[] = { { "f", "forward" }, { "b", "backward" }, { "w", "weight gradients" }, { "v", "received" },
		{ "c", "sent" }, { "s", "AllReduce and losses" }, { "u", "update" } };
	double x = LEFT;

	for (size_t i = 0; i < sizeof item / sizeof *item; i++)
		if (d->used[(unsigned char)*item[i].class])
			x = page_key(d->b, x, 56, item[i].class, item[i].text);
	buf_printf(d->b, "<text x=\"%g\" y=\"66\">number: microbatch</text>\n", x);
}

static void heading(Drawing *d, const char *title)
{
	const Schedule *p = d->s->model->s;

	buf_printf(d->b, "<text class=\"h\" x=\"%g\" y=\"22\">", LEFT);
	buf_xml(d->b, title);
	buf_printf(d->b, "</text>\n<text x=\"%g\" y=\"42\">step %s, bubble %.1f %%", LEFT, time_text(d->a, d->s->step),
		100 * d->s->bubble);
	if (d->nrow < p->ndevice)
		buf_printf(d->b, "; %d of %d devices are shown", d->nrow, p->ndevice);
	buf_puts(d->b, "</text>\n");
}

void svg_picture(Buf *b, const Sim *s, const char *title, bool page)
{
	Arena *keep = arena_new(), *words = arena_new();
	Drawing d = { .a = keep, .b = b, .s = s, .page = page, .scale = s->step > 0 ? WIDTH / s->step : 0 };

	pick_rows(&d);
	sort_spans(&d);
	d.a = words;
	d.height = d.nrow <= 8 ? 34 : d.nrow <= 24 ? 26 : 20;
	const double rows_end = TOP + d.nrow * d.height, curves_top = rows_end + 40,
		     all = curves_top + CURVES_HEIGHT + 16;
	buf_printf(b, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" viewBox=\"0 0 %g %g\"%s>\n",
		LEFT + WIDTH + SVG_RIGHT, all, LEFT + WIDTH + SVG_RIGHT, all,
		page ? " tabindex=\"0\" role=\"application\" aria-label=\"timeline: arrow keys go from bar to bar\""
		     : "");
	buf_printf(b, "<style>\n%s</style>\n", page_svg_style);
	buf_printf(b, "<clipPath id=\"plot\"><rect x=\"%g\" y=\"0\" width=\"%g\" height=\"%g\"/></clipPath>\n", LEFT,
		WIDTH + 1, all);
	buf_printf(b, "<rect class=\"back\" width=\"%g\" height=\"%g\"/>\n", LEFT + WIDTH + SVG_RIGHT, all);
	heading(&d, title);
	rows(&d);
	legend(&d);
	curves(&d, curves_top);
	buf_puts(b, "</svg>\n");
	arena_free(words);
	arena_free(keep);
}

void timeline_svg(Buf *b, const Sim *s, const char *title) { svg_picture(b, s, title, false); }
