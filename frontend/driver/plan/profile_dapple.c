/* pdcc plan-profile --planner dapple: a layer profile and servers of devices to a plan, by DAPPLE's equations or as its
 * published program does (passes/planner/dapple.h). Prints a table, or with --json one object for tests and tools. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "ir/base/human.h"
#include "passes/planner/dapple.h"
#include "frontend/driver/compile/compile.h"
#include "profile_dapple.h"

typedef struct Ask {
	Arena *a;
	Diag *d;
	const char *file, *stages;
	DappleOptions o;
	DappleCluster c;
	const States *st;
	double scale[3], copies, microbatches, width;
	bool published, exhaustive, json, help, literal, warmup_b, policies;
} Ask;

static const char help[] = "usage: pdcc plan-profile FILE --planner dapple --servers N[,N..] [options]\n"
			   "  --servers N[,N..]        where each server's devices end: 8,16 is two of eight\n"
			   "  --profiled N, --batch N, --least N\n"
			   "                           samples: profiled, of a step, a device at least (1)\n"
			   "  --p2p B, --nccl B, --nvlink B\n"
			   "                           bytes/s between servers, of sums, inside a server\n"
			   "  --memory BYTES           per device; --scaling F: kept per byte of parameters,\n"
			   "                           --peak BYTES: activations of a sample\n"
			   "  --published              as the published program, not by the equations\n"
			   "  --literal                equation (1) as printed\n"
			   "  --warmup-b               policy B: 2(S-i)-1 forwards first, not S-i\n"
			   "  --microbatches M         per step; without it all useful counts are tried\n"
			   "  --width N                prefixes kept per cut and devices (4; the paper: 1)\n"
			   "  --policies               only the three placements, also where all are few\n"
			   "  --exhaustive             every plan, for small cases\n"
			   "  --stages S:F-L,..        score this plan: each stage's first state, devices F\n"
			   "                           to L; with --copies N\n"
			   "  --scale-time F, --scale-activations F, --scale-parameters F\n"
			   "                           another device, another batch\n"
			   "  --json                   one object on standard output\n"
			   "example: pdcc plan-profile layers.txt --planner dapple --servers 8,16\n";

static bool servers(Ask *q, const char *s)
{
	char *end;

	for (q->c.servers = 0;; s = end + 1) {
		const long v = strtol(s, &end, 10);
		if (end == s || (*end && *end != ',') || v < 1 || v > DAPPLE_DEVICES || q->c.servers == DAPPLE_DEVICES)
			return diag_error(
				q->d, NOLOC, 1, "--servers: '%s' is no list of 1 to %d devices", s, DAPPLE_DEVICES);
		q->c.end[q->c.servers++] = (int)v;
		if (!*end)
			return true;
	}
}

static bool value(Ask *q, const char *flag, const char *s)
{
	const struct {
		const char *name;
		double *to;
	} all[] = { { "--profiled", &q->o.profiled }, { "--batch", &q->o.batch }, { "--least", &q->o.least },
		{ "--p2p", &q->c.p2p }, { "--nccl", &q->c.nccl }, { "--nvlink", &q->c.nvlink },
		{ "--memory", &q->c.memory }, { "--scaling", &q->o.scaling }, { "--peak", &q->o.peak },
		{ "--microbatches", &q->microbatches }, { "--width", &q->width }, { "--copies", &q->copies },
		{ "--scale-time", &q->scale[0] }, { "--scale-activations", &q->scale[1] },
		{ "--scale-parameters", &q->scale[2] } };
	char *end;

	if (!strcmp(flag, "--planner"))
		return true;
	if (!strcmp(flag, "--servers"))
		return servers(q, s);
	if (!strcmp(flag, "--stages"))
		return q->stages = s, true;
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		if (strcmp(flag, all[i].name))
			continue;
		*all[i].to = strtod(s, &end);
		if (end == s || *end || !isfinite(*all[i].to) || *all[i].to <= 0 || *all[i].to > 1e30)
			return diag_error(q->d, NOLOC, 1, "%s: '%s' is not a number above 0", flag, s);
		return true;
	}
	return diag_error(q->d, NOLOC, 1, "unknown flag '%s'; --planner dapple --help lists them", flag);
}

static bool whole(Ask *q, const char *flag, double v, double most)
{
	return v == floor(v) && v <= most
	               ? true
	               : diag_error(q->d, NOLOC, 1, "%s: %g is not a whole number up to %g", flag, v, most);
}

static bool read_flags(Ask *q, int argc, char **argv)
{
	const struct {
		const char *name;
		bool *to;
	} sign[] = { { "--published", &q->published }, { "--help", &q->help }, { "-h", &q->help },
		{ "--literal", &q->literal }, { "--warmup-b", &q->warmup_b }, { "--exhaustive", &q->exhaustive },
		{ "--policies", &q->policies }, { "--json", &q->json } };

	for (int i = 0; i < argc; i++) {
		bool *to = NULL;
		for (size_t k = 0; k < sizeof sign / sizeof *sign; k++)
			if (!strcmp(argv[i], sign[k].name))
				to = sign[k].to;
		if (to) {
			*to = true;
		} else if (argv[i][0] != '-') {
			if (q->file)
				return diag_error(
					q->d, NOLOC, 1, "one profile at a time, not '%s' and '%s'", q->file, argv[i]);
			q->file = argv[i];
		} else if (i + 1 == argc) {
			return diag_error(q->d, NOLOC, 1, "%s takes a value", argv[i]);
		} else if (!value(q, argv[i], argv[i + 1])) {
			return false;
		} else {
			i++;
		}
	}
	q->o.literal = q->literal;
	q->o.policies = q->policies;
	q->o.warmup = q->warmup_b ? 'B' : 'A';
	if (q->help)
		return true;
	if (!q->file || !q->c.servers)
		return diag_error(q->d, NOLOC, 1, "%s; pdcc help plan-profile shows how",
			q->file ? "--servers is missing" : "no profile is named");
	if (!whole(q, "--microbatches", q->microbatches, 1e6) || !whole(q, "--width", q->width, 1000) ||
		!whole(q, "--copies", q->copies, DAPPLE_DEVICES) || !whole(q, "--batch", q->o.batch, 1e9) ||
		(q->published && !whole(q, "--least", q->o.least, 1e9)))
		return false;
	q->o.microbatches = (int)q->microbatches;
	q->o.width = (int)q->width;
	return true;
}

/* "0:0-7,30:8-15" -> stages. */
static bool read_stages(Ask *q, const DappleProfile *p, DapplePlan *plan)
{
	const char *s = q->stages;

	plan->stage = NEWN(q->a, DappleStage, DAPPLE_DEVICES);
	for (int used = 0;; s++) {
		int begin, first, last, n = 0;
		const int before = plan->n ? plan->stage[plan->n - 1].begin : -1;
		if (plan->n == DAPPLE_DEVICES || sscanf(s, "%d:%d-%d%n", &begin, &first, &last, &n) != 3 ||
			(s[n] && s[n] != ','))
			return diag_error(q->d, NOLOC, 1, "--stages: '%.30s' is not STATE:FIRST-LAST", s);
		if (begin <= before || begin >= p->n || (!plan->n && begin) || first < used || last < first ||
			last >= dapple_devices(&q->c))
			return diag_error(q->d, NOLOC, 1,
				"--stages: '%.30s': states rise from 0 to at most %d, devices from %d to at most %d", s,
				p->n - 1, used, dapple_devices(&q->c) - 1);
		const int count = last - first + 1;
		DappleStage *g = &plan->stage[plan->n++];
		*g = (DappleStage){ .begin = begin, .end = p->n, .replicas = count };
		g->devices = (count == 64 ? ~(DappleSet)0 : ((DappleSet)1 << count) - 1) << first;
		if (plan->n > 1)
			g[-1].end = begin;
		used = last + 1;
		s += n;
		if (!*s)
			return true;
	}
}

static void print_set(DappleSet set)
{
	const char *comma = "";

	printf("[");
	for (int i = 0; i < DAPPLE_DEVICES; i++)
		if (set >> i & 1) {
			printf("%s%d", comma, i);
			comma = ", ";
		}
	printf("]");
}

/* The layers whose outputs cross the cut behind a stage: states have numbers of our own only. */
static void print_cut(const States *st, int end)
{
	const State *s = &st->s[end - 1];

	printf("\"cut\": [");
	for (int i = 0; i < s->n; i++)
		printf("%s\"%s\"", i ? ", " : "", st->p->layer[s->layer[i]].id);
	printf("]}");
}

static void json_plan(const Ask *q, const DapplePlan *p)
{
	printf("{\"copies\": %d, \"microbatches\": %d, \"block\": %.17g, \"latency\": %.17g, \"speedup\": %.17g, \"pivot\": %d, "
	       "\"stages\": [",
		p->copies, p->microbatches, p->block, p->latency, p->speedup, p->pivot);
	for (int i = 0; i < p->n; i++) {
		const DappleStage *s = &p->stage[i];
		printf("%s{\"begin\": %d, \"end\": %d, \"devices\": ", i ? ", " : "", s->begin, s->end);
		print_set(s->devices);
		printf(", \"fwd\": %.17g, \"bwd\": %.17g, \"transfer\": %.17g, \"allreduce\": %.17g, \"memory\": %.17g, \"depth\": %d, ",
			s->fwd, s->bwd, s->transfer, s->allreduce, s->memory, s->depth);
		print_cut(q->st, s->end);
	}
	printf("]}");
}

static void table(Ask *q, const char *name, const DapplePlan *p)
{
	printf("%s %s", name, dapple_str(q->a, p));
	if (p->copies > 1)
		printf(", %d copies", p->copies);
	printf(", %d microbatches: %s per global batch, %.3fx one device\n", p->microbatches,
		time_text(q->a, p->latency), p->speedup);
	for (int i = 0; i < p->n; i++) {
		const DappleStage *s = &p->stage[i];
		printf("  stage %-2d [%d, %d) on ", i, s->begin, s->end);
		print_set(s->devices);
		if (s->depth)
			printf("  forward %s, backward %s, transfer %s, AllReduce %s, K %d, %s%s",
				time_text(q->a, s->fwd), time_text(q->a, s->bwd), time_text(q->a, s->transfer),
				time_text(q->a, s->allreduce), s->depth, str_bytes(q->a, (int64_t)s->memory),
				p->pivot == 2 * i ? ", pivot" : "");
		printf("\n");
	}
}

static int published(Ask *q, const DappleProfile *p)
{
	const DapplePublished *r = dapple_published(q->a, p, &q->c, &q->o, q->d);

	if (!r)
		return q->d->last_code == 442 ? EXIT_NO_PLAN : EXIT_USAGE;
	const DappleDp dp = dapple_dp(p, &q->c, &q->o);
	if (!q->json) {
		printf("data parallel %.3fx, overlapped %.3fx, also with the next step %.3fx\n", dp.plain, dp.overlap,
			dp.inter);
		for (int i = 0; i < r->n; i++)
			table(q, i == r->best ? "best" : "    ", &r->candidate[i]);
		return 0;
	}
	printf("{\"states\": %d, \"single_s\": %.17g, \"dp\": [%.17g, %.17g, %.17g], \"explored\": %ld, \"best\": %d, "
	       "\"candidates\": [",
		p->n, p->time[p->n - 1] * q->o.batch / q->o.profiled, dp.plain, dp.overlap, dp.inter, r->explored,
		r->best);
	for (int i = 0; i < r->n; i++) {
		printf(i ? ", " : "");
		json_plan(q, &r->candidate[i]);
	}
	printf("]}\n");
	return 0;
}

/* What a given plan is worth, by every formula. */
static int given(Ask *q, const DappleProfile *p)
{
	DapplePlan plan = { .copies = (int)q->copies, .microbatches = q->o.microbatches };
	double speedup[2], block[2];

	if (!dapple_cluster_check(&q->c, q->d) || !read_stages(q, p, &plan))
		return EXIT_USAGE;
	for (int i = 0; i < 2; i++) {
		block[i] = plan.block = dapple_block(p, &q->c, &q->o, &plan, i ? 1 : 2);
		dapple_score(p, &q->c, &q->o, &plan);
		speedup[i] = plan.speedup;
	}
	const double recursion = dapple_recursion(p, &q->c, &q->o, &plan);
	if (q->o.microbatches)
		plan.microbatches = q->o.microbatches;
	if (!plan.microbatches)
		plan.microbatches = 1;
	const bool fits = dapple_evaluate(p, &q->c, &q->o, &plan);
	if (!q->json) {
		printf("published: %.3fx, its recursion %.3fx; %s memory\n", speedup[0], recursion,
			fits ? "within" : "beyond");
		table(q, "equations:", &plan);
		return 0;
	}
	printf("{\"speedup\": %.17g, \"block\": %.17g, \"pair_speedup\": %.17g, \"pair_block\": %.17g, \"recursion\": %.17g, "
	       "\"fits\": %s, \"plan\": ",
		speedup[0], block[0], speedup[1], block[1], recursion, fits ? "true" : "false");
	json_plan(q, &plan);
	printf("}\n");
	return 0;
}

static int run(Ask *q)
{
	Profile f;
	States st;
	long explored = 0;

	if (!profile_read(q->a, q->file, &f, q->d))
		return EXIT_INPUT;
	profile_scale(&f, q->scale[0], q->scale[1], q->scale[2]);
	profile_trim(q->a, &f);
	if (!states_build(q->a, &f, false, DAPPLE_STATES, &st, q->d))
		return EXIT_INPUT;
	const DappleProfile *p = dapple_profile(q->a, &st);
	q->st = &st;
	if (q->stages)
		return given(q, p);
	if (q->published && !q->exhaustive)
		return published(q, p);
	const DapplePlan *plan = q->exhaustive ? dapple_exhaustive(q->a, p, &q->c, &q->o, q->published, q->d)
	                                       : dapple_plan(q->a, p, &q->c, &q->o, &explored, q->d);
	if (!plan)
		return q->d->last_code == 442 ? EXIT_NO_PLAN : EXIT_USAGE;
	if (q->json) {
		printf("{\"states\": %d, \"explored\": %ld, \"plan\": ", p->n, explored);
		json_plan(q, plan);
		printf("}\n");
	} else {
		table(q, "plan", plan);
	}
	return 0;
}

int plan_dapple_main(int argc, char **argv)
{
	Arena *a = arena_new(), *words = arena_new();
	Diag d;
	Ask q = { .a = a,
		.d = &d,
		.scale = { 1, 1, 1 },
		.copies = 1,
		.o = { .profiled = 1, .batch = 1, .least = 1 },
		.c = { .p2p = 1e9, .nccl = 3e9, .nvlink = 25e9 } };
	int status = EXIT_USAGE;

	diag_init(&d, stderr, words);
	if (read_flags(&q, argc, argv))
		status = q.help ? fputs(help, stdout) < 0 : run(&q);
	arena_free(words);
	arena_free(a);
	return status;
}
