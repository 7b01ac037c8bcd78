/* pdcc simulate: the planned step played on the cluster without running anything. Takes what compile takes, writes no
 * program; --timeline draws what was played. Times are those of --profile, or of the cost model. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "ir/base/human.h"
#include "passes/simulate/spend.h"
#include "passes/simulate/timeline.h"
#include "why_report.h"

enum { BAR = 24, STAGES = 32 };

const char *cluster_name(const Compile *c)
{
	const char *file = c->cluster.file ? c->cluster.file : c->o->cluster;
	const char *slash = strrchr(file, '/');

	return c->cluster.name ? c->cluster.name : slash ? slash + 1 : file;
}

const char *simulate_title(const Compile *c)
{
	const int64_t n = c->m->microbatches, batch = c->m->batch;

	return arena_printf(c->a, "%s: plan %s, %s, %" PRId64 " microbatch%s of %" PRId64 " sample%s, on %s",
		c->m->name, plan_name(c), c->m->schedule->name, n, n == 1 ? "" : "es", batch, batch == 1 ? "" : "s",
		cluster_name(c));
}

/* ---- where the devices' time goes ---- */

/* Letters for so many parts of a whole of BAR letters; rounding never makes the bar longer. */
static void bar(char *to, const double *share, const char *letter, int n)
{
	double sum = 0;
	int at = 0;

	for (int i = 0; i < n; i++) {
		sum += share[i];
		while (at < BAR && at + 0.5 < sum * BAR)
			to[at++] = letter[i];
	}
	while (at < BAR)
		to[at++] = '.';
	to[BAR] = 0;
}

static void print_stages(const Compile *c, const Sim *s)
{
	const Schedule *p = s->model->s;
	const double step = s->step > 0 ? s->step : 1;

	printf("  stage  devices    busy  %-*s  in flight  memory\n", BAR, "F B S(um) u(pdate) .idle");
	for (int t = 0; t < p->nstage && t < STAGES; t++) {
		double share[4] = { 0 }, busy = 0;
		int peak = 0, depth = p->inflight[t];
		char text[BAR + 1];
		const char *name = c->m->stage[t]->server ? "server" : arena_printf(c->a, "%d", t);
		bool chunk = false;

		for (int k = 0; k < p->nstage; k++) { /* stages of one device stand together */
			chunk |= k < t && p->device[k][0] == p->device[t][0];
			if (k <= t || p->device[k][0] != p->device[t][0])
				continue;
			name = arena_printf(c->a, "%s+%d", name, k);
			depth += p->inflight[k];
		}
		if (chunk)
			continue;

		for (int k = 0; k < p->replicas[t]; k++) {
			const int r = p->device[t][k];
			const double each = step * p->replicas[t];
			share[0] += s->spent[r][ACT_F] / each;
			share[1] += (s->spent[r][ACT_B] + s->spent[r][ACT_W]) / each;
			share[2] += s->spent[r][ACT_SYNC] / each;
			share[3] += s->spent[r][ACT_UPDATE] / each;
			busy += s->busy[r] / each;
			peak = s->peak[r] > peak ? s->peak[r] : peak;
		}
		bar(text, share, "FBSu", 4);
		const int first = p->device[t][0], last = p->device[t][p->replicas[t] - 1];
		printf("  %-6s %-9s %5.1f%%  %s  %4d of %-2d  %s\n", name,
			first == last ? arena_printf(c->a, "%d", first) : arena_printf(c->a, "%d-%d", first, last),
			100 * busy, text, peak, depth, str_bytes(c->a, c->m->stage[t]->arena));
	}
	if (p->nstage > STAGES)
		printf("  ... and %d more stages\n", p->nstage - STAGES);
}

/* ---- what moves ---- */

const char *link_name(const Compile *c, const Link *l)
{
	if (l->scope != LINK_BETWEEN)
		return arena_printf(c->a, "%s %s", l->kind ? l->kind : "link",
			l->scope == LINK_WITHIN ? "within a host" : "between hosts");
	return arena_printf(c->a, "%s %s - %s", l->kind ? l->kind : "link", c->cluster.host[l->host_a].name,
		c->cluster.host[l->host_b].name);
}

void print_loads(const Compile *c, const Sim *s, FILE *f)
{
	if (!s->nload)
		return;
	fprintf(f, "  %-32s  %10s  %10s  %10s  %13s  busiest port\n", s->steps > 1 ? "bytes" : "bytes a step",
		"messages", "AllReduce", "together", "data parallel");
	for (int i = 0; i < s->nload; i++) {
		const SimLoad *x = &s->load[i];
		const Link l = cluster_link_of(&c->cluster, x->line);

		fprintf(f, "  %-32.32s  %10s  %10s  %10s  %13s  %5.1f %%\n", link_name(c, &l),
			str_bytes(c->a, x->messages), str_bytes(c->a, x->joins),
			str_bytes(c->a, x->messages + x->joins), str_bytes(c->a, x->parallel),
			s->step > 0 ? 100 * x->busy / s->step : 0);
	}
}

static void print_summary(const Compile *c, double usual, const Sim *s)
{
	const double samples = (double)(c->m->batch * c->m->microbatches);

	printf("%s\n", simulate_title(c));
	printf("  step %s", time_text(c->a, s->each));
	if (s->each > 0)
		printf(", %.*f samples/s", samples / s->each < 100, samples / s->each);
	if (c->plan.one_time > 0 && s->each > 0)
		printf("; one %s %s, %.2f times as long", one_of(c->m), time_text(c->a, plan_one_device(c, s)),
			plan_one_device(c, s) / s->each);
	printf(" (%s)\n", compile_times(c));
	if (s->steps > 1)
		printf("  %d steps from the first forward to the last update: %s; below is about all of them\n",
			s->steps, time_text(c->a, s->step));
	printf("  pipeline %s, bubble %.1f %%; AllReduce and update %s\n", time_text(c->a, s->pipeline),
		100 * s->bubble, time_text(c->a, s->step - s->pipeline));
	print_stages(c, s);
	print_loads(c, s, stdout);
	const SimSpend spend = sim_spend(c->a, s);
	if (spend.price >= 0 && s->each > 0)
		printf("  price %s an hour, %s of a million samples\n", number_text(c->a, spend.price, 5),
			number_text(c->a, spend.price * s->each / 3600 / samples * 1e6, 5));
	if (spend.watts >= 0 && s->each > 0)
		printf("  power %s kW, %s kWh of a million samples\n", number_text(c->a, spend.watts / 1e3, 4),
			number_text(c->a, spend.watts * s->each / 3.6e6 / samples * 1e6, 4));
	if (c->o->slow_share > 0)
		printf("  with stragglers (%s %% of a device's steps take %s times as long) %s, %.1f %% more\n",
			number_text(c->a, 100 * c->o->slow_share, 4), number_text(c->a, c->o->slow_times, 4),
			time_text(c->a, usual), 100 * (usual / s->each - 1));
	if (c->o->days > 0)
		print_long_run(c, usual, s);
}

/* ---- pictures ---- */

static bool write_timeline(const Compile *c, const Sim *s, const char *file)
{
	const char *end = strrchr(file, '.');
	Buf b = { 0 };

	(strcmp(end, ".svg") == 0           ? timeline_svg
		: strcmp(end, ".html") == 0 ? timeline_html
					    : timeline_json)(&b, s, simulate_title(c));
	const bool ok =
		file_write(file, b.s, b.n) || diag_error(c->d, NOLOC, 8, "cannot write %s: %s", file, strerror(errno));
	if (ok && !c->o->quiet && !c->o->json)
		printf("wrote %s\n", file);
	buf_free(&b);
	return ok;
}

/* For programs: the step, and what the runtime counts in summary.json. */
static void print_json(const Compile *c, double usual, const Sim *s)
{
	const Schedule *p = s->model->s;
	int n;
	const SimPair *pair = sim_pairs(c->a, s->model, &n);

	printf("{\"step_s\": %.9g, \"steps\": %d, \"pipeline_s\": %.9g, \"bubble\": %.6g, \"microbatches\": %" PRId64
	       ",\n",
		s->each, s->steps, s->pipeline, s->bubble, c->m->microbatches);
	printf(" \"measured\": %d, \"estimated\": %d,\n \"sums_s\": {\"ring\": %.9g, \"copies\": %.9g, \"servers\": %.9g, \"rows\": %.9g, "
	       "\"rounds\": %.9g},\n \"sent_bytes\": [",
		c->measured, c->estimated, s->sums[SIM_RING] + s->sums[SIM_PARTS], s->sums[SIM_COPY],
		s->sums[SIM_SERVE] + s->sums[SIM_PULL] + s->sums[SIM_PUSH] + s->sums[SIM_OWNED], s->sums[SIM_GATHER],
		s->sums[SIM_DOUBLING] + s->sums[SIM_HALVING] + s->sums[SIM_PAIRWISE] + s->sums[SIM_HOSTS]);
	for (int i = 0; i < n; i++)
		printf("%s\n  {\"from\": %d, \"to\": %d, \"messages\": %" PRId64 ", \"sums\": %" PRId64
		       ", \"totals\": %" PRId64 "%s}",
			i ? "," : "", pair[i].from, pair[i].to, pair[i].messages, pair[i].joins, pair[i].totals,
			!pair[i].values && !pair[i].heads
				? ""
				: arena_printf(c->a,
					  ", \"values\": %" PRId64 ", \"ids\": %" PRId64 ", \"heads\": %" PRId64,
					  pair[i].values, pair[i].ids, pair[i].heads));
	printf("],\n \"arena_bytes\": [");
	for (int r = 0; r < p->ndevice; r++)
		for (int t = 0; t < p->nstage; t++)
			if (r >= c->m->stage[t]->rank && r < c->m->stage[t]->rank + c->m->stage[t]->replicas) {
				printf("%s%" PRId64, r ? ", " : "", c->m->stage[t]->arena);
				break;
			}
	printf("]");
	const SimSpend spend = sim_spend(c->a, s);
	if (spend.price >= 0)
		printf(",\n \"price_per_hour\": %.9g", spend.price);
	if (spend.watts >= 0)
		printf(",\n \"watts\": %.9g", spend.watts);
	if (c->o->slow_share > 0)
		printf(",\n \"straggling_step_s\": %.9g", usual);
	if (c->o->days > 0)
		print_long_run_json(c, usual, s);
	printf("}\n");
}

/* ---- a build folder, or its last dump: what was planned before ---- */

static bool ends_with(const char *s, const char *end)
{
	const size_t n = strlen(s), k = strlen(end);

	return n > k && strcmp(s + n - k, end) == 0;
}

/* The dump behind memplan, the newest where an older pdcc numbered its passes in another way; NULL: c->model is neither a folder
 * with one nor a dump. */
static const char *planned_file(const Compile *c)
{
	const char *dir = arena_printf(c->a, "%s/ir", c->model), *found = NULL;
	DIR *d = ends_with(c->model, ".pdir") ? NULL : opendir(dir);
	struct stat st, newest = { 0 };

	if (!d)
		return ends_with(c->model, ".pdir") ? c->model : NULL;
	for (const struct dirent *e; (e = readdir(d));) {
		const char *file = arena_printf(c->a, "%s/%s", dir, e->d_name);
		if (!ends_with(file, "-memplan.pdir") || stat(file, &st) || (found && st.st_mtime <= newest.st_mtime))
			continue;
		found = file;
		newest = st;
	}
	closedir(d);
	return found;
}

/* What the dump does not say and the manifest of its folder does. */
static void read_manifest(Compile *c)
{
	char *text = file_read(arena_printf(c->a, "%s/manifest.json", c->model), NULL);
	Training *t = &c->o->t;

	t->loop.reproducible |= text && strstr(text, "\"reproducible\": true");
	t->comm.no_local_agg |= text && strstr(text, "\"local_aggregation\": false");
	const char *far = text ? strstr(text, "\"staleness\": ") : NULL;
	if (text && strstr(text, "\"sync\": \"async\""))
		t->comm.sync = SERVERS_ASYNC;
	if (far)
		t->comm.staleness = strtoll(strchr(far, ':') + 1, NULL, 10);
	free(text);
}

/* The module as it was emitted, on the cluster at hand, which may be another one with as many devices. */
static bool read_planned(Compile *c, const char *file)
{
	char *text = file_read(file, NULL);
	int devices = 0;

	if (!text)
		return diag_error(c->d, FILELOC(file), 201, "cannot read the file: %s", strerror(errno));
	c->m = module_parse(c->a, file, text, c->d);
	free(text);
	if (!c->m || !module_verify(c->m, c->d) || !compile_machine(c))
		return false;
	read_manifest(c);
	if (!c->m->schedule || !c->m->nstage || !c->m->stage[0]->arena)
		return diag_error(c->d, FILELOC(file), 4,
			"pdcc simulate needs schedule and memory plan; the dump behind the pass memplan has both");
	for (int t = 0; t < c->m->nstage; t++)
		for (int r = 0; r < c->m->stage[t]->replicas; r++)
			devices = c->m->stage[t]->device[r] >= devices ? c->m->stage[t]->device[r] + 1 : devices;
	if (devices > c->cluster.ndevice)
		return diag_error(c->d, FILELOC(file), 407, "it was planned for %d devices, %s has %d", devices,
			cluster_name(c), c->cluster.ndevice);
	return true;
}

/* A word of the command that says what the folder knows, or of a dump alone, which does not know how it is trained, how to plan. NULL:
 * there is none. */
static const char *planning_flag(const Compile *c, bool dump)
{
	static const char *const groups[] = { "Plan", "Schedule", "Input", "Target", "Communication", "Train" };
	const size_t n_groups = dump ? 2 : sizeof groups / sizeof *groups;
	Flag f;

	for (int k = 0; k < c->argc; k++)
		for (int i = 0; strncmp(c->argv[k], "--", 2) == 0 && options_flag(i, &f); i++) {
			const size_t n = strlen(f.name);
			const char *rest = strncmp(c->argv[k] + 2, f.name, n) == 0 ? c->argv[k] + 2 + n : "-";

			if ((*rest && *rest != '=') || strcmp(f.name, "cluster") == 0)
				continue;
			for (size_t g = 0; g < n_groups; g++)
				if (strcmp(f.group, groups[g]) == 0)
					return f.name;
		}
	return NULL;
}

int simulate_main(Compile *c)
{
	const char *planned = planned_file(c), *flag = planned ? planning_flag(c, planned == c->model) : NULL;
	Sim s;

	if (flag)
		return diag_error(c->d, NOLOC, 1,
			       "--%s: %s is planned already; with the model's file another plan is played, and without the flag this one",
			       flag, c->model),
		       EXIT_USAGE;
	if (!c->o->cluster)
		return diag_error(c->d, NOLOC, 1,
			       "--cluster FILE is missing: what machines there are; --cluster local:4 for four "
			       "devices here"),
		       EXIT_USAGE;
	if ((c->o->days > 0) != (c->o->mtbf > 0))
		return diag_error(c->d, NOLOC, 1,
			       "--days and --mtbf belong together: how long the run is, and the hours between a host's failures"),
		       EXIT_USAGE;
	if (c->o->stop_after)
		return diag_error(c->d, NOLOC, 1, "--stop-after: pdcc simulate needs the whole plan"), EXIT_USAGE;
	if (planned ? !read_planned(c, planned) : !compile_read(c) || !compile_plan(c, NULL))
		return compile_status(c);
	if (!simulate(c->a, simulate_model(c->a, c->m, &c->cluster, &c->o->t), &s, c->d))
		return EXIT_INPUT;
	const double usual = usual_step(c, &s);
	if (usual < 0)
		return EXIT_INPUT;
	if (c->o->json)
		print_json(c, usual, &s);
	else if (!c->o->quiet)
		print_summary(c, usual, &s);
	for (int i = 0; i < c->o->ntimeline; i++)
		if (!write_timeline(c, &s, c->o->timeline[i]))
			return EXIT_USAGE;
	return 0;
}
