/* pdcc inspect of JSON that pdcc wrote: plan.json of a build folder, plan files, pdcc plan --json, profile.json. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "passes/simulate/timeline.h"
#include "inspect.h"
#include "frontend/settings/profile_file.h"
#include "frontend/settings/yaml.h"
#include "ir/base/human.h"

enum { MESSAGES = 40, TOP = 20 };

static const char *text(Yaml *y, const YNode *n, const char *key)
{
	const YNode *v = yaml_get(y, n, key);

	return v && v->type == YAML_SCALAR_NODE ? str_shown(y->a, (const char *)v->data.scalar.value) : "-";
}

static double number(Yaml *y, const YNode *n, const char *key) { return strtod(text(y, n, key), NULL); }
/* A number that some may be added to: files hold what anybody wrote. */
static int64_t whole(Yaml *y, const YNode *n, const char *key)
{
	const int64_t most = INT64_C(1) << 60, v = strtoll(text(y, n, key), NULL, 10);

	return v > most ? most : v < -most ? -most : v;
}

static int length(const YNode *n)
{
	return n && n->type == YAML_SEQUENCE_NODE ? (int)(n->data.sequence.items.top - n->data.sequence.items.start)
	                                          : 0;
}

static const YNode *item(Yaml *y, const YNode *n, int i)
{
	return yaml_document_get_node(&y->doc, n->data.sequence.items.start[i]);
}

/* Names of devices: a list of words, or of mappings with "device". */
static const char *devices(Yaml *y, const YNode *list)
{
	const char *s = "";

	for (int i = 0; i < length(list); i++) {
		const YNode *x = item(y, list, i);
		const char *name = x->type == YAML_SCALAR_NODE ? str_shown(y->a, (const char *)x->data.scalar.value)
		                                               : text(y, x, "device");
		s = arena_printf(y->a, "%s%s%s", s, i ? " " : "", name);
		if (strlen(s) > 40 && i + 1 < length(list))
			return arena_printf(y->a, "%s and %d more", s, length(list) - i - 1);
	}
	return s;
}

/* ---- plan.json of a build folder ---- */

static const char *region(Yaml *y, const YNode *stage, const char *name)
{
	return str_bytes(y->a, whole(y, yaml_get(y, yaml_get(y, stage, "regions"), name), "bytes"));
}

static void print_messages(Yaml *y, const YNode *stages)
{
	int n = 0;

	for (int t = 0; t < length(stages); t++) {
		const YNode *list = yaml_get(y, item(y, stages, t), "messages");

		for (int i = 0; i < length(list); i++, n++) {
			const YNode *x = item(y, list, i);
			if (!n)
				printf("\nmessages, a microbatch\n  %-8s %-8s %12s  value\n", "from", "to", "bytes");
			if (n < MESSAGES)
				printf("  stage %-2d stage %-2s %12s  %s\n", t, text(y, x, "to"),
					str_bytes(y->a, whole(y, x, "bytes")),
					inspect_name(y->a, text(y, x, "value"), 58));
		}
	}
	if (n > MESSAGES)
		printf("  ... and %d more\n", n - MESSAGES);
}

static void print_build(Yaml *y, const YNode *root, const YNode *stages)
{
	printf("%s: model %s, plan %s, schedule %s (hash %s)\n", y->file, text(y, root, "model"), text(y, root, "plan"),
		text(y, root, "schedule"), text(y, root, "hash"));
	printf("  %s microbatches of %s samples a step, %s programs\n", text(y, root, "microbatches"),
		text(y, root, "micro"), text(y, root, "world"));
	printf("\n%-6s %11s %11s %11s %11s %11s %11s  %s\n", "stage", "weights", "state", "gradients", "activations",
		"other", "together", "devices");
	for (int t = 0; t < length(stages); t++) {
		const YNode *s = item(y, stages, t), *r = yaml_get(y, s, "regions");
		const int64_t kept =
			whole(y, yaml_get(y, r, "slots"), "bytes") + whole(y, yaml_get(y, r, "entries"), "bytes");
		const int64_t grads =
			whole(y, yaml_get(y, r, "grads"), "bytes") + whole(y, yaml_get(y, r, "leaf"), "bytes");
		const int64_t other = whole(y, yaml_get(y, r, "stack"), "bytes") +
		                      whole(y, yaml_get(y, r, "tmp"), "bytes") +
		                      whole(y, yaml_get(y, r, "scratch"), "bytes");

		printf("%-6d %11s %11s %11s %11s %11s %11s  %s\n", t, region(y, s, "params"), region(y, s, "state"),
			str_bytes(y->a, grads), str_bytes(y->a, kept), str_bytes(y->a, other),
			str_bytes(y->a, whole(y, s, "arena")), devices(y, yaml_get(y, s, "devices")));
	}
	print_messages(y, stages);
}

/* ---- plan files ---- */

static void print_plan_file(Yaml *y, const YNode *root, const YNode *stages)
{
	const YNode *model = yaml_get(y, root, "model"), *cluster = yaml_get(y, root, "cluster");
	bool shard = false;

	printf("%s: a plan for %s on %s, schedule %s, %s microbatches of %s samples\n\n", y->file,
		text(y, model, "name"), text(y, cluster, "name"), text(y, root, "schedule"),
		text(y, root, "microbatches"), text(y, root, "microbatch"));
	for (int t = 0; t < length(stages); t++)
		shard |= yaml_get(y, item(y, stages, t), "shard") != NULL;
	printf("%-6s %8s  %s%-44s %s\n", "stage", "replicas", shard ? "shard  " : "", "ends with", "devices");
	for (int t = 0; t < length(stages); t++) {
		const YNode *s = item(y, stages, t);
		const bool last = !yaml_get(y, s, "until");
		const char *own = shard ? arena_printf(y->a, "%5s  ", text(y, s, "shard")) : "";
		printf("%-6d %8d  %s%-44s %s\n", t, length(yaml_get(y, s, "devices")), own,
			last ? "(the end)" : inspect_name(y->a, text(y, s, "until"), 44),
			devices(y, yaml_get(y, s, "devices")));
	}
}

/* ---- pdcc plan --json ---- */

static void print_search(Yaml *y, const YNode *root, const YNode *stages)
{
	const YNode *others = yaml_get(y, root, "others");

	printf("%s: plan %s (%s) for %s on %s, %s, %s microbatches of %s samples\n", y->file, text(y, root, "plan"),
		text(y, root, "planner"), text(y, root, "model"), text(y, root, "cluster"), text(y, root, "schedule"),
		text(y, root, "microbatches"), text(y, root, "microbatch"));
	printf("  step %s, one device %s, bubble %.1f %%\n  bottleneck: %s\n\n",
		time_text(y->a, number(y, root, "step_s")), time_text(y->a, number(y, root, "one_device_s")),
		100 * number(y, root, "bubble"), text(y, root, "bottleneck"));
	printf("%-6s %10s %10s %10s %9s %11s  %s\n", "stage", "forward", "backward", "update", "in flight", "memory",
		"devices");
	for (int t = 0; t < length(stages); t++) {
		const YNode *s = item(y, stages, t);
		printf("%-6d %10s %10s %10s %9s %11s  %s\n", t, time_text(y->a, number(y, s, "forward_s")),
			time_text(y->a, number(y, s, "backward_s")), time_text(y->a, number(y, s, "update_s")),
			text(y, s, "in_flight"), str_bytes(y->a, whole(y, yaml_get(y, s, "memory"), "together")),
			devices(y, yaml_get(y, s, "devices")));
	}
	if (length(others))
		printf("\nother plans\n");
	for (int i = 0; i < length(others) && i < TOP; i++) {
		const YNode *o = item(y, others, i);
		printf("  %-24s %10s  lost by %-8s %s\n", text(y, o, "plan"), time_text(y->a, number(y, o, "step_s")),
			text(y, o, "lost_by"), text(y, o, "planner"));
	}
}

/* ---- profile.json ---- */

static int by_time(const void *a, const void *b)
{
	const ProfileNode *x = *(const ProfileNode *const *)a, *y = *(const ProfileNode *const *)b;

	return x->typical < y->typical ? 1 : x->typical > y->typical ? -1 : (x > y) - (x < y);
}

static int inspect_profile(Compile *c)
{
	const Profile *p = profile_load(c->a, c->model, c->d);
	double sum[3] = { 0 };

	if (!p)
		return EXIT_INPUT;
	const ProfileNode **order = NEWN(c->a, const ProfileNode *, p->nnode);
	for (int i = 0; i < p->nnode; i++) {
		order[i] = &p->node[i];
		sum[p->node[i].phase] += p->node[i].typical;
	}
	qsort(order, (size_t)p->nnode, sizeof *order, by_time);
	printf("%s: times of %s at microbatch %" PRId64 ", %d thread%s, %s\n", c->model,
		p->model ? str_shown(c->a, p->model) : "-", p->micro, p->threads, p->threads == 1 ? "" : "s",
		p->device ? str_shown(c->a, p->device) : "-");
	printf("  forward %s, backward %s a microbatch, update %s a step\n\n", time_text(c->a, sum[0]),
		time_text(c->a, sum[1]), time_text(c->a, sum[2]));
	printf("%-36s %-20s %-9s %10s %10s %6s\n", "node", "op", "phase", "time", "99 %", "cov");
	for (int i = 0; i < p->nnode && i < TOP; i++) {
		const ProfileNode *x = order[i];
		printf("%-36s %-20.20s %-9s %10s %10s %6.2f\n",
			inspect_name(c->a,
				x->node && *x->node ? x->node
				: x->value          ? x->value
						    : "-",
				36),
			str_shown(c->a, x->op), profile_phase[x->phase], time_text(c->a, x->typical),
			time_text(c->a, x->p99), x->cov);
	}
	if (p->nnode > TOP)
		printf("... and %d more\n", p->nnode - TOP);
	return 0;
}

/* ---- which of them ---- */

int inspect_json(Compile *c)
{
	Yaml y;

	if (!yaml_open(&y, c->a, c->model, c->d))
		return EXIT_INPUT;
	const YNode *root = yaml_document_get_root_node(&y.doc), *stages = yaml_get(&y, root, "stages");
	const bool profile = yaml_get(&y, root, "nodes") != NULL;
	int status = 0;

	if (stages && yaml_get(&y, root, "world"))
		print_build(&y, root, stages);
	else if (stages && yaml_get(&y, root, "step_s"))
		print_search(&y, root, stages);
	else if (stages && yaml_get(&y, root, "microbatch"))
		print_plan_file(&y, root, stages);
	else if (!profile) {
		diag_error(c->d, FILELOC(c->model), 201,
			"neither a plan nor a profile: there are no keys 'stages' or 'nodes'");
		status = EXIT_INPUT;
	}
	yaml_close(&y);
	return profile && !stages ? inspect_profile(c) : status;
}

bool inspect_is_plan(Compile *c)
{
	Yaml y;
	Diag mute = *c->d;

	mute.errors = mute.limit + 1;
	mute.quiet = true;
	if (!yaml_open(&y, c->a, c->model, &mute))
		return false;
	const bool plan = yaml_get(&y, yaml_document_get_root_node(&y.doc), "stages") != NULL;
	yaml_close(&y);
	return plan;
}
