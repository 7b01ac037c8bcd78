/* pdcc plan --deadline 3d, --budget 500: how many of the cluster's devices a run should have. The planner is asked for the first
 * device, the first two, four ... of the first host, then for whole hosts: 1, 2, 3, 4, 6, 8, 12 ... Each plan is played; the
 * run is so many steps (--steps, or --epochs of the files) by what of the time lasts where hosts fail (--mtbf). */
#include "ir/base/human.h"
#include <stdlib.h>
#include <string.h>
#include "frontend/driver/compile/global_batch.h"
#include "passes/simulate/long_run.h"
#include "passes/simulate/spend.h"
#include "why_report.h"

enum { SIZES_MOST = 64 };

typedef struct Size {
	int groups, devices, hosts; /* groups: of --tensor devices each; without it devices */
	const char *plan;           /* NULL: there is none */
	const char *why;            /* not */
	int64_t steps, batch;
	double step, share;     /* seconds; of the time, what goes into steps that last */
	double run, price, kwh; /* of all steps; price, kwh below 0: not known */
	bool kept;              /* within deadline and budget */
} Size;

/* ---- which sizes ---- */

static int add(int *list, int n, int devices) { return n && list[n - 1] >= devices ? n : (list[n] = devices, n + 1); }

static int sizes(const Cluster *c, int *list)
{
	const int all = cluster_workers(c);
	int n = 0, own = 0, hosts = 0;

	while (own < all && c->device[own].host == c->device[0].host)
		own++;
	for (int k = 1; k < own && n < SIZES_MOST / 2; k *= 2)
		n = add(list, n, k);
	for (int i = 0; i < all; i++) {
		if (i + 1 < all && c->device[i + 1].host == c->device[i].host)
			continue;
		hosts++; /* a power of two, or three halves of one; the last in any case */
		const int odd = hosts >> __builtin_ctz((unsigned)hosts);
		if ((odd == 1 || odd == 3 || i + 1 == all) && n < SIZES_MOST)
			n = add(list, n, i + 1);
	}
	return n;
}

/* ---- one of them ---- */

static bool count_steps(Compile *c, Size *z)
{
	const int64_t epochs = c->o->t.loop.epochs;

	z->batch = batch_of_step(c);
	z->steps = c->o->t.loop.steps;
	if (!epochs)
		return z->steps > 0 ||
		       diag_error(c->d, NOLOC, 1, "--deadline and --budget want the run's length: --steps or --epochs");
	if (!compile_data(c, "."))
		return false;
	if (!c->samples)
		return diag_error(c->d, NOLOC, 1, "--epochs: no file of samples tells how many there are; say --steps");
	z->steps = (epochs * c->samples + z->batch - 1) / z->batch;
	return true;
}

static void weigh(const Compile *c, const Sim *s, Size *z)
{
	const SimSpend spend = sim_spend(c->a, s);

	z->plan = plan_name(c);
	z->hosts = spend.hosts;
	z->step = usual_step(c, s);
	z->share = 1;
	if (c->o->mtbf > 0) {
		const LongRun run = long_run_of(c, z->step, s);
		z->share = long_run_share(&run, long_run_daly(&run));
	}
	z->run = (double)z->steps * z->step / z->share;
	z->price = spend.price < 0 ? -1 : spend.price * z->run / 3600;
	z->kwh = spend.watts < 0 ? -1 : spend.watts * z->run / 3.6e6;
}

/* Messages of a size are its own; false where they are about the question itself. */
static bool try(const Compile *whole, Size *z)
{
	Options o = *whole->o;
	Diag d = *whole->d;
	char *text = NULL;
	size_t n;
	Sim s;
	Compile c = { .a = whole->a,
		.scratch = whole->scratch,
		.d = &d,
		.o = &o,
		.model = whole->model,
		.argc = whole->argc,
		.argv = whole->argv,
		.devices = z->groups };

	d.out = open_memstream(&text, &n);
	if (!d.out)
		bug("no memory");
	d.quiet = o.quiet = true;
	d.errors = 0;
	o.report = NULL;
	bool asked = true;
	if (compile_read(&c) && compile_plan(&c, NULL) && (asked = count_steps(&c, z)) &&
		simulate(c.a, simulate_model(c.a, c.m, &c.cluster, &o.t), &s, &d))
		weigh(&c, &s, z);
	fclose(d.out);
	z->why = d.last_text ? arena_str(c.a, d.last_text) : "";
	if (!asked || (d.errors && d.last_code < 400)) { /* a model, a setting: it is so for every size */
		fputs(text, whole->d->out);
		whole->d->errors++;
		whole->d->last_code = d.last_code;
		asked = false;
	}
	free(text);
	return asked;
}

/* ---- what is said ---- */

static const char *amount(const Compile *c, double x) { return x < 0 ? "-" : number_text(c->a, x, 5); }

static void print_row(const Compile *c, const Size *z, bool chosen)
{
	if (!z->plan) {
		printf("  %7d         no plan: %.90s\n", z->devices, z->why);
		return;
	}
	printf("  %7d %6d  %-20s %-10s %-10s %10s %10s  %s\n", z->devices, z->hosts, z->plan, time_text(c->a, z->step),
		duration_text(c->a, z->run), amount(c, z->price), amount(c, z->kwh),
		chosen    ? "<-"
		: z->kept ? "yes"
			  : "");
}

static void print_json(const Compile *c, const Size *z, int n, const Size *best)
{
	printf("{\"deadline_s\": %.9g, \"budget\": %.9g, \"devices\": %d,\n \"sizes\": [", c->o->deadline, c->o->budget,
		best ? best->devices : 0);
	for (int i = 0; i < n; i++) {
		printf("%s\n  {\"devices\": %d, ", i ? "," : "", z[i].devices);
		if (z[i].plan)
			printf("\"hosts\": %d, \"plan\": \"%s\", \"steps\": %lld, \"step_s\": %.9g, \"share\": %.9g, \"run_s\": %.9g, ",
				z[i].hosts, z[i].plan, (long long)z[i].steps, z[i].step, z[i].share, z[i].run);
		if (z[i].plan && z[i].price >= 0)
			printf("\"price\": %.9g, ", z[i].price);
		if (z[i].plan && z[i].kwh >= 0)
			printf("\"kwh\": %.9g, ", z[i].kwh);
		printf("\"within\": %s}", z[i].kept ? "true" : "false");
	}
	printf("]}\n");
}

/* With a deadline the cheapest, where nothing has a price the fewest devices; else the fastest. */
static bool better(const Compile *c, const Size *x, const Size *than)
{
	if (!than || !(c->o->deadline > 0))
		return !than || x->run < than->run;
	return x->price >= 0 && than->price >= 0 ? x->price < than->price : x->devices < than->devices;
}

static int nothing(const Compile *c, const Size *z, int n)
{
	const Size *fast = NULL, *cheap = NULL;

	for (int i = 0; i < n; i++)
		if (z[i].plan) {
			fast = !fast || z[i].run < fast->run ? &z[i] : fast;
			cheap = !cheap || z[i].price < cheap->price ? &z[i] : cheap;
		}
	if (!fast) {
		diag_error(c->d, NOLOC, 425, "no number of devices has a plan: %s", z[n - 1].why);
		return EXIT_NO_PLAN;
	}
	const char *limit =
		c->o->deadline > 0 ? arena_printf(c->a, " within %s", duration_text(c->a, c->o->deadline)) : "";
	diag_error(c->d, NOLOC, 425, "no number of devices ends %lld steps%s%s: the fastest, %d, takes %s%s",
		(long long)fast->steps, limit,
		c->o->budget > 0 ? arena_printf(c->a, " for at most %s", amount(c, c->o->budget)) : "", fast->devices,
		duration_text(c->a, fast->run),
		c->o->budget > 0 ? arena_printf(c->a, " and costs %s, the cheapest, %d, costs %s and takes %s",
					   amount(c, fast->price), cheap->devices, amount(c, cheap->price),
					   duration_text(c->a, cheap->run))
				 : "");
	return EXIT_NO_PLAN;
}

static bool asked_well(Compile *c)
{
	const char *plan = c->o->t.plan.replicas;

	if (plan && strcmp(plan, "auto"))
		return diag_error(c->d, NOLOC, 1,
			"--deadline and --budget look for a plan of each size; leave --plan %s out", plan);
	if (c->o->t.plan.choose_tensor || c->o->t.plan.choose_zero)
		return diag_error(c->d, NOLOC, 1,
			"--deadline and --budget look for a plan of each size; say --tensor and --zero as numbers");
	Options o = *c->o; /* what follows from all devices is not for the sizes */
	Compile all = *c;

	all.o = &o;
	if (!compile_machine(&all))
		return false;
	c->cluster = all.cluster;
	for (int i = 0; c->o->budget > 0 && i < c->cluster.nhost; i++)
		if (c->cluster.host[i].worker && !(c->cluster.host[i].price > 0))
			return diag_error(c->d, FILELOC(c->cluster.file), 1,
				"--budget wants what an hour of each host costs (nodes: price); of '%s' it is not said",
				c->cluster.host[i].name);
	return true;
}

int fleet_main(Compile *c)
{
	int list[SIZES_MOST + 1];
	const Size *best = NULL;

	if (!asked_well(c))
		return c->d->last_code == 1 ? EXIT_USAGE : EXIT_INPUT;
	const int n = sizes(&c->cluster, list), each = c->o->t.plan.tensor > 1 ? (int)c->o->t.plan.tensor : 1;
	Size *z = NEWN(c->a, Size, n);

	for (int i = 0; i < n; i++) {
		z[i].groups = list[i];
		z[i].devices = list[i] * each;
		if (!try(c, &z[i]))
			return c->d->last_code == 1 ? EXIT_USAGE : EXIT_INPUT;
		z[i].kept = z[i].plan && (!(c->o->deadline > 0) || z[i].run <= c->o->deadline) &&
		            (!(c->o->budget > 0) || (z[i].price >= 0 && z[i].price <= c->o->budget));
		if (z[i].kept && better(c, &z[i], best))
			best = &z[i];
	}
	if (c->o->json) {
		print_json(c, z, n, best);
	} else if (!c->o->quiet) {
		const Size *any = z;
		while (any < z + n - 1 && !any->plan)
			any++;
		printf("%s: %lld steps of %lld samples\n", c->model, (long long)any->steps, (long long)any->batch);
		printf("  devices  hosts  %-20s %-10s %-10s %10s %10s\n", "plan", "step", "run", "price", "kWh");
		for (int i = 0; i < n; i++)
			print_row(c, &z[i], &z[i] == best);
	}
	if (!best)
		return nothing(c, z, n);
	if (!c->o->json && !c->o->quiet)
		printf("  %s: %d device%s, plan %s: %s%s\n",
			!(c->o->deadline > 0) ? "fastest"
			: best->price >= 0    ? "cheapest in time"
					      : "fewest in time",
			best->devices, best->devices == 1 ? "" : "s", best->plan, duration_text(c->a, best->run),
			best->price >= 0 ? arena_printf(c->a, ", price %s", amount(c, best->price)) : "");
	return 0;
}
