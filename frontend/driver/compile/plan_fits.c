/* A plan that fits. Planners estimate memory (plan_model.h), memplan lays it out to the byte and refuses what does
 * not fit: then the planner is asked again with its estimate corrected, at last for the plans that need least; where the
 * size of a microbatch is open, the next size is tried. Where none of that fits, the plans that are expected to need least
 * (Plan.lean) are compiled one by one, of every size, and the fastest of those that fit is taken. They do not depend on how much
 * memory there is, so the least that one of them needs is the smallest limit that will do (no_plan_fits.c says it). Of a plan
 * whose replicas are said the cuts are looked for in the same way; where none do, E0601 is that of the cuts that lack least. */
#define _POSIX_C_SOURCE 200809L /* open_memstream */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "plan_fits.h"
#include "probe.h"

enum { ROUNDS = 5, SCHEDULE_ROUNDS = 8 }; /* the second: --schedule auto */
static const double LEAST = 1e9; /* no plan fits an estimate so much larger: the one that lacks least is taken */
static const double FAR =
	1.5; /* a size of microbatch that is expected to need so much more than the least one is left out */

static Fit fit_of(const Compile *c)
{
	Fit f = { .device = -1, .step = c->plan.estimate > 0 ? c->plan.estimate : c->plan.step_time };

	for (int t = 0; t < c->m->nstage; t++)
		for (int r = 0; r < c->m->stage[t]->replicas; r++) {
			const Stage *s = c->m->stage[t];
			const int64_t limit = c->cluster.device[s->device[r]].memory;
			if (limit > 0 && (double)s->arena / (double)limit > f.over)
				f = (Fit){ (double)s->arena / (double)limit, s->arena, limit, s->device[r], f.step };
		}
	return f;
}

/* May a plan be looked for again? */
static bool searched(const Compile *c)
{
	const Training *t = &c->o->t;
	bool limited = false;

	for (int i = 0; i < c->cluster.ndevice; i++)
		limited |= c->cluster.device[i].memory > 0;
	return limited && !t->plan.given && !c->o->start_from && !c->o->stop_after;
}

/* Are the replicas of its stages said? */
static bool fixed(const Compile *c) { return c->o->t.plan.replicas && strcmp(c->o->t.plan.replicas, "auto") != 0; }

/* What is known of the schedule that was chosen among several; NULL: none was. */
static Corrected *corrected(Compile *c)
{
	return c->o->t.plan.choose_schedule && c->m->chosen.kind ? &c->corrected[c->m->chosen.kind] : NULL;
}

/* Of a schedule that was chosen among several: does the step take so much longer than the planner expected, in less memory than that
 * counted with, that another may be faster? Once of each schedule. */
static bool is_slower(Compile *c, int round)
{
	Corrected *own = corrected(c);
	const Plan *p = &c->plan;

	if (!own || own->time > 0 || round + 2 >= SCHEDULE_ROUNDS ||
		!(p->estimate > 0 && p->step_time > 1.02 * p->estimate))
		return false;
	own->time = p->step_time / p->estimate;
	return true;
}

/* Passes, with what they say held back where another plan will be looked for. True when they are through; *refused: memory is all that is
 * wrong; *slower: is_slower of that round, NULL: it is not asked. */
static bool quietly(Compile *c, const char *dump, bool *refused, int round, bool *slower)
{
	FILE *out = c->d->out;
	const int errors = c->d->errors;
	char *text = NULL;
	size_t n = 0;

	c->d->out = open_memstream(&text, &n);
	const bool ok = compile_passes(c, dump);
	fclose(c->d->out);
	c->d->out = out;
	*refused = !ok && c->d->last_code == 601;
	const bool more = ok && slower && c->m->nstage && is_slower(c, round);
	if (slower)
		*slower = more;
	if (*refused)
		c->d->errors = errors;
	else if (!more)
		fwrite(text, 1, n, out);
	free(text);
	return ok;
}

/* The model as it was before the passes; what was noted of it was read. */
static bool again(Compile *c, int64_t micro)
{
	c->m = compile_import(c, micro);
	c->plan = (Plan){ 0 };
	buf_clear(&c->explain);
	return c->m;
}

/* The estimate of memory is corrected, of the schedule that was chosen among several. False after a diagnostic. */
static bool needs_more(Compile *c, double *scale, int round, double more)
{
	Corrected *own = corrected(c);

	more = fmax(1.02, 1.001 * more);
	if (round + 2 >= (own ? SCHEDULE_ROUNDS : ROUNDS) || more >= LEAST)
		*scale = LEAST;
	else if (own)
		own->memory = (own->memory > 0 ? own->memory : 1) * more;
	else
		*scale *= more;
	return again(c, c->m->batch);
}

/* True when a plan fits; else *refused and what the plan that lacks least needs, or another fault that was said. */
static bool find_fit(Compile *c, const char *dump, Fit *f, bool *refused)
{
	double scale = 1;
	bool slower;

	memset(c->corrected, 0, sizeof c->corrected);
	for (int round = 0;; round++) {
		c->memory_scale = scale;
		const bool ok = quietly(c, dump, refused, round, &slower);
		*f = fit_of(c);
		if (slower && again(c, c->m->batch))
			continue;
		if (slower || ok || !*refused)
			return !slower && !*refused && c->m->nstage;
		if (scale >= LEAST || c->plan.over > 1) /* the plan that lacks least was compiled */
			return false;
		if (!needs_more(c, &scale, round, c->plan.over > 0 ? f->over / c->plan.over : LEAST)) {
			*refused = false;
			return false;
		}
	}
}

/* ---- the plans that need least, one by one ---- */

/* So many of a model: what takes some tenths of a second. */
static int lean_plans(const Compile *c)
{
	enum { NODES = 20000, MOST = 24, LEAST_PLANS = 3 };
	const int n = NODES / (c->m->graph && c->m->graph->nnodes ? c->m->graph->nnodes : 1);

	return n > MOST ? MOST : n < LEAST_PLANS ? LEAST_PLANS : n;
}

/* A plan that is compiled as a file would give it. */
typedef struct Lean {
	const GivenPlan *plan;
	int64_t micro;
	double score;
} Lean;

static bool compile_lean(Compile *c, const Lean *l, const char *dump, Fit *f, bool *refused)
{
	const GivenPlan *was = c->o->t.plan.given;

	*refused = false;
	if (!again(c, l->micro))
		return false;
	c->memory_scale = 1;
	c->o->t.plan.given = l->plan;
	const bool ok = quietly(c, dump, refused, 0, NULL);
	c->o->t.plan.given = was;
	*f = fit_of(c);
	return ok && c->m->nstage;
}

/* Of one size of microbatch: *best is the fastest plan that fits so far, *leanest the one that lacks least, its score how much; *least
 * also of plans that were compiled before. */
static bool try_lean(Compile *c, int64_t micro, Lean *best, Lean *leanest, Fit *least)
{
	bool refused;
	Fit f;

	if (!again(c, micro))
		return false;
	c->memory_scale = LEAST;
	const int most = lean_plans(c);
	quietly(c, NULL, &refused, 0, NULL);
	const GivenPlan *plan = c->plan.lean; /* of the arena of the module, which stays */
	const int n = c->plan.nlean < most ? c->plan.nlean : most;
	for (int i = 0; i < n; i++) {
		Lean l = { &plan[i], micro, INFINITY };
		const bool fits = compile_lean(c, &l, NULL, &f, &refused);
		if (f.need && (!leanest->plan || f.over < leanest->score))
			*leanest = (Lean){ &plan[i], micro, f.over };
		if (f.need && (!least->need || f.over < least->over))
			*least = f;
		l.score = fits ? f.step / (double)(c->plan.microbatches * micro) : INFINITY;
		if (fits && l.score < best->score)
			*best = l;
	}
	return true;
}

/* E0601 of the cuts that lack least. */
static bool say_lean(Compile *c, const Lean *l)
{
	const GivenPlan *was = c->o->t.plan.given;

	if (!again(c, l->plan ? l->micro : c->m->batch))
		return false;
	c->memory_scale = 0;
	c->o->t.plan.given = l->plan;
	const bool ok = compile_passes(c, NULL);
	c->o->t.plan.given = was;
	return ok;
}

/* Sizes that the search for one had no reason to look at may need less. */
static bool fit_lean(Compile *c, const char *dump, Fit *least)
{
	Lean best = { .score = INFINITY }, leanest = { 0 };
	double over = INFINITY;
	bool refused;
	Fit f;

	if (!c->nmicro && !try_lean(c, c->m->batch, &best, &leanest, least))
		return false;
	if (c->nmicro)
		micro_smaller(c);
	for (int i = 0; i < c->nmicro; i++)
		over = fmin(over, c->micro[i].over);
	for (int i = 0; i < c->nmicro; i++)
		if (c->micro[i].over <= FAR * over && !try_lean(c, c->micro[i].micro, &best, &leanest, least))
			return false;
	if (!best.plan && fixed(c))
		return say_lean(c, &leanest);
	if (!best.plan)
		return false;
	if (c->nmicro)
		c->o->t.loop.micro = best.micro;
	return compile_lean(c, &best, dump, &f, &refused);
}

/* Is size i + 1 of a microbatch worth a try, where the best that fits takes `step`? */
static bool hopes(const Compile *c, int i, double step)
{
	if (i + 1 >= c->nmicro)
		return false;
	const MicroChoice *x = &c->micro[i + 1];
	return isfinite(step) ? x->over <= 1 && x->step < 0.999 * step : x->over <= HOPE;
}

/* The sizes of a microbatch that are left, best first, as long as there is hope: also where one fits by a slower plan than was
 * expected of it, and more is expected of the next. *refused: memory is what lacks. */
static bool fit(Compile *c, const char *dump, Fit *least, bool *refused)
{
	double step = INFINITY;
	int best = -1;
	Fit f;

	for (int i = 0;; i++) {
		const bool fits = find_fit(c, dump, &f, refused);
		if (!fits && !*refused)
			return false;
		if (fits ? f.step < step : best < 0 && (!least->need || f.over < least->over))
			*least = f;
		if (fits && f.step < step) {
			step = f.step;
			best = i;
		}
		if (fits && best == i && !hopes(c, i, step))
			return true;
		if (!hopes(c, i, step) && best < 0)
			return fit_lean(c, dump, least);
		const int to = hopes(c, i, step) ? i + 1 : best;
		c->o->t.loop.micro = c->micro[to].micro;
		if (!again(c, c->o->t.loop.micro)) {
			*refused = false;
			return false;
		}
		if (to == best)
			return find_fit(c, dump, least, refused);
	}
}

bool fit_with(const Compile *c, const Way *w, bool whole, Fit *f)
{
	Diag mute = *c->d;
	Compile s = *c;
	Options own = w->o;
	bool refused;

	*f = (Fit){ 0 };
	mute.limit = 0;
	mute.errors = 1;
	mute.quiet = true;
	own.explain = own.time_passes = own.print_after_all = own.print_after_change = false;
	own.print_before = own.print_after = NULL;
	s.d = &mute;
	s.o = &own;
	s.cluster = w->cluster;
	s.explain = (Buf){ 0 };
	s.plan = (Plan){ 0 };
	s.micro = NULL;
	s.nmicro = 0;
	s.changes = NULL;
	s.quick = !whole;
	if (!(s.m = compile_import(&s, w->micro)))
		return false;
	if (!whole)
		return find_fit(&s, NULL, f, &refused);
	if (c->nmicro && !micro_choose(&s))
		return false;
	const bool ok = fit(&s, NULL, f, &refused);
	if (ok)
		*f = fit_of(&s);
	return ok;
}

bool compile_fit(Compile *c, const char *dump)
{
	Fit least = { 0 };
	bool refused;

	if (!searched(c) || (fixed(c) && !strpbrk(c->o->t.plan.replicas, "-:"))) {
		const bool ok = compile_passes(c, dump);
		if (c->look)
			*c->look = fit_of(c);
		return ok;
	}
	const bool ok = fit(c, dump, &least, &refused);
	if (c->look)
		*c->look = least;
	return ok || (refused && !fixed(c) && !c->look && no_fit(c, &least));
}
