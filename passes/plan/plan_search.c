/* The search itself (plan_search.h): what is tried, what counts as better, all plans where there are few, local
 * search. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "passes/schedule/placement.h"
#include "passes/schedule/schedule.h"
#include "plan_search.h"

static const double SAME = 1e-9; /* scores that differ by less of their size are equal */

void search_start(PlanSearch *s, Arena *a, const PlanModel *p)
{
	const double more = p->c ? fmin(4, fmax(1, p->c->ndevice / 64.0)) : 1;

	*s = (PlanSearch){ .a = a, .p = p, .budget = 1.2e6 * more, .cut_budget = 2e7 };
	map_init(&s->seen, a, true);
}

void search_lightly(PlanSearch *s)
{
	s->quick = true;
	s->budget /= 10;
	s->cut_budget /= 10;
}

static int compare(const int *x, const int *y, int n, int sign)
{
	for (int i = 0; i < n; i++)
		if (x[i] != y[i])
			return x[i] < y[i] ? sign : -sign;
	return 0;
}

static bool differ(double x, double y) { return fabs(x - y) > SAME * fmax(fabs(x), fabs(y)); }

bool trial_better(const Trial *x, const Trial *y)
{
	if (!y || !x)
		return x;
	if (x->over > 1 || y->over > 1) {
		if (differ(x->over, y->over))
			return x->over < y->over;
	} else if (isfinite(x->score) != isfinite(y->score)) {
		return isfinite(x->score);
	} else if (isfinite(x->score) && differ(x->score, y->score)) {
		return x->score < y->score;
	}
	if (x->ndevice != y->ndevice)
		return x->ndevice < y->ndevice;
	if (x->n != y->n)
		return x->n < y->n;
	if (differ(x->peak, y->peak))
		return x->peak < y->peak;
	int d = compare(x->end, y->end, x->n, 1);
	d = d ? d : compare(x->replicas, y->replicas, x->n, -1);
	return (d ? d : compare(x->device, y->device, x->ndevice, 1)) > 0;
}

static const char *key_of(Arena *a, const Trial *t)
{
	Buf b = { 0 };

	for (int s = 0, r = 0; s < t->n; s++) {
		buf_int(&b, t->end[s]);
		buf_putc(&b, ':');
		for (int k = 0; k < t->replicas[s]; k++, r++) {
			buf_int(&b, t->device[r]);
			buf_putc(&b, ',');
		}
	}
	const char *text = arena_str(a, buf_str(&b));
	buf_free(&b);
	return text;
}

bool plan_allowed(const PlanModel *p, int n, const int *replicas)
{
	bool ok = (!p->most_stages || n <= p->most_stages) &&
	          !(p->train && schedule_refuses(p->a, p->train, p->schedule, n, replicas));

	for (int s = 0; s < n; s++)
		ok &= (!p->no_replicas || replicas[s] == 1) && (!p->equal_replicas || replicas[s] == replicas[0]);
	return ok;
}

static bool possible(const PlanModel *p, const Trial *t)
{
	const States *st = p->st;

	if (!plan_allowed(p, t->n, t->replicas))
		return false;
	for (int s = 0; s < t->n; s++)
		if (t->replicas[s] < 1 || (t->replicas[s] > t->micro && !trial_each(p)) ||
			(s && !state_before(st, t->end[s - 1], t->end[s])))
			return false;
	return t->n > 0 && t->end[t->n - 1] == st->n - 1 && plan_keeps_pins(p, t, NULL);
}

static int by_number(const void *x, const void *y)
{
	return (*(const int *)x > *(const int *)y) - (*(const int *)x < *(const int *)y);
}

/* Within a stage devices stand in the order of the file. */
static void sort_devices(Trial *t)
{
	for (int s = 0, r = 0; s < t->n; r += t->replicas[s++])
		qsort(&t->device[r], (size_t)t->replicas[s], sizeof *t->device, by_number);
}

double search_effort(const PlanModel *p, const Trial *t)
{
	const int steps = schedule_steps(p->played, t->replicas, t->n);
	const double micro = (double)t->micro * (steps > 1 ? STEADY_TIMES * steps : 1);
	double n = 0;

	for (int s = 0; s < t->n; s++)
		n += micro * (t->n > 1 ? 6 : 2) + 4 * t->replicas[s];
	return n + t->sums;
}

Trial *trial_copy(Arena *a, const Trial *t)
{
	Trial *x = trial_new(a, t->n, t->ndevice, t->by);

	x->micro = t->micro;
	memcpy(x->end, t->end, sizeof *t->end * (size_t)t->n);
	memcpy(x->replicas, t->replicas, sizeof *t->replicas * (size_t)t->n);
	memcpy(x->device, t->device, sizeof *t->device * (size_t)t->ndevice);
	return x;
}

static bool hopeless(const PlanSearch *s, const Trial *t)
{
	const Trial *b = s->best;

	if (!b)
		return false;
	if (t->over > 1)
		return true; /* how much it lacks is all that counts */
	return b->over <= 1 && isfinite(b->score) && t->bound / (double)t->micro > b->score * (1 + SAME);
}

/* Unless it cannot be best, or the budget is spent. */
static void play(PlanSearch *s, Trial *x)
{
	if (hopeless(s, x) || (s->best && s->work >= s->budget))
		return;
	trial_play(s->p, x);
	s->work += search_effort(s->p, x);
	s->played++;
}

static int by_bound(const void *x, const void *y)
{
	const Trial *a = *(Trial *const *)x, *b = *(Trial *const *)y;
	const double v = a->bound / (double)a->micro, w = b->bound / (double)b->micro;

	return v != w ? (v > w) - (v < w) : trial_better(b, a) - trial_better(a, b);
}

void search_play(PlanSearch *s)
{
	Trial **t = arena_dup(s->a, s->trial, sizeof *t * (size_t)s->n);

	s->later = false;
	if (s->n)
		qsort(t, (size_t)s->n, sizeof *t, by_bound);
	for (int i = 0; i < s->n; i++) {
		if (isfinite(t[i]->step))
			continue;
		play(s, t[i]);
		s->best = trial_better(t[i], s->best) ? t[i] : s->best;
	}
}

/* On the devices that it says. */
static Trial *try_there(PlanSearch *s, const Trial *t)
{
	Trial *x = trial_copy(s->a, t);
	sort_devices(x);
	const char *key = key_of(s->a, x);
	Trial *known = map_get(&s->seen, key);
	if (known)
		return known;
	map_put(&s->seen, key, x);
	trial_judge(s->p, x);
	PUSH(s->a, s->trial, s->n, s->cap) = x;
	if (!s->later || !s->best)
		play(s, x);
	s->work += 300; /* to judge is work as well */
	if (trial_better(x, s->best))
		s->best = x;
	return x;
}

Trial *search_try(PlanSearch *s, const Trial *t)
{
	Trial own = *t, *best = NULL;

	own.micro = trial_micro(s->p, t->n, t->replicas);
	if (!possible(s->p, &own))
		return NULL;
	if (policy_allowed(s->p->c, PLACE_ORDER))
		return try_there(s, &own);
	own.device = NEWN(s->a, int, t->ndevice);
	for (int y = PLACE_FRESH; y <= PLACE_SCATTER; y++) {
		if (!policy_allowed(s->p->c, y))
			continue;
		place_trial(s->p, &own, (PlacePolicy)y);
		Trial *x = try_there(s, &own);
		best = trial_better(x, best) ? x : best;
	}
	return best;
}

/* ---- all plans ---- */

/* Devices that nothing tells apart are one kind. */
typedef struct Kinds {
	int n, *count, **device;
} Kinds;

typedef struct All {
	PlanSearch *s;
	Kinds kind;
	int *left; /* by kind: how many are not in use */
	Trial *t;
	int used;
	double count, most; /* plans; how many are too many */
	double steps;       /* of the recursion: where most ends lead to no plan there are too many as well */
	bool counting;
} All;

static bool same_kind(const PlanModel *p, int d, int e)
{
	const Device *x = &p->c->device[d], *y = &p->c->device[e];

	return p->class_of[d] == p->class_of[e] && x->host == y->host && x->memory == y->memory;
}

static Kinds find_kinds(Arena *a, const PlanModel *p)
{
	const int n = p->c->ndevice;
	Kinds k = { 0, NEWN(a, int, n), NEWN(a, int *, n) };
	int *of = NEWN(a, int, n), *first = NEWN(a, int, n), *put = NEWN(a, int, n);

	for (int d = 0; d < n; d++) {
		int i = k.n - 1; /* a host's devices mostly stand together */
		while (i >= 0 && !same_kind(p, d, first[i]))
			i--;
		if (i < 0)
			first[i = k.n++] = d;
		of[d] = i;
		k.count[i]++;
	}
	for (int i = 0; i < k.n; i++)
		k.device[i] = NEWN(a, int, k.count[i]);
	for (int d = 0; d < n; d++)
		k.device[of[d]][put[of[d]]++] = d;
	return k;
}

static void all_stages(All *x, int from);
static bool too_many(const All *x) { return x->count > x->most || x->steps > 40 * x->most; }

/* Devices for the stage at hand, kind by kind, then the stages behind it. */
static void all_devices(All *x, int kind, int end)
{
	Trial *t = x->t;
	const int s = t->n - 1;

	x->steps++;
	if (too_many(x))
		return;
	if (kind < x->kind.n) {
		const int have = x->left[kind];
		for (int k = 0; k <= have; k++) {
			x->left[kind] = have - k;
			all_devices(x, kind + 1, end);
			t->device[t->ndevice++] = x->kind.device[kind][x->kind.count[kind] - have + k];
			t->replicas[s]++;
		}
		t->ndevice -= have + 1;
		t->replicas[s] -= have + 1;
		x->left[kind] = have;
		return;
	}
	if (!t->replicas[s])
		return;
	if (end < x->s->p->st->n - 1) {
		all_stages(x, end);
		return;
	}
	x->count++;
	if (!x->counting)
		search_try(x->s, t);
}

static void all_stages(All *x, int from)
{
	const States *st = x->s->p->st;
	const int s = x->t->n++;

	for (int j = from + 1; j < st->n && !too_many(x); j++) {
		if (from >= 0 && !state_before(st, from, j))
			continue;
		x->t->end[s] = j;
		x->t->replicas[s] = 0;
		all_devices(x, 0, j);
	}
	x->t->n--;
}

bool propose_all(PlanSearch *s, double most)
{
	Arena *a = arena_new();
	All x = { .s = s, .kind = find_kinds(a, s->p), .most = most, .counting = true };
	const double budget = s->budget;
	const int deepest = s->p->st->n < s->p->c->ndevice ? s->p->st->n : s->p->c->ndevice;

	if (deepest > 1 &&
		(double)x.kind.n * deepest > 2e4) { /* far more than anyone asks for; the recursion is so deep */
		arena_free(a);
		return false;
	}
	x.left = NEWN(a, int, x.kind.n);
	x.t = trial_new(a, s->p->st->n + 1, s->p->c->ndevice + 1, "all plans");
	for (int pass = 0; pass < 2 && !too_many(&x); pass++) {
		memcpy(x.left, x.kind.count, sizeof *x.left * (size_t)x.kind.n);
		x.t->n = x.t->ndevice = 0;
		x.counting = !pass;
		x.count = x.steps = 0;
		s->budget = INFINITY;
		all_stages(&x, -1);
		s->budget = budget;
	}
	arena_free(a);
	return !too_many(&x);
}
