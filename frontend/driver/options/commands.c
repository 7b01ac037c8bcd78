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

static const char run_options[] = "\n  --steps N, --epochs N  how long; more of them: DIR/bin/d0 --help\n"
				  "  --ckpt DIR             checkpoints there; --ckpt-every N: every N steps\n"
				  "  --resume DIR           goes on from the newest checkpoint there\n"
				  "  --out DIR              results there, not in the build folder's run/\n"
				  "  --trace DIR            what each device did when, for pdcc trace\n"
				  "  --tensorboard DIR, --csv FILE, --jsonl FILE\n"
				  "                         loss, learning rate, speed\n"
				  "  --stop accuracy=0.98   ends when it is reached; loss=X, eval_loss=X\n"
				  "  --max-restarts N       goes on after a lost rank, N times at most\n"
				  "Files that options name lie where you are, not in the build folder.\n";

static const Row rows[] = {
	{ "compile", "MODEL.onnx --cluster FILE -o DIR", "training programs in a folder; the word may be left out",
		"cluster plan schedule global-batch micro-batch loss optimizer lr data epochs train o",
		"pdcc model.onnx --cluster local:4 --plan 2-2 -o out", NULL },
	{ "run", "DIR [options of the programs]", "builds what is in folder DIR and trains", "",
		"pdcc run out --steps 100 --ckpt ck", run_options },
	{ "plan", "MODEL.onnx --cluster FILE", "stages, replicas, memory and the predicted step; no code",
		"cluster plan schedule global-batch micro-batch memory-limit profile explain deadline json save-plan report",
		"pdcc plan model.onnx --cluster local:4 --explain", NULL },
	{ "simulate", "MODEL.onnx|DIR --cluster FILE", "the step played without running it: time, idle devices, bytes",
		"cluster plan schedule global-batch micro-batch profile timeline days mtbf report json",
		"pdcc simulate model.onnx --cluster local:4 --timeline step.html", NULL },
	{ "verify", "MODEL.onnx --cluster FILE", "trains distributed and on one device, and names what differs",
		"cluster plan schedule global-batch micro-batch optimizer steps reproducible keep o",
		"pdcc verify model.onnx --cluster local:4 --plan 2-2", NULL },
	{ "inspect", "FILE|DIR", "what a model, a cluster file or any file of pdcc holds", "dim loss cluster json",
		"pdcc inspect model.onnx", NULL },
	{ "profile", "MODEL.onnx -o profile.json", "times of the model's nodes, measured on this machine",
		"micro-batch threads profile-seconds cc o", "pdcc profile model.onnx -o profile.json", NULL },
	{ "trace", "DIR", "where the time of a traced run went, and its picture", NULL, NULL, NULL },
	{ "export", "CKPT --model MODEL.onnx -o FILE", "a checkpoint as an ONNX model or as .safetensors",
		"model averages o", "pdcc export out/ck --model model.onnx -o trained.onnx", NULL },
	{ "doctor", "[--cluster FILE]", "compilers, MPI, hosts and links: what is there, how fast",
		"cluster target measure", "pdcc doctor --cluster cluster.yaml --measure", NULL },
	{ "explain", "[CODE...]", "what an error code means and what helps; without one: all codes", "",
		"pdcc explain E0203", NULL },
	{ "schema", "cluster|train", "what cluster.yaml, train.yaml may hold: JSON Schema for editors", "",
		"pdcc schema train > train.schema.json", NULL },
	{ "completion", "bash|zsh|fish", "words for the shell's completion", "", "pdcc completion bash > pdcc.bash",
		NULL },
	{ "manual", "", "the man page", "", "pdcc manual | man -l -", NULL },
	{ "plan-profile", "FILE --workers N", "the published planners on a published profile", NULL, NULL, NULL },
	{ "cases", "LIST -o DIR", "many small models in one program, for tests", "o", "pdcc cases list.txt -o cases",
		NULL },
	{ "help", "[COMMAND]", "this list, or what a command takes", "", "pdcc help plan", NULL },
};

static const Row opt_row = { "pdcc-opt", "FILE.pdir --passes=A,B",
	"passes on the text form of the IR; prints the module",
	"passes cluster plan schedule print-ir-after-all ir-format elide list-passes",
	"pdcc-opt out/ir/10-place.pdir --passes=split", NULL };

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
	fprintf(f, "\npdcc help COMMAND shows its flags and an example, pdcc --help all flags.\n"
		   "example: pdcc model.onnx --cluster local:4 -o out && pdcc run out\n");
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
		fprintf(f, "All flags: pdcc --help; of one group: pdcc --help Plan\n");
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
	diag_error(d, NOLOC, 1, "there is no command '%s'%s%s%s", name,
		near ? "; did you mean '" : ", nor a file; pdcc help lists the commands", near ? near : "",
		near ? "'?" : "");
}
