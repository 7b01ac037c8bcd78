/* pdcc plan-profile: a layer profile (PipeDream's graph.txt, DAPPLE's tables) and machines to a plan, by one of the
 * published planners (passes/planner). Prints a table, or with --json one object for tests and tools. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "ir/base/human.h"
#include "ir/base/buf.h"
#include "passes/planner/planner.h"
#include "frontend/driver/compile/compile.h"
#include "profile_auto.h"
#include "profile_dapple.h"
#include "profile_command.h"

typedef struct Ask {
	Arena *a;
	Diag *d;
	const char *file, *planner, *without;
	PdOpt o;
	int nbandwidth;
	double scale[3]; /* time, activations, parameters */
	bool compress, json, help;
} Ask;

static const char help[] = "usage: pdcc plan-profile FILE [options]\n"
			   "plans a layer profile as the published planners do\n"
			   "  --planner NAME           pipedream (default), blocks; dapple, auto (other\n"
			   "                           options: --planner dapple --help)\n"
			   "  --cost NAME              of pipedream: sosp (published code, default), paper,\n"
			   "                           old (optimizer.py), once (a tensor counted once per\n"
			   "                           consumer stage), text (SOSP's formula), ring\n"
			   "  --workers N[,N..]        devices; several levels: of a machine first\n"
			   "  --bandwidth B[,B..]      bytes per second of the links of each level\n"
			   "  --compression C          of sosp: activations count, divided by C\n"
			   "  --straight               no replicas\n"
			   "  --fewer                  workers may be left unused\n"
			   "  --memory BYTES           per device\n"
			   "  --without LAYER          leave out a sink and what leads to it alone\n"
			   "  --compress               layers in a row inside a branch are one\n"
			   "  --scale-time F, --scale-activations F, --scale-parameters F\n"
			   "                           another device, another batch\n"
			   "  --json                   one object on standard output\n"
			   "example: pdcc plan-profile graph.txt --workers 8 --bandwidth 1e9\n";

static bool one_number(Ask *q, const char *flag, const char *s, char **end, double *v)
{
	*v = strtod(s, end);
	if (*end == s || (**end && **end != ',') || !isfinite(*v) || *v <= 0)
		return diag_error(q->d, NOLOC, 1, "%s: '%s' is not a number above 0", flag, s);
	return true;
}

static bool numbers(Ask *q, const char *flag, const char *s, double *v, int *n)
{
	char *end;

	for (*n = 0;; s = end + 1) {
		if (*n == PD_LEVELS)
			return diag_error(q->d, NOLOC, 1, "%s: more than %d numbers", flag, PD_LEVELS);
		if (!one_number(q, flag, s, &end, &v[(*n)++]))
			return false;
		if (!*end)
			return true;
	}
}

static bool workers(Ask *q, const char *flag, const char *s)
{
	double v[PD_LEVELS];

	if (!numbers(q, flag, s, v, &q->o.nlevel))
		return false;
	for (int i = 0; i < q->o.nlevel; i++) {
		if (v[i] != floor(v[i]) || v[i] > 1e6)
			return diag_error(q->d, NOLOC, 1, "%s: %g is not a number of workers", flag, v[i]);
		q->o.machines[i] = (int)v[i];
	}
	return true;
}

static bool cost_name(Ask *q, const char *flag, const char *s)
{
	static const char *const name[] = { "sosp", "paper", "old", "once", "text", "ring" };

	for (int i = 0; i < 6; i++)
		if (strcmp(s, name[i]) == 0) {
			q->o.cost = (PdCost)i;
			return true;
		}
	return diag_error(q->d, NOLOC, 1, "%s: '%s' is none of sosp, paper, old, once, text, ring", flag, s);
}

static bool with_value(Ask *q, const char *flag, const char *s, bool *known)
{
	static const char *const scale[] = { "--scale-time", "--scale-activations", "--scale-parameters" };
	double *to = NULL;
	char *end;

	*known = true;
	if (strcmp(flag, "--planner") == 0)
		return q->planner = s, true;
	if (strcmp(flag, "--without") == 0)
		return q->without = s, true;
	if (strcmp(flag, "--cost") == 0)
		return cost_name(q, flag, s);
	if (strcmp(flag, "--workers") == 0)
		return workers(q, flag, s);
	if (strcmp(flag, "--bandwidth") == 0)
		return numbers(q, flag, s, q->o.bandwidth, &q->nbandwidth);
	for (int i = 0; i < 3; i++)
		if (strcmp(flag, scale[i]) == 0)
			to = &q->scale[i];
	if (strcmp(flag, "--compression") == 0)
		to = &q->o.compression;
	if (strcmp(flag, "--memory") == 0)
		to = &q->o.memory;
	*known = to;
	if (!to)
		return true;
	return one_number(q, flag, s, &end, to) &&
	       (!*end || diag_error(q->d, NOLOC, 1, "%s takes one number, not '%s'", flag, s));
}

static bool read_flags(Ask *q, int argc, char **argv)
{
	const struct {
		const char *name;
		bool *to;
	} sign[] = { { "--straight", &q->o.straight }, { "--fewer", &q->o.fewer }, { "--compress", &q->compress },
		{ "--json", &q->json }, { "--help", &q->help }, { "-h", &q->help } };

	for (int i = 0; i < argc; i++) {
		bool *to = NULL, known;

		for (size_t k = 0; k < sizeof sign / sizeof *sign; k++)
			if (strcmp(argv[i], sign[k].name) == 0)
				to = sign[k].to;
		if (to) {
			*to = true;
		} else if (argv[i][0] != '-') {
			if (q->file)
				return diag_error(
					q->d, NOLOC, 1, "one profile at a time, not '%s' and '%s'", q->file, argv[i]);
			q->file = argv[i];
		} else {
			if (!with_value(q, argv[i], i + 1 < argc ? argv[i + 1] : "", &known))
				return false;
			if (!known)
				return diag_error(q->d, NOLOC, 1,
					"unknown flag '%s'; pdcc help plan-profile lists them", argv[i]);
			if (++i >= argc)
				return diag_error(q->d, NOLOC, 1, "%s takes a value", argv[i - 1]);
		}
	}
	if (q->help)
		return true;
	if (!q->file)
		return diag_error(q->d, NOLOC, 1, "no profile is named; pdcc help plan-profile shows how");
	if (!q->o.nlevel)
		return diag_error(q->d, NOLOC, 1, "--workers N is missing");
	if (strcmp(q->planner, "pipedream") == 0 && q->nbandwidth != q->o.nlevel)
		return diag_error(q->d, NOLOC, 1, "--workers has %d levels, --bandwidth %d: one number for each",
			q->o.nlevel, q->nbandwidth);
	return true;
}

/* ---- PipeDream ---- */

/* The layers whose outputs cross the cut at a stage's end: states have numbers of our own only. */
static void print_end(const States *st, int end, int before)
{
	const State *s = &st->s[end - 1];

	printf("%s\"%d\": [", before ? ", " : "", end);
	for (int i = 0; i < s->n; i++)
		printf("%s\"%s\"", i ? ", " : "", st->p->layer[s->layer[i]].id);
	printf("]");
}

static void print_json(const States *st, const PdPlan *p)
{
	printf("{\"states\": %d, \"single_s\": %.17g, \"pipeline_s\": %.17g, \"speedup\": %.17g, \"dp_s\": %.17g, "
	       "\"dp_speedup\": %.17g, \"unused\": %d, \"levels\": [",
		st->n, p->single, p->seconds, p->single / p->seconds, p->data_parallel, p->single / p->data_parallel,
		p->unused);
	for (int i = 0; i < p->ngroup; i++) {
		const PdGroup *g = &p->group[i];
		const bool first = !i || g->level != g[-1].level;

		if (first)
			printf("%s{\"level\": %d, \"groups\": [", i ? "]}, " : "", g->level);
		printf("%s[", first ? "" : ", ");
		for (int k = 0; k < g->n; k++)
			printf("%s[%d, %d, %d, %.17g]", k ? ", " : "", g->stage[k].start, g->stage[k].end,
				g->stage[k].replicas, g->stage[k].compute);
		printf("]");
	}
	printf("]}], \"ends\": {");
	for (int i = 0, n = 0; i < p->ngroup; i++)
		for (int k = 0; k < p->group[i].n; k++)
			print_end(st, p->group[i].stage[k].end, n++);
	printf("}}\n");
}

static void print_table(Arena *a, const States *st, const PdPlan *p)
{
	printf("%d places to cut; one device %s, data parallel %s (%.2fx), pipeline %s (%.2fx) per minibatch\n", st->n,
		time_text(a, p->single), time_text(a, p->data_parallel), p->single / p->data_parallel,
		time_text(a, p->seconds), p->single / p->seconds);
	if (p->unused)
		printf("%d workers are left unused\n", p->unused);
	for (int i = 0; i < p->ngroup; i++) {
		const PdGroup *g = &p->group[i];

		if (!i || g->level != g[-1].level)
			printf("level %d:   stage  replicas   compute s   the last layers\n", g->level);
		for (int k = 0; k < g->n; k++) {
			const PdStage *s = &g->stage[k];
			const State *end = &st->s[s->end - 1];
			char span[32];

			snprintf(span, sizeof span, "[%d, %d)", s->start, s->end);
			printf("%16s %9d %11.6f   %s %s\n", span, s->replicas, s->compute,
				st->p->layer[end->layer[end->n - 1]].id, st->p->layer[end->layer[end->n - 1]].desc);
		}
	}
}

static int pipedream_main(Ask *q, const States *st)
{
	PdPlan p;

	if (!pipedream_plan(q->a, st, &q->o, &p, q->d))
		return q->d->last_code == 465 ? EXIT_NO_PLAN : EXIT_USAGE;
	if (q->json)
		print_json(st, &p);
	else
		print_table(q->a, st, &p);
	return 0;
}

/* ---- blocks ---- */

static void print_sizes(const char *name, const int *size, int n, const char *end)
{
	printf("\"%s\": [", name);
	for (int i = 0; i < n; i++)
		printf("%s%d", i ? ", " : "", size[i]);
	printf("]%s", end);
}

/* The costs are whole microseconds, as torchgpipe's profiler gives them: a state's time less that of the one before it.
 * Where the graph branches these are steps along the numbering, which can go down. */
static int blocks_main(Ask *q, const States *st)
{
	const int parts = q->o.machines[0];
	double *cost = NEWN(q->a, double, st->n);
	int *size = NEWN(q->a, int, parts), *best = NEWN(q->a, int, parts);

	if (parts > st->n || q->o.nlevel > 1) {
		diag_error(q->d, FILELOC(q->file), 466,
			"%d blocks on %d levels of %d places to cut: one level, at most a block a "
			"place",
			parts, q->o.nlevel, st->n);
		return EXIT_USAGE;
	}
	for (int i = 0; i < st->n; i++)
		cost[i] = round((st->s[i].time - (i ? st->s[i - 1].time : 0)) * 1e6);
	const double most = blocks_published(q->a, cost, st->n, parts, size);
	const double least = blocks_optimal(q->a, cost, st->n, parts, best);
	if (q->json) {
		printf("{\"states\": %d, \"max_block_us\": %.17g, \"optimal_max_block_us\": %.17g, ", st->n, most,
			least);
		print_sizes("balance", size, parts, ", ");
		print_sizes("optimal_balance", best, parts, ", \"costs_us\": [");
		for (int i = 0; i < st->n; i++)
			printf("%s%.17g", i ? ", " : "", cost[i]);
		printf("]}\n");
		return 0;
	}
	printf("largest block: %s as torchgpipe cuts, %s at best\nblock  layers  at best\n",
		time_text(q->a, most * 1e-6), time_text(q->a, least * 1e-6));
	for (int i = 0; i < parts; i++)
		printf("%5d %7d %8d\n", i, size[i], best[i]);
	return 0;
}

static int run(Ask *q)
{
	Profile p;
	States st;

	if (!profile_read(q->a, q->file, &p, q->d))
		return EXIT_INPUT;
	if (q->without && !profile_without(q->a, &p, q->without, q->d))
		return EXIT_INPUT;
	if (q->compress)
		profile_compress(q->a, &p);
	profile_scale(&p, q->scale[0], q->scale[1], q->scale[2]);
	profile_trim(q->a, &p);
	if (!states_build(q->a, &p, q->o.cost == PD_ONCE, 8192, &st, q->d))
		return EXIT_INPUT;
	if (strcmp(q->planner, "pipedream") == 0)
		return pipedream_main(q, &st);
	if (strcmp(q->planner, "blocks") == 0)
		return blocks_main(q, &st);
	diag_error(q->d, NOLOC, 1, "--planner: '%s' is none of pipedream, dapple, blocks, auto", q->planner);
	return EXIT_USAGE;
}

/* Is `--planner name` among the arguments? */
static bool asked(int argc, char **argv, const char *name)
{
	for (int i = 0; i + 1 < argc; i++)
		if (!strcmp(argv[i], "--planner") && !strcmp(argv[i + 1], name))
			return true;
	return false;
}

int plan_profile_main(int argc, char **argv)
{
	Arena *a = arena_new(), *words = arena_new();
	Diag d;
	Ask q = { .a = a, .d = &d, .planner = "pipedream", .scale = { 1, 1, 1 } };
	int status = EXIT_USAGE;

	diag_init(&d, stderr, words);
	if (asked(argc, argv, "auto")) {
		status = plan_auto_main(argc, argv);
	} else if (asked(argc, argv, "dapple")) {
		status = plan_dapple_main(argc, argv);
	} else if (read_flags(&q, argc, argv)) {
		if (q.help)
			status = fputs(help, stdout) < 0;
		else
			status = run(&q);
	}
	arena_free(words);
	arena_free(a);
	return status;
}
