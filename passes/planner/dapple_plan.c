/* DAPPLE's planner by the paper: the latency of a synchronous pipeline with a pivot stage (equations 1 to 3), the best plan
 * by memoised search over cuts, device counts and placements (4, 5), and every plan there is, for small cases. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "dapple.h"

enum { MOST = DAPPLE_DEVICES, ALL_SETS = 256 };     /* stages; sets of devices that are all looked at */

double dapple_latency(int n, const double *fwd, const double *bwd, const double *ar, int m, bool literal, int *pivot)
{
	int q = n - 1;
	double between = 0, warm = 0, end = -INFINITY, b = 0;

	for (int s = n - 2; s >= 0; s--) {      /* between: of the stages behind s and in front of q */
		if ((m - 1) * (fwd[s] + bwd[s]) > (m - 1) * (fwd[q] + bwd[q]) + between) {
			q = s;
			between = 0;
		} else {
			between += fwd[s] + bwd[s];
		}
	}
	for (int s = 0; s <= q; s++)
		warm += fwd[s];
	for (int s = q; s >= 0; s--) {
		b += bwd[s];
		end = fmax(end, ar[s] + (literal && s == q ? -b : b));
	}
	b = literal ? bwd[q] : 0;
	for (int s = q + 1; s < n; s++) {
		if (literal)
			b += bwd[s];
		end = fmax(end, ar[s] - b);
		if (!literal)
			b += bwd[s];
	}
	if (pivot)
		*pivot = q;
	return warm + (m - 1) * (fwd[q] + bwd[q]) + end;
}

/* ---- stages ---- */
typedef struct Job {
	const DappleProfile *p;
	const DappleCluster *c;
	const DappleOptions *o;
	double part;        /* a microbatch as a share of the profiled batch */
	double scaling;
	int    m;           /* microbatches */
	double needed;      /* the least memory that some plan met */
} Job;

static double behind(const double *sum, int begin, int end) { return sum[end - 1] - (begin ? sum[begin - 1] : 0); }

static void set_job(Job *j, int m)
{
	j->m = m;
	j->part = j->o->batch / j->o->profiled / m;
	j->scaling = j->o->scaling > 0 ? j->o->scaling : 1;
}

static double weight_bytes(const Job *j, const DappleStage *s) { return j->scaling * behind(j->p->params, s->begin, s->end); }

static double slice_bytes(const Job *j, const DappleStage *s)
{
	return behind(j->p->act, s->begin, s->end) * j->part / s->replicas;
}

static DappleStage stage_of(const Job *j, int begin, int end, DappleSet devices)
{
	DappleStage s = { .begin = begin, .end = end, .devices = devices, .replicas = __builtin_popcountll(devices) };
	const double time = behind(j->p->time, begin, end) * j->part / s.replicas;

	s.fwd = behind(j->p->fwd, begin, end) * j->part / s.replicas;
	s.bwd = fmax(time - s.fwd, 0);
	s.allreduce = dapple_allreduce(j->c, devices, behind(j->p->params, begin, end));
	s.memory = weight_bytes(j, &s) + slice_bytes(j, &s);        /* depth 1; finish() knows better */
	return s;
}

static void link_stages(const Job *j, DappleStage *s, const DappleStage *next)
{
	s->transfer = dapple_transfer(j->c, s->devices, next->devices, j->p->cut[s->end - 1] * j->part);
}

static double latency(const Job *j, const DappleStage *s, int n, int *pivot)
{
	double f[2 * MOST], b[2 * MOST], ar[2 * MOST];

	for (int i = 0; i < n; i++) {
		f[2 * i] = s[i].fwd;
		b[2 * i] = s[i].bwd;
		ar[2 * i] = s[i].allreduce;
		f[2 * i + 1] = b[2 * i + 1] = s[i].transfer;
		ar[2 * i + 1] = 0;
	}
	return dapple_latency(2 * n - 1, f, b, ar, j->m, j->o->literal, pivot);
}

static bool fits(Job *j, const DappleStage *s, int n)
{
	double most = 0;

	for (int i = 0; i < n; i++)
		most = fmax(most, s[i].memory);
	if (j->c->memory <= 0 || most <= j->c->memory)
		return true;
	j->needed = fmin(j->needed, most);
	return false;
}

/* Warm-up depths K_i by policy, memory at that depth, the latency. */
static void finish(const Job *j, DapplePlan *plan)
{
	for (int i = 0; i < plan->n; i++) {
		DappleStage *s = &plan->stage[i];
		const double slice = slice_bytes(j, s), left = j->c->memory - weight_bytes(j, s);
		const int after = plan->n - i, want = j->o->warmup == 'B' ? 2 * after - 1 : after;
		int depth = want < j->m ? want : j->m;
		if (j->c->memory > 0 && slice * depth > left)
			depth = (int)fmax(1, floor(left / slice));
		s->depth = depth;
		s->memory = weight_bytes(j, s) + depth * slice;
	}
	plan->copies = 1;
	plan->microbatches = j->m;
	plan->latency = latency(j, plan->stage, plan->n, &plan->pivot);
	plan->speedup = j->p->time[j->p->n - 1] * j->part * j->m / plan->latency;
}

bool dapple_evaluate(const DappleProfile *p, const DappleCluster *c, const DappleOptions *o, DapplePlan *plan)
{
	Job j = { .p = p, .c = c, .o = o, .needed = INFINITY };

	set_job(&j, plan->microbatches);
	for (int i = plan->n; i-- > 0;) {
		plan->stage[i] = stage_of(&j, plan->stage[i].begin, plan->stage[i].end, plan->stage[i].devices);
		if (i + 1 < plan->n)
			link_stages(&j, &plan->stage[i], &plan->stage[i + 1]);
	}
	const bool ok = fits(&j, plan->stage, plan->n);
	finish(&j, plan);
	return ok;
}

/* ---- the search ---- */
/* The states up to j as finished stages on the devices `used`; everything behind is one stage on the other devices. */
typedef struct Prefix {
	double      latency;    /* of the whole, the last stage included */
	int         from, set, rank;    /* the prefix in front of its last stage */
	DappleStage last;
} Prefix;

typedef struct Row { Prefix *prefix; int n; } Row;     /* best first, at most `width` */

typedef struct Search {
	Job        j;
	Arena     *a;
	int        width, most;     /* replicas at most: more would leave a device less than `least` samples */
	DappleSet  all, *set;
	int        nset, cap, **next, *nnext;   /* per set those it can grow to */
	Row       *row;             /* [state + 1][set] */
	const DapplePublished *seed;            /* plans to begin with; NULL: none */
	DapplePlan best;
	long       explored;
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
	s->nset--;          /* the last one made is the full one */
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
	for (int i = 0; i + 1 < n; i++)         /* what a prefix was made with went to all devices that were left */
		link_stages(&s->j, &stage[i], &stage[i + 1]);
	return n;
}

static void keep_best(Search *s, const DappleStage *stage, int n, double time)
{
	if (time >= s->best.latency || !fits(&s->j, stage, n))
		return;
	memcpy(s->best.stage, stage, sizeof *stage * (size_t)n);
	s->best.n = n;
	s->best.microbatches = s->j.m;
	s->best.latency = time;
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

/* One more stage (k, j] on `devices` behind the n stages of a prefix; all the rest on what is left. */
static void extend(Search *s, DappleStage *stage, int n, const Prefix *from, int j, int to)
{
	const DappleSet used = s->set[to];
	DappleStage *new = &stage[n];

	*new = stage_of(&s->j, from->from + 1, j + 1, used & ~s->set[from->set]);
	/* no latency is below the steady phase of one of its stages (corrected equation), and of the rest some stage has its
	 * share of the work at least */
	const double rest = (s->j.p->time[s->j.p->n - 1] - s->j.p->time[j]) * s->j.part / __builtin_popcountll(s->all & ~used);
	if (!s->j.o->literal && (s->j.m - 1) * fmax(new->fwd + new->bwd, rest) >= s->best.latency)
		return;
	if (n)
		link_stages(&s->j, &stage[n - 1], new);
	stage[n + 1] = stage_of(&s->j, j + 1, s->j.p->n, s->all & ~used);
	link_stages(&s->j, new, &stage[n + 1]);
	stage[n + 1].transfer = 0;
	Prefix p = *from;
	p.latency = latency(&s->j, stage, n + 2, NULL);
	p.last = *new;
	s->explored++;
	if (stage[n + 1].replicas <= s->most)
		keep_best(s, stage, n + 2, p.latency);
	put_prefix(s, j, to, &p);
}

static void extend_all(Search *s, int k, int set)
{
	DappleStage stage[MOST + 1];
	const int ranks = k < 0 ? 1 : row_of(s, k, set)->n, have = __builtin_popcountll(s->set[set]);

	for (int rank = 0; rank < ranks; rank++) {
		const int n = chain(s, k, set, rank, stage);
		const Prefix from = { .from = k, .set = set, .rank = rank };
		for (int i = 0; i < s->nnext[set]; i++) {
			const int to = s->next[set][i];
			if (__builtin_popcountll(s->set[to]) - have > s->most)
				continue;
			for (int j = k + 1; j + 1 < s->j.p->n; j++)
				if (dapple_before(s->j.p, k, j))
					extend(s, stage, n, &from, j, to);
		}
	}
}

/* A plan of the published program, as it would run here. */
static void try_seed(Search *s, const DapplePlan *plan)
{
	DappleStage stage[MOST];
	DappleSet all = 0;

	for (int i = 0; i < plan->n; i++) {
		stage[i] = stage_of(&s->j, plan->stage[i].begin, plan->stage[i].end, plan->stage[i].devices);
		if (stage[i].replicas > s->most)
			return;
		if (i)
			link_stages(&s->j, &stage[i - 1], &stage[i]);
		all |= stage[i].devices;
	}
	if (all == s->all)
		keep_best(s, stage, plan->n, latency(&s->j, stage, plan->n, NULL));
}

static void search(Search *s, int m)
{
	DappleStage one;

	set_job(&s->j, m);
	s->most = (int)(s->j.o->batch / m / s->j.o->least);
	memset(s->row, 0, sizeof *s->row * (size_t)(s->j.p->n + 1) * (size_t)s->nset);
	one = stage_of(&s->j, 0, s->j.p->n, s->all);
	if (one.replicas <= s->most)
		keep_best(s, &one, 1, latency(&s->j, &one, 1, NULL));
	for (int i = 0; s->seed && i < s->seed->n; i++)
		try_seed(s, &s->seed->candidate[i]);
	for (int k = -1; k + 2 < s->j.p->n; k++)        /* a state follows those in front of it, a set those within it */
		for (int set = 0; set < s->nset; set++)
			if (k < 0 ? !s->set[set] : row_of(s, k, set)->n > 0)
				extend_all(s, k, set);
}

/* The largest divisor of a batch that is at most k; k itself for batches in parts of samples. */
static double divisor(double batch, double k)
{
	double best = batch == floor(batch) ? 1 : k;

	for (double d = 1; batch == floor(batch) && d * d <= batch; d++)
		if (fmod(batch, d) == 0) {
			best = d <= k ? fmax(best, d) : best;
			best = batch / d <= k ? fmax(best, batch / d) : best;
		}
	return best;
}

/* Counts of microbatches worth trying: for r = G..1 devices of a stage the most that gives each of them `least` samples and
 * divides the global batch. */
static int counts(const DappleCluster *c, const DappleOptions *o, int *m)
{
	int n = 0;

	if (o->microbatches > 0)
		m[n++] = o->microbatches;
	for (int r = o->microbatches > 0 ? 0 : dapple_devices(c); r > 0; r--) {
		const double most = floor(o->batch / o->least / r);
		const int k = most < 1 ? 0 : (int)divisor(o->batch, most);
		if (k && (!n || k != m[n - 1]))
			m[n++] = k;
	}
	if (!n)
		m[n++] = 1;
	return n;
}

static bool usable(const DappleProfile *p, const DappleCluster *c, const DappleOptions *o, Diag *d)
{
	if (!dapple_cluster_check(c, d))
		return false;
	if (p->n < 1)
		return diag_error(d, NOLOC, 441, "a profile without states");
	if (!(o->profiled > 0) || !(o->least > 0) || !(o->batch >= o->least) || o->batch > 1e9 || o->microbatches > o->batch)
		return diag_error(d, NOLOC, 441, "batch sizes: profiled %g, global %g, least per device %g, %d microbatches; they are "
		                  "positive, the global one is the largest, at most 1e9", o->profiled, o->batch, o->least,
		                  o->microbatches);
	return true;
}

static void no_plan(const Job *j, Diag *d)
{
	if (isfinite(j->needed))
		diag_error(d, NOLOC, 442, "no plan fits: %.6g bytes per device are the limit, the smallest peak of a plan is %.6g bytes",
		           j->c->memory, j->needed);
	else
		diag_error(d, NOLOC, 442, "no plan: %d microbatches of %g samples leave devices with fewer than %g samples",
		           j->m, j->o->batch / j->m, j->o->least);
}

static DapplePlan *result(Arena *a, Search *s, Diag *d)
{
	DapplePlan *plan = NEW(a, DapplePlan);

	if (!isfinite(s->best.latency)) {
		no_plan(&s->j, d);
		return NULL;
	}
	*plan = s->best;
	plan->stage = arena_dup(a, s->best.stage, sizeof *plan->stage * (size_t)plan->n);
	set_job(&s->j, plan->microbatches);
	finish(&s->j, plan);
	return plan;
}

DapplePlan *dapple_plan(Arena *a, const DappleProfile *p, const DappleCluster *c, const DappleOptions *o, long *explored,
                        Diag *d)
{
	int m[DAPPLE_DEVICES + 1];
	Search s = { .j = { .p = p, .c = c, .o = o, .needed = INFINITY }, .width = o->width > 0 ? o->width : 4 };

	if (!usable(p, c, o, d))
		return NULL;
	const int n = dapple_devices(c), nm = counts(c, o, m);
	s.all = n == 64 ? ~(DappleSet)0 : ((DappleSet)1 << n) - 1;
	s.a = arena_new();
	s.best = (DapplePlan){ .latency = INFINITY, .stage = NEWN(s.a, DappleStage, MOST + 1) };
	if (!o->policies && o->least >= 1 && n > 1 && o->batch == floor(o->batch))
		s.seed = dapple_published(s.a, p, c, o, d);
	list_sets(&s);
	s.row = NEWN(s.a, Row, (size_t)(p->n + 1) * (size_t)s.nset);
	for (int i = 0; i < nm; i++)
		search(&s, m[i]);
	if (explored)
		*explored = s.explored;
	DapplePlan *plan = result(a, &s, d);
	arena_free(s.a);
	return plan;
}

/* ---- every plan ---- */
typedef struct Every {
	Search s;
	bool   published;
	int    copies;
} Every;

static void leaf(Every *e, DappleStage *stage, int n)
{
	Search *s = &e->s;

	e->s.explored++;
	if (!e->published) {
		keep_best(s, stage, n, latency(&s->j, stage, n, NULL));
		return;
	}
	DapplePlan plan = { .n = n, .copies = e->copies, .stage = stage };
	plan.block = dapple_block(s->j.p, s->j.c, s->j.o, &plan, 2);
	dapple_score(s->j.p, s->j.c, s->j.o, &plan);
	if (plan.latency < s->best.latency) {
		memcpy(s->best.stage, stage, sizeof *stage * (size_t)n);
		plan.stage = s->best.stage;
		s->best = plan;
	}
}

/* Devices of a server are alike: of every server the lowest free ones, any count. */
static void choose(Every *e, DappleStage *stage, int n, int k, DappleSet used, int server, DappleSet now);

static void stages(Every *e, DappleStage *stage, int n, int k, DappleSet used)
{
	if (k == e->s.j.p->n - 1) {
		if (used == e->s.all)
			leaf(e, stage, n);
	} else if (used != e->s.all) {
		choose(e, stage, n, k, used, 0, 0);
	}
}

static void choose(Every *e, DappleStage *stage, int n, int k, DappleSet used, int server, DappleSet now)
{
	const Search *s = &e->s;
	const DappleCluster *c = s->j.c;

	if (server < c->servers) {
		DappleSet given = 0;
		for (int i = server ? c->end[server - 1] : 0; ; i++) {
			choose(e, stage, n, k, used, server + 1, now | given);
			while (i < c->end[server] && used >> i & 1)
				i++;
			if (i >= c->end[server])
				return;
			given |= (DappleSet)1 << i;
		}
	}
	if (!now || __builtin_popcountll(now) % e->copies || (!e->published && __builtin_popcountll(now) > s->most))
		return;
	for (int j = k + 1; j < s->j.p->n; j++) {
		if (!dapple_before(s->j.p, k, j))
			continue;
		stage[n] = stage_of(&s->j, k + 1, j + 1, now);
		stage[n].replicas = e->published ? stage[n].replicas / e->copies : stage[n].replicas;
		if (n)
			link_stages(&s->j, &stage[n - 1], &stage[n]);
		stages(e, stage, n + 1, j, used | now);
	}
}

DapplePlan *dapple_exhaustive(Arena *a, const DappleProfile *p, const DappleCluster *c, const DappleOptions *o,
                              bool published, Diag *d)
{
	int m[DAPPLE_DEVICES + 1];
	DappleStage stage[MOST + 1];
	Every e = { .s.j = { .p = p, .c = c, .o = o, .needed = INFINITY }, .published = published, .copies = 1 };

	if (!usable(p, c, o, d))
		return NULL;
	const int n = dapple_devices(c), nm = counts(c, o, m);
	if (p->n > 12 || n > 8) {
		diag_error(d, NOLOC, 441, "%d states on %d devices: every plan is tried for at most 12 states and 8 devices", p->n, n);
		return NULL;
	}
	e.s.all = ((DappleSet)1 << n) - 1;
	e.s.a = arena_new();
	e.s.best = (DapplePlan){ .latency = INFINITY, .stage = NEWN(e.s.a, DappleStage, MOST + 1) };
	for (int i = 0; i < (published ? n : nm); i++) {
		if (published && (n % (i + 1) || i + 1 == n))
			continue;
		e.copies = published ? i + 1 : 1;
		set_job(&e.s.j, published ? 1 : m[i]);
		e.s.most = (int)(o->batch / e.s.j.m / o->least);
		stages(&e, stage, 0, -1, 0);
	}
	DapplePlan *plan = NULL;
	if (published && isfinite(e.s.best.latency)) {
		plan = arena_dup(a, &e.s.best, sizeof e.s.best);
		plan->stage = arena_dup(a, plan->stage, sizeof *plan->stage * (size_t)plan->n);
	} else {
		plan = result(a, &e.s, d);
	}
	arena_free(e.s.a);
	return plan;
}

const char *dapple_str(Arena *a, const DapplePlan *plan)
{
	const char *s = "";

	for (int i = 0; i < plan->n; i++)
		s = arena_printf(a, "%s%s%d", s, i ? ":" : "", plan->stage[i].replicas);
	return s;
}
