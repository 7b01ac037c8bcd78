/* Diagnostics in gcc's form, and the end of the program on our own faults. */
#include "diag.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *bug_context;
void (*bug_hook)(void);

void diag_init(Diag *d, FILE *out, Arena *scratch)
{
	*d = (Diag){ .out = out, .limit = 20, .scratch = scratch, .color = isatty(fileno(out)) == 1 };
}

/* `model.onnx: node #12 'layer1/If_3' (If): `, `cluster.yaml:14:7: `, or `pdcc: ` when there is no place. */
static void print_place(const Diag *d, const Loc *l)
{
	if (l->line > 0)
		fprintf(d->out, "%s:%d:%d: ", l->file ? l->file : "-", l->line, l->col);
	else
		fprintf(d->out, "%s: ", l->file ? l->file : "pdcc");
	if (l->node < 0 || l->line > 0)
		return;
	fprintf(d->out, "node #%d", l->node);
	if (l->name && *l->name)
		fprintf(d->out, " '%s'", l->name);
	if (l->op)
		fprintf(d->out, " (%s)", l->op);
	fputs(": ", d->out);
}

/* One message in gcc's form. code: "E0203", "-Wflag", or "" for a note. */
static void print_text(Diag *d, const Loc *l, const char *severity, const char *code, const char *text)
{
	const char *color = *severity == 'e' ? "31" : *severity == 'w' ? "35" : "36";

	print_place(d, l);
	if (d->color)
		fprintf(d->out, "\033[1;%sm%s:\033[0m ", color, severity);
	else
		fprintf(d->out, "%s: ", severity);
	fputs(text, d->out);
	if (*code)
		fprintf(d->out, " [%s]", code);
	fputc('\n', d->out);
}

static void report(Diag *d, const Loc *l, const char *severity, const char *code, const char *fmt, va_list ap)
{
	const char *text = arena_vprintf(d->scratch, fmt, ap);

	if (d->format == DIAG_TEXT)
		print_text(d, l, severity, code, text);
	else
		diag_json(d, l, severity, code, text);
}

bool diag_error(Diag *d, Loc loc, int code, const char *fmt, ...)
{
	d->last_code = code;
	if (++d->errors > d->limit) {
		if (d->errors == d->limit + 1 && d->format == DIAG_TEXT)
			fprintf(d->out, "pdcc: note: more than %d errors; the rest is not shown\n", d->limit);
		return false;
	}
	char word[16];
	va_list ap;

	snprintf(word, sizeof word, "E%04d", code);
	va_start(ap, fmt);
	report(d, &loc, "error", word, fmt, ap);
	va_end(ap);
	return false;
}

void diag_warn(Diag *d, Loc loc, const char *flag, const char *fmt, ...)
{
	for (int i = 0; i < d->ndisabled; i++)
		if (strcmp(d->disabled[i], flag) == 0)
			return;
	d->warnings++;
	if (d->werror)
		d->errors++;
	else if (d->quiet)
		return;
	char word[64];
	va_list ap;

	snprintf(word, sizeof word, "-W%s%s", d->werror ? "error=" : "", flag);
	va_start(ap, fmt);
	report(d, &loc, d->werror ? "error" : "warning", word, fmt, ap);
	va_end(ap);
}

void diag_note(Diag *d, Loc loc, const char *fmt, ...)
{
	if (d->quiet || d->errors > d->limit)
		return;
	va_list ap;

	va_start(ap, fmt);
	report(d, &loc, "note", "", fmt, ap);
	va_end(ap);
}

enum { LONGEST_WORD = 63 };

/* Edits (insert, delete, replace, swap of neighbours) that turn a into b. */
static int distance(const char *a, const char *b)
{
	int n = (int)strlen(a), m = (int)strlen(b), row[3][LONGEST_WORD + 1];

	if (n > LONGEST_WORD || m > LONGEST_WORD)
		return LONGEST_WORD;
	for (int i = 0; i <= n; i++) {
		int *cur = row[i % 3], *up = row[(i + 2) % 3], *up2 = row[(i + 1) % 3];

		cur[0] = i;
		for (int j = 1; j <= m; j++) {
			if (i == 0) {
				cur[j] = j;
				continue;
			}
			int d = up[j - 1] + (a[i - 1] != b[j - 1]);
			if (up[j] + 1 < d)
				d = up[j] + 1;
			if (cur[j - 1] + 1 < d)
				d = cur[j - 1] + 1;
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && up2[j - 2] + 1 < d)
				d = up2[j - 2] + 1;
			cur[j] = d;
		}
	}
	return row[n % 3][m];
}

const char *diag_nearest(const char *word, const char *const *words, int n)
{
	const char *best = NULL;
	int least = (int)strlen(word) / 3 + 1;

	for (int i = 0; i < n; i++) {
		int d = distance(word, words[i]);

		if (d < least) {
			least = d;
			best = words[i];
		}
	}
	return best;
}

void bug_at(const char *file, int line, const char *fmt, ...)
{
	static int again;
	va_list ap;

	fprintf(stderr, "pdcc: internal error");
	if (bug_context)
		fprintf(stderr, " in %s", bug_context);
	const char *base = strrchr(file, '/');
	fprintf(stderr, " (%s:%d): ", base ? base + 1 : file, line);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	if (bug_hook && !again++)
		bug_hook();
	exit(70);
}
