/* The line writer; see cw.h. */
#include <string.h>
#include "cw.h"

enum { TAB = 8, MARGIN = 112, WIDEST = 128, COMMENT_COLUMN = 64 };

int cw_turns(const char *s)
{
	const unsigned char *c = (const unsigned char *)s;

	if ((c[0] == 0xC2 && c[1] >= 0x80 && c[1] < 0xA0) || (c[0] == 0xD8 && c[1] == 0x9C))
		return 2;
	if (c[0] != 0xE2)
		return 0;
	return (c[1] == 0x80 && (c[2] == 0x8E || c[2] == 0x8F || (c[2] >= 0xA8 && c[2] <= 0xAE))) ||
	                       (c[1] == 0x81 && c[2] >= 0xA6 && c[2] <= 0xA9)
	               ? 3
	               : 0;
}

/* Printable text without the characters that end a comment, or that make it look like another: names come from models. */
static void put_safe(Buf *b, const char *s)
{
	for (; *s; s++) {
		const char c = *s == '\n' || *s == '\t' ? ' ' : *s;

		if (cw_turns(s)) {
			buf_putc(b, '?');
			s += cw_turns(s) - 1;
		} else if ((unsigned char)c < ' ' || c == 0x7F || (c == '?' && s[1] == '?')) {
			buf_putc(b, '.');
		} else {
			buf_putc(b, (c == '/' && s[1] == '*') || (c == '*' && s[1] == '/') ? '+' : c);
		}
	}
}

static void start(Cw *w)
{
	if (w->pending && w->out->n)
		buf_putc(w->out, '\n');
	w->pending = 0;
	for (int i = 0; i < w->indent; i++)
		buf_putc(w->out, '\t');
}

/* Columns that s takes; counted up to one above `most`. */
static size_t width(const char *s, size_t most)
{
	size_t n = 0;

	for (; *s && n <= most; s++)
		n += *s == '\t' ? TAB - n % TAB : 1;
	return n;
}

/* The last place before `room` columns at which the text may be broken: after a comma outside of a string. */
static size_t break_at(const char *s, size_t room)
{
	size_t best = 0;
	bool string = false;

	for (size_t i = 0; s[i] && i < room; i++) {
		string ^= s[i] == '"' && (i == 0 || s[i - 1] != '\\');
		if (!string && s[i] == ',' && s[i + 1] == ' ')
			best = i + 1;
	}
	return best;
}

static void put_broken(Cw *w, const char *s)
{
	size_t lead = (size_t)w->indent * TAB;
	const int indent = w->indent;

	start(w);
	while (!w->whole && lead + width(s, MARGIN) > MARGIN) {
		const size_t n = break_at(s, MARGIN - lead);
		if (!n)
			break;
		buf_add(w->out, s, n);
		buf_putc(w->out, '\n');
		s += n + 1;
		w->indent = indent + 1;
		lead = (size_t)w->indent * TAB;
		start(w);
	}
	buf_puts(w->out, s);
	w->indent = indent;
}

void cw_blank(Cw *w) { w->pending = 1; }

static void line(Cw *w, const char *end, const char *fmt, va_list ap)
{
	Buf b = { 0 };

	buf_vprintf(&b, fmt, ap);
	buf_puts(&b, end);
	if (b.n && b.s[0] == '#') { /* directives stand at the left */
		const int indent = w->indent;
		w->indent = 0;
		start(w);
		buf_puts(w->out, b.s);
		w->indent = indent;
	} else {
		put_broken(w, buf_str(&b));
	}
	buf_putc(w->out, '\n');
	buf_free(&b);
}

void cw_line(Cw *w, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	line(w, "", fmt, ap);
	va_end(ap);
}

void cw_stmt(Cw *w, const char *comment, const char *fmt, ...)
{
	Buf b = { 0 };
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(&b, fmt, ap);
	va_end(ap);
	const size_t end = (size_t)w->indent * TAB + width(buf_str(&b), WIDEST), n = comment ? strlen(comment) : 0;
	const bool beside = n && (end < COMMENT_COLUMN ? COMMENT_COLUMN : end) + n + 7 <= WIDEST;

	if (n && !beside)
		cw_comment(w, "%s", comment);
	put_broken(w, buf_str(&b));
	if (beside) {
		for (size_t col = end; col < COMMENT_COLUMN; col++)
			buf_putc(w->out, ' ');
		buf_puts(w->out, " /* ");
		put_safe(w->out, comment);
		buf_puts(w->out, " */");
	}
	buf_putc(w->out, '\n');
	buf_free(&b);
}

void cw_stmts(Cw *w, const char *comment, const char *text)
{
	for (const char *s = text; *s; comment = NULL) {
		const size_t n = strcspn(s, "\n");
		cw_stmt(w, comment, "%.*s", (int)n, s);
		s += n + (s[n] == '\n');
		s += strspn(s, "\t ");
	}
}

void cw_comment(Cw *w, const char *fmt, ...)
{
	Buf b = { 0 }, safe = { 0 };
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(&b, fmt, ap);
	va_end(ap);
	put_safe(&safe, buf_str(&b));
	start(w);
	buf_puts(w->out, "/*");
	size_t col = (size_t)w->indent * TAB + 2;
	for (const char *s = buf_str(&safe); *s;) {
		const size_t n = strcspn(s, " ");
		if (col + 1 + n + 3 > MARGIN && col > (size_t)w->indent * TAB + 2) {
			buf_putc(w->out, '\n');
			start(w);
			buf_puts(w->out, " *");
			col = (size_t)w->indent * TAB + 2;
		}
		buf_putc(w->out, ' ');
		buf_add(w->out, s, n);
		col += 1 + n;
		s += n;
		s += strspn(s, " ");
	}
	buf_puts(w->out, " */\n");
	buf_free(&b);
	buf_free(&safe);
}

void cw_func(Cw *w, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	line(w, "", fmt, ap);
	va_end(ap);
	cw_brace(w);
}

void cw_brace(Cw *w)
{
	cw_line(w, "{");
	w->indent++;
}

void cw_end(Cw *w) { cw_close(w, "%s", ""); }

void cw_open(Cw *w, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	line(w, " {", fmt, ap);
	va_end(ap);
	w->indent++;
}

void cw_close(Cw *w, const char *fmt, ...)
{
	Buf b = { 0 };
	va_list ap;

	w->indent--;
	w->pending = 0;
	va_start(ap, fmt);
	buf_vprintf(&b, fmt, ap);
	va_end(ap);
	cw_line(w, "}%s", buf_str(&b));
	buf_free(&b);
}

void cw_label(Cw *w, const char *fmt, ...)
{
	va_list ap;

	w->indent--;
	va_start(ap, fmt);
	line(w, ":", fmt, ap);
	va_end(ap);
	w->indent++;
}

void cw_item(CwItems *l, const char *fmt, ...)
{
	Buf b = { 0 };
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(&b, fmt, ap);
	va_end(ap);
	if (l->line.n && (size_t)l->w->indent * TAB + l->line.n + b.n + 2 > MARGIN)
		cw_items_end(l);
	buf_printf(&l->line, "%s%s,", l->line.n ? " " : "", buf_str(&b));
	buf_free(&b);
}

void cw_items_end(CwItems *l)
{
	if (l->line.n) {
		start(l->w);
		buf_puts(l->w->out, l->line.s);
		buf_putc(l->w->out, '\n');
	}
	buf_free(&l->line);
}
