/* pdcc: command line to exit status. The only file, with opt_main.c and those it calls, that sees every folder. */
#include <malloc.h>
#include <string.h>
#include <unistd.h>
#include "codegen/folder/emit.h"
#include "codegen/write/tmpl.h"
#include "passes/report/changes.h"
#include "passes/repro.h"
#include "frontend/driver/compile/compile.h"
#include "frontend/driver/check/run.h"
#include "frontend/driver/options/choices.h"
#include "frontend/driver/options/commands.h"
#include "frontend/driver/options/explain.h"
#include "frontend/driver/options/listops.h"
#include "frontend/driver/options/manual.h"
#include "frontend/driver/options/schema.h"
#include "frontend/driver/plan/profile_command.h"
#include "frontend/driver/plan/why_report.h"
#include "frontend/driver/compile/profile.h"
#include "frontend/driver/inspect/trace.h"

static void list_passes(void)
{
	for (int i = 0; i < npasses; i++)
		printf("%2d  %-10s %s\n", i + 1, pass_table[i].name, pass_table[i].help);
}

typedef struct Command {
	const char *name;
	int (*run)(Compile *);
	bool reports;
} Command; /* reports: takes --report */

#define MODEL(name, run, reports, ...) { name, run, reports },
#define WORDS(...)
static const Command commands[] = {
#include "frontend/driver/options/commands.def"
};
#undef MODEL
#undef WORDS

/* pdcc schema: what a cluster file or train.yaml may hold, as JSON Schema for editors. */
static int schema_main(int argc, char **argv, Diag *d)
{
	const char *text =
		argc == 1 ? embedded_text(arena_printf(d->scratch, "frontend/settings/%s.schema.json", argv[0])) : NULL;

	if (!text) {
		diag_error(d, NOLOC, 1, "schema wants cluster or train%s%s%s", argc ? ", not '" : "",
			argc ? argv[argc - 1] : "", argc ? "'" : "");
		return EXIT_USAGE;
	}
	fputs(schema_filled(d->scratch, text), stdout);
	return 0;
}

typedef struct WordCommand {
	const char *name;
	int (*run)(int argc, char **argv, Diag *d);
} WordCommand;

static int trace_command(int argc, char **argv, Diag *d) { return (void)d, trace_main(argc, argv); }
static int plan_profile_command(int argc, char **argv, Diag *d) { return (void)d, plan_profile_main(argc, argv); }

static int manual_command(int argc, char **argv, Diag *d)
{
	(void)argc;
	(void)argv;
	(void)d;
	manual(PDCC_VERSION);
	return 0;
}

static int completion_command(int argc, char **argv, Diag *d)
{
	const char *names[COMMANDS_MOST];

	return completion_main(argc, argv, names, command_names(names), d);
}

static int help_main(int argc, char **argv, Diag *d);

/* Commands that take no model: they read their own words. */
#define MODEL(...)
#define WORDS(name, run, ...) { name, run },
static const WordCommand word_commands[] = {
#include "frontend/driver/options/commands.def"
};
#undef MODEL
#undef WORDS

static const WordCommand *word_command(const char *name)
{
	for (size_t i = 0; i < sizeof word_commands / sizeof *word_commands; i++)
		if (strcmp(name, word_commands[i].name) == 0)
			return &word_commands[i];
	return NULL;
}

/* What a command says of itself; false: there is none of this name. */
static bool shown(const char *name, Diag *d, int *status)
{
	const WordCommand *own = word_command(name);
	char *ask[] = { (char[]){ "--help" }, NULL };

	*status = 0;
	if (command_help(stdout, name))
		return true;
	if (own)
		*status = own->run(1, ask, d);
	return own != NULL;
}

static bool asks(const char *word) { return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0; }

/* pdcc help [COMMAND|all|GROUP]. */
static int help_main(int argc, char **argv, Diag *d)
{
	int status;

	if (argc == 0)
		return commands_help(stdout), 0;
	if (shown(argv[0], d, &status))
		return status;
	if (options_group(argv[0]))
		return options_help(stdout, argv[0], d) ? 0 : EXIT_USAGE;
	command_unknown(argv[0], d);
	return EXIT_USAGE;
}

/* Status; -1: none of these commands. */
static int without_model(int argc, char **argv, Diag *d)
{
	const WordCommand *w = argc > 1 ? word_command(argv[1]) : NULL;
	int status;

	if (w && argc > 2 && asks(argv[2]) && shown(w->name, d, &status))
		return status;
	return w ? w->run(argc - 2, argv + 2, d) : -1;
}

/* pdcc ... --help: of the command; of a group of flags or a command that is named behind it (pdcc --help Plan); of compile where
 * a model is named; else the commands. */
static int help_of(const Options *o, const char *command, Diag *d)
{
	const char *asked = o->help_group ? o->help_group : o->nargs == 1 ? o->args[0] : NULL;
	int status;

	if (command && !o->help_group)
		return !command_help(stdout, command);
	if (!asked)
		return commands_help(stdout), 0;
	if (!options_group(asked) && shown(asked, d, &status))
		return status;
	if (!o->help_group && strpbrk(asked, "./"))
		return !command_help(stdout, "compile");
	return options_help(stdout, asked, d) ? 0 : EXIT_USAGE;
}

/* The command, and what --report says of it. */
static int run_command(Compile *c, const Command *command)
{
	Changes changes = { 0 };

	if (c->o->report && (!command->reports || c->o->stop_after)) {
		diag_error(c->d, NOLOC, 1,
			command->reports ? "--report wants the whole plan; --stop-after %s ends before it"
					 : "--report: pdcc %s writes none; compile, plan and simulate do",
			command->reports ? c->o->stop_after : command->name);
		return EXIT_USAGE;
	}
	const char *runs = command->run == verify_main || command->run == profile_main
	                           ? arena_printf(c->a, "pdcc %s", command->name)
	                   : c->o->profile && strcmp(c->o->profile, "run") == 0 ? "--profile run"
	                                                                        : NULL;
	if (c->o->emit_only && runs) {
		diag_error(c->d, NOLOC, 1, "--emit-only: %s compiles and runs programs", runs);
		return EXIT_USAGE;
	}
	c->changes = c->o->report ? &changes : NULL;
	int status = command->run(c);
	if (!status && c->o->report && !report_write(c, c->o->report))
		status = EXIT_USAGE;
	changes_free(&changes);
	return status;
}

static int pdcc(int argc, char **argv, Arena *a, Arena *scratch, Diag *d)
{
	Options o;
	bool input_error;
	const Command *command = commands;
	int first = 1;

	for (size_t i = 0; argc > 1 && i < sizeof commands / sizeof *commands; i++)
		if (strcmp(argv[1], commands[i].name) == 0) {
			command = &commands[i];
			first = 2;
		}
	if (!options_read(a, &o, argc, argv, first, d, &input_error))
		return input_error ? EXIT_INPUT : EXIT_USAGE;
	if (argc == 1) {
		commands_help(stdout);
		return EXIT_USAGE;
	}
	if (o.help)
		return help_of(&o, first == 2 ? command->name : NULL, d);
	if (o.version) {
		printf("pdcc %s\n", PDCC_VERSION);
		return 0;
	}
	if (o.list_passes) {
		list_passes();
		return 0;
	}
	if (o.list_ops || o.list_onnx) {
		(o.list_ops ? list_ops : list_onnx)(stdout);
		return 0;
	}
	if (o.list_schedules) {
		list_schedules(stdout);
		return 0;
	}
	if (o.templates)
		tmpl_dir(o.templates);
	if (command->run == doctor_main && o.nargs) {
		diag_error(d, NOLOC, 1, "pdcc doctor takes no model: '%s'", o.args[0]);
		return EXIT_USAGE;
	}
	if (o.nargs && first == 1 && strcmp(o.args[0], "-") && !strpbrk(o.args[0], "./") && access(o.args[0], F_OK)) {
		command_unknown(o.args[0], d);
		return EXIT_USAGE;
	}
	if (o.nargs != 1 && command->run != doctor_main) {
		if (o.nargs)
			diag_error(d, NOLOC, 1, "one model at a time, not %d: '%s' and '%s'", o.nargs, o.args[0],
				o.args[1]);
		else
			diag_error(d, NOLOC, 1, "no model is named; pdcc help %s shows how",
				*command->name ? command->name : "compile");
		return EXIT_USAGE;
	}
	Compile c = { .a = a, .scratch = scratch, .d = d, .o = &o, .model = o.args[0], .argc = argc, .argv = argv };
	return run_command(&c, command);
}

/* Planning makes and frees arenas by the thousand: what glibc would give back to the kernel each time is kept. */
static void keep_memory(void)
{
#ifdef M_TRIM_THRESHOLD
	mallopt(M_MMAP_THRESHOLD, 64 << 20);
	mallopt(M_TRIM_THRESHOLD, 256 << 20);
#endif
}

int main(int argc, char **argv)
{
	Arena *a = arena_new(), *scratch = arena_new(), *words = arena_new();
	Diag d;

	repro_watch(argc, argv);
	keep_memory();
	diag_init(&d, stderr, words);
	int status = without_model(argc, argv, &d);
	if (status < 0)
		status = pdcc(argc, argv, a, scratch, &d);
	diag_finish(&d);
	arena_free(words);
	arena_free(scratch);
	arena_free(a);
	return status;
}
