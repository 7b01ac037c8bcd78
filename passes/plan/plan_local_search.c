/* Local search (plan_search.h): from the best plans so far, one change at a time: a cut moves, a device goes from one
 * stage to another, joins, leaves or changes places with one of another stage, two stages become one, one becomes
 * two. Where the stages' devices change, the old cuts and the best ones for the new devices are tried. */
#include <math.h>
#include <string.h>
#include "plan_search.h"

/* A plan while it is changed: devices say which stage they belong to. */
typedef struct Draft {
	int n, nd, *end, *device, *owner;
} Draft;

typedef struct Local {
	PlanSearch *s;
	Arena *a;
	const Trial *from;
} Local;

static Draft draft_of(const Local *l)
{
	const Trial *t = l->from;
	const int nd = t->ndevice;
	Draft d = { t->n, nd, NEWN(l->a, int, t->n + 1), NEWN(l->a, int, nd + 1), NEWN(l->a, int, nd + 1) };

	memcpy(d.end, t->end, sizeof *t->end * (size_t)t->n);
	memcpy(d.device, t->device, sizeof *t->device * (size_t)t->ndevice);
	for (int s = 0, r = 0; s < t->n; s++)
		for (int k = 0; k < t->replicas[s]; k++)
			d.owner[r++] = s;
	return d;
}

static bool over(const Local *l) { return l->s->work >= l->s->budget; }

static void try_draft(Local *l, const Draft *d, bool recut)
{
	Trial *t = trial_new(l->a, d->n, d->nd, "local search");
	int r = 0;

	for (int s = 0; s < d->n; s++)
		for (int i = 0; i < d->nd; i++)
			if (d->owner[i] == s) {
				t->device[r++] = d->device[i];
				t->replicas[s]++;
			}
	for (int s = 0; s < d->n; s++)
		if (!t->replicas[s])
			return;
	memcpy(t->end, d->end, sizeof *t->end * (size_t)d->n);
	t->micro = trial_micro(l->s->p, t->n, t->replicas);
	search_try(l->s, t);
	if (recut && isfinite(cut_best(l->s, t)))
		search_try(l->s, t);
}

static void move_cuts(Local *l)
{
	static const int step[] = { 1, -1, 2, -2, 4, -4, 8, -8 };
	const States *st = l->s->p->st;

	for (int b = 0; b + 1 < l->from->n && !over(l); b++)
		for (size_t i = 0; i < sizeof step / sizeof *step; i++) {
			Draft d = draft_of(l);
			const int to = d.end[b] + step[i];
			if (to < 0 || to >= st->n)
				continue;
			d.end[b] = to;
			try_draft(l, &d, false);
		}
}

/* All pairs of stages where there are few, else neighbours. */
static bool pair(const Local *l, int x, int y) { return x != y && (l->from->n <= 12 || x - y == 1 || y - x == 1); }

static void move_devices(Local *l)
{
	const Trial *t = l->from;

	for (int s = 0, r = 0; s < t->n; r += t->replicas[s++])
		for (int to = 0; to < t->n && t->replicas[s] > 1 && !over(l); to++) {
			const int last = r + t->replicas[s] - 1;
			if (!pair(l, s, to))
				continue;
			for (int i = r; i <= last; i++) { /* each kind of device once, the last of it */
				Draft d = draft_of(l);
				if (i < last &&
					l->s->p->class_of[t->device[i]] == l->s->p->class_of[t->device[i + 1]] &&
					l->s->p->c->device[t->device[i]].host ==
						l->s->p->c->device[t->device[i + 1]].host)
					continue;
				d.owner[i] = to;
				try_draft(l, &d, true);
			}
		}
}

static void add_and_drop(Local *l)
{
	const Trial *t = l->from;
	const int n = l->s->p->c->ndevice;
	bool *used = NEWN(l->a, bool, n);
	int kind = -1;

	for (int r = 0; r < t->ndevice; r++)
		used[t->device[r]] = true;
	for (int d = 0; d < n && !over(l); d++) {
		if (used[d] || l->s->p->class_of[d] == kind)
			continue;
		kind = l->s->p->class_of[d];
		for (int s = 0; s < t->n; s++) {
			Draft x = draft_of(l);
			x.device[x.nd] = d;
			x.owner[x.nd++] = s;
			try_draft(l, &x, true);
		}
	}
	for (int s = 0, r = 0; s < t->n && !over(l); r += t->replicas[s++]) {
		Draft x = draft_of(l);
		if (t->replicas[s] < 2)
			continue;
		const int last = r + t->replicas[s] - 1;
		memmove(x.device + last, x.device + last + 1, sizeof *x.device * (size_t)(x.nd - last - 1));
		memmove(x.owner + last, x.owner + last + 1, sizeof *x.owner * (size_t)(x.nd - last - 1));
		x.nd--;
		try_draft(l, &x, true);
	}
}

/* Devices that differ by speed, memory or host change places. */
static void swap_devices(Local *l)
{
	const Trial *t = l->from;
	const Cluster *c = l->s->p->c;
	const Draft at = draft_of(l);

	for (int i = 0; i < t->ndevice; i++)
		for (int k = i + 1; k < t->ndevice && !over(l); k++) {
			const int x = t->device[i], y = t->device[k];
			if (!pair(l, at.owner[i], at.owner[k]) || (l->s->p->class_of[x] == l->s->p->class_of[y] &&
									  c->device[x].host == c->device[y].host &&
									  c->device[x].memory == c->device[y].memory))
				continue;
			Draft d = draft_of(l);
			d.device[i] = y;
			d.device[k] = x;
			try_draft(l, &d, true);
		}
}

static void join_stages(Local *l)
{
	const Trial *t = l->from;

	for (int s = 0; s + 1 < t->n && !over(l); s++) {
		Draft d = draft_of(l);
		memmove(d.end + s, d.end + s + 1, sizeof *d.end * (size_t)(d.n - s - 1));
		for (int i = 0; i < d.nd; i++)
			d.owner[i] -= d.owner[i] > s;
		d.n--;
		try_draft(l, &d, true);
	}
}

/* A stage of several devices becomes two, the first of `front` devices; the cut is where cut_best puts it. */
static void split_stages(Local *l)
{
	const Trial *t = l->from;

	for (int s = 0, r = 0; s < t->n; r += t->replicas[s++])
		for (int front = 1; front < t->replicas[s] && !over(l); front++) {
			Draft d = draft_of(l);
			const int before = s ? d.end[s - 1] : -1;
			if (t->replicas[s] > 8 && front != 1 && front != t->replicas[s] / 2 &&
				front != t->replicas[s] - 1)
				continue;
			memmove(d.end + s + 1, d.end + s, sizeof *d.end * (size_t)(d.n - s));
			d.end[s] = (before + 1 + d.end[s + 1]) / 2;
			d.n++;
			for (int i = 0; i < d.nd; i++)
				d.owner[i] += i >= r + front;
			try_draft(l, &d, true);
		}
}

static void neighbours(PlanSearch *s, const Trial *from)
{
	Local l = { s, arena_new(), from };

	move_cuts(&l);
	move_devices(&l);
	swap_devices(&l);
	add_and_drop(&l);
	join_stages(&l);
	split_stages(&l);
	arena_free(l.a);
}

/* ---- cuts alone ---- */

typedef struct Cuts {
	PlanSearch *s;
	Trial *t;
} Cuts;

static void all_cuts(Cuts *x, int stage, int from)
{
	const int last = x->s->p->st->n - 1;

	if (stage == x->t->n - 1) {
		x->t->end[stage] = last;
		search_try(x->s, x->t);
		return;
	}
	for (int j = from; j <= last - (x->t->n - 1 - stage); j++) {
		x->t->end[stage] = j;
		all_cuts(x, stage + 1, j + 1);
	}
}

void search_cuts(PlanSearch *s, const Trial *t)
{
	enum { ALL = 4000, ROUNDS = 100 };
	Cuts all = { s, trial_new(s->a, t->n, t->ndevice, t->by) };
	double count = 1;

	for (int i = 1; i < t->n; i++)
		count *= (double)(s->p->st->n - i) / i;
	memcpy(all.t->replicas, t->replicas, sizeof *t->replicas * (size_t)t->n);
	memcpy(all.t->device, t->device, sizeof *t->device * (size_t)t->ndevice);
	search_try(s, t);
	if (count <= ALL)
		all_cuts(&all, 0, 0);
	const Trial *was = NULL;
	for (int round = 0; count > ALL && s->best != was && round < ROUNDS; round++) {
		Local l = { s, arena_new(), was = s->best };
		move_cuts(&l);
		arena_free(l.a);
	}
}

/* ---- the search ---- */

/* Does the budget allow for playing its neighbours? */
static bool affordable(const PlanSearch *s, const Trial *t) { return search_effort(s->p, t) < s->budget / 30; }

/* By what they take; those that were not played, because they cannot be best, by what they take at least. */
static bool more_promising(const Trial *x, const Trial *y)
{
	const double v = isfinite(x->score) ? x->score : x->bound / (double)x->micro;
	const double w = isfinite(y->score) ? y->score : y->bound / (double)y->micro;

	if (x->over > 1 || y->over > 1 || x->refused || y->refused || fabs(v - w) <= 1e-9 * w)
		return trial_better(x, y);
	return v < w;
}

/* The best that has not been a starting point yet; those of very many actions only where there is no other. */
static int next_start(const PlanSearch *s, const bool *done, int ndone)
{
	int best = -1;
	bool cheap = false;

	for (int i = 0; i < s->n; i++) {
		const bool can = affordable(s, s->trial[i]);
		if ((i < ndone && done[i]) || (cheap && !can))
			continue;
		if (best < 0 || (can && !cheap) || more_promising(s->trial[i], s->trial[best]))
			best = i;
		cheap |= can;
	}
	return best;
}

void search_locally(PlanSearch *s)
{
	enum { STARTS = 8 }; /* others than the best, as long as that finds nothing */
	bool *done = NULL;
	int ndone = 0, idle = 0;

	while (idle < STARTS && s->work < s->budget && s->n) {
		const Trial *was = s->best;
		const int at = next_start(s, done, ndone);
		if (at < 0)
			break;
		bool *more = NEWN(s->a, bool, s->n);
		if (ndone)
			memcpy(more, done, sizeof *more * (size_t)ndone);
		done = more;
		ndone = s->n;
		done[at] = true;
		neighbours(s, s->trial[at]);
		idle = s->best == was ? idle + 1 : 0;
	}
}
