/* The command line: one table gives flags, defaults and --help. */
#ifndef PDCC_FRONTEND_OPTIONS_H
#define PDCC_FRONTEND_OPTIONS_H

#include "ir/cluster.h"
#include "ir/training.h"
#include "ir/text/forms.h"

typedef struct Options {
	const char *args[16];
	int nargs; /* what is no flag, in order; the subcommand is taken off */
	const char *cluster, *train, *out, *model;
	Training t;
	bool force, check, quiet, verbose, help, version, list_passes, list_ops, list_onnx, list_schedules, explain,
		keep;
	const char *help_group, *save_config;
	const char *dump_ir, *print_before, *print_after, *stop_after, *start_from, *passes, *templates;
	bool dump, print_after_all, print_after_change, time_passes;
	bool averages; /* pdcc export: moving averages in place of weights */
	int64_t memory_limit;
	const char *save_plan, *report, *depfile;
	bool deps;     /* -MD, --depfile */
	int64_t elide; /* constants of more elements are left out of what is printed */
	IrForm ir_form;
	bool json, emit_only;
	const char *profile, *profile_cache; /* FILE, "estimate" or "run"; a folder or "none" */
	bool measure;
	int64_t profile_seconds; /* per stage; 0: as the programs do */
	const char *timeline[4];
	int ntimeline;           /* files for pdcc simulate */
	double deadline, budget; /* of pdcc plan: seconds, a price; 0: not said */
	double days, mtbf, ckpt_seconds,
		restart_seconds;       /* of pdcc simulate: a long run; the last two below 0: not said */
	double slow_share, slow_times; /* --stragglers; 0: none */
	bool werror, strict, color, no_color;
	const char *wno[16];
	int nwno;
	int error_limit;
} Options;

/* Reads the flags of argv[first..]; PDCC_FLAGS come before them, @FILE is replaced by the words of FILE. train.yaml is
 * read where --train names it, so that flags override it. false after a diagnostic (exit 2, or 1 when *input_error:
 * a file named by a flag is at fault). */
bool options_read(Arena *a, Options *o, int argc, char **argv, int first, Diag *d, bool *input_error);
bool options_group(const char *group); /* is it one of the flags' groups, or all? */
/* The flags of a group, or all; false after E0001: there is no such group. */
bool options_help(FILE *f, const char *group, Diag *d);

/* A flag as help, completion and the manual show it. name "o" is -o; arg NULL: it takes no value. */
typedef struct Flag {
	const char *group, *name, *arg, *help;
	bool optional;
} Flag;
bool options_flag(int i, Flag *f); /* the i-th that --help shows; false behind the last */

#endif
