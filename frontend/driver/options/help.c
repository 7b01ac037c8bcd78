/* --help, from the table of options. */
#include <string.h>
#include <strings.h>
#include "ir/base/buf.h"
#include "choices.h"
#include "options.h"

enum { LEFT = 29, WIDTH = 120 };

void options_usage(FILE *f, const char *program)
{
	fprintf(f,
		"usage: %s MODEL.onnx --cluster CLUSTER.yaml -o DIR [options]\n"
		"       pdcc verify MODEL.onnx --cluster C.yaml   distributed and single device, compared\n"
		"       pdcc plan MODEL.onnx --cluster C.yaml     the plan, no code\n"
		"       pdcc simulate MODEL.onnx --cluster C.yaml the step played without running it: time, idle devices, bytes\n"
		"       pdcc simulate DIR --cluster C.yaml        a build folder on this cluster or another with as many devices\n"
		"       pdcc profile MODEL.onnx -o profile.json   every node measured on this machine, for --profile\n"
		"       pdcc doctor --cluster C.yaml [--measure]  tools and machines: what is there, how fast links are\n"
		"       pdcc inspect MODEL.onnx                   parameters, operators, memory, time, cuts; no code\n"
		"       pdcc inspect CLUSTER.yaml                 its devices and links\n"
		"       pdcc inspect FILE|DIR                     what pdcc and its programs wrote: build folder, plan, IR (.pdir), profile,\n"
		"                                                 weights, checkpoint, trace\n"
		"       pdcc export CKPT --model MODEL.onnx -o T  a checkpoint as T.onnx with its weights, or as T.safetensors\n"
		"       pdcc cases LIST -o DIR                    many small models in one program, for tests\n"
		"       pdcc run DIR [--steps N ...]              builds what is in a build folder and trains; options of the programs\n"
		"       pdcc help [COMMAND]                       the commands, or the flags of one that matter most and an example\n"
		"       pdcc explain E0203                        what an error code means and what helps\n"
		"       pdcc schema cluster|train                 what cluster.yaml and train.yaml may hold, as JSON Schema for editors\n"
		"       pdcc completion bash|zsh|fish             words for the shell's completion; pdcc manual: the man page\n"
		"       pdcc-opt FILE.pdir --passes=A,B           passes on the text form\n"
		"A model, a cluster file and a .pdir named - are read from standard input. @FILE stands for the words of FILE;\n"
		"PDCC_FLAGS come before the command line; the last of equals counts.\n",
		program);
}

static bool known_group(const char *group, Diag *d)
{
	const char *last = "";
	Buf b = { 0 };
	Flag f;

	for (int i = 0; options_flag(i, &f); i++) {
		if (strcasecmp(f.group, group) == 0) {
			buf_free(&b);
			return true;
		}
		if (strcmp(f.group, last))
			buf_printf(&b, "%s%s", b.n ? ", " : "", f.group);
		last = f.group;
	}
	diag_error(d, NOLOC, 1, "--help: there is no group '%s'; there are %s", group, buf_str(&b));
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

bool options_help(FILE *f, const char *program, const char *group, Diag *d)
{
	const char *last = "";
	Flag t;
	Buf b = { 0 };

	if (group && !known_group(group, d))
		return false;
	if (!group)
		options_usage(f, program);
	for (int i = 0; options_flag(i, &t); i++) {
		char left[64];

		if (group && strcasecmp(group, t.group))
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
