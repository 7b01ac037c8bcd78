/* How many samples a microbatch has, decided with the plan (--micro-batch auto).
 *
 * Sizes are divisors of the global batch. Each gets its own plan, recompute and all: the model is imported and costed at that
 * size, and the planner looks for the fastest plan that fits. Large microbatches fill devices well and cost few messages;
 * small ones leave a pipeline less to fill and drain, and take less memory. From the size that a rule of thumb gives the
 * search doubles and halves until two sizes in a row are worse, then looks between the neighbours of the best; those that
 * come close are planned with all effort.
 *
 * Times of the cost model are those of the size. Measured times are those of the size that was measured, grown as the cost
 * model's do (passes/cost/cost.c). Where the cluster file does not say how much memory there is, 32 samples are the most. */
#include <stdlib.h>
#include <string.h>
#include "probe.h"
#include "profile.h"
#include "passes/cost/cost.h"
#include "passes/schedule/schedule.h"

enum { UNKNOWN_MEMORY = 32, WORSE = 2, BETWEEN = 4, FINALISTS = 2 };
static const double CLOSE = 1.05, SAME = 1e-9;

/* The divisors that may be looked at, rising. */
typedef struct Sizes {
	Compile *c;
	int64_t *size;
	int n, cap_size, cap;
} Sizes;

bool micro_is_open(const Compile *c)
{
	const Training *t = &c->o->t;
	const bool searched = !t->plan.given && (!t->plan.replicas || !strcmp(t->plan.replicas, "auto"));

	return c->micro_open && (searched || t->loop.choose_micro) && !one_per_step(t) && !c->o->start_from &&
	       !c->o->stop_after && !c->command_profile;
}

static bool better(const MicroChoice *x, const MicroChoice *y)
{
	const bool fits = x->over <= 1, also = y->over <= 1;

	if (fits != also)
		return fits;
	if (!fits && (x->over < y->over * (1 - SAME) || x->over > y->over * (1 + SAME)))
		return x->over < y->over;
	if (x->step < y->step * (1 - SAME) || x->step > y->step * (1 + SAME))
		return x->step < y->step;
	return x->micro > y->micro;
}

static int compare(const void *x, const void *y) { return better(x, y) ? -1 : 1; }

static const MicroChoice *best_of(const Compile *c)
{
	const MicroChoice *b = c->nmicro ? &c->micro[0] : NULL;

	for (int i = 1; i < c->nmicro; i++)
		b = better(&c->micro[i], b) ? &c->micro[i] : b;
	return b;
}

static const MicroChoice *known(const Compile *c, int64_t micro)
{
	for (int i = 0; i < c->nmicro; i++)
		if (c->micro[i].micro == micro)
			return &c->micro[i];
	return NULL;
}

/* The plan of a size; false: the model cannot have it, or there is no plan. */
static bool plan_of(Compile *c, int64_t micro, bool quick, MicroChoice *to)
{
	Probe p;
	Plan plan;
	const bool ok = probe_open(&p, c, micro) && probe_plan(&p, &c->o->t, &c->cluster, quick, &plan);

	if (ok)
		*to = (MicroChoice){ micro, plan.step_time, plan.over, plan_str(c->a, &plan) };
	probe_close(&p);
	return ok;
}

/* False: no better than the best so far. */
static bool look(Sizes *s, int64_t micro)
{
	MicroChoice x;
	const MicroChoice *best = best_of(s->c);

	if (known(s->c, micro))
		return best->micro == micro;
	if (!plan_of(s->c, micro, true, &x))
		return false;
	const bool good = !best || better(&x, best);
	PUSH(s->c->a, s->c->micro, s->c->nmicro, s->cap) = x;
	return good;
}

/* The divisor next to twice the size, or to half of it; the largest there is for what lies beyond; 0: none. */
static int64_t next(const Sizes *s, int64_t micro, bool up)
{
	if (up)
		for (int i = 0; i < s->n; i++)
			if (s->size[i] >= 2 * micro || (i + 1 == s->n && s->size[i] > micro))
				return s->size[i];
	for (int i = s->n - 1; i >= 0 && !up; i--)
		if (2 * s->size[i] <= micro)
			return s->size[i];
	return 0;
}

static void walk(Sizes *s, int64_t from, bool up)
{
	int worse = 0;

	for (int64_t m = next(s, from, up); m && worse < WORSE; m = next(s, m, up)) {
		const bool lacks = best_of(s->c) && best_of(s->c)->over > 1 && !up;
		worse = look(s, m) || lacks ? 0 : worse + 1;
	}
}

/* Divisors from half of the best to twice it. */
static void look_between(Sizes *s)
{
	const MicroChoice *best = best_of(s->c);
	const int64_t from = best ? best->micro : 0;
	int at = 0, left = BETWEEN;

	while (at < s->n - 1 && s->size[at] < from)
		at++;
	for (int d = 1; from && d <= BETWEEN; d++) {
		const int k[2] = { at + d, at - d };
		for (int i = 0; i < 2; i++)
			if (left && k[i] >= 0 && k[i] < s->n && 2 * s->size[k[i]] >= from &&
				s->size[k[i]] <= 2 * from && !known(s->c, s->size[k[i]])) {
				look(s, s->size[k[i]]);
				left--;
			}
	}
}

static void find_divisors(Sizes *s)
{
	const Compile *c = s->c;
	const int64_t all = c->o->t.loop.global;
	int64_t most = all;
	int cap = 0, n = 0;
	int64_t *high = NULL;

	for (int i = 0; i < c->cluster.ndevice; i++)
		if (c->cluster.device[i].memory <= 0)
			most = UNKNOWN_MEMORY;
	for (int64_t d = 1; d * d <= all; d++) {
		if (all % d)
			continue;
		if (d <= most)
			PUSH(c->a, s->size, s->n, s->cap_size) = d;
		if (d * d < all && all / d <= most)
			PUSH(c->a, high, n, cap) = all / d;
	}
	while (n)
		PUSH(c->a, s->size, s->n, s->cap_size) = high[--n];
}

void micro_sized(Compile *c)
{
	Compile bare = *c;
	Probe p;

	c->sized = NULL;
	if (!c->profile || c->profile->micro < 1)
		return;
	bare.profile = NULL;
	if (probe_open(&p, &bare, c->profile->micro))
		c->sized = cost_sizes(c->a, p.c.m);
	probe_close(&p);
}

bool micro_take(Compile *c, int i)
{
	Training *t = &c->o->t;

	t->loop.micro = c->micro[i].micro;
	if (c->m && c->m->batch == t->loop.micro && !(c->m->has & P_STAGES))
		return true;
	c->m = compile_import(c, t->loop.micro);
	return c->m != NULL;
}

void micro_smaller(Compile *c)
{
	Sizes s = { .c = c, .cap = c->nmicro };
	int64_t from = c->micro[0].micro;

	find_divisors(&s);
	for (int i = 1; i < c->nmicro; i++)
		from = c->micro[i].micro < from ? c->micro[i].micro : from;
	for (int64_t m = next(&s, from, false); m; m = next(&s, m, false))
		look(&s, m);
}

bool micro_choose(Compile *c)
{
	const int64_t rule = c->m->batch;
	Sizes s = { .c = c };

	find_divisors(&s);
	look(&s, rule);
	walk(&s, rule, true);
	walk(&s, rule, false);
	look_between(&s);
	if (!c->nmicro)
		return true; /* what is wrong is wrong at every size: the passes will say it */
	qsort(c->micro, (size_t)c->nmicro, sizeof *c->micro, compare);
	for (int i = 0;
		i < FINALISTS && c->nmicro > 1 && c->micro[1].over <= 1 && c->micro[1].step < CLOSE * c->micro[0].step;
		i++)
		plan_of(c, c->micro[i].micro, false, &c->micro[i]);
	qsort(c->micro, (size_t)c->nmicro, sizeof *c->micro, compare);
	if (!micro_take(c, 0))
		return false;
	if (c->profile && c->micro[0].micro != rule && c->o->profile && !strcmp(c->o->profile, "run"))
		return profile_choose(c); /* what is trained is measured */
	return true;
}
