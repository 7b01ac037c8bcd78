/* pdcc-opt: passes on the text form. `pdcc-opt FILE.pdir --passes=split,schedule [options of pdcc]` prints the module. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "passes/common/plan.h"
#include "passes/repro.h"
#include "frontend/settings/cluster.h"
#include "frontend/driver/compile/compile.h"
#include "frontend/driver/options/commands.h"
#include "passes/schedule/placement.h"

static char *read_text(const char *path)
{
	Buf b = { 0 };
	char chunk[4096];
	size_t n;

	if (strcmp(path, "-"))
		return file_read(path, NULL);
	while ((n = fread(chunk, 1, sizeof chunk, stdin)) > 0)
		buf_add(&b, chunk, n);
	buf_add(&b, "", 0);
	return b.s;
}

/* "a,b" -> names */
static int split_names(Arena *a, const char *s, const char **names, int most)
{
	int n = 0;

	for (char *p = arena_str(a, s); p && *p && n < most;) {
		char *comma = strchr(p, ',');

		if (comma)
			*comma = 0;
		names[n++] = p;
		p = comma ? comma + 1 : NULL;
	}
	return n;
}

/* Devices are numbered within the cluster. What is placed on more of them than the one of this machine, and names no cluster, is
 * looked at as if they stood here. */
static bool cluster_of_module(Compile *c)
{
	int n = 0;

	for (int t = 0; t < c->m->nstage; t++)
		for (int k = 0; k < c->m->stage[t]->replicas; k++)
			n = c->m->stage[t]->device[k] >= n ? c->m->stage[t]->device[k] + 1 : n;
	if (n <= c->cluster.ndevice)
		return true;
	if (c->o->cluster)
		return diag_error(c->d, FILELOC(c->cluster.file), 403,
			"the module is placed on device %d, the cluster has %d devices, numbered from 0", n - 1,
			c->cluster.ndevice);
	if (n > 4096)
		return diag_error(
			c->d, FILELOC(c->model), 403, "the module is placed on %d devices; --cluster says which", n);
	return cluster_read(c->a, arena_printf(c->a, "local:%d", n), &c->cluster, c->d);
}

static int run(Compile *c)
{
	const char *names[64];
	char *text = read_text(c->model);
	PassCx cx = { .scratch = c->scratch,
		.d = c->d,
		.cluster = &c->cluster,
		.train = &c->o->t,
		.plan = &c->plan,
		.explain = c->o->explain ? &c->explain : NULL };
	PassOpt po = { .print_before = c->o->print_before,
		.print_after = c->o->print_after,
		.dump_dir = c->o->dump_ir,
		.print_after_all = c->o->print_after_all,
		.print_after_change = c->o->print_after_change,
		.stop_after = c->o->stop_after,
		.time_passes = c->o->time_passes,
		.form = c->o->ir_form };

	if (!text)
		return diag_error(c->d, FILELOC(c->model), 201, "cannot read the file: %s", strerror(errno)),
		       EXIT_INPUT;
	if (!cluster_read(c->a, c->o->cluster ? c->o->cluster : "local", &c->cluster, c->d))
		return EXIT_INPUT;
	/* a text is looked at without the devices it is for, too */
	if (c->o->cluster ? !compile_groups(c) : !plan_tensor(c->a, &c->o->t.plan, c->d))
		return EXIT_INPUT;
	if (!schedule_read(c->a, &c->o->t.plan, c->d))
		return EXIT_INPUT;
	if (!c->o->t.target.threads)
		c->o->t.target.threads = 1;
	c->m = module_parse(c->a, strcmp(c->model, "-") ? c->model : "stdin", text, c->d);
	free(text);
	if (!c->m || !module_verify(c->m, c->d) || (c->o->passes && !cluster_of_module(c)))
		return EXIT_INPUT;
	int n = split_names(c->a, c->o->passes ? c->o->passes : "", names, 64);
	if (!run_passes(c->m, &cx, &po, names, n))
		return compile_status(c);
	Buf b = { 0 };
	PrintOpt p = { .elide = (int)c->o->elide };
	if (c->o->ir_form)
		(c->o->ir_form == FORM_JSON ? module_json : module_dot)(&b, c->m);
	else
		module_print(&b, c->m, &p);
	fputs(buf_str(&b), stdout);
	buf_free(&b);
	if (c->o->explain)
		fputs(buf_str(&c->explain), stderr);
	return 0;
}

int main(int argc, char **argv)
{
	Arena *a = arena_new(), *scratch = arena_new(), *words = arena_new();
	Diag d;
	Options o;
	bool input_error;

	repro_watch(argc, argv);
	diag_init(&d, stderr, words);
	if (!options_read(a, &o, argc, argv, 1, &d, &input_error))
		return input_error ? EXIT_INPUT : EXIT_USAGE;
	if (o.help) {
		if (!o.help_group)
			return !command_help(stdout, "pdcc-opt");
		return options_help(stdout, o.help_group, &d) ? 0 : EXIT_USAGE;
	}
	if (o.nargs != 1) {
		diag_error(&d, NOLOC, 1, "pdcc-opt wants one .pdir file, or - for standard input");
		return EXIT_USAGE;
	}
	Compile c = { .a = a, .scratch = scratch, .d = &d, .o = &o, .model = o.args[0] };
	return run(&c);
}
