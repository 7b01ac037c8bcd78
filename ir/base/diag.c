/* Diagnostics in gcc's form, and the end of the program on our own faults. */
#include "diag.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *bug_context;
void (*bug_hook)(void);

void diag_init(Diag *d, FILE *out, Arena *scratch)
{
	*d = (Diag){ .out = out, .limit = 20, .scratch = scratch, .color = isatty(fileno(out)) == 1 };
}

const char *loc_module(Arena *a, const Loc *l)
{
	const char *end = l->name ? strrchr(l->name, '/') : NULL;

	if (l->module || !end || *l->name != '/' || end == l->name)
		return l->module;
	char *path = arena_strn(a, l->name + 1, (size_t)(end - l->name - 1));
	for (char *p = path; *p; p++)
		*p = *p == '/' ? '.' : *p;
	return path;
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
	if (l->op && l->module)
		fprintf(d->out, " (%s in %s)", l->op, l->module);
	else if (l->op)
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

int diag_plain_char(const unsigned char *s)
{
	const int n = *s < 0x80 ? 1 : *s < 0xC2 ? 0 : *s < 0xE0 ? 2 : *s < 0xF0 ? 3 : *s < 0xF5 ? 4 : 0;

	if (n == 1)
		return *s == '\n' || *s == '\t' || (*s >= 0x20 && *s != 0x7F);
	for (int i = 1; i < n; i++)
		if ((s[i] & 0xC0) != 0x80)
			return 0;
	/* marks that turn the direction of text, or break lines, as the control characters that they are */
	const bool turns =
		*s == 0xE2 && ((s[1] == 0x80 && ((s[2] >= 0xA8 && s[2] <= 0xAE) || s[2] == 0x8E || s[2] == 0x8F)) ||
				      (s[1] == 0x81 && s[2] >= 0xA6 && s[2] <= 0xA9));
	const bool other = turns || (*s == 0xD8 && s[1] == 0x9C) || (*s == 0xC2 && s[1] < 0xA0) ||
	                   (*s == 0xE0 && s[1] < 0xA0) || (*s == 0xED && s[1] > 0x9F) || (*s == 0xF0 && s[1] < 0x90) ||
	                   (*s == 0xF4 && s[1] > 0x8F);

	return other ? 0 : n;
}

static int shown_char(const unsigned char *s, const char *lines)
{
	return (*s == '\n' || *s == '\t') && !strchr(lines, *s) ? 0 : diag_plain_char(s);
}

/* s as it can be printed: what is no UTF-8, and control characters but those in `lines`, as \xNN. Names come from files. */
static const char *without_controls(Arena *a, const char *s, const char *lines)
{
	const unsigned char *p = (const unsigned char *)s;
	size_t n = 0, bad = 0;

	for (int k; s && p[n]; n += (size_t)(k ? k : 1))
		bad += !(k = shown_char(p + n, lines));
	if (!bad)
		return s;
	char *out = arena_alloc(a, n + 3 * bad + 1), *to = out;

	for (int k; *p; p += k ? k : 1) {
		k = shown_char(p, lines);
		if (k)
			memcpy(to, p, (size_t)k);
		else
			snprintf(to, 5, "\\x%02x", *p);
		to += k ? k : 4;
	}
	*to = 0;
	return out;
}

static const char *plain(Arena *a, const char *s) { return without_controls(a, s, "\n\t"); }

const char *str_shown(Arena *a, const char *name) { return without_controls(a, name, ""); }

static void report(Diag *d, const Loc *l, const char *severity, const char *code, const char *fmt, va_list ap)
{
	const char *text = plain(d->scratch, arena_vprintf(d->scratch, fmt, ap));
	Loc at = *l;

	at.file = d->format == DIAG_SARIF ? l->file : plain(d->scratch, l->file);
	at.name = plain(d->scratch, l->name);
	at.op = plain(d->scratch, l->op);
	at.module = plain(d->scratch, l->module);
	if (*severity == 'e')
		d->last_text = text;
	if (d->format == DIAG_TEXT) {
		print_text(d, &at, severity, code, text);
		diag_excerpt(d, l);
	} else
		diag_json(d, &at, severity, code, text);
}

/* What is said of a place once is not said again: a part of a file may be read for several of its users. */
static bool said_before(Diag *d, const Loc *l, const char *fmt, va_list ap)
{
	const char *text = arena_vprintf(d->scratch, fmt, ap);
	const bool again = l->line > 0 && l->line == d->last_line && l->col == d->last_col && d->last_text &&
	                   !strcmp(plain(d->scratch, text), d->last_text);

	d->last_line = l->line;
	d->last_col = l->col;
	return again;
}

bool diag_error(Diag *d, Loc loc, int code, const char *fmt, ...)
{
	va_list again;

	va_start(again, fmt);
	const bool twice = said_before(d, &loc, fmt, again);
	va_end(again);
	if (twice)
		return false;
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

/* Edits (insert, delete, replace, swap of neighbours) that turn a into b, in letters of any size. */
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
			int d = up[j - 1] + (tolower((unsigned char)a[i - 1]) != tolower((unsigned char)b[j - 1]));
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

/* What other frameworks call what pdcc calls otherwise. */
static const char *const called[][2] = {
	{ "batch-size", "global-batch" },
	{ "batch_size", "global" },
	{ "batch_size", "batch" },
	{ "batch", "global-batch" },
	{ "learning-rate", "lr" },
	{ "learning_rate", "lr" },
	{ "cross_entropy", "softmax_ce" },
	{ "CrossEntropyLoss", "softmax_ce" },
	{ "crossentropy", "softmax_ce" },
	{ "cross-entropy", "softmax_ce" },
	{ "softmax", "softmax_ce" },
	{ "hosts", "nodes" },
	{ "mse_loss", "mse" },
	{ "MSELoss", "mse" },
	{ "float16", "fp16" },
	{ "half", "fp16" },
	{ "bfloat16", "bf16" },
	{ "float32", "off" },
	{ "fp32", "off" },
	{ "num_epochs", "epochs" },
	{ "num-epochs", "epochs" },
	{ "max_epochs", "epochs" },
	{ "max-epochs", "epochs" },
	{ "scheduler", "lr-schedule" },
	{ "gpus", "cluster" },
	{ "num-gpus", "cluster" },
	{ "devices", "cluster" },
	{ "nproc-per-node", "cluster" },
	{ "nproc_per_node", "cluster" },
	{ "nnodes", "cluster" },
	{ "world-size", "cluster" },
	{ "device", "target" },
	{ "accelerator", "target" },
	{ "precision", "amp" },
	{ "mixed-precision", "amp" },
	{ "gradient-accumulation-steps", "microbatches" },
	{ "accumulate-grad-batches", "microbatches" },
	{ "weight-decay", "optimizer" },
	{ "momentum", "optimizer" },
	{ "dataset", "data" },
	{ "activation-checkpointing", "recompute" },
	{ "gradient-checkpointing", "recompute" },
	{ "train", "run" },
	{ "fit", "run" },
	{ "build", "compile" },
	{ "show", "inspect" },
	{ "info", "inspect" },
	{ "summary", "inspect" },
	{ "grad-clip", "clip-norm" },
	{ "max_grad_norm", "clip_norm" },
	{ "max-grad-norm", "clip-norm" },
	{ "gradient_clipping", "clip_norm" },
	{ "grad_clip", "clip_norm" },
	{ "grad-accum", "microbatches" },
	{ "grad-accum-steps", "microbatches" },
	{ "gradient-accumulation", "microbatches" },
	{ "fsdp", "zero" },
	{ "zero-stage", "zero" },
	{ "zero_stage", "zero" },
	{ "nll_loss", "softmax_ce" },
	{ "NLLLoss", "softmax_ce" },
	{ "gpu", "cuda" },
	{ "cpu", "c" },
	{ "out", "o" },
	{ "outdir", "o" },
	{ "output", "o" },
	{ "output-dir", "o" },
	{ "name", "kind" },
	{ "name", "host" },
	{ "step_size", "every" },
	{ "every", "every_steps" },
	{ "from", "between" },
	{ "to", "between" },
};

const char *diag_nearest(const char *word, const char *const *words, int n)
{
	const char *best = NULL;

	for (size_t k = 0; k < sizeof called / sizeof *called; k++)
		for (int i = 0; i < n && strcmp(called[k][0], word) == 0; i++)
			if (strcmp(called[k][1], words[i]) == 0)
				return words[i];
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
