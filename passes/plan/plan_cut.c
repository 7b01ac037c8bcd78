/* Where to cut for given replicas and devices (plan_search.h, cut_best), and which devices to take. */
#include <math.h>
#include "plan_search.h"

static const double NO_PARAM = 1e6, TOO_BIG = 1e9, PINNED = 1e15; /* seconds: more than any real stage takes */

/* One stage of the plan at hand. */
typedef struct Slot {
	const bool *on; /* by class: one of its devices is of it */
	int stage;
	double replicas, senders;  /* senders: the lesser of both sides of the cut in front */
	double bandwidth, latency; /* of the slowest link over that cut */
	double limit, inflight, versions;
} Slot;

typedef struct Cutter {
	const PlanModel *p;
	const Trial *t;
	Slot *slot;
	double work;
} Cutter;

/* The slowest link between the devices of neighbouring stages; of large stages a few devices are looked at. */
static void link_between(const PlanModel *p, const int *x, int nx, const int *y, int ny, Slot *s)
{
	enum { MOST = 8 };
	const int dx = nx / MOST + 1, dy = ny / MOST + 1;

	s->bandwidth = INFINITY;
	for (int i = 0; i < nx; i += dx)
		for (int k = 0; k < ny; k += dy) {
			const Link l = cluster_link(p->c, x[i], y[k]);
			s->latency = fmax(s->latency, l.latency);
			s->bandwidth = l.bandwidth > 0 ? fmin(s->bandwidth, l.bandwidth) : s->bandwidth;
		}
}

static Slot *slots(Arena *a, const PlanModel *p, const Trial *t)
{
	Slot *s = NEWN(a, Slot, t->n);
	int later = t->ndevice, r = 0;

	for (int i = 0; i < t->n; i++) {
		bool *on = NEWN(a, bool, p->nclass);
		const int n = t->replicas[i];
		s[i] = (Slot){ .on = on, .stage = i, .replicas = n, .senders = n, .limit = INFINITY };
		for (int k = r; k < r + n; k++) {
			const double memory = (double)p->c->device[t->device[k]].memory;
			on[p->class_of[t->device[k]]] = true;
			s[i].limit = memory > 0 ? fmin(s[i].limit, memory) : s[i].limit;
		}
		if (i) {
			link_between(
				p, t->device + r - t->replicas[i - 1], t->replicas[i - 1], t->device + r, n, &s[i]);
			s[i].senders = fmin(n, t->replicas[i - 1]);
		}
		s[i].inflight = fmin((later + n - 1) / n, trial_each(p) ? INFINITY : (double)trial_share(p, t, i));
		s[i].versions = trial_versions(p, t, i);
		later -= n;
		r += n;
	}
	return s;
}

static double span(const double *sum, int k, int j) { return sum[j] - (k < 0 ? 0 : sum[k]); }

static double work_time(const PlanModel *p, const Slot *s, int k, int j)
{
	double t = 0;

	for (int c = 0; c < p->nclass; c++)
		if (s->on[c])
			t = fmax(t, span(p->sum[c], k, j));
	return t / s->replicas;
}

static double cut_time(const PlanModel *p, const Slot *s, int k)
{
	return k < 0 ? 0 : 2 * (s->latency + p->st->s[k].cut / s->bandwidth) / s->senders;
}

/* What the stage (k, j] is fined for, in seconds. */
static double fine(const PlanModel *p, const Slot *s, int k, int j)
{
	double f = (span(p->sum_param, k, j) > 0 ? 0 : NO_PARAM) + PINNED * pins_broken(p, s->stage, k, j);

	if (isfinite(s->limit)) {
		const double borders = (k < 0 ? 0 : 2 * p->st->s[k].cut) + p->st->s[j].cut;
		const double parts = plan_zero(p, s->stage) ? s->replicas : 1;
		const double need =
			p->memory_scale * ((1 + s->versions + p->state / parts) * span(p->sum_weight, k, j) +
						  s->inflight * (span(p->sum_kept, k, j) + borders));
		f += need > s->limit ? TOO_BIG * need / s->limit : 0;
	}
	return f;
}

/* The best last cut of a stage that ends with place j; f: of the stages before it, by their last place. */
static int best_cut(Cutter *c, const Slot *s, const double *f, int j, double *least)
{
	const States *st = c->p->st;
	const int *at = c->p->place;
	int from = -2;

	for (int k = j - 1; k >= 0; k--) {
		if (!state_before(st, at[k], at[j]))
			continue;
		c->work++;
		const double t = work_time(c->p, s, at[k], at[j]);
		if (st->total && t >= *least)
			break; /* it only grows from here on */
		if (!isfinite(f[k]) || t >= *least || f[k] >= *least)
			continue;
		const double worst = fmax(fmax(f[k], t + fine(c->p, s, at[k], at[j])), cut_time(c->p, s, at[k]));
		if (worst < *least) {
			*least = worst;
			from = k;
		}
	}
	return from;
}

double slowest_stage(const PlanModel *p, const Trial *t)
{
	Arena *a = arena_new();
	const Slot *s = slots(a, p, t);
	double worst = 0;

	for (int i = 0; i < t->n; i++) {
		const int k = i ? t->end[i - 1] : -1;
		worst = fmax(worst, fmax(work_time(p, &s[i], k, t->end[i]), cut_time(p, &s[i], k)));
	}
	arena_free(a);
	return worst;
}

double cut_best(PlanSearch *x, Trial *t)
{
	const PlanModel *p = x->p;
	const int n = p->nplace, *at = p->place;
	Arena *a = arena_new();
	Cutter c = { .p = p, .t = t, .slot = slots(a, p, t) };
	double *f = NEWN(a, double, n), *g = NEWN(a, double, n);
	int *from = NEWN(a, int, (size_t)t->n *(size_t)n);
	bool found = t->n <= n && x->cut_work < x->cut_budget;

	for (int s = 0; s < t->n && found; s++) {
		const int last = s + 1 < t->n ? 0 : n - 1; /* the last stage ends with the last state */
		for (int j = last; j < n; j++) {
			double least = s ? INFINITY : work_time(p, c.slot, -1, at[j]) + fine(p, c.slot, -1, at[j]);
			from[s * n + j] = s ? best_cut(&c, &c.slot[s], f, j, &least) : -1;
			g[j] = least;
		}
		for (int j = 0; j < n; j++)
			f[j] = j < last ? INFINITY : g[j];
	}
	x->cut_work += c.work + 1;
	found = found && isfinite(f[n - 1]);
	for (int s = t->n - 1, j = n - 1; s >= 0 && found; s--) {
		t->end[s] = at[j];
		j = from[s * n + j];
	}
	arena_free(a);
	return found ? slowest_stage(p, t) : INFINITY;
}

/* ---- devices ---- */

typedef struct Hosts {
	int *used, *free, n;
	int *given;       /* to the stage at hand */
	int least, from;  /* scatter: hosts before `from` have given more than `least`, or have nothing left */
	int **left, *put; /* every host's devices in the order of the file, and how many of them are given */
} Hosts;

static double speed_of(const PlanModel *p, int device) { return p->sum[p->class_of[device]][p->st->n - 1]; }

/* The host that gives the next device to a stage; -1: none of that kind. Fresh: nothing of it is in use, the largest
 * first; append: the one in use with the fewest devices left; scatter: the one that has given the stage least. */
static int next_host(const Hosts *h, PlacePolicy policy)
{
	int best = -1;

	for (int i = 0; i < h->n; i++) {
		const int own = h->given[i], before = h->used[i] - own;
		if (!h->free[i] || (policy == PLACE_FRESH && before) || (policy == PLACE_APPEND && !h->used[i]))
			continue;
		if (best < 0 || (policy == PLACE_APPEND                     ? h->free[i] < h->free[best]
					: policy == PLACE_SCATTER           ? own < h->given[best]
					: (own > 0) != (h->given[best] > 0) ? own > 0
									    : h->free[i] > h->free[best]))
			best = i;
	}
	return best;
}

static int scattered(Hosts *h)
{
	for (; h->from < h->n; h->from++)
		if (h->free[h->from] && h->given[h->from] <= h->least)
			return h->from;
	const int best = next_host(h, PLACE_SCATTER);
	if (best >= 0) {
		h->least = h->given[best];
		h->from = best;
	}
	return best;
}

static int host_of(const Cluster *c, int device) { return c->nhost ? c->device[device].host : 0; }

static Hosts all_free(Arena *a, const Cluster *c)
{
	const int n = c->nhost > 0 ? c->nhost : 1;
	Hosts h = { .used = NEWN(a, int, n),
		.free = NEWN(a, int, n),
		.n = n,
		.given = NEWN(a, int, n),
		.left = NEWN(a, int *, n),
		.put = NEWN(a, int, n) };
	int *count = NEWN(a, int, n);

	for (int d = 0; d < c->ndevice; d++)
		h.free[host_of(c, d)]++;
	for (int i = 0; i < n; i++)
		h.left[i] = NEWN(a, int, h.free[i]);
	for (int d = 0; d < c->ndevice; d++)
		h.left[host_of(c, d)][count[host_of(c, d)]++] = d;
	return h;
}

/* A host that was the choice among fresh ones, or among those in use, stays it until it is empty: it is the one that the
 * stage has, or that has fewest devices left. So hosts are looked through once per host, not once per device. */
static void by_host(const PlanModel *p, Trial *t, PlacePolicy policy)
{
	Arena *a = arena_new();
	Hosts h = all_free(a, p->c);

	for (int s = 0, r = 0; s < t->n; s++) {
		int host = -1;
		bool stays = false;
		memset(h.given, 0, sizeof *h.given * (size_t)h.n);
		h.least = h.from = 0;
		for (int k = 0; k < t->replicas[s]; k++, r++) {
			if (!stays || !h.free[host]) {
				host = policy == PLACE_SCATTER ? scattered(&h) : next_host(&h, policy);
				stays = host >= 0 && policy != PLACE_SCATTER;
			}
			host = host >= 0 ? host : next_host(&h, PLACE_FRESH);
			host = host >= 0 ? host : scattered(&h);
			h.given[host]++;
			h.used[host]++;
			h.free[host]--;
			t->device[r] = h.left[host][h.put[host]++];
		}
	}
	arena_free(a);
}

void place_trial(const PlanModel *p, Trial *t, PlacePolicy policy)
{
	Arena *a;
	int *order;

	if (policy == PLACE_FRESH || policy == PLACE_APPEND || policy == PLACE_SCATTER) {
		by_host(p, t, policy);
		return;
	}
	a = arena_new();
	order = NEWN(a, int, p->c->ndevice);
	for (int d = 0; d < p->c->ndevice; d++) {
		int k = d;
		for (; k > 0 && policy != PLACE_ORDER; k--) { /* stable: among equals in the order of the file */
			const double x = speed_of(p, d), y = speed_of(p, order[k - 1]);
			if (policy == PLACE_FAST ? x >= y : x <= y)
				break;
			order[k] = order[k - 1];
		}
		order[k] = d;
	}
	for (int r = 0; r < t->ndevice; r++) /* a plan of few devices takes the fast ones, whatever their order */
		t->device[r] = policy == PLACE_SLOW ? order[p->c->ndevice - t->ndevice + r] : order[r];
	arena_free(a);
}
