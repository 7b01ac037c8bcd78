/* The commands of pdcc, and `pdcc help COMMAND`: what a command takes, the flags that it is mostly used with, from the table of
 * options, an example. */
#include "commands.h"
#include <string.h>
#include "choices.h"
#include "options.h"

enum { LEFT = 25, WIDTH = 79 };

typedef struct Row {
	const char *name, *args, *what;
	const char *flags; /* those that are shown, by their names; NULL: the command prints its own help */
	const char *example;
	const char *more; /* NULL, or lines of its own */
} Row;

#define MODEL(name, run, reports, args, what, flags, example, more) { name, args, what, flags, example, more },
#define WORDS(name, run, args, what, flags, example, more) { name, args, what, flags, example, more },
static const Row rows[] = {
#include "commands.def"
};
#undef MODEL
#undef WORDS

static const Row opt_row = { "pdcc-opt", "FILE.pdir --passes=A,B",
	"passes on the text form of the IR; prints the module",
	"passes cluster plan schedule print-ir-after-all ir-format elide list-passes",
	"pdcc-opt out/ir/15-place.pdir --passes=split", NULL };

int command_names(const char *names[COMMANDS_MOST])
{
	int n = 0;

	for (; n < (int)(sizeof rows / sizeof *rows); n++)
		names[n] = rows[n].name;
	return n;
}

void commands_help(FILE *f)
{
	fprintf(f, "usage: pdcc COMMAND ...     compiles an ONNX model to training programs\n\n");
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		fprintf(f, "  %-13s%s\n", rows[i].name, rows[i].what);
	fprintf(f, "\npdcc help COMMAND shows its flags and an example, pdcc help all every flag.\n"
		   "example: pdcc model.onnx --cluster local:4 -o out && pdcc run out\n");
}

bool command_text(int i, CommandText *c)
{
	if (i >= (int)(sizeof rows / sizeof *rows))
		return false;
	*c = (CommandText){ rows[i].name, rows[i].args, rows[i].what };
	return true;
}

/* The first part of a flag's text, in lines from column LEFT on. */
static void clause(FILE *f, const char *s)
{
	size_t at = LEFT;

	for (const char *end = s + strcspn(s, ";"); s < end;) {
		size_t n = strcspn(s, " ");

		n = s + n > end ? (size_t)(end - s) : n;
		if (at > LEFT && at + 1 + n > WIDTH) {
			fprintf(f, "\n%*s", LEFT, "");
			at = LEFT;
		}
		fprintf(f, "%s%.*s", at > LEFT ? " " : "", (int)n, s);
		at += n + (at > LEFT);
		s += n;
		s += *s == ' ';
	}
	fputc('\n', f);
}

/* Is name one of the words of list? */
static bool listed(const char *list, const char *name)
{
	const size_t n = strlen(name);

	for (const char *at = list; (at = strstr(at, name)); at += n)
		if ((at == list || at[-1] == ' ') && (!at[n] || at[n] == ' '))
			return true;
	return false;
}

static void command_usage(FILE *f, const Row *r, const char *program)
{
	Flag t;
	Buf b = { 0 };
	bool any = false;

	fprintf(f, "usage: %s%s %s%s\n%s\n%s", program, r->name, r->args, *r->flags ? " [options]" : "", r->what,
		r->more ? r->more : "");
	for (int i = 0; options_flag(i, &t); i++) {
		char left[64];

		if (!listed(r->flags, t.name))
			continue;
		if (!any)
			fputc('\n', f);
		any = true;
		snprintf(left, sizeof left, "%s%s%s%s", strcmp(t.name, "o") ? "--" : "-", t.name, t.arg ? " " : "",
			t.arg ? t.arg : "");
		fprintf(f, "  %-*s", LEFT - 2, left);
		clause(f, choices_help(&b, t.name, t.help));
	}
	fprintf(f, "\nexample: %s\n", r->example);
	buf_free(&b);
	if (any)
		fprintf(f, "All flags: pdcc help all; of one group: pdcc help Plan\n");
}

bool command_help(FILE *f, const char *name)
{
	if (strcmp(name, opt_row.name) == 0)
		return command_usage(f, &opt_row, ""), true;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		if (strcmp(name, rows[i].name) == 0 && rows[i].flags)
			return command_usage(f, &rows[i], "pdcc "), true;
	return false;
}

void command_unknown(const char *name, Diag *d)
{
	const char *names[COMMANDS_MOST], *near = NULL;
	const int n = command_names(names);

	for (int i = 0; i < n && strlen(name) > 2 && !near; i++)
		near = strncmp(names[i], name, strlen(name)) == 0 ? names[i] : NULL;
	near = near ? near : diag_nearest(name, names, n);
	Flag f;
	for (int i = 0; !near && options_flag(i, &f); i++)
		near = strcmp(f.name, name) ? NULL : f.name;
	if (near && strcmp(near, name) == 0) {
		diag_error(d, NOLOC, 1, "there is no command '%s'; did you mean 'pdcc --%s'?", name, name);
		return;
	}
	diag_error(d, NOLOC, 1, "there is no command '%s'%s%s%s", name,
		near ? "; did you mean '" : ", nor a file; pdcc help lists the commands", near ? near : "",
		near ? "'?" : "");
}
