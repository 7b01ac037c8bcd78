/* What the published planners, and simple rules, make of a planning model (plan_search.h). Each gives replicas and
 * cuts, and where it says so devices; all others are tried with every placement. */
#include <math.h>
#include <string.h>
#include "plan_search.h"
#include "passes/planner/dapple.h"
#include "passes/planner/planner.h"

/* ---- the cluster as the planners see it: links inside a host, links between hosts ---- */

typedef struct Wires {
	Link within, between, slowest;
	bool uniform;
	int hosts, each;
} Wires;

static void worse(Link *to, Link l)
{
	if (l.bandwidth > 0 && (to->bandwidth <= 0 || l.bandwidth < to->bandwidth))
		to->bandwidth = l.bandwidth;
	to->latency = fmax(to->latency, l.latency);
}

static Wires wires(const PlanModel *p)
{
	const Cluster *c = p->c;
	Wires w = { .uniform = true, .hosts = 1 };

	for (int d = 1; d < c->ndevice; d++) {
		w.hosts +=
			c->nhost && c->device[d].host != c->device[d - 1].host; /* some may have no group (--tensor) */
		worse(c->device[d].host == c->device[d - 1].host ? &w.within : &w.between, cluster_link(c, d - 1, d));
	}
	const int last = c->ndevice - 1;
	if (last > 1)
		worse(c->device[0].host == c->device[last].host ? &w.within : &w.between, cluster_link(c, 0, last));
	w.within = w.within.bandwidth > 0 ? w.within : w.between;
	w.between = w.between.bandwidth > 0 ? w.between : w.within;
	w.slowest = w.between.bandwidth < w.within.bandwidth ? w.between : w.within;
	if (w.slowest.bandwidth <= 0)
		w.slowest = w.within = w.between = (Link){ .bandwidth = 2e9, .latency = 20e-6 };
	w.each = c->ndevice / w.hosts;
	for (int d = 0; d < c->ndevice; d++)
		w.uniform &= (c->nhost ? c->device[d].host : 0) == d / w.each && w.each * w.hosts == c->ndevice;
	return w;
}

/* ---- trials ---- */

static Trial *try_copy(PlanSearch *s, const Trial *t, PlacePolicy policy)
{
	Trial x = *t;

	x.device = NEWN(s->a, int, t->ndevice);
	place_trial(s->p, &x, policy);
	return search_try(s, &x);
}

static void try_placements(PlanSearch *s, const Trial *t)
{
	const Cluster *c = s->p->c;

	for (int y = 0; y < PLACE_COUNT; y++)
		if (y == PLACE_ORDER || (y >= PLACE_FAST ? s->p->nclass > 1 : c->nhost > 1))
			try_copy(s, t, (PlacePolicy)y);
}

/* At most so many states of a graph (plan_places); at: which. */
static const States *coarse(Arena *a, const States *st, int most, int **at)
{
	States *x = NEW(a, States);

	*x = *st;
	*at = plan_places(a, st, most, &x->n);
	if (x->n == st->n)
		return st;
	x->s = NEWN(a, State, x->n);
	x->words = (x->n + 63) / 64;
	x->before = NEWN(a, uint64_t, (size_t)x->n *(size_t)x->words);
	x->under = NEWN(a, uint64_t, (size_t)x->n *(size_t)x->layer_words);
	x->total = true;
	for (int i = 0; i < x->n; i++) {
		x->s[i] = st->s[(*at)[i]];
		memcpy(x->under + (size_t)i * (size_t)x->layer_words,
			st->under + (size_t)(*at)[i] * (size_t)x->layer_words,
			sizeof *x->under * (size_t)x->layer_words);
		for (int k = 0; k < i; k++)
			if (state_before(st, (*at)[k], (*at)[i]))
				x->before[(size_t)i * (size_t)x->words + (size_t)k / 64] |= UINT64_C(1) << (k % 64);
		x->total &= !i || state_before(st, (*at)[i - 1], (*at)[i]);
	}
	return x;
}

/* ---- PipeDream ---- */

static const char *const pipedream_name[] = { "pipedream, ring", "pipedream, paper", "pipedream, SOSP text",
	"pipedream, published code" };

static PdCost cost_for(DpCost c)
{
	return c == DP_SEED ? PD_PAPER : c == DP_SOSP ? PD_TEXT : c == DP_CODE ? PD_SOSP : PD_RING;
}

/* Stages of the lowest level; what they are copied by is the product of the replicas above them. */
static Trial *of_pipedream(PlanSearch *s, const PdPlan *plan, const int *at, const char *by)
{
	int n = 0, devices = 0;
	Trial *t = trial_new(s->a, s->p->st->n, 1, by);

	for (int g = 0; g < plan->ngroup; g++)
		for (int k = 0; k < plan->group[g].n && plan->group[g].level == plan->group[plan->ngroup - 1].level;
			k++) {
			const PdStage *x = &plan->group[g].stage[k];
			int copies = x->replicas;
			for (int h = 0; h < g; h++)
				for (int i = 0; i < plan->group[h].n && plan->group[h].level != plan->group[g].level;
					i++)
					if (plan->group[h].stage[i].start <= x->start &&
						x->end <= plan->group[h].stage[i].end)
						copies *= plan->group[h].stage[i].replicas;
			t->end[n] = at[x->end - 1];
			t->replicas[n++] = copies;
			devices += copies;
		}
	t->n = n;
	t->ndevice = devices;
	return t;
}

static void pipedream(PlanSearch *s, const States *st, const int *at, PdOpt o, const char *by, Diag *d)
{
	PdPlan plan;
	Arena *a = arena_new();

	s->beside += (double)st->n * st->n * s->p->c->ndevice * s->p->c->ndevice / 32;
	if (pipedream_plan(a, st, &o, &plan, d))
		try_placements(s, of_pipedream(s, &plan, at, by));
	arena_free(a);
}

void propose_pipedream(PlanSearch *s, DpCost cost, Diag *d)
{
	const int G = s->p->c->ndevice;
	const Wires w = wires(s->p);
	int *at, most = s->p->st->n;
	PdOpt o = { .cost = cost_for(cost),
		.nlevel = 1,
		.machines = { G },
		.bandwidth = { w.slowest.bandwidth },
		.latency = w.slowest.latency,
		.compression = 1 };
	const int replicas[] = { 1, 1 };

	o.micro = (double)trial_micro(s->p, 2, replicas);
	if (!s->p->global && !s->p->per_replica)
		o.micro = 2.0 * G;
	while (most > 32 && (double)most * most * G * G / 4 > 4e7)
		most = most * 3 / 4;
	const States *st = coarse(s->a, s->p->st, most, &at);
	pipedream(s, st, at, o, pipedream_name[cost], d);
	if (cost == DP_CODE && w.hosts > 1 && w.uniform && w.each > 1) {
		st = coarse(s->a, s->p->st, 48, &at);
		o.nlevel = 2;
		o.machines[0] = w.each;
		o.machines[1] = w.hosts;
		o.bandwidth[0] = w.within.bandwidth;
		o.bandwidth[1] = w.between.bandwidth;
		if ((double)w.hosts * w.each <= 256)
			pipedream(s, st, at, o, "pipedream, hierarchical", d);
	}
}

/* ---- DAPPLE ---- */

static void of_dapple(PlanSearch *s, const DapplePlan *plan, const int *at, const char *by)
{
	Trial *t = trial_new(s->a, plan->n, s->p->c->ndevice, by);
	int r = 0;

	for (int i = 0; i < plan->n; i++) {
		t->end[i] = at[plan->stage[i].end - 1];
		for (int d = 0; d < s->p->c->ndevice; d++)
			if (plan->stage[i].devices >> d & 1) {
				t->device[r++] = d;
				t->replicas[i]++;
			}
	}
	t->ndevice = r;
	search_try(s, t);
}

/* Over at most so many places to cut: the published program's candidates, and what the equations find. */
static void dapple_over(
	PlanSearch *s, int most, const DappleCluster *c, const DappleOptions *o, bool equations, Diag *d)
{
	Arena *a = arena_new();
	long explored = 0;
	int *at;
	const DappleProfile *p = dapple_profile(a, coarse(s->a, s->p->st, most, &at));
	const DapplePublished *pub = dapple_published(a, p, c, o, d);

	for (int i = 0; pub && i < pub->n; i++)
		if (pub->candidate[i].copies == 1 || i == pub->best)
			of_dapple(s, &pub->candidate[i], at, "dapple, published search");
	const DapplePlan *plan = equations ? dapple_plan(a, p, c, o, &explored, d) : NULL;
	if (plan)
		of_dapple(s, plan, at, "dapple");
	arena_free(a);
}

/* Not thorough: what takes some hundredths of a second, the published search over all places, the equations over few. */
void propose_dapple(PlanSearch *s, bool thorough, Diag *d)
{
	enum { ALL = 96, FEW = 24, FEW_DEVICES = 16 };
	const int G = s->p->c->ndevice, few = s->p->st->n < FEW ? s->p->st->n : FEW;
	const Wires w = wires(s->p);
	DappleCluster c = { .servers = w.uniform ? w.hosts : 0,
		.p2p = w.between.bandwidth,
		.nccl = w.between.bandwidth,
		.nvlink = w.within.bandwidth };
	DappleOptions o = { .profiled = 1,
		.least = 1,
		.batch = (double)(s->p->global ? s->p->global : 4 * (int64_t)G),
		.policies = true,
		.width = thorough ? 0 : 1 };

	if (G < 2 || G > DAPPLE_DEVICES)
		return;
	for (int i = 0; i < c.servers; i++)
		c.end[i] = (i + 1) * w.each;
	for (int k = 0; !w.uniform && k < G; k++)
		if (k + 1 == G || s->p->c->device[k].host != s->p->c->device[k + 1].host)
			c.end[c.servers++] = k + 1;
	o.microbatches = (int)o.batch;
	if (thorough || (s->p->st->n > FEW && G <= FEW_DEVICES))
		dapple_over(s, ALL, &c, &o, thorough, d);
	if (!thorough && few * G <= FEW * FEW_DEVICES)
		dapple_over(s, FEW, &c, &o, true, d);
}

/* ---- blocks, equal replicas ---- */

void propose_blocks(PlanSearch *s, int parts)
{
	const States *st = s->p->st;
	double *cost = NEWN(s->a, double, st->n);
	int *size = NEWN(s->a, int, st->n);

	if (!st->total || parts > st->n || parts > s->p->c->ndevice)
		return;
	for (int i = 0; i < st->n; i++)
		cost[i] = st->s[i].time - (i ? st->s[i - 1].time : 0);
	for (int way = 0; way < 2; way++) {
		Trial *t = trial_new(s->a, parts, parts, way ? "blocks" : "blocks, as torchgpipe");
		(way ? blocks_optimal : blocks_published)(s->a, cost, st->n, parts, size);
		for (int i = 0, at = -1; i < parts; i++) {
			t->end[i] = at += size[i];
			t->replicas[i] = 1;
		}
		try_placements(s, t);
	}
}

/* n stages of k replicas, cut where the slowest is least, for every placement. */
static void equal(PlanSearch *s, int n, int k)
{
	const Cluster *c = s->p->c;
	const char *by = n == 1 ? "data parallel" : k == 1 ? "straight pipeline" : "equal replicas";
	Trial *t = trial_new(s->a, n, n * k, n == 1 && k == 1 ? "one device" : by);

	for (int i = 0; i < n; i++)
		t->replicas[i] = k;
	t->micro = trial_micro(s->p, n, t->replicas);
	for (int y = 0; y < PLACE_COUNT; y++)
		if (y == PLACE_ORDER || (y >= PLACE_FAST ? s->p->nclass > 1 : c->nhost > 1)) {
			place_trial(s->p, t, (PlacePolicy)y);
			if (isfinite(cut_best(s, t)))
				search_try(s, t);
		}
}

/* No device is left, or each stage has as many of the few places to cut. */
static bool comes_out_even(const PlanSearch *s, int n)
{
	enum { FEW = 6 };
	const int places = s->p->st->n, each = places / n;

	return s->p->c->ndevice % n == 0 || (each <= FEW && places / each == n);
}

/* The most replicas that a step's microbatches are dealt to evenly; `most` where their number is open. */
static int even_replicas(const PlanModel *p, int most)
{
	int k = most;

	while (k > 1 && p->global && p->global % k)
		k--;
	return k;
}

/* Numbers of stages: all small ones, then sparser and those that come out even, and the most there can be; for each the most
 * replicas, the most that have as many microbatches, and halves. */
void propose_equal(PlanSearch *s)
{
	enum { SOME = 16 };
	const int G = s->p->c->ndevice, most = G < s->p->st->n ? G : s->p->st->n;

	s->later = G > SOME; /* of few devices all are played */
	for (int n = 1, next = 1; n <= most; n++) {
		if (n < next && n < most && !comes_out_even(s, n))
			continue;
		next = n < next ? next : n < 16 ? n + 1 : n * 5 / 4;
		const int even = even_replicas(s->p, G / n);
		for (int k = G / n, then; k >= 1; k = then) {
			then = k <= 8 ? k - 1 : k / 2;
			equal(s, n, k);
			if (even < k && even > then)
				equal(s, n, even);
		}
	}
	if (s->later)
		search_play(s);
}

/* Bit i of `cuts`: a stage ends behind the device i of n. */
static void division(PlanSearch *s, int n, unsigned cuts)
{
	Trial *t = trial_new(s->a, n, n, "division");

	t->n = 0;
	for (int i = 0; i < n; i++) {
		t->device[i] = i;
		t->replicas[t->n]++;
		t->n += i + 1 == n || cuts >> i & 1;
	}
	t->micro = trial_micro(s->p, t->n, t->replicas);
	if (t->n <= s->p->st->n && plan_allowed(s->p, t->n, t->replicas) && isfinite(cut_best(s, t)))
		search_try(s, t);
}

void propose_divisions(PlanSearch *s)
{
	enum { FEW = 6 };
	const int G = s->p->c->ndevice;

	for (int n = 1; n <= G && G <= FEW; n++)
		for (unsigned cuts = 0; cuts < 1u << (n - 1); cuts++)
			division(s, n, cuts);
}

/* ---- all of them ---- */

/* So many plans auto tries one by one before it searches: what takes about a tenth of a second, where to judge a plan goes
 * with the layers and to play it with the actions of a step. */
static double few_plans(const PlanSearch *s)
{
	const PlanModel *p = s->p;
	const int deepest = p->c->ndevice < p->st->n ? p->c->ndevice : p->st->n, one = 1;
	const double micro = (double)trial_micro(p, 1, &one) * (trial_each(p) ? 2 * STEADY_TIMES * deepest : 1);
	const double effort = 4.0 * p->nlayer + micro * deepest;

	return s->quick ? 600 : fmin(25000, fmax(8000, 2.4e6 / effort));
}

bool plan_search(PlanSearch *s, PlannerKind kind, DpCost cost, Diag *d)
{
	Diag silent = { .out = d->out, .errors = 1, .scratch = d->scratch }; /* limit 0: a proposal may fail */

	if (kind == PLANNER_PIPEDREAM)
		propose_pipedream(s, cost, d);
	if (kind == PLANNER_DAPPLE)
		propose_dapple(s, !s->quick, &silent);
	if (kind == PLANNER_DAPPLE && !s->best)
		propose_dapple(s, !s->quick, d); /* which says why */
	if (kind == PLANNER_BLOCKS)
		for (int n = 1; n <= s->p->c->ndevice; n++)
			propose_blocks(s, n);
	if (kind == PLANNER_EXHAUSTIVE && !propose_all(s, 2e6))
		return diag_error(d, NOLOC, 472,
			"there are more than 2,000,000 plans of %d segments on %d devices; --planner auto "
			"searches among them",
			s->p->st->n, s->p->c->ndevice);
	if (kind == PLANNER_AUTO) {
		propose_equal(s);
		if (schedule_is_async(s->p->schedule) &&
			!s->quick) /* the published planners' plans are of other steps */
			propose_divisions(s);
		for (int c = DP_MEASURED; c <= DP_CODE && !s->quick; c++)
			propose_pipedream(s, (DpCost)c, &silent);
		propose_blocks(s, s->p->c->ndevice < s->p->st->n ? s->p->c->ndevice : s->p->st->n);
		if (!s->quick)
			propose_dapple(s, false, &silent);
		if (s->no_exhaustive || !propose_all(s, few_plans(s)))
			search_locally(s);
	}
	if (s->best && !isfinite(s->best->score)) /* what lacks memory was not played */
		trial_play(s->p, s->best);
	if (!s->best && d->errors == 0)
		return diag_error(d, NOLOC, 473, "the planner has no plan for %d segments on %d devices%s", s->p->st->n,
			s->p->c->ndevice,
			s->p->most_stages || s->p->no_replicas
				? " that --max-stages, --no-pipeline and --no-dp leave; --planner auto looks at all of those"
			: s->p->npin ? " that has all parameters in the stages of placement.pin"
				     : "");
	return s->best;
}
