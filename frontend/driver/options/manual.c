/* pdcc completion SHELL and pdcc manual: what the option table and the list of commands say, for shells and for man. */
#include "manual.h"
#include <stdio.h>
#include <string.h>
#include "ir/base/buf.h"
#include "ir/base/diag.h"
#include "choices.h"
#include "commands.h"
#include "options.h"

/* Values of a flag whose argument is one of few words; those that stand for others (interleaved:V) are left out. NULL: it is none. */
static const char *words_of(Buf *b, const Flag *f)
{
	Choices c;

	buf_clear(b);
	if (!choices_of(f->name, &c))
		return NULL;
	for (int i = 0; i < c.n; i++)
		if (!strchr(c.word[i], ':'))
			buf_printf(b, "%s%s", b->n ? " " : "", c.word[i]);
	if (c.more)
		buf_printf(b, "%s%s", b->n ? " " : "", c.more);
	return buf_str(b);
}

static void bash(const char *const *command, int n)
{
	Flag f;
	Buf b = { 0 };

	printf("# completion of pdcc for bash\n_pdcc()\n{\n\tlocal cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
	       "\tcase $prev in\n");
	for (int i = 0; options_flag(i, &f); i++)
		if (words_of(&b, &f))
			printf("\t--%s) COMPREPLY=($(compgen -W \"%s\" -- \"$cur\")); return ;;\n", f.name,
				words_of(&b, &f));
	printf("\tesac\n\tcase $cur in\n\t-*) COMPREPLY=($(compgen -W \"-o");
	for (int i = 0; options_flag(i, &f); i++)
		if (strcmp(f.name, "o"))
			printf(" --%s", f.name);
	printf("\" -- \"$cur\")) ;;\n\t*) COMPREPLY=($(compgen -f -- \"$cur\"))\n"
	       "\t\t[ \"$COMP_CWORD\" = 1 ] && COMPREPLY+=($(compgen -W \"");
	for (int i = 0; i < n; i++)
		printf("%s%s", i ? " " : "", command[i]);
	printf("\" -- \"$cur\")) ;;\n\tesac\n}\ncomplete -o filenames -F _pdcc pdcc\n");
	buf_free(&b);
}

static void quoted(const char *s, char quote, const char *escape)
{
	for (; *s; s++) {
		if (*s == quote || strchr(escape, *s))
			putchar('\\');
		putchar(*s);
	}
}

static void zsh(const char *const *command, int n)
{
	Flag f;
	Buf b = { 0 };

	printf("#compdef pdcc\n# completion of pdcc for zsh\n_arguments -s \\\n");
	for (int i = 0; options_flag(i, &f); i++) {
		printf("\t\"%s%s%s[", strcmp(f.name, "o") ? "--" : "-", f.name,
			f.arg && strcmp(f.name, "o") ? "=" : "");
		quoted(choices_help(&b, f.name, f.help), '"', "[]$`");
		printf("]");
		if (f.arg && words_of(&b, &f))
			printf(":%s:(%s)", f.arg, words_of(&b, &f));
		else if (f.arg)
			printf(":%s:_files", f.arg);
		printf("\" \\\n");
	}
	printf("\t\"1:command or model:((");
	for (int i = 0; i < n; i++)
		printf("%s%s", i ? " " : "", command[i]);
	printf(")) _files\" \"*:file:_files\"\n");
	buf_free(&b);
}

static void fish(const char *const *command, int n)
{
	Flag f;
	Buf b = { 0 };

	printf("# completion of pdcc for fish\n");
	for (int i = 0; i < n; i++)
		printf("complete -c pdcc -n __fish_use_subcommand -a %s\n", command[i]);
	for (int i = 0; options_flag(i, &f); i++) {
		printf("complete -c pdcc %s %s%s", strcmp(f.name, "o") ? "-l" : "-s", f.name,
			f.arg && !f.optional ? " -r" : "");
		if (words_of(&b, &f))
			printf(" -f -a '%s'", words_of(&b, &f));
		printf(" -d '");
		quoted(choices_help(&b, f.name, f.help), '\'', "\\");
		printf("'\n");
	}
	buf_free(&b);
}

int completion_main(int argc, char **argv, const char *const *command, int n, Diag *d)
{
	if (argc == 1 && strcmp(argv[0], "bash") == 0)
		bash(command, n);
	else if (argc == 1 && strcmp(argv[0], "zsh") == 0)
		zsh(command, n);
	else if (argc == 1 && strcmp(argv[0], "fish") == 0)
		fish(command, n);
	else {
		diag_error(d, NOLOC, 1, "completion wants one of bash, zsh, fish%s%s%s", argc ? ", not '" : "",
			argc ? argv[0] : "", argc ? "'" : "");
		return 2;
	}
	return 0;
}

/* Text for roff: a backslash and a leading point or quote have a meaning there. */
static void roff(const char *s)
{
	for (bool start = true; *s; start = *s++ == '\n') {
		if (start && (*s == '.' || *s == '\''))
			fputs("\\&", stdout);
		if (*s == '-' || *s == '\\')
			putchar('\\');
		fputs(*s == '\\' ? "e" : (char[]){ *s, 0 }, stdout);
	}
}

static const char tail[] =
	".SH EXIT STATUS\n.TP\n0\ndone\n.TP\n1\nthe model, the cluster file or train.yaml is wrong\n.TP\n2\nthe command line is wrong\n"
	".TP\n3\nno plan fits\n.TP\n4\nverify found a difference\n.TP\n5\na tool is missing\n.TP\n70\nan internal error; a reproducer was "
	"written\n.TP\nof a run\n0 done; 1 a fault of the run; 2 its command line; 75 a rank was lost, starting again may help; 76 NaN or "
	"infinity; 77 no memory; 78 ranks of different plans; 129, 130, 143 stopped, with a checkpoint where \\-\\-ckpt names a folder\n"
	".SH FILES\n.TP\ncluster.yaml, train.yaml\nwhat machines there are, how to train; pdcc schema cluster and pdcc schema train say "
	"what they may hold\n.TP\nDIR (of \\-o)\nthe build folder: README.txt says what lies there\n.TP\nDIR/run/NAME\nwhat a run leaves (run-1, run-2 ... without "
	"\\-\\-name; DIR/run/latest is the newest): losses.txt, summary.json, trained.safetensors, model.onnx\n.TP\n~/.cache/pdcc\nmeasured times of nodes, objects of the runtime\n"
	".SH ENVIRONMENT\n.TP\nPDCC_FLAGS\nflags that come before the command line\n.TP\nPD_STEPS, PD_DATA ...\nof a run: each of its options\n"
	".TP\nPD_LAUNCH\nmpirun or srun: what starts the programs\n.TP\nPD_MPIRUN_FLAGS, PD_SRUN_FLAGS\nmore options of theirs\n"
	".SH EXAMPLES\n.nf\npdcc model.onnx \\-\\-cluster local:4 \\-\\-plan 2\\-2 \\-o out\npdcc run out \\-\\-steps 100 \\-\\-ckpt ck\n"
	"pdcc run out \\-\\-resume ck\npdcc export ck \\-\\-model model.onnx \\-o trained.onnx\npdcc plan model.onnx \\-\\-cluster cluster.yaml "
	"\\-\\-explain\npdcc simulate model.onnx \\-\\-cluster local:4 \\-\\-timeline step.html\n.fi\n";

static void commands(void)
{
	CommandText c;

	printf(".SH SYNOPSIS\n.nf\n");
	for (int i = 0; command_text(i, &c); i++) {
		printf("pdcc ");
		roff(c.name);
		putchar(' ');
		roff(c.args);
		putchar('\n');
	}
	printf(".fi\n.SH COMMANDS\n");
	for (int i = 0; command_text(i, &c); i++) {
		printf(".TP\n.B ");
		roff(c.name);
		putchar('\n');
		roff(c.what);
		putchar('\n');
	}
}

void manual(const char *version)
{
	const char *group = "";
	Flag f;
	Buf b = { 0 };

	printf(".TH PDCC 1 \"\" \"pdcc %s\"\n.SH NAME\npdcc \\- compile an ONNX graph to training programs for a cluster\n",
		version);
	commands();
	printf(".SH DESCRIPTION\nReads a single\\-device ONNX forward graph, derives loss, gradient and optimizer, cuts it into pipeline\n"
	       "stages with replicas for the machines of the cluster file, and writes one C program per device with a Makefile.\n"
	       "Run\n.B make\nand\n.B make run\nin the build folder.\n");
	for (int i = 0; options_flag(i, &f); i++) {
		if (strcmp(group, f.group))
			printf(".SH OPTIONS: %s\n", f.group);
		group = f.group;
		printf(".TP\n.B %s", strcmp(f.name, "o") ? "\\-\\-" : "\\-");
		roff(f.name);
		if (f.arg)
			printf(f.optional ? "\\fR[=\\fI%s\\fR]" : " \\fI%s\\fR", f.arg);
		putchar('\n');
		roff(choices_help(&b, f.name, f.help));
		putchar('\n');
	}
	buf_free(&b);
	fputs(tail, stdout);
}
