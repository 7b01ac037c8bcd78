/* Differences of two texts: what --print-ir-after-change prints and ir/index.html shows.
 *
 * Lines that are equal and once in each text are anchors; of these the longest increasing sequence is kept, and what lies
 * between is looked at again. Where no anchor is left, lines that define the same name are anchors: a pass writes many lines
 * anew, with one more attribute. */
#include <string.h>
#include "ir/base/map.h"
#include "diff.h"

enum { LINES, NAMES, LEVELS };

typedef struct Match {
	Arena *a;
	int *x[LEVELS], *y[LEVELS]; /* numbers of lines, and of the names that they define */
	int *to;                    /* by line of x: its line of y, -1: none */
	int *countx, *county, *at;  /* by number, 0 between calls; at: the line of y */
} Match;

typedef struct Span {
	int x0, x1, y0, y1;
} Span;

static const char **lines_of(Arena *a, const char *text, int *n)
{
	const char **s = NULL;
	int cap = 0;

	*n = 0;
	for (const char *p = text; *p;) {
		const size_t k = strcspn(p, "\n");

		PUSH(a, s, *n, cap) = arena_strn(a, p, k);
		p += k + (p[k] == '\n');
	}
	return s;
}

/* "param @w : f32[4] weight" defines "param @w"; a line that defines nothing is its own name. */
static const char *name_of(Arena *a, const char *line)
{
	static const char *const ends[] = { " = ", " : ", " <- ", " on ", " {" };

	for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
		const char *e = strstr(line, ends[i]);
		if (e)
			return arena_strn(a, line, (size_t)(e - line));
	}
	return line;
}

static int *numbers(Arena *a, Map *m, const char *const *line, int n, bool names)
{
	int *to = NEWN(a, int, n);

	for (int i = 0; i < n; i++) {
		const char *s = names ? name_of(a, line[i]) : line[i];

		if (!map_has(m, s))
			map_put(m, s, (void *)(m->n + 1));
		to[i] = (int)(size_t)map_get(m, s);
	}
	return to;
}

/* Numbers that are once on each side become pairs, in order of x; those of the longest sequence in which y grows are matched.
 * Gives how many. */
static int anchors(Match *m, const Span *s, int level)
{
	const int *x = m->x[level], *y = m->y[level], most = s->x1 - s->x0;
	int *px = NEWN(m->a, int, most), *tail = NEWN(m->a, int, most), *from = NEWN(m->a, int, most), n = 0,
	    length = 0;

	for (int i = s->x0; i < s->x1; i++)
		m->countx[x[i]]++;
	for (int j = s->y0; j < s->y1; j++) {
		m->county[y[j]]++;
		m->at[y[j]] = j;
	}
	for (int i = s->x0; i < s->x1; i++)
		if (m->countx[x[i]] == 1 && m->county[x[i]] == 1)
			px[n++] = i;
	for (int k = 0; k < n; k++) { /* tail[l]: the pair with the least y that ends a sequence of l + 1 */
		int lo = 0, hi = length;

		while (lo < hi) {
			const int mid = (lo + hi) / 2;
			if (m->at[x[px[tail[mid]]]] < m->at[x[px[k]]])
				lo = mid + 1;
			else
				hi = mid;
		}
		from[k] = lo ? tail[lo - 1] : -1;
		tail[lo] = k;
		length = lo == length ? length + 1 : length;
	}
	for (int k = length ? tail[length - 1] : -1; k >= 0; k = from[k])
		m->to[px[k]] = m->at[x[px[k]]];
	for (int i = s->x0; i < s->x1; i++)
		m->countx[x[i]] = 0;
	for (int j = s->y0; j < s->y1; j++)
		m->county[y[j]] = 0;
	return length;
}

static void match(Match *m, Span s, int level)
{
	const int *x = m->x[level], *y = m->y[level];

	while (s.x0 < s.x1 && s.y0 < s.y1 && x[s.x0] == y[s.y0])
		m->to[s.x0++] = s.y0++;
	while (s.x0 < s.x1 && s.y0 < s.y1 && x[s.x1 - 1] == y[s.y1 - 1])
		m->to[--s.x1] = --s.y1;
	if (s.x0 == s.x1 || s.y0 == s.y1)
		return;
	if (!anchors(m, &s, level)) {
		if (level + 1 < LEVELS)
			match(m, s, level + 1);
		return;
	}
	Span part = { s.x0, 0, s.y0, 0 };
	for (int i = s.x0; i <= s.x1; i++)
		if (i == s.x1 || m->to[i] >= 0) {
			const int j = i == s.x1 ? s.y1 : m->to[i];
			part.x1 = i;
			part.y1 = j;
			match(m, part, level);
			while (i + 1 < s.x1 && m->to[i + 1] == m->to[i] + 1)
				i++;
			part.x0 = i + 1;
			part.y0 = i < s.x1 ? m->to[i] + 1 : s.y1;
		}
}

Diff diff_texts(Arena *a, const char *before, const char *after)
{
	Diff d = { 0 };
	Match m = { .a = a };
	Map known;

	d.x = lines_of(a, before, &d.nx);
	d.y = lines_of(a, after, &d.ny);
	map_init(&known, a, true);
	for (int l = 0; l < LEVELS; l++) {
		m.x[l] = numbers(a, &known, d.x, d.nx, l == NAMES);
		m.y[l] = numbers(a, &known, d.y, d.ny, l == NAMES);
	}
	m.countx = NEWN(a, int, known.n + 1);
	m.county = NEWN(a, int, known.n + 1);
	m.at = NEWN(a, int, known.n + 1);
	m.to = NEWN(a, int, d.nx);
	for (int i = 0; i < d.nx; i++)
		m.to[i] = -1;
	match(&m, (Span){ 0, d.nx, 0, d.ny }, LINES);
	for (int i = 0, j = 0; i < d.nx || j < d.ny;) {
		const int to = i < d.nx ? m.to[i] : d.ny;

		if (to < 0) {
			PUSH(a, d.row, d.n, d.cap) = (DiffRow){ i++, -1, false };
			d.removed++;
			continue;
		}
		for (; j < to; j++, d.added++)
			PUSH(a, d.row, d.n, d.cap) = (DiffRow){ -1, j, false };
		if (i == d.nx)
			break;
		const bool same = m.x[LINES][i] == m.y[LINES][j];
		d.removed += !same;
		d.added += !same;
		PUSH(a, d.row, d.n, d.cap) = (DiffRow){ i++, j++, same };
	}
	return d;
}

void diff_unified(Buf *b, const Diff *d)
{
	for (int k = 0, i = 0, j = 0; k < d->n; k++) {
		int nx = 0, ny = 0, end = k;

		for (; end < d->n && !d->row[end].same; end++) {
			nx += d->row[end].x >= 0;
			ny += d->row[end].y >= 0;
		}
		if (end > k)
			buf_printf(b, "@@ -%d,%d +%d,%d @@\n", i + 1, nx, j + 1, ny);
		for (int q = k; q < end; q++)
			if (d->row[q].x >= 0)
				buf_printf(b, "-%s\n", d->x[d->row[q].x]);
		for (int q = k; q < end; q++)
			if (d->row[q].y >= 0)
				buf_printf(b, "+%s\n", d->y[d->row[q].y]);
		k = end;
		i += nx + 1;
		j += ny + 1;
	}
}

/* ---- side by side ---- */

static bool inside_char(char c) { return ((unsigned char)c & 0xc0) == 0x80; }

/* A line whose bytes from `lo` to `hi` are not in the other one. */
static void cell(Buf *b, Arena *a, const char *line, size_t lo, size_t hi)
{
	buf_xml(b, arena_strn(a, line, lo));
	if (hi > lo) {
		buf_puts(b, "<b>");
		buf_xml(b, arena_strn(a, line + lo, hi - lo));
		buf_puts(b, "</b>");
	}
	buf_xml(b, line + hi);
}

/* Where two lines begin and cease to differ, at borders of characters. */
static void differing(const char *x, const char *y, size_t *lo, size_t *hx, size_t *hy)
{
	for (*lo = 0; x[*lo] && x[*lo] == y[*lo];)
		++*lo;
	while (*lo && (inside_char(x[*lo]) || inside_char(y[*lo])))
		--*lo;
	for (*hx = strlen(x), *hy = strlen(y); *hx > *lo && *hy > *lo && x[*hx - 1] == y[*hy - 1];) {
		--*hx;
		--*hy;
	}
	while (inside_char(x[*hx]) || inside_char(y[*hy])) {
		++*hx;
		++*hy;
	}
}

static void html_row(Buf *b, Arena *a, const Diff *d, const DiffRow *r)
{
	const char *x = r->x >= 0 ? d->x[r->x] : "", *y = r->y >= 0 ? d->y[r->y] : "";
	size_t lo = 0, hx = 0, hy = 0;

	if (!r->same && *x && *y)
		differing(x, y, &lo, &hx, &hy);
	buf_puts(b, "<tr>");
	for (int side = 0; side < 2; side++) {
		const int line = side ? r->y : r->x;

		if (line < 0) {
			buf_puts(b, "<th></th><td class=\"e\"></td>");
			continue;
		}
		buf_printf(b, "<th>%d</th><td%s>", line + 1, r->same ? "" : side ? " class=\"p\"" : " class=\"m\"");
		cell(b, a, side ? y : x, side || hx ? lo : 0, side ? hy : hx);
		buf_puts(b, "</td>");
	}
	buf_puts(b, "</tr>\n");
}

void diff_html(Buf *b, const Diff *d, int context, int most)
{
	Arena *words = arena_new();
	int shown = 0, k = 0;

	while (k < d->n && shown < most) {
		int near = k, end = k; /* the next change, and the end of what is shown round it */

		while (near < d->n && d->row[near].same)
			near++;
		if (near == d->n)
			break;
		const int from = near - context > k ? near - context : k;
		if (from > k)
			buf_printf(b, "<tr class=\"s\"><td colspan=\"4\">%d equal line%s</td></tr>\n", from - k,
				from - k > 1 ? "s" : "");
		for (end = near; end < d->n && !d->row[end].same;)
			end++;
		end = end + context < d->n ? end + context : d->n;
		for (k = from; k < end && shown < most; k++, shown++) {
			html_row(b, words, d, &d->row[k]);
			arena_reset(words);
		}
	}
	int rest = 0;
	for (; k < d->n; k++)
		rest += !d->row[k].same;
	if (rest)
		buf_printf(
			b, "<tr class=\"s\"><td colspan=\"4\">%d more changed lines are not shown</td></tr>\n", rest);
	arena_free(words);
}
