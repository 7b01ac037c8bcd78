/* PipeDream's planner over several levels of machines (planner.h). A level's stages run on whole machines of the level
 * below, so that its compute time of a stage is the best plan of that stage one level down, on all devices of a machine;
 * the table of every level but the highest is made for every first state. Plans are read back from the highest level
 * down; a row of a lower level is solved again when its plan is read, which keeps the tables small. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "pipedream.h"

enum { E_NO_PLAN = 465, E_SETTINGS = 466, E_BIG = 467, MACHINES_MAX = 4096 };

static const double TABLE_BYTES = 6e8, COSTS_BYTES = 3e8;

typedef struct Planner {
	Arena *a;
	Level level[PD_LEVELS];
	int nlevel;
	double *best; /* one row of the level with the most machines */
	From *from;
	PdPlan *plan;
	int cap;
	bool wide;   /* the highest level has too many machines for a table */
	PdGroup top; /* its plan then */
} Planner;

static bool settings_fit(const States *st, const PdOpt *o, Diag *d)
{
	static const char *const name[] = { "sosp", "paper", "old", "once", "text", "ring" };
	double bytes = 0;

	for (int i = 0; i < o->nlevel; i++) {
		if (o->machines[i] < 1 || o->machines[i] > MACHINES_MAX)
			return diag_error(d, NOLOC, E_SETTINGS, "level %d has %d machines: 1 to %d are possible", i + 1,
				o->machines[i], MACHINES_MAX);
		if (!(o->bandwidth[i] > 0) || isinf(o->bandwidth[i]))
			return diag_error(d, NOLOC, E_SETTINGS,
				"level %d has a bandwidth of %.15g bytes/s: it must be above 0", i + 1,
				o->bandwidth[i]);
		bytes = fmax(bytes, 20.0 * st->n * (o->machines[i] + 1));
	}
	if (o->nlevel < 1 || o->nlevel > PD_LEVELS)
		return diag_error(
			d, NOLOC, E_SETTINGS, "%d levels of machines: 1 to %d are possible", o->nlevel, PD_LEVELS);
	if (o->nlevel > 1 && o->cost != PD_SOSP)
		return diag_error(d, NOLOC, E_SETTINGS,
			"%d levels of machines with the cost '%s': only 'sosp' has levels", o->nlevel, name[o->cost]);
	if (o->fewer && o->memory > 0)
		return diag_error(d, NOLOC, E_SETTINGS,
			"fewer workers and a limit of memory do not go together: the versions that a "
			"stage keeps depend on how many workers are behind it");
	if (o->cost == PD_OLD && !st->total)
		return diag_error(
			d, FILELOC(st->p->file), E_SETTINGS, "the cost 'old' is for chains; this graph branches");
	if (bytes + 8.0 * st->n * st->n * (o->nlevel - 1) > TABLE_BYTES)
		return diag_error(d, FILELOC(st->p->file), E_BIG,
			"the tables for %d states on %d levels need %.1f GB, %.1f GB "
			"are the limit; fewer states (--compress) need less",
			st->n, o->nlevel, (bytes + 8.0 * st->n * st->n * (o->nlevel - 1)) / 1e9, TABLE_BYTES / 1e9);
	return true;
}

/* The costs of every last stage, which all rows ask for again; NULL where they are too many. */
static double *all_costs(Arena *a, const Level *l)
{
	const size_t n = (size_t)l->st->n, M = (size_t)l->M;

	if ((double)n * (double)n * (double)M * sizeof(double) > COSTS_BYTES)
		return NULL;
	double *c = NEWN(a, double, n *n *M);
	for (int j = 1; j < l->st->n; j++)
		for (int k = 0; k < j; k++)
			if (state_before(l->st, k, j))
				last_costs(l, k, j, l->o->straight ? 1 : l->M - 1, c + ((size_t)j * n + (size_t)k) * M);
	return c;
}

/* The times that the level above sees. */
static void solve_all_rows(Planner *p, Level *l, double *time)
{
	const int n = l->st->n;
	int devices = 1;

	for (const Level *k = p->level; k < l; k++)
		devices *= k->M;
	if (l->st->total) {
		solve_chain_rows(l, devices, time);
		return;
	}
	Arena *scratch = arena_new();
	l->costs = all_costs(scratch, l);
	for (int i = 0; i <= n; i++) {
		if (i < n)
			solve_row(l, i, n, p->best, p->from);
		for (int j = 0; j < n; j++)
			time[(size_t)i * (size_t)n + (size_t)j] =
				j < i ? INFINITY : p->best[(size_t)j * (size_t)(l->M + 1) + (size_t)l->M];
	}
	l->costs = NULL;
	arena_free(scratch);
}

/* Seconds of compute in a stage as it is told: of the layers alone, on one device. */
static double stage_compute(const States *st, int start, int end)
{
	return st->s[end - 1].time - (start ? st->s[start - 1].time : 0);
}

static PdGroup read_back(Planner *p, const Level *l, int start, int end, int *unused)
{
	PdGroup g = { .level = (int)(l - p->level) + 1 };
	const size_t row = (size_t)l->M + 1;
	int m = l->M, j = end - 1;

	if (p->wide && g.level == p->nlevel) {
		g.stage = p->top.stage;
		g.n = p->top.n;
		*unused = l->M;
		for (int i = 0; i < g.n; i++) {
			g.stage[i].compute = stage_compute(l->st, g.stage[i].start, g.stage[i].end);
			*unused -= g.stage[i].replicas;
		}
		return g;
	}
	solve_row(l, start, end, p->best, p->from);
	g.stage = NEWN(p->a, PdStage, l->M);
	for (;;) { /* from the last stage on */
		const From f = p->from[(size_t)j * row + (size_t)m];
		const int from = f.k < 0 ? start : f.k + 1;

		g.stage[g.n++] = (PdStage){ from, j + 1, f.r, stage_compute(l->st, from, j + 1) };
		m = f.left;
		if (f.k < 0)
			break;
		j = f.k;
	}
	for (int i = 0; i < g.n / 2; i++) {
		const PdStage t = g.stage[i];
		g.stage[i] = g.stage[g.n - 1 - i];
		g.stage[g.n - 1 - i] = t;
	}
	*unused = l->M;
	for (int i = 0; i < g.n; i++)
		*unused -= g.stage[i].replicas;
	return g;
}

static double data_parallel(const Planner *p)
{
	const State *all = &p->level[0].st->s[p->level[0].st->n - 1];
	double t = all->time;

	for (int i = 0; i < p->nlevel; i++) {
		const Level *l = &p->level[i];

		t = stage_cost(l->o, t, all->parameters, l->B, l->inner, l->M);
	}
	return t;
}

/* Solves the levels; the time of the best plan. */
static double solve_levels(Planner *p, double *const time[])
{
	const Level *top = &p->level[p->nlevel - 1];

	for (int i = 0; i + 1 < p->nlevel; i++)
		solve_all_rows(p, &p->level[i], time[i]);
	if (p->wide)
		return solve_wide(p->a, top, &p->top.stage, &p->top.n);
	solve_row(top, 0, top->st->n, p->best, p->from);
	return p->best[(size_t)(top->st->n - 1) * (size_t)(top->M + 1) + (size_t)top->M];
}

/* Nothing fits: the least memory that would do, to a byte. */
static bool no_plan(Planner *p, const PdOpt *o, double *const time[], Diag *d)
{
	const State *all = &p->level[0].st->s[p->level[0].st->n - 1];
	double low = o->memory, high = (all->activation + all->parameters) * (p->level[p->nlevel - 1].M + 1);
	PdOpt try = *o;

	for (int i = 0; i < p->nlevel; i++)
		p->level[i].o = &try;
	try.memory = high;
	if (isinf(solve_levels(p, time)))
		return diag_error(d, FILELOC(p->level[0].st->p->file), E_NO_PLAN,
			"no plan uses exactly these machines: %d places "
			"to cut, %d machines",
			p->level[0].st->n, p->level[p->nlevel - 1].M);
	while (high - low > 1) {
		try.memory = floor(low + (high - low) / 2);
		if (isinf(solve_levels(p, time)))
			low = try.memory;
		else
			high = try.memory;
	}
	return diag_error(d, FILELOC(p->level[0].st->p->file), E_NO_PLAN,
		"no plan fits into %.0f bytes per device; %.0f "
		"would do",
		o->memory, high);
}

/* Reads the plan of every level from the highest on: the stages of a level are the groups of the next lower. */
static void read_levels(Planner *p)
{
	PdPlan *plan = p->plan;
	PdStage whole = { 0, p->level[0].st->n, 1, 0 }, *above = &whole;
	int nabove = 1;

	for (int l = p->nlevel - 1; l >= 0; l--) {
		PdStage *stage = NULL;
		int n = 0, cap = 0;

		for (int i = 0; i < nabove; i++) {
			int unused;
			const PdGroup g = read_back(p, &p->level[l], above[i].start, above[i].end, &unused);

			if (l == p->nlevel - 1)
				plan->unused = unused;
			for (int k = 0; k < g.n; k++)
				PUSH(p->a, stage, n, cap) = g.stage[k];
			PUSH(p->a, plan->group, plan->ngroup, p->cap) = g;
		}
		above = stage;
		nabove = n;
	}
}

bool pipedream_plan(Arena *a, const States *st, const PdOpt *o, PdPlan *plan, Diag *d)
{
	Planner p = { .a = a, .nlevel = o->nlevel, .plan = plan };
	double *time[PD_LEVELS] = { NULL };
	int most = 1;

	if (!settings_fit(st, o, d))
		return false;
	for (int i = 0; i < o->nlevel; i++) {
		p.level[i] = (Level){ st, o, o->machines[i], i ? o->machines[i - 1] : 1, o->bandwidth[i],
			i ? time[i - 1] : NULL, NULL };
		if (i + 1 < o->nlevel)
			time[i] = NEWN(a, double, ((size_t)st->n + 1) * (size_t)st->n);
		most = o->machines[i] > most ? o->machines[i] : most;
	}
	*plan = (PdPlan){ .single = st->s[st->n - 1].time, .data_parallel = data_parallel(&p) };
	const double pairs = (double)st->n * p.level[o->nlevel - 1].M;
	p.wide = pairs * pairs / 4 > WIDE_STEPS && o->cost <= PD_ONCE; /* bisection knows only these */
	p.best = NEWN(a, double, (size_t)st->n *(size_t)(most + 1));
	p.from = NEWN(a, From, (size_t)st->n * (size_t)(most + 1));
	plan->seconds = solve_levels(&p, time);
	if (isinf(plan->seconds))
		return no_plan(&p, o, time, d);
	read_levels(&p);
	return true;
}

double pipedream_cost(const States *st, const PdOpt *o, const PdStage *stage, int n)
{
	const Level l = { st, o, o->machines[0], 1, o->bandwidth[0], NULL, NULL };
	double worst = 0;
	int used = 0;

	for (int i = 0; i < n; i++) {
		const int k = stage[i].start - 1, j = stage[i].end - 1, r = stage[i].replicas;

		used += r;
		if (r < 1 || used > l.M || (o->straight && r > 1) || !span_fits(&l, k + 1, j, r, l.M - used) ||
			(i && !state_before(st, k, j)))
			return INFINITY;
		worst = fmax(worst, i ? last_cost(&l, k, j, r, transfer(&l, k, j)) : single_cost(&l, 0, j, r));
	}
	return used == l.M || (o->fewer && n > 0) ? worst : INFINITY;
}
