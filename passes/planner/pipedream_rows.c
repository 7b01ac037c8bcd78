/* All rows of a level of PipeDream's planner on a chain: the times that the level above sees (pipedream.h). Which plans are
 * best is not kept: rows are solved again by solve_row when their plan is read. Two ways:
 *
 * Crossing, on the lowest level (pipedream_cross.c).
 *
 * Window, else. A plan of the states i..j on m machines costs at least T(i, j) / m. So behind a plan that is known a better
 * one has T(i, k) < (m - r) best and T(k, j) < r best: the k of each (m, r) lie in a window that is as narrow as the known
 * plan is near to an even share. */
#include <math.h>
#include <string.h>
#include "pipedream.h"

typedef struct Rows {
	const Level *l;
	int M, n, most; /* machines, states, replicas of a last stage at most */
	double *sum;    /* sum[j + 1]: lower bound of the seconds of the states up to j on one machine; sum[0] = 0 */
	double *x;      /* [r][k]: seconds of the transfers behind k */
	double *sync;   /* [r]: of gradients, per byte */
	double *best;   /* [m][j]: of the row at hand */
	int *at;        /* [m][r]: where the last window ended */
	int *k, *r;     /* [m]: the last stage of the plan of the state before */
} Rows;

static const double SLACK = 1 + 1e-9; /* bounds are not rounded as the costs are */

static inline double larger(double a, double b) { return a > b ? a : b; }
static inline double smaller(double a, double b) { return a < b ? a : b; }

static double *of(const Rows *w, int m) { return w->best + (size_t)m * (size_t)w->n; }

/* S(k, j, r) * r but for rounding. */
static inline double nearly(const Rows *w, int k, int j, int r)
{
	const State *s = w->l->st->s;

	return w->sum[j + 1] - w->sum[k + 1] + w->sync[r] * (s[j].parameters - s[k].parameters);
}

/* The largest k below `end` with sum[k + 1] < limit, i - 1 if there is none; from the last answer on. */
static int window_top(const Rows *w, int *hint, int i, int end, double limit)
{
	int k = *hint < i ? i : *hint >= end ? end - 1 : *hint;

	while (k + 1 < end && w->sum[k + 2] < limit)
		k++;
	while (k >= i && w->sum[k + 1] >= limit)
		k--;
	return *hint = k;
}

static void offer(const Rows *w, int k, int j, int m, int r, double a, double *best)
{
	const Level *l = w->l;
	const double s = last_cost(l, k, j, r, transfer(l, k, j)), t = a > s ? a : s;

	if (!(t < *best) || !span_fits(l, k + 1, j, r, l->M - m))
		return;
	*best = t;
	w->k[m] = k;
	w->r[m] = r;
}

/* All last stages of r machines, for m machines and the states i..j. */
static void window(const Rows *w, int i, int j, int m, int r, double *best)
{
	const double *a = of(w, m - r), *x = w->x + (size_t)r * (size_t)w->n;
	const double left = w->sum[i] + (m - r) * *best * SLACK, out = j == w->n - 1 ? 0 : x[j];
	const int top = window_top(w, &w->at[m * (w->M + 1) + r], i, j, left);

	for (int k = top; k >= i && w->sum[j + 1] - w->sum[k + 1] < r * *best * SLACK; k--)
		if (a[k] < *best && nearly(w, k, j, r) <= r * *best * SLACK && larger(x[k], out) <= *best)
			offer(w, k, j, m, r, a[k], best);
}

static void search_all(const Rows *w, int i, int j)
{
	const Level *l = w->l;

	for (int m = 1; m <= w->M; m++) {
		const bool fits = (m == 1 || !l->o->straight) && span_fits(l, i, j, m, w->M - m);
		double best = fits ? single_cost(l, i, j, m) : INFINITY;

		if (w->r[m] && j > i) /* the last stage of the state before, one state longer */
			offer(w, w->k[m], j, m, w->r[m], of(w, m - w->r[m])[w->k[m]], &best);
		for (int r = 1; j > i && r < m && r <= w->most; r++)
			window(w, i, j, m, r, &best);
		of(w, m)[j] = best;
	}
}

static Rows rows(Arena *a, const Level *l, int devices)
{
	const int n = l->st->n, M = l->M;
	const size_t pairs = (size_t)(M + 1) * (size_t)(M + 1);
	Rows w = { .l = l, .M = M, .n = n, .most = l->o->straight ? 1 : M - 1 };

	w.sum = NEWN(a, double, n + 1);
	for (int j = 0; j < n; j++)
		w.sum[j + 1] = l->st->s[j].time / devices;
	w.x = NEWN(a, double, (size_t)(M + 1) * (size_t)n);
	w.sync = NEWN(a, double, M + 1);
	for (int r = 1; r <= M; r++) {
		w.sync[r] = 4 * (r - 1) / (l->B * r);
		for (int k = 0; k < n && l->o->compression > 0; k++)
			w.x[(size_t)r * (size_t)n + (size_t)k] = 2 * l->st->s[k].cut / (l->B * l->o->compression) / r;
	}
	w.best = NEWN(a, double, (size_t)(M + 1) * (size_t)n);
	w.at = NEWN(a, int, pairs);
	w.k = NEWN(a, int, M + 1);
	w.r = NEWN(a, int, M + 1);
	return w;
}

void solve_chain_rows(const Level *l, int devices, double *time)
{
	Arena *a = arena_new();
	const int n = l->st->n, M = l->M;
	const size_t pairs = (size_t)(M + 1) * (size_t)(M + 1);
	const Rows w = rows(a, l, devices);

	if (cross_chain_rows(l, time)) {
		arena_free(a);
		return;
	}
	for (int i = 0; i <= n; i++) {
		memset(w.r, 0, (size_t)(M + 1) * sizeof *w.r);
		memset(w.at, 0, pairs * sizeof *w.at);
		for (int j = 0; j < n; j++) {
			if (j >= i)
				search_all(&w, i, j);
			for (int m = 2; j >= i && l->o->fewer && m <= M; m++)
				of(&w, m)[j] = smaller(of(&w, m)[j], of(&w, m - 1)[j]);
			time[(size_t)i * (size_t)n + (size_t)j] = j < i ? INFINITY : of(&w, M)[j];
		}
	}
	arena_free(a);
}
