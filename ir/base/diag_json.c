/* Diagnostics for programs: JSON lines, and SARIF 2.1.0 as editors and code hosts read it. */
#include <ctype.h>
#include <string.h>
#include "buf.h"
#include "diag.h"

static void print_string(FILE *f, const char *s)
{
	char c[8];

	fputc('"', f);
	while (*s) {
		s += json_char(s, c);
		fputs(c, f);
	}
	fputc('"', f);
}

/* A path as a reference of RFC 3986. */
static void print_uri(FILE *f, const char *path)
{
	fputc('"', f);
	for (; *path; path++)
		if (isalnum((unsigned char)*path) || strchr("/._-~", *path))
			fputc(*path, f);
		else
			fprintf(f, "%%%02X", (unsigned char)*path);
	fputc('"', f);
}

static void print_key(FILE *f, const char *key, const char *value)
{
	fprintf(f, ",\"%s\":", key);
	print_string(f, value);
}

static void print_line(const Diag *d, const Loc *l, const char *severity, const char *code, const char *text)
{
	fputs("{\"severity\":", d->out);
	print_string(d->out, severity);
	if (*code)
		print_key(d->out, "code", code);
	if (l->file)
		print_key(d->out, "file", l->file);
	if (l->line > 0)
		fprintf(d->out, ",\"line\":%d,\"column\":%d", l->line, l->col);
	else if (l->node >= 0)
		fprintf(d->out, ",\"node\":%d", l->node);
	if (l->name && *l->name)
		print_key(d->out, "name", l->name);
	if (l->op)
		print_key(d->out, "op", l->op);
	if (l->module)
		print_key(d->out, "module", l->module);
	print_key(d->out, "message", text);
	fputs("}\n", d->out);
}

static void sarif_head(Diag *d)
{
	fputs("{\"$schema\":\"https://json.schemastore.org/sarif-2.1.0.json\",\"version\":\"2.1.0\",\"runs\":[{\"tool\":{\"driver\":"
	      "{\"name\":\"pdcc\"}},\"results\":[",
		d->out);
}

/* A file without a line is a location of its own; a node is a logical location. */
static void sarif_result(Diag *d, const Loc *l, const char *severity, const char *code, const char *text)
{
	FILE *f = d->out;

	if (!d->shown)
		sarif_head(d);
	fprintf(f, "%s\n{\"ruleId\":", d->shown ? "," : "");
	print_string(f, *code ? code : "note");
	print_key(f, "level", severity);
	fputs(",\"message\":{\"text\":", f);
	print_string(f, text);
	fputs("}", f);
	if (l->file) {
		fputs(",\"locations\":[{\"physicalLocation\":{\"artifactLocation\":{\"uri\":", f);
		print_uri(f, l->file);
		fputs("}", f);
		if (l->line > 0)
			fprintf(f, ",\"region\":{\"startLine\":%d,\"startColumn\":%d}", l->line,
				l->col > 0 ? l->col : 1);
		fputs("}", f);
		if (l->line <= 0 && l->node >= 0) {
			fputs(",\"logicalLocations\":[{\"name\":", f);
			print_string(f, l->name ? l->name : "");
			fprintf(f, ",\"fullyQualifiedName\":\"node #%d\",\"kind\":", l->node);
			print_string(f, l->op ? l->op : "node");
			fputs("}]", f);
		}
		fputs("}]", f);
	}
	fputs("}", f);
}

void diag_json(Diag *d, const Loc *l, const char *severity, const char *code, const char *text)
{
	if (d->format == DIAG_SARIF)
		sarif_result(d, l, severity, code, text);
	else
		print_line(d, l, severity, code, text);
	d->shown++;
}

void diag_finish(Diag *d)
{
	if (d->format != DIAG_SARIF)
		return;
	if (!d->shown)
		sarif_head(d);
	fputs("\n]}]}\n", d->out);
	d->format = DIAG_TEXT;
}
