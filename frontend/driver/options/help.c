/* pdcc help all and pdcc help GROUP, from the table of options. */
#include <string.h>
#include <strings.h>
#include "ir/base/buf.h"
#include "choices.h"
#include "options.h"

enum { LEFT = 29, WIDTH = 80 };

static const char notes[] = "A model, a cluster file and a .pdir named - are read from standard input.\n"
			    "@FILE stands for the words of FILE; PDCC_FLAGS come before the command line;\n"
			    "the last of equals counts.\n";

bool options_group(const char *group)
{
	Flag f;

	for (int i = 0; options_flag(i, &f); i++)
		if (strcasecmp(f.group, group) == 0)
			return true;
	return strcmp(group, "all") == 0;
}

static bool no_group(const char *group, Diag *d)
{
	const char *last = "";
	Buf b = { 0 };
	Flag f;

	for (int i = 0; options_flag(i, &f); i++) {
		if (strcmp(f.group, last))
			buf_printf(&b, "%s, ", f.group);
		last = f.group;
	}
	diag_error(d, NOLOC, 1, "--help: there is no group of flags '%s'; there are %sand all", group, buf_str(&b));
	buf_free(&b);
	return false;
}

/* Words in lines of WIDTH, the first from column LEFT on, as all others. */
static void wrapped(FILE *f, const char *s)
{
	for (size_t at = LEFT; *s;) {
		const size_t n = strcspn(s, " ");

		if (at > LEFT && at + n > WIDTH) {
			fprintf(f, "\n%*s", LEFT, "");
			at = LEFT;
		}
		fprintf(f, "%.*s", (int)n, s);
		s += n;
		at += n + 1;
		if (*s && s++ && at + strcspn(s, " ") <= WIDTH)
			fputc(' ', f);
	}
	fputc('\n', f);
}

bool options_help(FILE *f, const char *group, Diag *d)
{
	const bool all = strcmp(group, "all") == 0;
	const char *last = "";
	Flag t;
	Buf b = { 0 };

	if (!options_group(group))
		return no_group(group, d);
	if (all)
		fputs(notes, f);
	for (int i = 0; options_flag(i, &t); i++) {
		char left[64];

		if (!all && strcasecmp(group, t.group))
			continue;
		if (strcmp(last, t.group))
			fprintf(f, "\n%s\n", t.group);
		last = t.group;
		if (strcmp(t.name, "o") == 0)
			snprintf(left, sizeof left, "-o %s", t.arg);
		else
			snprintf(left, sizeof left, "--%s%s%s%s", t.name,
				t.optional ? "[="
				: t.arg    ? " "
					   : "",
				t.arg ? t.arg : "", t.optional ? "]" : "");
		fprintf(f, "  %-*s", LEFT - 2, left);
		wrapped(f, choices_help(&b, t.name, t.help));
	}
	buf_free(&b);
	return true;
}
