/* The published DAPPLE program's search: least slowest block over (state, groups, devices in use) for every number of
 * groups, straight pipelines, all pairs of stages; each finalist is scored (dapple_score.c), the best score wins. */
#include <math.h>
#include <string.h>
#include "dapple.h"

/* The best way to have the states up to j on m + 1 groups that occupy one set of devices. */
typedef struct Cell {
	double block;         /* INFINITY: none */
	DappleSet last;       /* devices of the last stage */
	int from, groups, in; /* state in front of the last stage (-1: none), its groups - 1, its set's index */
} Cell;

typedef struct Next {
	int groups, set;
	DappleSet devices;
} Next;

/* A set of devices in use, as groups are given out, and where it can go. */
typedef struct Use {
	DappleSet used;
	Next *next;
	int nnext, cap;
} Use;

typedef struct Search {
	Arena *a;
	const DappleProfile *p;
	const DappleCluster *c;
	int groups, copies; /* groups of `copies` devices */
	bool straight;      /* one group per stage */
	double factor;
	Use *use[DAPPLE_DEVICES]; /* per number of groups - 1 */
	int nuse[DAPPLE_DEVICES], cap[DAPPLE_DEVICES];
	Cell *cell[DAPPLE_DEVICES]; /* [state][set]; the row's last is the best of the row */
	long explored;
} Search;

static const DapplePolicy policies[] = { DAPPLE_FRESH, DAPPLE_APPEND, DAPPLE_SCATTER };

static Cell *row(const Search *s, int m, int j) { return s->cell[m] + (size_t)j * (size_t)(s->nuse[m] + 1); }

static int intern(Search *s, int m, DappleSet used)
{
	for (int i = 0; i < s->nuse[m]; i++)
		if (s->use[m][i].used == used)
			return i;
	PUSH(s->a, s->use[m], s->nuse[m], s->cap[m]) = (Use){ .used = used };
	return s->nuse[m] - 1;
}

/* All sets that `copies` placements of `need` devices each can lead to, without repetition. */
static int placements(Search *s, DappleSet used, int need, DappleSet **result)
{
	DappleSet *now = NEW(s->a, DappleSet);
	int n = 1, cap = 1;

	now[0] = used;
	for (int r = 0; r < s->copies; r++) {
		DappleSet *then = NULL;
		int k = 0;
		cap = 0;
		for (int i = 0; i < n; i++)
			for (size_t y = 0; y < sizeof policies / sizeof *policies; y++) {
				const DappleSet given = dapple_place(s->c, now[i], need, policies[y]),
						sum = now[i] | given;
				bool known = !given;
				for (int x = 0; x < k && !known; x++)
					known = then[x] == sum;
				if (!known)
					PUSH(s->a, then, k, cap) = sum;
			}
		now = then;
		n = k;
	}
	*result = now;
	return n;
}

/* The sets that occur, with their successors; the first of every count is the fresh placement of a first stage. */
static void list_sets(Search *s)
{
	for (int m = 0; m < s->groups; m++)
		if (!m || !s->straight)
			intern(s, m, dapple_place(s->c, 0, (m + 1) * s->copies, DAPPLE_FRESH));
	for (int m = 0; m < s->groups; m++)
		for (int i = 0; i < s->nuse[m]; i++)
			for (int g = 1; m + g < s->groups && (g == 1 || !s->straight); g++) {
				DappleSet *to;
				const DappleSet used = s->use[m][i].used;
				const int n = placements(s, used, g, &to);
				for (int k = 0; k < n; k++) {
					const int set = intern(s, m + g, to[k]);
					Use *u = &s->use[m][i];
					PUSH(s->a, u->next, u->nnext, u->cap) = (Next){ g, set, to[k] & ~used };
				}
			}
}

/* Everything up to j as one stage. */
static void first_stages(Search *s)
{
	for (int m = 0; m < s->groups; m++) {
		s->cell[m] = NEWN(s->a, Cell, (size_t)s->p->n * (size_t)(s->nuse[m] + 1));
		for (int j = 0; j < s->p->n; j++) {
			Cell *r = row(s, m, j);
			for (int i = 0; i <= s->nuse[m]; i++)
				r[i] = (Cell){ .block = INFINITY, .from = -1 };
			if (m && s->straight)
				continue;
			const DappleSet first = s->use[m][0].used;
			r[0] = r[s->nuse[m]] = (Cell){
				.block = s->p->time[j] * s->factor / (m + 1) / s->copies, .last = first, .from = -1
			};
		}
	}
}

static double worst_of(const Search *s, int m, const Cell *r)
{
	double worst = 0;

	for (int i = 0; i < s->nuse[m]; i++)
		worst = fmax(worst, r[i].block);
	return worst;
}

/* Puts a last stage of g groups behind state k, for row (m, j). */
static void put_stage(Search *s, int m, int j, int k, int g, double *worst)
{
	Cell *to = row(s, m, j);
	const Cell *from = row(s, m - g, k);
	const double work = (s->p->time[j] - s->p->time[k]) * s->factor / (g * s->copies),
		     cut = 2 * s->p->cut[k] * s->factor;
	bool changed = false;

	if (fmax(work, from[s->nuse[m - g]].block) >= *worst)
		return;
	for (int i = 0; i < s->nuse[m - g]; i++) {
		const double base = fmax(from[i].block, work);
		const Use *u = &s->use[m - g][i];
		if (base >= *worst)
			continue;
		for (int x = 0; x < u->nnext; x++) {
			const Next *next = &u->next[x];
			if (next->groups != g)
				continue;
			const double block = fmax(base, dapple_transfer(s->c, from[i].last, next->devices, cut));
			const Cell cell = {
				.block = block, .last = next->devices, .from = k, .groups = m - g, .in = i
			};
			s->explored++;
			if (block < to[s->nuse[m]].block)
				to[s->nuse[m]] = cell;
			if (block < to[next->set].block) {
				to[next->set] = cell;
				changed = true;
			}
		}
	}
	if (changed)
		*worst = worst_of(s, m, to);
}

static void fill(Search *s)
{
	for (int m = 1; m < s->groups; m++)
		for (int j = 1; j < s->p->n; j++) {
			const uint64_t *before = s->p->before + (size_t)j * (size_t)s->p->words;
			double worst = worst_of(s, m, row(s, m, j));
			for (int w = 0; w <= j / 64; w++)
				for (uint64_t bits = before[w]; bits; bits &= bits - 1)
					for (int g = 1; g <= m && (g == 1 || !s->straight); g++)
						put_stage(s, m, j, 64 * w + __builtin_ctzll(bits), g, &worst);
		}
}

/* The plan behind the best of the last row; false where there is none. */
static bool trace(const Search *s, DapplePlan *plan)
{
	const Cell *last = &row(s, s->groups - 1, s->p->n - 1)[s->nuse[s->groups - 1]];
	int end = s->p->n, n = 1;

	if (!isfinite(last->block))
		return false;
	for (const Cell *x = last; x->from >= 0; x = &row(s, x->groups, x->from)[x->in])
		n++;
	plan->n = n;
	plan->stage = NEWN(s->a, DappleStage, n);
	plan->copies = s->copies;
	plan->block = last->block;
	for (const Cell *x = last; n-- > 0; x = &row(s, x->groups, x->from)[x->in]) {
		plan->stage[n] = (DappleStage){ .begin = x->from + 1,
			.end = end,
			.devices = x->last,
			.replicas = __builtin_popcountll(x->last) / s->copies };
		end = x->from + 1;
		if (x->from < 0)
			break;
	}
	return true;
}

static bool plan_for(Arena *a, const DappleProfile *p, const DappleCluster *c, const DappleOptions *o, int groups,
	bool straight, DapplePlan *plan, long *explored)
{
	const int copies = dapple_devices(c) / groups;
	Search s = { .a = arena_new(),
		.p = p,
		.c = c,
		.groups = groups,
		.copies = copies,
		.straight = straight,
		.factor = o->batch / o->profiled };
	bool found = true;

	if (groups * copies < dapple_devices(c)) { /* the published program cuts only where no device is left over */
		const DappleSet all = dapple_place(c, 0, groups * copies, DAPPLE_FRESH);
		*plan = (DapplePlan){ .n = 1, .copies = copies, .stage = NEW(a, DappleStage) };
		*plan->stage = (DappleStage){ .end = p->n, .devices = all, .replicas = groups };
		plan->block = p->time[p->n - 1] * s.factor / groups / copies;
	} else {
		list_sets(&s);
		first_stages(&s);
		fill(&s);
		found = trace(&s, plan);
		if (found)
			plan->stage = arena_dup(a, plan->stage, sizeof *plan->stage * (size_t)plan->n);
	}
	if (found)
		dapple_score(p, c, o, plan);
	*explored += s.explored;
	arena_free(s.a);
	return found;
}

/* All pairs of stages over all devices; a block counts a cut once here. Ties: the last cut, as in the published program. */
static bool pairs(Arena *a, const DappleProfile *p, const DappleCluster *c, const DappleOptions *o, DapplePlan *best,
	long *explored)
{
	const int n = dapple_devices(c);
	const double factor = o->batch / o->profiled, total = p->time[p->n - 1];
	DappleStage stage[2];

	best->speedup = -1;
	for (int k = 0; k + 1 < p->n; k++)
		for (int g = 1; g < n; g++)
			for (int x = 0; x < 9; x++) {
				const DappleSet one = dapple_place(c, 0, g, policies[x / 3]);
				const DappleSet two = one ? dapple_place(c, one, n - g, policies[x % 3]) : 0;
				if (!two)
					continue;
				stage[0] = (DappleStage){ .begin = 0, .end = k + 1, .devices = one, .replicas = g };
				stage[1] =
					(DappleStage){ .begin = k + 1, .end = p->n, .devices = two, .replicas = n - g };
				DapplePlan plan = { .n = 2, .copies = 1, .stage = stage };
				plan.block = fmax(fmax(p->time[k] / g, (total - p->time[k]) / (n - g)) * factor,
					dapple_transfer(c, one, two, p->cut[k] * factor));
				dapple_score(p, c, o, &plan);
				*explored += 1;
				if (plan.speedup >= best->speedup) {
					*best = plan;
					best->stage = arena_dup(a, stage, sizeof stage);
				}
			}
	return best->speedup >= 0;
}

static bool options_ok(const DappleOptions *o, Diag *d)
{
	if (!(o->profiled > 0) || !(o->least >= 1) || !(o->batch >= o->least) || o->batch > 1e9)
		return diag_error(d, NOLOC, 441,
			"batch sizes: profiled %.15g, global %.15g, least per device %.15g; they are positive, the global "
			"one is at least the least and at most 1e9",
			o->profiled, o->batch, o->least);
	return true;
}

DapplePublished *dapple_published(
	Arena *a, const DappleProfile *p, const DappleCluster *c, const DappleOptions *o, Diag *d)
{
	DapplePublished *r = NEW(a, DapplePublished);
	int cap = 0;

	if (!dapple_cluster_check(c, d) || !options_ok(o, d))
		return NULL;
	const int n = dapple_devices(c);
	for (int i = 2; i <= n + 2; i++) {
		const int groups = i <= n ? i : i == n + 1 ? 2 : n;
		DapplePlan plan = { 0 };
		if (i == n + 1 && (n <= 2 || n % 2))
			continue;
		if (n > 1 && plan_for(a, p, c, o, groups, i > n, &plan, &r->explored))
			PUSH(a, r->candidate, r->n, cap) = plan;
	}
	DapplePlan pair = { 0 };
	if (pairs(a, p, c, o, &pair, &r->explored))
		PUSH(a, r->candidate, r->n, cap) = pair;
	for (int i = 0; i < r->n; i++)
		if (r->candidate[i].speedup >= r->candidate[r->best].speedup)
			r->best = i;
	if (!r->n) {
		diag_error(d, NOLOC, 442, "no pipeline over %d devices and %d states", n, p->n);
		return NULL;
	}
	return r;
}
