/* pdcc plan-profile --planner auto: a layer profile and machines to the plan that the simulator plays fastest, beside what
 * each planner alone comes to (--compare). Layers' gradients are summed once per step of --microbatches, as comm does: in buckets, each by the fastest algorithm. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "ir/base/human.h"
#include "ir/base/tasks.h"
#include "passes/planner/profile.h"
#include "passes/plan/plan_search.h"
#include "frontend/driver/compile/compile.h"
#include "profile_auto.h"

enum { DEVICES = 16384 };
enum { TOGETHER = 2 }; /* degrees that are looked at at a time: at 10,000 devices one holds up to 400 MB */

typedef struct Ask {
	Arena *a;
	Diag *d;
	const char *file, *without, *evaluate, *largest;
	ScheduleSpec schedule;
	bool choose; /* --schedule auto */
	double each, machines, within, between, latency, memory, microbatches;
	double tensor, zero, sums, state; /* tensor 0, zero -1: auto */
	bool sequence, compare, exhaustive, local, compress, json, help;
	int copies; /* of largest; 0: it is not asked for */
} Ask;

static const char help[] = "usage: pdcc plan-profile FILE --planner auto [options]\n"
			   "  --workers N[,M]          devices; or devices of a machine, machines\n"
			   "  --bandwidth B[,B]        bytes/s inside a machine, between machines\n"
			   "  --latency S              seconds of every link (0)\n"
			   "  --microbatches N         per step, over all replicas (4 per device)\n"
			   "  --memory BYTES           per device\n"
			   "  --tensor N|auto          N devices of a machine share a layer's parameters (1)\n"
			   "  --tensor-sums N          AllReduces of its output, forwards and backwards (2)\n"
			   "  --sequence               its output is divided among them along the sequence\n"
			   "  --state F                optimizer's state per byte of parameters (0)\n"
			   "  --zero 0|1|auto          1: replicas divide that state among them (0)\n"
			   "  --schedule S|auto        whose steps end (1f1b; help Schedule); auto: fastest,\n"
			   "                           be it one of several stages on a device\n"
			   "  --without LAYER, --compress      as for the other planners\n"
			   "  --evaluate PLAN          only this plan: 2-1-1 (replicas of stages, cut where\n"
			   "                           the slowest is fastest) or 2-1-1@4,9 (JSON's ends)\n"
			   "  --largest LAYER          the most copies of LAYER whose plan fits --memory\n"
			   "  --compare                what each planner alone comes to as well\n"
			   "  --exhaustive             the best of all plans as well, for small cases\n"
			   "  --local                  the search alone, where all plans could be tried too\n"
			   "  --json                   one object on standard output\n"
			   "example: pdcc plan-profile graph.txt --planner auto --workers 8\n";

static bool numbers(Ask *q, const char *flag, const char *s, double *v, double *w)
{
	char *end;

	*v = strtod(s, &end);
	if (w && *end == ',' && end > s)
		*w = strtod(end + 1, &end);
	if (end == s || *end || !isfinite(*v) || *v < 0 || (w && (!isfinite(*w) || *w < 0)))
		return diag_error(q->d, NOLOC, 1, "%s: '%s' is not a number above 0", flag, s);
	return true;
}

static bool number_or_auto(Ask *q, const char *flag, const char *s, double least, double most, double *v)
{
	if (!strcmp(s, "auto"))
		return *v = least - 1, true;
	return numbers(q, flag, s, v, NULL) &&
	       ((*v >= least && *v <= most && floor(*v) == *v) ||
		       diag_error(q->d, NOLOC, 1, "%s wants auto or a whole number from %.15g to %.15g, not '%s'", flag,
			       least, most, s));
}

static bool planned(const ScheduleRow *r) { return r->place != PLACED_LISTED && !(r->flow & FLOW_ASYNC); }

static bool schedule(Ask *q, const char *s)
{
	const char *lacks;

	if ((q->choose = !strcmp(s, "auto")))
		return true;
	return (schedule_parse(s, &q->schedule, &lacks) && planned(schedule_row(q->schedule))) ||
	       diag_error(q->d, NOLOC, 1, "--schedule: '%s' is none of %s", s, schedule_list(q->a, planned));
}

static bool value(Ask *q, const char *flag, const char *s)
{
	if (!strcmp(flag, "--planner"))
		return true;
	if (!strcmp(flag, "--schedule"))
		return schedule(q, s);
	if (!strcmp(flag, "--evaluate"))
		return q->evaluate = s, true;
	if (!strcmp(flag, "--without"))
		return q->without = s, true;
	if (!strcmp(flag, "--largest"))
		return q->largest = s, true;
	if (!strcmp(flag, "--workers"))
		return numbers(q, flag, s, &q->each, &q->machines);
	if (!strcmp(flag, "--bandwidth"))
		return numbers(q, flag, s, &q->within, &q->between);
	if (!strcmp(flag, "--latency"))
		return numbers(q, flag, s, &q->latency, NULL);
	if (!strcmp(flag, "--memory"))
		return numbers(q, flag, s, &q->memory, NULL);
	if (!strcmp(flag, "--tensor"))
		return number_or_auto(q, flag, s, 1, DEVICES, &q->tensor);
	if (!strcmp(flag, "--zero"))
		return number_or_auto(q, flag, s, 0, 1, &q->zero);
	if (!strcmp(flag, "--tensor-sums"))
		return numbers(q, flag, s, &q->sums, NULL) &&
		       (floor(q->sums) == q->sums ||
			       diag_error(q->d, NOLOC, 1, "%s: '%s' is not a whole number", flag, s));
	if (!strcmp(flag, "--state"))
		return numbers(q, flag, s, &q->state, NULL);
	if (!strcmp(flag, "--microbatches"))
		return numbers(q, flag, s, &q->microbatches, NULL);
	return diag_error(q->d, NOLOC, 1, "unknown flag '%s'; --planner auto --help lists them", flag);
}

static bool read_flags(Ask *q, int argc, char **argv)
{
	const struct {
		const char *name;
		bool *to;
	} sign[] = { { "--sequence", &q->sequence }, { "--compare", &q->compare }, { "--exhaustive", &q->exhaustive },
		{ "--local", &q->local }, { "--compress", &q->compress }, { "--json", &q->json },
		{ "--help", &q->help }, { "-h", &q->help } };

	for (int i = 0; i < argc; i++) {
		bool *to = NULL;
		for (size_t k = 0; k < sizeof sign / sizeof *sign; k++)
			to = strcmp(argv[i], sign[k].name) ? to : sign[k].to;
		if (to)
			*to = true;
		else if (argv[i][0] != '-')
			q->file = argv[i];
		else if (i + 1 >= argc)
			return diag_error(q->d, NOLOC, 1, "%s takes a value", argv[i]);
		else if (!value(q, argv[i], argv[i + 1]))
			return false;
		else
			i++;
	}
	if (q->help)
		return true;
	if (!q->file)
		return diag_error(q->d, NOLOC, 1, "no profile is named; pdcc help plan-profile shows how");
	if (q->each < 1 || q->each * q->machines > DEVICES || floor(q->each) < q->each ||
		floor(q->machines) < q->machines)
		return diag_error(q->d, NOLOC, 1, "--workers wants whole numbers, 1 to %d devices together", DEVICES);
	if (q->tensor > q->each)
		return diag_error(q->d, NOLOC, 424,
			"--tensor %g: the members of a group are devices of one machine, and --workers gives it %g",
			q->tensor, q->each);
	if (q->within <= 0)
		return diag_error(q->d, NOLOC, 1, "--bandwidth B is missing");
	if (q->evaluate && q->choose)
		return diag_error(q->d, NOLOC, 1, "--evaluate PLAN wants one schedule, not --schedule auto");
	if (q->largest && q->memory <= 0)
		return diag_error(q->d, NOLOC, 1, "--largest wants --memory BYTES, which is what ends it");
	return true;
}

/* Groups of so many devices are what the planner sees: messages between two go from the k-th member to the k-th, all at once, so the
 * members share the links between machines. */
static Cluster *cluster_of(const Ask *q, int tensor)
{
	Cluster *c = NEW(q->a, Cluster);
	const int each = (int)q->each / tensor;

	c->nhost = (int)q->machines;
	c->ndevice = each * c->nhost;
	c->host = NEWN(q->a, Host, c->nhost);
	c->device = NEWN(q->a, Device, c->ndevice);
	c->link = NEWN(q->a, Link, 2);
	c->nlink = 2;
	c->link[0] = (Link){ .scope = LINK_WITHIN, .bandwidth = q->within, .latency = q->latency };
	c->link[1] = (Link){ .scope = LINK_DEFAULT,
		.bandwidth = (q->between > 0 ? q->between : q->within) / tensor,
		.latency = q->latency };
	c->sums[0] =
		(SumCost){ .said = true, .add = INFINITY }; /* what links take, whatever the profile's machine is */
	for (int h = 0; h < c->nhost; h++)
		c->host[h].name = arena_printf(q->a, "m%d", h);
	for (int d = 0; d < c->ndevice; d++)
		c->device[d] = (Device){ .name = arena_printf(q->a, "m%d[%d]", d / each, d % each),
			.host = d / each,
			.index = d % each,
			.memory = (int64_t)q->memory };
	return c;
}

/* ---- what is said ---- */

/* schedule: the one that was chosen; NULL: none was. */
static void print_plan(const Ask *q, const char *name, const Trial *t, const ScheduleSpec *schedule, bool first)
{
	const char *word = schedule ? schedule_str(q->a, *schedule) : NULL;

	if (!q->json) {
		printf("  %-26s %12s  %6.1f %% peak %s  %s%s%s (%s)\n", name, time_text(q->a, t->step),
			100 * t->work / t->step, str_bytes(q->a, (int64_t)t->peak), schedule ? word : "",
			schedule ? " " : "", trial_str(q->a, t), t->by);
		return;
	}
	printf("%s\"%s\": {\"plan\": \"%s\", \"step_s\": %.17g, \"peak\": %.17g, \"by\": \"%s\", \"ends\": [",
		first ? "" : ", ", name, trial_str(q->a, t), isfinite(t->step) ? t->step : -1, t->peak, t->by);
	for (int s = 0; s < t->n; s++)
		printf("%s%d", s ? ", " : "", t->end[s] + 1);
	printf("], ");
	if (schedule)
		printf("\"schedule\": \"%s\", ", word);
	printf("\"devices\": [");
	for (int r = 0; r < t->ndevice; r++)
		printf("%s%d", r ? ", " : "", t->device[r]);
	printf("]}");
}

static void ask_planner(const Ask *q, const PlanModel *p, PlannerKind kind, DpCost cost, const char *name)
{
	Diag silent = { .out = stderr, .errors = 1, .scratch = q->a };
	PlanSearch s;

	search_start(&s, q->a, p);
	if (kind == PLANNER_EXHAUSTIVE)
		s.budget = INFINITY;
	if (plan_search(&s, kind, cost, &silent))
		print_plan(q, name, s.best, NULL, false);
}

/* The places to cut of "2-1-1@4,9": all stages' but the last's, which ends with the profile; JSON's ends have that too. */
static bool read_ends(const Ask *q, const char *text, Trial *t, int places)
{
	const char *s = text;

	for (int i = 0; i + 1 < t->n; i++) {
		char *end;
		const long at = strtol(s, &end, 10);
		char *last = end;
		if (i + 2 == t->n && *end == ',' && strtol(end + 1, &last, 10) == places && !*last)
			end = last;
		if (end == s || (*end != ',' && *end) || (i + 2 < t->n) != (*end == ','))
			return diag_error(q->d, NOLOC, 1, "--evaluate: '@%s' does not name %d places to cut, as 4,9",
				text, t->n - 1);
		if (at <= (i ? t->end[i - 1] + 1 : 0) || at >= places)
			return diag_error(q->d, NOLOC, 1,
				"--evaluate: place %ld of '@%s' is not between %d and %d: places ascend, and the profile has %d",
				at, text, i ? t->end[i - 1] + 2 : 1, places - 1, places);
		t->end[i] = (int)at - 1;
		s = end + 1;
	}
	t->end[t->n - 1] = places - 1;
	return true;
}

/* The plan that was asked for, played; NULL after a diagnostic. */
static const Trial *evaluate(const Ask *q, PlanSearch *s, const PlanModel *p)
{
	const char *at = strchr(q->evaluate, '@');
	const char *counts = at ? arena_strn(q->a, q->evaluate, (size_t)(at - q->evaluate)) : q->evaluate;
	int *replicas, n, devices = 0;
	Trial *t = NULL;

	if (!plan_parse(q->a, counts, &replicas, &n, q->d) ||
		(n && !(t = trial_asked(q->a, p, n, replicas, &devices, q->d))))
		return NULL;
	if (!n || devices > p->c->ndevice || n > p->st->n) {
		diag_error(q->d, NOLOC, 403,
			"--evaluate %s: %d stages on %d devices; --workers gives %d devices, and the profile has %d places to cut",
			q->evaluate, n, devices, p->c->ndevice, p->st->n);
		return NULL;
	}
	if (!trial_possible(p, t, q->d))
		return NULL;
	s->cut_budget = INFINITY;
	if (at && !read_ends(q, at + 1, t, p->st->n))
		return NULL;
	if (!at)
		cut_best(s, t);
	trial_judge(p, t);
	trial_play(p, t);
	return t;
}

/* All that was asked for beside the plan that the search found. */
static void compare(const Ask *q, const PlanModel *p)
{
	static const char *const dp[] = { "pipedream measured", "pipedream seed", "pipedream sosp", "pipedream code" };

	for (int k = DP_MEASURED; k <= DP_CODE && q->compare; k++)
		ask_planner(q, p, PLANNER_PIPEDREAM, (DpCost)k, dp[k]);
	if (q->compare) {
		ask_planner(q, p, PLANNER_DAPPLE, DP_MEASURED, "dapple");
		ask_planner(q, p, PLANNER_BLOCKS, DP_MEASURED, "blocks");
	}
	if (q->exhaustive)
		ask_planner(q, p, PLANNER_EXHAUSTIVE, DP_MEASURED, "exhaustive");
}

/* ---- degrees, and ZeRO ---- */

/* One of them, planned. */
typedef struct Look {
	Arena *a; /* of its own: several are looked at at once */
	int tensor;
	bool zero;
	States st;
	PlanModel *p;
	PlanSearch s;
	const Trial *best; /* NULL: none */
	double least;      /* Plan.least */
	ScheduleSpec schedule;
	const char *refused;
} Look;

/* Of the schedule that was asked for, or of the one that is fastest; NULL: there is none. */
static const Trial *search(const Ask *q, Look *x, Diag *d)
{
	NoPlan why;
	const Trial *best;

	if (schedule_chunks(q->schedule) > 1) {
		best = equal_plan(&x->s, q->schedule, INFINITY, &why, d);
		if (!best && why == NO_PLACES)
			diag_error(d, NOLOC, 404, "schedule %s needs %d stages; the profile has %d places to cut",
				schedule_str(q->a, q->schedule), schedule_chunks(q->schedule), x->st.n);
		return best;
	}
	best = plan_search(&x->s, PLANNER_AUTO, DP_MEASURED, d) ? x->s.best : NULL;
	return best && q->choose ? choose_schedule(&x->s, x->p, best, false, NULL, &x->schedule) : best;
}

static void look(const Ask *q, const Profile *f, Look *x, Diag *d)
{
	Profile *part = NEW(x->a, Profile);
	Ask own = *q;

	own.a = x->a;
	own.d = d;
	d->last_text = NULL;
	profile_share(own.a, f, x->tensor, (int)q->sums, q->sequence, q->within, q->latency, part);
	if (!states_build(own.a, part, true, 8192, &x->st, d))
		return;
	x->p = plan_model_of(own.a, &x->st, cluster_of(&own, x->tensor));
	x->p->state = q->state;
	x->p->zero = x->zero;
	x->schedule = x->p->schedule = x->p->played = q->schedule;
	x->p->global = q->microbatches > 0 ? (int64_t)q->microbatches : 4 * (int64_t)(q->each * q->machines);
	search_start(&x->s, own.a, x->p);
	x->s.no_exhaustive = q->local;
	x->least = plan_least(x->p, x->p->global);
	x->best = q->evaluate ? evaluate(&own, &x->s, x->p) : search(&own, x, d);
	x->refused = x->best ? NULL : d->last_text ? arena_str(own.a, d->last_text) : "no plan is found";
}

/* Is x, which was looked at later, to be taken in the place of y? A larger degree, or state in parts, must gain a thousandth. */
static bool better(const Look *x, const Look *y)
{
	const double worth = 1 - 1e-3;
	const bool fits = x->best && x->best->over <= 1, also = y->best && y->best->over <= 1;

	if (fits != also)
		return fits;
	if (fits)
		return x->best->step < worth * y->best->step;
	return x->best && (!y->best || x->best->over < worth * y->best->over);
}

typedef struct Looks {
	const Ask *q;
	const Profile *f;
	Look *of;
	int n;
} Looks;

static void look_at(void *looks, int i)
{
	const Looks *all = looks;
	Look *x = &all->of[i];
	Diag silent = { .out = stderr, .errors = 1, .scratch = x->a };

	look(all->q, all->f, x, &silent);
}

/* All that is open, looked at; the best. */
static int look_all(const Ask *q, const Profile *f, Looks *all)
{
	int cap = 0, best = 0;

	*all = (Looks){ .q = q, .f = f };
	for (int t = 1; t <= (int)q->each; t++)
		for (int z = 0; z < 2; z++)
			if ((q->tensor < 1 ? (int)q->each % t == 0 : t == (int)q->tensor) &&
				(q->zero < 0 || z == (int)q->zero))
				PUSH(q->a, all->of, all->n, cap) = (Look){ .a = arena_new(), .tensor = t, .zero = z };
	tasks_run(all->n, TOGETHER, look_at, all);
	for (int i = 1; i < all->n; i++)
		best = better(&all->of[i], &all->of[best]) ? i : best;
	if (!all->of[best].best)
		look(q, f, &all->of[best], q->d); /* which says why */
	return best;
}

static void forget(Looks *all)
{
	for (int i = 0; i < all->n; i++)
		arena_free(all->of[i].a);
}

/* Share of all devices' time that is the profile's own work, sums among those that share a layer not counted. */
static double useful(const Ask *q, const Profile *f, const Look *x)
{
	double each = 0;

	for (int i = 0; i < f->n; i++)
		each += f->layer[i].forward + f->layer[i].backward;
	return each * (double)x->p->global / (x->best->step * q->each * q->machines);
}

static void print_looks(const Looks *looks, int taken)
{
	const Ask *q = looks->q;
	const Look *all = looks->of;
	const int n = looks->n;
	double least = INFINITY;

	printf(q->json ? ", \"meshes\": [" : "");
	for (int i = 0; i < n; i++) {
		const Look *x = &all[i];
		least = fmin(least, x->p ? x->least : INFINITY);
		if (q->json) {
			printf("%s{\"tensor\": %d, \"zero\": %d, \"taken\": %s, ", i ? ", " : "", x->tensor, x->zero,
				i == taken ? "true" : "false");
			printf(x->best ? "\"step_s\": %.17g, \"over\": %.6g, \"useful\": %.6g, \"least_s\": %.17g}"
				       : "\"refused\": true}",
				x->best ? x->best->step : 0, x->best ? x->best->over : 0,
				x->best ? useful(q, looks->f, x) : 0, x->least);
			continue;
		}
		printf("  tensor %d%s  ", x->tensor, x->zero ? ", zero 1" : all[n - 1].zero ? "        " : "");
		if (!x->best)
			printf("refused: %s\n", x->refused);
		else
			printf("step %s  %.1f %% work  peak %s  %s%s%s%s%s\n", time_text(q->a, x->best->step),
				100 * useful(q, looks->f, x), str_bytes(q->a, (int64_t)x->best->peak),
				q->choose ? schedule_str(q->a, x->schedule) : "", q->choose ? " " : "",
				trial_str(q->a, x->best), x->best->over > 1 ? "  does not fit into memory" : "",
				i == taken ? "  taken" : "");
	}
	if (q->json)
		printf("]");
	else if (all[taken].best)
		printf("  a step is at most %.1f %% above the least: all work divided over all devices, or its longest chain\n",
			100 * fmax(0, all[taken].best->step / least - 1));
}

/* ---- the deepest model ---- */

static bool fits(const Ask *q, const Profile *f, int copies)
{
	Ask own = *q;
	Diag silent = { .out = stderr, .errors = 1, .scratch = q->d->scratch };
	Profile deep;
	Looks all = { 0 };

	own.a = arena_new();
	own.d = &silent;
	bool ok = profile_repeat(own.a, f, q->largest, copies, &deep, &silent);
	if (ok) {
		const int taken = look_all(&own, &deep, &all);
		ok = all.of[taken].best && all.of[taken].best->over <= 1;
	}
	forget(&all);
	arena_free(own.a);
	return ok;
}

enum { MOST_COPIES = 4096 };

/* By doubling, then by halves; few copies may have fewer places to cut than --evaluate wants stages. 0: no number fits;
 * MOST_COPIES: so many fit, and more are not tried. */
static int most_copies(const Ask *q, const Profile *f)
{
	int low = 0, high = 1;

	for (; high <= MOST_COPIES; high *= 2) {
		const bool ok = fits(q, f, high);
		if (low && !ok)
			break;
		low = ok ? high : 0;
	}
	while (low && low < MOST_COPIES && high - low > 1) {
		const int middle = (low + high) / 2;
		if (fits(q, f, middle))
			low = middle;
		else
			high = middle;
	}
	return low;
}

static bool deepen(Ask *q, Profile *f)
{
	Profile deep;

	if (!profile_repeat(q->a, f, q->largest, 1, &deep, q->d))
		return false;
	q->copies = most_copies(q, f);
	if (!q->copies)
		return diag_error(q->d, NOLOC, 465,
			"--largest %s: no number of copies has a plan that fits into %s a device", q->largest,
			str_bytes(q->a, (int64_t)q->memory));
	if (q->copies == MOST_COPIES)
		return diag_error(q->d, NOLOC, 1,
			"--largest %s: %d copies fit into %s a device, and more are not tried", q->largest, MOST_COPIES,
			str_bytes(q->a, (int64_t)q->memory));
	profile_repeat(q->a, f, q->largest, q->copies, &deep, q->d);
	*f = deep;
	return true;
}

static void print_copies(const Ask *q, const Profile *f)
{
	double parameters = 0;

	for (int i = 0; i < f->n; i++)
		parameters += f->layer[i].parameters;
	if (q->json)
		printf("\"largest\": %d, \"parameter_bytes\": %.17g, ", q->copies, parameters);
	else
		printf("%d of %s fit, with %s of parameters; ", q->copies, q->largest,
			str_bytes(q->a, (int64_t)parameters));
}

static void print_head(const Ask *q, const Profile *f, const Look *x)
{
	const long long micro = (long long)x->p->global;

	printf(q->json ? "{" : "");
	if (q->copies)
		print_copies(q, f);
	if (q->json)
		printf("\"states\": %d, \"microbatches\": %lld, ", x->st.n, micro);
	else
		printf("%d places to cut, %lld microbatches", x->st.n, micro);
	if (!q->evaluate)
		printf(q->json ? "\"tried\": %d, \"simulated\": %ld, " : "; %d plans tried, %ld simulated", x->s.n,
			x->s.played);
	printf(q->json ? "" : "\n");
}

/* What was found, and beside it what was asked for. */
static int say(Ask *q, const Looks *all, int taken)
{
	const Look *x = &all->of[taken];

	if (!x->best)
		return x->p ? EXIT_NO_PLAN : EXIT_INPUT;
	print_head(q, all->f, x);
	print_plan(q, q->evaluate ? "evaluate" : "auto", x->best, q->choose ? &x->schedule : NULL, true);
	if (all->n > 1)
		print_looks(all, taken);
	x->p->schedule = x->p->played = q->schedule;
	compare(q, x->p);
	printf(q->json ? "}\n" : "");
	if (x->best->over <= 1)
		return 0;
	diag_error(q->d, NOLOC, 401, "%s %s of memory on a device, --memory gives %s",
		q->evaluate ? "the plan does not fit: it needs" : "no plan fits: the one that lacks least needs",
		str_bytes(q->a, (int64_t)x->best->peak), str_bytes(q->a, (int64_t)q->memory));
	return EXIT_NO_PLAN;
}

static int run(Ask *q)
{
	Profile f;
	Looks all;

	if (!profile_read(q->a, q->file, &f, q->d) || (q->without && !profile_without(q->a, &f, q->without, q->d)))
		return EXIT_INPUT;
	if (q->compress)
		profile_compress(q->a, &f);
	profile_trim(q->a, &f);
	if (q->largest && !deepen(q, &f))
		return q->d->last_code == 465 ? EXIT_NO_PLAN : EXIT_INPUT;
	const int taken = look_all(q, &f, &all);
	const int status = say(q, &all, taken);
	forget(&all);
	return status;
}

int plan_auto_main(int argc, char **argv)
{
	Arena *a = arena_new(), *words = arena_new();
	Diag d;
	Ask q = { .a = a, .d = &d, .machines = 1, .tensor = 1, .sums = 2 };
	int status = EXIT_USAGE;

	diag_init(&d, stderr, words);
	if (read_flags(&q, argc, argv))
		status = q.help ? fputs(help, stdout) < 0 : run(&q);
	arena_free(words);
	arena_free(a);
	return status;
}
