/* Plans for a schedule whose stages have equal replicas (plan_search.h): those of several stages on a device, and of one where a
 * schedule wants replicas alike. All numbers of stages, each with as many replicas as there are devices for, or as fill whole
 * hosts, or as divide a step's microbatches evenly; cut so that the slowest stage is fastest, the lighter stages being the last or
 * the first, and so that devices have the same to do in all; all cuts where there are few. Those that may be best by their bounds
 * are played, the most likely first. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "passes/schedule/placement.h"
#include "plan_search.h"

enum { FEW_CUTS = 200 };

typedef struct Chunks {
	PlanSearch *s;
	const PlanModel *p;
	ScheduleSpec schedule;
	double least; /* seconds per microbatch that others have */
	struct Found {
		Trial **of;
		int n, cap;
	} found, late; /* late: cut as late_cut does; they are played behind the others, with a budget of their own */
	const Trial *best;
} Chunks;

/* ---- cuts ---- */

/* What every device computes of a microbatch, its stages together. */
typedef struct Balance {
	const PlanModel *p;
	Trial *t;
	const int *group; /* by stage */
	int *at;          /* by stage: its last place, as an index into PlanModel.place */
	double *load;     /* by group */
	int ngroup;
	double work, most_work; /* of the search: stages that were looked at */
} Balance;

static double stage_seconds(const Balance *b, int s, int first, int last)
{
	const PlanModel *p = b->p;
	const double *sum = p->sum[p->class_of[b->t->device[s * b->t->replicas[0]]]];

	return sum[p->place[last]] - (first < 0 ? 0 : sum[p->place[first]]);
}

/* The cut behind stage s when a place is on its way from stage `from` to stage `to`. */
static int cut_behind(const Balance *b, int s, int from, int to)
{
	return b->at[s] + (from < to ? -(s >= from && s < to) : (s >= to && s < from));
}

/* Whether the stages that change stay stages: they follow one another, and none loses its last parameter. */
static bool legal(Balance *b, int from, int to)
{
	const PlanModel *p = b->p;
	const int low = from < to ? from : to, high = from < to ? to : from;

	for (int s = low; s <= high; s++) {
		const int first = s ? cut_behind(b, s - 1, from, to) : -1, last = cut_behind(b, s, from, to);
		const int old = s ? b->at[s - 1] : -1;
		if (last <= first || (first >= 0 && !state_before(p->st, p->place[first], p->place[last])))
			return false;
		const double has = p->sum_param[p->place[last]] - (first < 0 ? 0 : p->sum_param[p->place[first]]);
		const double had = p->sum_param[p->place[b->at[s]]] - (old < 0 ? 0 : p->sum_param[p->place[old]]);
		if (had > 0 && has <= 0)
			return false;
	}
	return true;
}

/* The largest load, and the squares of all, when a place goes from one stage to another; load: what they are then. */
static void moved(Balance *b, int from, int to, double *load, double *most, double *squares)
{
	const int low = from < to ? from : to, high = from < to ? to : from;

	memcpy(load, b->load, sizeof *load * (size_t)b->ngroup);
	for (int s = low; s <= high && from != to; s++)
		load[b->group[s]] +=
			stage_seconds(b, s, s ? cut_behind(b, s - 1, from, to) : -1, cut_behind(b, s, from, to)) -
			stage_seconds(b, s, s ? b->at[s - 1] : -1, b->at[s]);
	*most = *squares = 0;
	for (int g = 0; g < b->ngroup; g++) {
		*most = fmax(*most, load[g]);
		*squares += load[g] * load[g];
	}
	b->work += b->ngroup + high - low;
}

/* Moves one place from a stage to where that helps most; false: nowhere. Of many stages those of the busiest device are looked at. */
static bool relieve(Balance *b, double *load)
{
	enum { FEW = 24 };
	double most, squares, least_most, least_squares;
	int from = -1, to = -1, busy = 0;

	moved(b, 0, 0, load, &least_most, &least_squares);
	for (int g = 1; g < b->ngroup; g++)
		busy = b->load[g] > b->load[busy] ? g : busy;
	for (int i = 0; i < b->t->n; i++) {
		for (int k = 0; k < b->t->n && b->work < b->most_work; k++) {
			if (i == k || (b->t->n > FEW && (b->group[i] != busy || b->group[k] == busy)) ||
				!legal(b, i, k))
				continue;
			moved(b, i, k, load, &most, &squares);
			const bool same = most < least_most * (1 + 1e-9) && most > least_most * (1 - 1e-9);
			if (same ? squares < least_squares * (1 - 1e-9) : most < least_most) {
				least_most = most;
				least_squares = squares;
				from = i;
				to = k;
			}
		}
	}
	if (from < 0)
		return false;
	moved(b, from, to, load, &most, &squares);
	memcpy(b->load, load, sizeof *load * (size_t)b->ngroup);
	int *at = b->at;
	for (int s = from < to ? from : to; s < (from < to ? to : from); s++)
		at[s] += from < to ? -1 : 1;
	return true;
}

/* Moves cuts until no device can be relieved; false: none moved. */
static bool balance(const PlanModel *p, Trial *t, const Placement *place)
{
	Arena *a = arena_new();
	Balance b = { .p = p,
		.t = t,
		.group = place->group,
		.at = NEWN(a, int, t->n),
		.load = NEWN(a, double, place->ngroup),
		.ngroup = place->ngroup,
		.most_work = 1e6 };
	double *load = NEWN(a, double, place->ngroup);
	bool any = false;

	for (int s = 0, i = 0; s < t->n; s++) {
		while (p->place[i] < t->end[s])
			i++;
		b.at[s] = i;
		b.load[b.group[s]] += stage_seconds(&b, s, s ? b.at[s - 1] : -1, b.at[s]);
	}
	while (b.work < b.most_work && relieve(&b, load))
		any = true;
	for (int s = 0; s < t->n; s++)
		t->end[s] = p->place[b.at[s]];
	arena_free(a);
	return any;
}

/* ---- plans ---- */

static Trial *new_trial(const Chunks *c, int n, int replicas, const Placement *at)
{
	Trial *t = trial_new(c->s->a, n, n * replicas, "chunks");

	for (int i = 0, k = 0; i < n; i++) {
		t->replicas[i] = replicas;
		for (int r = 0; r < replicas; r++)
			t->device[k++] = at->rank[i] + r;
	}
	t->micro = trial_micro(c->p, n, t->replicas);
	return t;
}

static void keep(Chunks *c, struct Found *to, Trial *t)
{
	trial_judge(c->p, t);
	PUSH(c->s->a, to->of, to->n, to->cap) = t;
}

/* All cuts behind stage s, where there are few. */
static void all_cuts(Chunks *c, Trial *t, int s, int from)
{
	const int n = t->n, places = c->p->nplace;

	for (int at = from; at < places - (n - 1 - s) && s + 1 < n; at++) {
		t->end[s] = c->p->place[at];
		if (!s || state_before(c->p->st, t->end[s - 1], t->end[s]))
			all_cuts(c, t, s + 1, at + 1);
	}
	t->end[s] = c->p->place[places - 1];
	if (s + 1 < n || !state_before(c->p->st, t->end[s - 1], t->end[s]) || !plan_keeps_pins(c->p, t, NULL))
		return;
	keep(c, &c->found, trial_copy(c->s->a, t));
}

/* How many there are. */
static double cuts(const Chunks *c, int n)
{
	double count = 1;

	for (int i = 1; i < n; i++)
		count *= (double)(c->p->nplace - i) / i;
	return count;
}

/* The same slowest stage, but the stages that begin a step are those with less to do: the others wait for them. False: there is no
 * such cut. */
static bool late_cut(const PlanModel *p, Trial *t)
{
	const Balance b = { .p = p, .t = t };
	double most = 0;
	int end = p->nplace - 1;

	for (int s = 0, i = 0, before = -1; s < t->n; before = i, s++) {
		while (p->place[i] < t->end[s])
			i++;
		most = fmax(most, stage_seconds(&b, s, before, i));
	}
	for (int s = t->n - 1; s >= 0; s--) {
		int before = s ? end - 1 : -1;
		while (before >= s && s && stage_seconds(&b, s, before - 1, end) <= most * (1 + 1e-9))
			before--;
		if (end < s || stage_seconds(&b, s, before, end) > most * (1 + 1e-9) ||
			(before >= 0 && !state_before(p->st, p->place[before], p->place[end])))
			return false;
		t->end[s] = p->place[end];
		end = before;
	}
	return true;
}

/* All work divided over the devices in use: it takes at least that, however it is cut. */
static bool hopeless(const Chunks *c, const Trial *t, const Placement *at)
{
	double least = INFINITY;

	for (int k = 0; k < c->p->nclass; k++)
		least = fmin(least, c->p->sum[k][c->p->st->n - 1]);
	return least / (at->ngroup * (double)t->replicas[0]) >= c->least;
}

/* False: the schedule has no such plan, which is said. */
static bool propose(Chunks *c, int n, int replicas, Diag *d)
{
	Placement at;
	Trial *t;
	int *all = NEWN(c->s->a, int, n);

	for (int i = 0; i < n; i++)
		all[i] = replicas;
	if (!plan_place(c->s->a, c->schedule, n, all, &at, d))
		return false;
	t = new_trial(c, n, replicas, &at);
	if (hopeless(c, t, &at) || !isfinite(cut_best(c->s, t)))
		return true;
	if (at.ngroup == n) {
		keep(c, &c->found, t);
		return true;
	}
	if (cuts(c, n) <= FEW_CUTS) {
		all_cuts(c, t, 0, 0);
		return true;
	}
	Trial *even = trial_copy(c->s->a, t), *late = trial_copy(c->s->a, t);
	keep(c, &c->found, t);
	if (balance(c->p, even, &at) && plan_keeps_pins(c->p, even, NULL))
		keep(c, &c->found, even);
	if (late_cut(c->p, late) && memcmp(late->end, t->end, sizeof *t->end * (size_t)n)) {
		balance(c->p, late, &at);
		if (plan_keeps_pins(c->p, late, NULL))
			keep(c, &c->late, late);
	}
	return true;
}

/* Devices of each host where they are as many everywhere; else 1. */
static int per_host(const Cluster *c)
{
	const int n = c->nhost > 0 ? c->ndevice / c->nhost : 1;

	for (int d = 0; d < c->ndevice; d++)
		if (n < 1 || c->nhost < 1 || c->device[d].host != d / n)
			return 1;
	return n;
}

/* The most replicas, the most that fill whole hosts (alone, where that leaves few devices idle: sums over parts of hosts take long), the
 * most that divide the microbatches. */
static int counts(const Chunks *c, int most, int of[3])
{
	const int host = per_host(c->p->c);
	int n = 0;

	most = c->p->global && c->p->global < most ? (int)c->p->global : most;
	int even = most;
	if (most < 4 * host || most % host == 0)
		of[n++] = most;
	if (most > host && most % host)
		of[n++] = most - most % host;
	while (c->p->global && even > 1 && c->p->global % even)
		even--;
	if (even > 0.75 * most && even != of[0] && even != of[n - 1])
		of[n++] = even;
	return n;
}

/* What a plan may come to: work and sums, and what the first and the last microbatch wait for messages on their way, those of all
 * replicas of a host at once. */
static double guess(const PlanModel *p, const Trial *t)
{
	double wait = 0;

	for (int s = 1; s < t->n; s++) {
		const int *from = &t->device[(s - 1) * t->replicas[0]], *to = from + t->replicas[0];
		const Link l = cluster_link(p->c, from[0], to[0]);
		int n = 1;
		while (n < t->replicas[0] && p->c->device[from[n]].host == p->c->device[from[0]].host &&
			p->c->device[to[0]].host != p->c->device[from[0]].host)
			n++;
		wait += 2 * (l.latency + (l.bandwidth > 0 ? n * p->st->s[t->end[s - 1]].cut / l.bandwidth : 0));
	}
	return (t->likely + wait) / (double)t->micro;
}

typedef struct Guess {
	double of;
	Trial *t;
} Guess;

static int by_guess(const void *x, const void *y)
{
	const Guess *a = x, *b = y;

	return a->of != b->of ? (a->of > b->of) - (a->of < b->of) : trial_better(b->t, a->t) - trial_better(a->t, b->t);
}

/* Gives a plan that the schedule cannot have, where there is one among those that were to be played. */
static const Trial *play_all(Chunks *c, const struct Found *f, double most)
{
	Diag silent = { .out = stderr, .errors = 1, .scratch = c->s->a };
	Guess *all = NEWN(c->s->a, Guess, f->n);
	const Trial *refused = NULL;
	double work = 0;

	for (int i = 0; i < f->n; i++)
		all[i] = (Guess){ guess(c->p, f->of[i]), f->of[i] };
	if (f->n)
		qsort(all, (size_t)f->n, sizeof *all, by_guess);
	for (int i = 0; i < f->n; i++) {
		Trial *t = all[i].t;
		const double least = c->best && c->best->over <= 1 ? fmin(c->least, c->best->score) : c->least;
		const bool fits = t->over <= 1, worse = c->best && c->best->over <= t->over && !fits;
		if (worse || (fits && t->bound / (double)t->micro >= least) || (c->best && work >= most))
			continue;
		if (!trial_possible(c->p, t, &silent)) {
			refused = refused ? refused : t;
			continue;
		}
		trial_play(c->p, t);
		work += search_effort(c->p, t);
		c->s->played++;
		c->best = trial_better(t, c->best) ? t : c->best;
	}
	return refused;
}

const Trial *equal_plan(PlanSearch *s, ScheduleSpec schedule, double least, NoPlan *why, Diag *d)
{
	const int chunks = schedule_chunks(schedule), ndev = s->p->c->ndevice;
	Chunks c = { .s = s, .p = s->p, .schedule = schedule, .least = least };

	*why = NO_PLACES;
	s->cut_budget = INFINITY;
	for (int n = chunks; n <= ndev * chunks && n <= s->p->nplace; n += chunks) {
		int of[3], *replicas = NEWN(s->a, int, n);
		const int k = counts(&c, ndev * chunks / n, of);
		for (int i = 0; i < k; i++) {
			for (int r = 0; r < n; r++)
				replicas[r] = of[i];
			if (!plan_allowed(s->p, n, replicas))
				*why = NO_LEAVE;
			else if (!propose(&c, n, of[i], d)) {
				*why = NO_SCHEDULE;
				return NULL;
			}
		}
	}
	const Trial *refused = play_all(&c, &c.found, s->budget / 6);
	play_all(&c, &c.late, s->budget / 12);
	if (!c.best && refused) {
		*why = NO_SCHEDULE;
		trial_possible(c.p, refused, d);
	}
	return c.best;
}
