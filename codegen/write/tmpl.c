/* The template engine; tmpl.h says what it does. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "tmpl.h"

enum { MAXNEST = 32, MAXDEPTH = 8 };

typedef struct Fill {
	Buf *out;
	const char *file;
	int line;
	const Holes *scope[2];
	Diag *d;
	bool failed;
	bool comment;               /* inside of a block comment that began on an earlier line */
	const Hole *open[MAXDEPTH]; /* holes being replaced: they do not stand for themselves again */
	int nopen;
	struct {
		bool outer, taken, active;
	} nest[MAXNEST];
	int n;
} Fill;

static void fault(Fill *f, const char *what, const char *at, size_t n)
{
	if (!f->failed)
		diag_error(f->d, TEXTLOC(f->file, f->line, 1), 701, "template: %s '%.*s'", what, (int)n, at);
	f->failed = true;
}

static bool is_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

static size_t word_length(const char *s)
{
	size_t n = 0;

	while (is_word(s[n]))
		n++;
	return n;
}

static const Hole *find(const Fill *f, const char *s, size_t n)
{
	for (int k = 0; k < 2; k++)
		for (int i = 0; f->scope[k] && i < f->scope[k]->n; i++) {
			const Hole *h = &f->scope[k]->h[i];
			if (!strncmp(h->name, s, n) && !h->name[n])
				return h;
		}
	return NULL;
}

/* ---- #if: integer expressions, C's precedence ---- */

typedef struct Expr {
	Fill *f;
	const char *p, *end;
} Expr;

static int64_t expr_or(Expr *e);

static bool accept(Expr *e, const char *op)
{
	const size_t n = strlen(op);

	while (e->p < e->end && isspace((unsigned char)*e->p))
		e->p++;
	if ((size_t)(e->end - e->p) < n || strncmp(e->p, op, n))
		return false;
	if (n == 1 && strchr("<>!=", *op) && e->p[1] == '=')
		return false;
	e->p += n;
	return true;
}

static int64_t expr_defined(Expr *e)
{
	const bool paren = accept(e, "(");

	accept(e, "");
	const size_t n = word_length(e->p);
	const bool known = find(e->f, e->p, n) != NULL;

	if (!n)
		fault(e->f, "defined wants a name, not", e->p, (size_t)(e->end - e->p));
	e->p += n;
	if (paren && !accept(e, ")"))
		fault(e->f, "no ) after defined at", e->p, (size_t)(e->end - e->p));
	return known;
}

static int64_t expr_primary(Expr *e)
{
	if (accept(e, "(")) {
		const int64_t v = expr_or(e);
		if (!accept(e, ")"))
			fault(e->f, "no ) at", e->p, (size_t)(e->end - e->p));
		return v;
	}
	if (accept(e, "!"))
		return !expr_primary(e);
	if (accept(e, "-"))
		return -expr_primary(e);
	const size_t n = word_length(e->p);
	const char *at = e->p;

	e->p += n;
	if (isdigit((unsigned char)*at))
		return strtoll(at, NULL, 0);
	if (n == 7 && !strncmp(at, "defined", n))
		return expr_defined(e);
	const Hole *h = n ? find(e->f, at, n) : NULL;
	if (h && h->is_int)
		return h->i;
	fault(e->f, h ? "this hole is text, #if wants an integer:" : "#if wants an integer hole, not", at,
		n ? n : (size_t)(e->end - at));
	e->p = e->end;
	return 0;
}

static int64_t expr_product(Expr *e)
{
	int64_t v = expr_primary(e);

	for (;;) {
		const bool times = accept(e, "*"), over = !times && accept(e, "/");
		if (!times && !over && !accept(e, "%"))
			return v;
		const int64_t w = expr_primary(e);
		if (!times && !w) {
			fault(e->f, "division by zero before", e->p, (size_t)(e->end - e->p));
			return 0;
		}
		v = times ? v * w : over ? v / w : v % w;
	}
}

static int64_t expr_sum(Expr *e)
{
	int64_t v = expr_product(e);

	for (;;) {
		if (accept(e, "+"))
			v += expr_product(e);
		else if (accept(e, "-"))
			v -= expr_product(e);
		else
			return v;
	}
}

static int64_t expr_compare(Expr *e)
{
	int64_t v = expr_sum(e);

	for (;;) {
		if (accept(e, "<="))
			v = v <= expr_sum(e);
		else if (accept(e, ">="))
			v = v >= expr_sum(e);
		else if (accept(e, "<"))
			v = v < expr_sum(e);
		else if (accept(e, ">"))
			v = v > expr_sum(e);
		else
			return v;
	}
}

static int64_t expr_equal(Expr *e)
{
	int64_t v = expr_compare(e);

	for (;;) {
		if (accept(e, "=="))
			v = v == expr_compare(e);
		else if (accept(e, "!="))
			v = v != expr_compare(e);
		else
			return v;
	}
}

static int64_t expr_and(Expr *e)
{
	int64_t v = expr_equal(e);

	while (accept(e, "&&")) {
		const int64_t w = expr_equal(e);
		v = v && w;
	}
	return v;
}

static int64_t expr_or(Expr *e)
{
	int64_t v = expr_and(e);

	while (accept(e, "||")) {
		const int64_t w = expr_and(e);
		v = v || w;
	}
	return v;
}

static bool condition(Fill *f, const char *s, const char *end)
{
	Expr e = { f, s, end };
	const int64_t v = expr_or(&e);

	accept(&e, "");
	if (e.p < e.end && !(e.p[0] == '/' && (e.p[1] == '/' || e.p[1] == '*')))
		fault(f, "cannot read the rest of the #if:", e.p, (size_t)(e.end - e.p));
	return v != 0;
}

/* ---- lines ---- */

static bool active(const Fill *f) { return f->n == 0 || f->nest[f->n - 1].active; }

static void begin_if(Fill *f, const char *s, const char *end)
{
	const bool outer = active(f), yes = outer && condition(f, s, end);

	if (f->n == MAXNEST) {
		fault(f, "#if too deep at", s, (size_t)(end - s));
		return;
	}
	f->nest[f->n].outer = outer;
	f->nest[f->n].taken = f->nest[f->n].active = yes;
	f->n++;
}

static void begin_else(Fill *f, bool elif, const char *s, const char *end)
{
	if (!f->n) {
		fault(f, "no #if before", s, (size_t)(end - s));
		return;
	}
	const int k = f->n - 1;
	const bool open = f->nest[k].outer && !f->nest[k].taken;

	f->nest[k].active = open && (!elif || condition(f, s, end));
	f->nest[k].taken |= f->nest[k].active;
}

/* Handles the line when it is a directive of ours. */
static bool directive(Fill *f, const char *s, const char *end)
{
	while (s < end && isblank((unsigned char)*s))
		s++;
	if (s == end || *s++ != '#')
		return false;
	while (s < end && isblank((unsigned char)*s))
		s++;
	const size_t n = word_length(s);

	if (n == 2 && !strncmp(s, "if", n))
		begin_if(f, s + n, end);
	else if (n == 4 && !strncmp(s, "elif", n))
		begin_else(f, true, s + n, end);
	else if (n == 4 && !strncmp(s, "else", n))
		begin_else(f, false, s + n, end);
	else if (n == 5 && !strncmp(s, "endif", n) && f->n)
		f->n--;
	else if (n == 5 && !strncmp(s, "endif", n))
		fault(f, "no #if before", s, n);
	else
		return false;
	return true;
}

/* Length of what is copied as it is: a string, a character, a number, a comment; 0: something else. */
static size_t literal_length(Fill *f, const char *s, const char *end)
{
	const char *p = s;

	if (f->comment || (end - s >= 2 && s[0] == '/' && s[1] == '*')) {
		for (p += f->comment ? 0 : 2; p + 1 < end; p++)
			if (p[0] == '*' && p[1] == '/') {
				f->comment = false;
				return (size_t)(p - s) + 2;
			}
		f->comment = true;
		return (size_t)(end - s);
	}
	if (end - s >= 2 && s[0] == '/' && s[1] == '/')
		return (size_t)(end - s);
	if (*s == '"' || *s == '\'') {
		for (p++; p < end && *p != *s; p++)
			p += *p == '\\' && p + 1 < end;
		return (size_t)(p - s) + (p < end);
	}
	if (isdigit((unsigned char)*s) || (*s == '.' && s + 1 < end && isdigit((unsigned char)s[1]))) {
		while (p < end && (is_word(*p) || *p == '.' || ((*p == '+' || *p == '-') && strchr("eEpP", p[-1]))))
			p++;
		return (size_t)(p - s);
	}
	return 0;
}

static void fill_text(Fill *f, const char *s, const char *end);

static void fill_word(Fill *f, const char *s, size_t n)
{
	const Hole *h = find(f, s, n);

	for (int i = 0; i < f->nopen; i++)
		if (f->open[i] == h)
			h = NULL;
	if (!h) {
		buf_add(f->out, s, n);
	} else if (h->is_int) {
		buf_printf(f->out, h->i < 0 ? "(%lld)" : "%lld", (long long)h->i);
	} else if (f->nopen == MAXDEPTH) {
		fault(f, "holes within holes too deep at", s, n);
	} else {
		f->open[f->nopen++] = h;
		fill_text(f, h->s, h->s + strlen(h->s));
		f->nopen--;
	}
}

static void fill_text(Fill *f, const char *s, const char *end)
{
	while (s < end) {
		size_t n = literal_length(f, s, end);
		if (n) {
			buf_add(f->out, s, n);
		} else if ((n = word_length(s)) > 0) {
			n = n < (size_t)(end - s) ? n : (size_t)(end - s);
			fill_word(f, s, n);
		} else {
			buf_putc(f->out, *s);
			n = 1;
		}
		s += n;
	}
}

/* A line that was filled, in out from `from` on, where it is of the head of what the host calls; *inside: it has begun. */
static void take_head(Buf *host, const char *line, const Buf *out, size_t from, bool *inside)
{
	static const char mark[] = "PD_HOST ";
	const bool begins = !strncmp(line, mark, strlen(mark));

	*inside = (*inside && *line != '{') || begins;
	if (*inside)
		buf_add(host, out->s + from + (begins ? strlen(mark) : 0), out->n - from - (begins ? strlen(mark) : 0));
}

bool tmpl_fill(Buf *out, Buf *host, const char *file, const char *text, const Holes *h, const Holes *more, Diag *d)
{
	Fill f = { .out = out, .file = file, .scope = { h, more }, .d = d };
	/* NAME is a hole like any other */
	Holes *first = NEW(h->arena, Holes);

	bool inside = false;

	*first = *h;
	hole_text(first, "NAME", "%s", h->name);
	f.scope[0] = first;
	for (const char *s = text, *end; *s; s = *end ? end + 1 : end) {
		end = s + strcspn(s, "\n");
		f.line++;
		if (!f.comment && directive(&f, s, end))
			continue;
		if (!active(&f))
			continue;
		const size_t from = out->n;
		fill_text(&f, s, end);
		buf_putc(out, '\n');
		if (host)
			take_head(host, s, out, from, &inside);
	}
	if (f.n)
		fault(&f, "no #endif for #if, at the end of", file, strlen(file));
	return !f.failed;
}

/* Length of the comment at text with the end of its line; 0: there is none. */
static size_t comment_length(const char *text)
{
	const char *end = !strncmp(text, "/*", 2) ? strstr(text, "*/") : NULL;

	if (!end)
		return 0;
	end += 2;
	return (size_t)(end - text) + (*end == '\n');
}

static size_t line_length(const char *text)
{
	const size_t n = strcspn(text, "\n");

	return n + (text[n] == '\n');
}

/* Length of what stands from #if to #endif where that is comments alone; else 0. */
static size_t conditional_length(const char *text)
{
	const char *p = text;
	int depth = 0;

	do {
		const size_t comment = comment_length(p);

		if (!comment && *p != '#')
			return 0;
		depth += !strncmp(p, "#if", 3);
		depth -= !strncmp(p, "#endif", 6);
		p += comment ? comment : line_length(p);
	} while (depth > 0);
	return (size_t)(p - text);
}

size_t tmpl_head(const char *text)
{
	size_t n = comment_length(text), more = n;

	while (more && !strncmp(text + n, "#if", 3)) {
		more = conditional_length(text + n);
		n += more;
	}
	return n;
}

/* ---- where templates are ---- */

static const char *dir_of_templates;

const char *embedded_text(const char *name)
{
	for (int i = 0; i < nembedded; i++)
		if (!strcmp(embedded[i].name, name))
			return embedded[i].text;
	return NULL;
}

void tmpl_dir(const char *dir) { dir_of_templates = dir; }

static const char *template_file(Arena *a, const char *file)
{
	static const char root[] = "ops/";

	for (int i = 0; i < nembedded; i++) {
		const char *name = embedded[i].name, *base = strrchr(name, '/');
		if (strncmp(name, root, strlen(root)) || !base || strcmp(base + 1, file))
			continue;
		if (!dir_of_templates)
			return embedded[i].text;
		size_t n;
		char *text = file_read(arena_printf(a, "%s/%s", dir_of_templates, name + strlen(root)), &n);
		const char *copy = text ? arena_str(a, text) : NULL;
		free(text);
		return copy;
	}
	return NULL;
}

/* The lines of a text, all but directives and empty ones with `tabs` tabs more in front. */
static const char *indented(Arena *a, const char *text, int tabs)
{
	const char *to = "";

	for (const char *end; tabs && *text; text = end) {
		const bool bare = *text == '#' || *text == '\n';

		end = strchr(text, '\n');
		end = end ? end + 1 : text + strlen(text);
		to = arena_printf(a, "%s%.*s%.*s", to, bare ? 0 : tabs, "\t\t\t\t\t\t\t\t", (int)(end - text), text);
	}
	return tabs ? to : text;
}

/* Lines `#include "FILE"` are the template FILE without its head, as deep as they are: what templates for CPUs and GPUs have
 * in common. */
const char *tmpl_text(Arena *a, const char *file)
{
	static const char word[] = "#include \"";
	const char *text = template_file(a, file), *at;

	while (text && (at = strstr(text, word))) {
		const char *name = at + strlen(word), *end = strchr(name, '"'), *line = at;
		const char *part = end ? template_file(a, arena_printf(a, "%.*s", (int)(end - name), name)) : NULL;

		while (line > text && line[-1] == '\t')
			line--;
		if (!part || (line > text && line[-1] != '\n'))
			return NULL;
		text = arena_printf(a, "%.*s%s%s", (int)(line - text), text,
			indented(a, part + tmpl_head(part), (int)(at - line)), end + 1 + (end[1] == '\n'));
	}
	return text;
}
