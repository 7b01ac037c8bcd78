/* pdcc: command line to exit status. The only file, with opt_main.c and those it calls, that sees every folder. */
#include <malloc.h>
#include <string.h>
#include "codegen/folder/emit.h"
#include "codegen/write/tmpl.h"
#include "passes/report/changes.h"
#include "passes/repro.h"
#include "frontend/driver/compile/compile.h"
#include "frontend/driver/options/choices.h"
#include "frontend/driver/options/explain.h"
#include "frontend/driver/options/listops.h"
#include "frontend/driver/options/manual.h"
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

static const Command commands[] = {
	{ "compile", compile_main, true },
	{ "verify", verify_main, false },
	{ "inspect", inspect_main, false },
	{ "plan", plan_main, true },
	{ "simulate", simulate_main, true },
	{ "cases", cases_main, false },
	{ "export", export_main, false },
	{ "profile", profile_main, false },
	{ "doctor", doctor_main, false },
};

enum { COMMANDS = sizeof commands / sizeof *commands + 6 };

static int all_commands(const char *names[COMMANDS])
{
	static const char *const others[] = { "plan-profile", "trace", "explain", "schema", "completion", "manual" };
	int n = 0;

	for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
		names[n++] = commands[i].name;
	for (size_t i = 0; i < sizeof others / sizeof *others; i++)
		names[n++] = others[i];
	return n;
}

/* The rest of text, from its hole on replaced; text itself where it has none. */
static const char *fill(Arena *a, const char *text, const char *hole, const char *with)
{
	const char *at = strstr(text, hole);

	return at ? arena_printf(a, "%.*s%s%s", (int)(at - text), text, with, at + strlen(hole)) : text;
}

/* Words of --schedule as a schema has them: those that are all there is to say, or patterns of those with a parameter. */
static const char *schedule_words(Arena *a, bool patterns)
{
	const char *text = patterns ? "" : "\"auto\"";

	for (ScheduleKind k = SCHEDULE_PLAIN; k < SCHEDULES; k++) {
		const ScheduleRow *r = &schedule_table[k];
		const bool alone = r->param == PARAM_NONE || r->param == PARAM_POLICY || r->param == PARAM_OPTIONAL;
		const bool more = r->param == PARAM_COUNT || r->param == PARAM_FILE || r->param == PARAM_OPTIONAL;
		if (patterns && more)
			text = arena_printf(a, "%s%s%s:%s", text, *text ? "|" : "", r->name,
				r->param == PARAM_FILE ? ".+" : "[1-9][0-9]*");
		if (!patterns && alone)
			text = arena_printf(a, "%s, \"%s\"", text, r->name);
	}
	return text;
}

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
	text = fill(d->scratch, text, "\"@SCHEDULES@\"", schedule_words(d->scratch, false));
	fputs(fill(d->scratch, text, "@SCHEDULE_PATTERN@", schedule_words(d->scratch, true)), stdout);
	return 0;
}

/* Commands that take no model: they read their own words. -1: none of them. */
static int word_command(int argc, char **argv, Diag *d)
{
	const char *names[COMMANDS];

	if (argc < 2)
		return -1;
	if (strcmp(argv[1], "plan-profile") == 0)
		return plan_profile_main(argc - 2, argv + 2);
	if (strcmp(argv[1], "trace") == 0)
		return trace_main(argc - 2, argv + 2);
	if (strcmp(argv[1], "explain") == 0)
		return explain_main(argc - 2, argv + 2, d);
	if (strcmp(argv[1], "schema") == 0)
		return schema_main(argc - 2, argv + 2, d);
	if (strcmp(argv[1], "manual") == 0) {
		manual(PDCC_VERSION);
		return 0;
	}
	if (strcmp(argv[1], "completion") != 0)
		return -1;
	return completion_main(argc - 2, argv + 2, names, all_commands(names), d);
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
	if (o.help || argc == 1) {
		if (!o.help_group && o.nargs == 1)
			o.help_group = o.args[0];
		if (!options_help(stdout, "pdcc", o.help_group, d))
			return EXIT_USAGE;
		return argc == 1 ? EXIT_USAGE : 0;
	}
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
	if (o.nargs > 1 && command->run == compile_main && first == 1 && !strpbrk(o.args[0], "./")) {
		const char *names[COMMANDS], *near = diag_nearest(o.args[0], names, all_commands(names));

		diag_error(d, NOLOC, 1, "there is no command '%s'%s%s%s", o.args[0],
			near ? "; did you mean '" : "; --help lists them", near ? near : "", near ? "'?" : "");
		return EXIT_USAGE;
	}
	if (o.nargs != 1 && command->run != doctor_main) {
		diag_error(d, NOLOC, 1,
			o.nargs ? "one model at a time, not %d: '%s' and '%s'" : "no model is named; --help shows how",
			o.nargs, o.nargs ? o.args[0] : "", o.nargs > 1 ? o.args[1] : "");
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
	int status = word_command(argc, argv, &d);
	if (status < 0)
		status = pdcc(argc, argv, a, scratch, &d);
	diag_finish(&d);
	arena_free(words);
	arena_free(scratch);
	arena_free(a);
	return status;
}
