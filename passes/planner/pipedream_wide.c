/* PipeDream's planner for many machines: the least threshold under which a plan exists, by bisection.
 *
 * Beyond two replicas more of them make a stage no slower: with x = 1/r its time is T x + W x (1 - x) with W = 4w/B, or
 * the larger of T x and W x (1 - x), and x (1 - x) falls from x = 1/2 on; transfers and versions in memory do not grow
 * either. So under a threshold a last stage behind k may have one replica or any number from some q on, and the counts
 * of machines that plans up to j can use are: all from a first one on, and single ones below it that stages of one
 * replica reach. A threshold is tested in about one step for a pair of states, whatever the number of machines. */
#include <float.h>
#include <math.h>
#include <string.h>
#include "pipedream.h"

typedef struct Wide {
	const Level *l;
	double limit; /* the threshold under test */
	int words;
	uint64_t *count; /* n x words: bit m of row j: m machines can do the states up to j */
	int *least;      /* the lowest such m; M + 1: none */
	int *all, *via;  /* every m from all[j] on can, with the last stage behind via[j]; -1: a single stage */
	double *x;       /* n x n transfers, or NULL */
} Wide;

static uint64_t *counts(const Wide *w, int j) { return w->count + (size_t)j * (size_t)w->words; }

static bool stage_fits(const Wide *w, int k, int j, int r, int used)
{
	const Level *l = w->l;

	if (r < 1 || used > l->M || !span_fits(l, k + 1, j, r, l->M - used))
		return false;
	return (k < 0 ? single_cost(l, 0, j, r) : last_cost(l, k, j, r, transfer_of(w->x, l, k, j))) <= w->limit;
}

/* The fewest replicas from 2 on that do, `most` doing; behind k, where `used` machines are in use. */
static int fewest(const Wide *w, int k, int j, int used, int most)
{
	int low = 1; /* does not, or is looked at elsewhere */

	while (most - low > 1) {
		const int r = low + (most - low) / 2;

		if (stage_fits(w, k, j, r, used + r))
			most = r;
		else
			low = r;
	}
	return most;
}

/* Stages of one replica behind what ends with k. */
static void add_single(const Wide *w, int k, int j)
{
	const uint64_t *from = counts(w, k);
	uint64_t *to = counts(w, j);
	int first = 1; /* the lowest count that leaves few enough behind it */

	if (!stage_fits(w, k, j, 1, w->l->M))
		return;
	if (!stage_fits(w, k, j, 1, 1))
		for (int low = 1, high = first = w->l->M; high - low > 1; first = high) {
			const int m = low + (high - low) / 2;

			if (stage_fits(w, k, j, 1, m))
				high = m;
			else
				low = m;
		}
	for (int i = first / 64; i < w->words; i++) {
		uint64_t bits = from[i] << 1 | (i ? from[i - 1] >> 63 : 0);

		if (i == first / 64)
			bits &= ~UINT64_C(0) << (first % 64);
		to[i] |= bits;
	}
}

/* All counts of state j; states before it are done. */
static void reach(const Wide *w, int j)
{
	const Level *l = w->l;
	uint64_t *to = counts(w, j);
	const int M = l->M;

	memset(to, 0, (size_t)w->words * sizeof *to);
	w->all[j] = M + 1;
	if (stage_fits(w, -1, j, 1, 1))
		to[0] |= 2;
	if (!l->o->straight && M > 1 && stage_fits(w, -1, j, M, M)) {
		w->all[j] = fewest(w, -1, j, 0, M);
		w->via[j] = -1;
	}
	for (int k = j - 1; k >= 0; k--) {
		if (w->least[k] >= M || !state_before(l->st, k, j) || isinf(span_time(l, k + 1, j)))
			continue;
		add_single(w, k, j);
		const int r = (w->all[j] <= M ? w->all[j] - 1 : M) - w->least[k];
		if (!l->o->straight && r >= 2 && stage_fits(w, k, j, r, w->least[k] + r)) {
			w->all[j] = w->least[k] + fewest(w, k, j, w->least[k], r);
			w->via[j] = k;
		}
	}
	w->least[j] = M + 1;
	for (int m = M; m >= 1; m--) {
		if (m >= w->all[j])
			to[m / 64] |= UINT64_C(1) << (m % 64);
		if (to[m / 64] >> (m % 64) & 1)
			w->least[j] = m;
	}
}

/* Reads the plan back, last stage first; its time. */
static double read_plan(const Wide *w, PdStage *stage, int *n)
{
	const Level *l = w->l;
	int j = l->st->n - 1, m = l->o->fewer ? w->least[j] : l->M;
	double worst = 0;

	for (*n = 0; j >= 0;) {
		int k = -1, left = 0;

		if (m >= w->all[j]) {
			k = w->via[j];
			left = k < 0 ? 0 : w->least[k];
		} else if (!(m == 1 && stage_fits(w, -1, j, 1, 1))) {
			left = m - 1;
			for (k = j - 1; k > 0; k--)
				if (state_before(l->st, k, j) && counts(w, k)[left / 64] >> (left % 64) & 1 &&
					stage_fits(w, k, j, 1, m))
					break;
		}
		const int r = m - left;
		const double t = k < 0 ? single_cost(l, 0, j, r) : last_cost(l, k, j, r, transfer_of(w->x, l, k, j));
		stage[(*n)++] = (PdStage){ k + 1, j + 1, r, 0 };
		worst = fmax(worst, t);
		j = k;
		m = left;
	}
	return worst;
}

static bool exists(Wide *w, double limit)
{
	const int n = w->l->st->n, M = w->l->M;

	w->limit = limit;
	for (int j = 0; j < n; j++)
		reach(w, j);
	return w->l->o->fewer ? w->least[n - 1] <= M : counts(w, n - 1)[M / 64] >> (M % 64) & 1;
}

double solve_wide(Arena *a, const Level *l, PdStage **stage, int *n)
{
	const int N = l->st->n;
	Wide w = { .l = l, .words = l->M / 64 + 1 };
	double low = 0, high;

	w.count = NEWN(a, uint64_t, (size_t)N *(size_t)w.words);
	w.least = NEWN(a, int, N);
	w.all = NEWN(a, int, N);
	w.via = NEWN(a, int, N);
	w.x = transfers(a, l);
	*stage = NEWN(a, PdStage, l->M);
	if (!exists(&w, DBL_MAX))
		return INFINITY;
	high = read_plan(&w, *stage, n);
	for (double mid = high / 2; mid > low && mid < high; mid = low + (high - low) / 2) {
		if (exists(&w, mid))
			high = read_plan(&w, *stage, n);
		else
			low = mid;
	}
	exists(&w, high);
	high = read_plan(&w, *stage, n);
	for (int i = 0; i < *n / 2; i++) {
		const PdStage t = (*stage)[i];
		(*stage)[i] = (*stage)[*n - 1 - i];
		(*stage)[*n - 1 - i] = t;
	}
	return high;
}
