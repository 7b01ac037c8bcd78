/* DAPPLE's planner by the paper: the best plan by memoised search over cuts, device counts and placements (equations 4, 5),
 * with every prefix left out that cannot lead to a better plan than the best one known. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "dapple_job.h"

enum { ALL_SETS = 256 }; /* sets of devices that are all looked at */

/* ---- the search ---- */
/* The states up to j as finished stages on the devices `used`; everything behind is one stage on the other devices. */
typedef struct Prefix {
	double latency;      /* of the whole, the last stage included */
	int from, set, rank; /* the prefix in front of its last stage */
	DappleStage last;
} Prefix;

typedef struct Row {
	Prefix *prefix;
	int n;
} Row; /* best first, at most `width` */

typedef struct Search {
	Job j;
	Arena *a;
	int width, most; /* replicas at most: more would leave a device less than `least` samples */
	DappleSet all, *set;
	int nset, cap, **next, *nnext; /* per set those it can grow to */
	double **rate; /* .. and bytes/s at most from the devices that are new there to others behind them */
	Row *row;      /* [state + 1][set] */
	const DapplePublished *seed; /* plans to begin with; NULL: none */
	int *by_time;                /* states in the order of their times */
	DapplePlan best;
	long explored;
} Search;

static Row *row_of(const Search *s, int j, int set) { return &s->row[(size_t)(j + 1) * (size_t)s->nset + (size_t)set]; }

static int by_count(const void *a, const void *b)
{
	const DappleSet x = *(const DappleSet *)a, y = *(const DappleSet *)b;
	const int n = __builtin_popcountll(x) - __builtin_popcountll(y);

	return n ? n : x < y ? -1 : x > y;
}

static const DapplePolicy policies[] = { DAPPLE_FRESH, DAPPLE_APPEND, DAPPLE_SCATTER, DAPPLE_SPREAD };

static void add_set(Search *s, DappleSet set)
{
	for (int k = 0; k < s->nset; k++)
		if (s->set[k] == set)
			return;
	PUSH(s->a, s->set, s->nset, s->cap) = set;
}

/* Few enough to have them all: any number of devices of every server, the lowest ones (devices of a server are alike). */
static bool all_sets(Search *s)
{
	const DappleCluster *c = s->j.c;
	long n = 1;

	for (int i = 0; i < c->servers && n <= ALL_SETS; i++)
		n *= c->end[i] - (i ? c->end[i - 1] : 0) + 1;
	if (n > ALL_SETS || s->j.o->policies)
		return false;
	add_set(s, 0);
	for (int i = 0; i < c->servers; i++)
		for (int k = 0, known = s->nset; k < known; k++)
			for (DappleSet set = s->set[k], d = i ? c->end[i - 1] : 0; d < (DappleSet)c->end[i]; d++)
				add_set(s, set |= (DappleSet)1 << d);
	s->nset--; /* the last one made is the full one */
	return true;
}

/* What the placements reach from nothing, the full set excepted. */
static void reached_sets(Search *s)
{
	add_set(s, 0);
	for (int i = 0; i < s->nset; i++) {
		const int left = __builtin_popcountll(s->all & ~s->set[i]);
		for (int need = 1; need < left; need++)
			for (size_t y = 0; y < sizeof policies / sizeof *policies; y++) {
				const DappleSet given = dapple_place(s->j.c, s->set[i], need, policies[y]);
				if (given)
					add_set(s, s->set[i] | given);
			}
	}
}

static int set_index(const Search *s, DappleSet used)
{
	const DappleSet *at = bsearch(&used, s->set, (size_t)s->nset, sizeof *s->set, by_count);

	return at ? (int)(at - s->set) : -1;
}

/* The sets, few devices first, and what each can grow to. */
static void list_sets(Search *s)
{
	const bool all = all_sets(s);

	if (!all)
		reached_sets(s);
	qsort(s->set, (size_t)s->nset, sizeof *s->set, by_count);
	s->next = NEWN(s->a, int *, s->nset);
	s->nnext = NEWN(s->a, int, s->nset);
	for (int i = 0; i < s->nset; i++) {
		const int left = __builtin_popcountll(s->all & ~s->set[i]);
		int cap = 0;
		for (int k = i + 1; all && k < s->nset; k++)
			if (!(s->set[i] & ~s->set[k]))
				PUSH(s->a, s->next[i], s->nnext[i], cap) = k;
		for (int need = 1; !all && need < left; need++)
			for (size_t y = 0; y < sizeof policies / sizeof *policies; y++) {
				const DappleSet given = dapple_place(s->j.c, s->set[i], need, policies[y]);
				const int to = given ? set_index(s, s->set[i] | given) : -1;
				bool known = to < 0;
				for (int k = 0; k < s->nnext[i] && !known; k++)
					known = s->next[i][k] == to;
				if (!known)
					PUSH(s->a, s->next[i], s->nnext[i], cap) = to;
			}
	}
}

/* The most bytes per second from devices to what any stage behind them may have, rest: those that nothing uses then. */
static double best_rate(const Search *s, int set, DappleSet from)
{
	double rate = 1 / dapple_transfer(s->j.c, from, s->all & ~s->set[set], 1);

	for (int i = 0; i < s->nnext[set]; i++)
		rate = fmax(rate, 1 / dapple_transfer(s->j.c, from, s->set[s->next[set][i]] & ~s->set[set], 1));
	return rate;
}

static void list_rates(Search *s)
{
	s->rate = NEWN(s->a, double *, s->nset);
	for (int i = 0; i < s->nset; i++) {
		s->rate[i] = NEWN(s->a, double, s->nnext[i]);
		for (int k = 0; k < s->nnext[i]; k++)
			s->rate[i][k] = best_rate(s, s->next[i][k], s->set[s->next[i][k]] & ~s->set[i]);
	}
}

/* The stages of a prefix into stage[], the count of them. */
static int chain(const Search *s, int j, int set, int rank, DappleStage *stage)
{
	int n = 0;

	for (int k = j, x = set, r = rank; k >= 0;) {
		const Prefix *p = &row_of(s, k, x)->prefix[r];
		stage[n++] = p->last;
		k = p->from;
		x = p->set;
		r = p->rank;
	}
	for (int i = 0; i < n / 2; i++) {
		const DappleStage t = stage[i];
		stage[i] = stage[n - 1 - i];
		stage[n - 1 - i] = t;
	}
	for (int i = 0; i + 1 < n; i++) /* what a prefix was made with went to all devices that were left */
		job_link(&s->j, &stage[i], &stage[i + 1]);
	return n;
}

static void put_prefix(Search *s, int j, int set, const Prefix *new)
{
	Row *r = row_of(s, j, set);
	int at = r->n;

	if (!r->prefix)
		r->prefix = NEWN(s->a, Prefix, s->width);
	if (at == s->width && r->prefix[at - 1].latency <= new->latency)
		return;
	at -= at == s->width;
	for (; at && r->prefix[at - 1].latency > new->latency; at--)
		r->prefix[at] = r->prefix[at - 1];
	r->prefix[at] = *new;
	r->n += r->n < s->width;
}

/* ---- what is left out ---- */

/* The stages of a prefix with their transfers, as the choice of the pivot meets them. */
typedef struct Front {
	int n;
	double both[2 * MOST]; /* F + B */
	double bwd;            /* all B */
	double ar;             /* largest AR_s - sum of B in front of s */
} Front;

static void add_front(Front *f, double fwd, double bwd, double ar)
{
	f->ar = fmax(f->ar, ar - f->bwd);
	f->both[f->n++] = fwd + bwd;
	f->bwd += bwd;
}

/* What dapple_latency does with one more stage in front: x is (M-1)(F_Q + B_Q) of the pivot Q so far and all F + B between,
 * w is x and F_Q + B_Q. More of x and w never gives less of them (the pivot changes where x is less, and then to a w that
 * is no more than that of a pivot that stays). In the end the latency is w + the largest AR_s - sum of B in front of s. */
static inline void one_more(double m, double both, double *x, double *w)
{
	const bool pivot = (m - 1) * both * (1 + 1e-12) > *x;

	*w = pivot ? m * both : *w + both;
	*x = pivot ? (m - 1) * both : *x + both;
}

/* No plan that begins so and has `rest` seconds on some stage behind is faster: of that stage alone w is M rest. */
static double least_latency(const Search *s, const Front *f, double rest, double link, double new, double ar)
{
	const double m = s->j.m;
	double x = (m - 1) * rest, w = m * rest;

	one_more(m, link, &x, &w);
	one_more(m, new, &x, &w);
	for (int i = f->n - 1; i >= 0; i--)
		one_more(m, f->both[i], &x, &w);
	return w + fmax(f->ar, ar - f->bwd);
}

static bool hopeless(const Search *s, double latency)
{
	return !s->j.o->literal && latency >= s->best.latency * (1 + 1e-9);
}

/* One more stage (k, j] behind the n stages of a prefix; all the rest on what is left. */
static void extend(Search *s, DappleStage *stage, int n, const Prefix *from, int j, int to)
{
	const DappleSet used = s->set[to];
	DappleStage *new = &stage[n];
	Prefix p = *from;

	*new = job_stage(&s->j, from->from + 1, j + 1, used & ~s->set[from->set]);
	stage[n + 1] = job_stage(&s->j, j + 1, s->j.p->n, s->all & ~used);
	job_link(&s->j, new, &stage[n + 1]);
	stage[n + 1].transfer = 0;
	p.latency = job_latency(&s->j, stage, n + 2, NULL);
	p.last = *new;
	s->explored++;
	if (stage[n + 1].replicas <= s->most)
		job_keep(&s->j, &s->best, stage, n + 2, p.latency);
	put_prefix(s, j, to, &p);
}

/* The first state of by_time with at least this time. */
static int first_with(const Search *s, double time)
{
	int low = 0, high = s->j.p->n;

	while (low < high) {
		const int mid = low + (high - low) / 2;

		if (s->j.p->time[s->by_time[mid]] < time)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* All stages from behind k that use the devices of set i of those that follow the prefix's. Of the rest some stage has its
 * share of the work at least, so the stage ends neither too early nor too late to beat the best plan: a window of states by
 * their times. */
static void extend_to(Search *s, DappleStage *stage, int n, const Prefix *from, int i, Front *f)
{
	const DappleProfile *p = s->j.p;
	const int k = from->from, to = s->next[from->set][i], nfront = f->n;
	const DappleStage own = { .devices = s->set[to] & ~s->set[from->set] };
	const double part = s->j.part, nown = __builtin_popcountll(own.devices),
		     left = __builtin_popcountll(s->all & ~s->set[to]);
	const double before = k < 0 ? 0 : p->time[k], bytes = k < 0 ? 0 : p->params[k], all = p->time[p->n - 1];
	const double ar = dapple_allreduce(s->j.c, own.devices, 1), link = 2 * part / s->rate[from->set][i];
	const double share = (s->best.latency * (1 + 1e-9) - f->ar) / s->j.m / part;
	const double low = s->j.o->literal ? -INFINITY : all * (1 - 1e-12) - share * left;
	const double high = s->j.o->literal ? INFINITY : before * (1 + 1e-12) + share * nown;
	const double bwd = f->bwd;

	if (n) {
		job_link(&s->j, &stage[n - 1], &own);
		add_front(f, stage[n - 1].transfer, stage[n - 1].transfer, 0);
	}
	for (int x = first_with(s, low); x < p->n && p->time[s->by_time[x]] <= high; x++) {
		const int j = s->by_time[x];
		if (j > k && j + 1 < p->n && dapple_before(p, k, j) &&
			!hopeless(s, least_latency(s, f, (all - p->time[j]) * part / left, p->cut[j] * link,
					     (p->time[j] - before) * part / nown, ar * (p->params[j] - bytes))))
			extend(s, stage, n, from, j, to);
	}
	f->n = nfront;
	f->bwd = bwd;
}

static void extend_all(Search *s, int k, int set)
{
	const DappleProfile *p = s->j.p;
	DappleStage stage[MOST + 1];
	const int ranks = k < 0 ? 1 : row_of(s, k, set)->n, have = __builtin_popcountll(s->set[set]);
	const double rest = (p->time[p->n - 1] - (k < 0 ? 0 : p->time[k])) * s->j.part /
	                    __builtin_popcountll(s->all & ~s->set[set]);

	for (int rank = 0; rank < ranks; rank++) {
		const Prefix from = { .from = k, .set = set, .rank = rank };
		const int n = chain(s, k, set, rank, stage);
		Front f = { 0 };

		for (int i = 0; i < n; i++) {
			add_front(&f, stage[i].fwd, stage[i].bwd, stage[i].allreduce);
			if (i + 1 < n)
				add_front(&f, stage[i].transfer, stage[i].transfer, 0);
		}
		if (hopeless(s, least_latency(s, &f, rest, 0, 0, 0)))
			continue;
		for (int i = 0; i < s->nnext[set]; i++)
			if (__builtin_popcountll(s->set[s->next[set][i]]) - have <= s->most)
				extend_to(s, stage, n, &from, i, &f);
	}
}

static void sort_states(Search *s)
{
	const double *time = s->j.p->time;

	s->by_time = NEWN(s->a, int, s->j.p->n);
	for (int i = 0; i < s->j.p->n; i++) { /* states are nearly in this order */
		int at = i;
		for (; at && time[s->by_time[at - 1]] > time[i]; at--)
			s->by_time[at] = s->by_time[at - 1];
		s->by_time[at] = i;
	}
}

/* A plan of the published program, as it would run here. */
static void try_seed(Search *s, const DapplePlan *plan)
{
	DappleStage stage[MOST];
	DappleSet all = 0;

	for (int i = 0; i < plan->n; i++) {
		stage[i] = job_stage(&s->j, plan->stage[i].begin, plan->stage[i].end, plan->stage[i].devices);
		if (stage[i].replicas > s->most)
			return;
		if (i)
			job_link(&s->j, &stage[i - 1], &stage[i]);
		all |= stage[i].devices;
	}
	if (all == s->all)
		job_keep(&s->j, &s->best, stage, plan->n, job_latency(&s->j, stage, plan->n, NULL));
}

static void search(Search *s, int m)
{
	DappleStage one;

	job_set(&s->j, m);
	s->most = (int)(s->j.o->batch / m / s->j.o->least);
	memset(s->row, 0, sizeof *s->row * (size_t)(s->j.p->n + 1) * (size_t)s->nset);
	one = job_stage(&s->j, 0, s->j.p->n, s->all);
	if (one.replicas <= s->most)
		job_keep(&s->j, &s->best, &one, 1, job_latency(&s->j, &one, 1, NULL));
	for (int i = 0; s->seed && i < s->seed->n; i++)
		try_seed(s, &s->seed->candidate[i]);
	for (int k = -1; k + 2 < s->j.p->n; k++) /* a state follows those in front of it, a set those within it */
		for (int set = 0; set < s->nset; set++)
			if (k < 0 ? !s->set[set] : row_of(s, k, set)->n > 0)
				extend_all(s, k, set);
}

DapplePlan *dapple_plan(
	Arena *a, const DappleProfile *p, const DappleCluster *c, const DappleOptions *o, long *explored, Diag *d)
{
	int m[DAPPLE_DEVICES + 1];
	Search s = { .j = { .p = p, .c = c, .o = o, .needed = INFINITY }, .width = o->width > 0 ? o->width : 4 };

	if (!job_usable(p, c, o, d))
		return NULL;
	const int n = dapple_devices(c), nm = job_counts(c, o, m);
	s.all = n == 64 ? ~(DappleSet)0 : ((DappleSet)1 << n) - 1;
	s.a = arena_new();
	s.best = (DapplePlan){ .latency = INFINITY, .stage = NEWN(s.a, DappleStage, MOST + 1) };
	if (!o->policies && o->least >= 1 && n > 1 && o->batch == floor(o->batch))
		s.seed = dapple_published(s.a, p, c, o, d);
	list_sets(&s);
	list_rates(&s);
	sort_states(&s);
	s.row = NEWN(s.a, Row, (size_t)(p->n + 1) * (size_t)s.nset);
	for (int i = 0; i < nm; i++)
		search(&s, m[i]);
	if (explored)
		*explored = s.explored;
	DapplePlan *plan = job_result(a, &s.j, &s.best, d);
	arena_free(s.a);
	return plan;
}
