/* All rows of the lowest level of PipeDream's planner on a chain without a limit of memory (pipedream_rows.c), by where
 * two curves cross.
 *
 * Behind k a last stage of r machines costs max(A, S, X), A = A(i, k, m - r), S = (T + gradients) / r of the states (k, j],
 * X the transfers at its borders. A does not hang on j, and S falls as k grows: but for X a k with A(k) >= A(k') for some
 * k' > k is never needed. What is left is a stack for each m - r on which A rises and S falls, so that the least of both
 * is where they cross, near to where they crossed for the state before. Only where that is below the best plan known are
 * all k between the two curves tried with X. Rounding keeps the order of S, so that the values are those of solve_row to
 * the bit.
 *
 * Few of the pairs (m, r) are looked at: V(m, r, j), the least over all k < j, is no less than the smaller of V(m, r, j')
 * and the A and X of j' <= k < j. These bounds lie in rows, and what is not below the best plan known, with as many
 * replicas as were best for the state before, is left alone. O(N^2 M^2) with a small constant. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "pipedream.h"

enum { TABLE_BYTES = 300000000 };

typedef struct Cross {
	const Level *l;
	int     M, n, most;         /* machines, states, replicas of a last stage at most */
	size_t  row;                /* M + 1 */
	double *x;                  /* [k][r]: seconds of the transfers behind k */
	double *sync;               /* [r]: of gradients, per byte */
	double *best;               /* [j][m]: of the row at hand */
	double *low;                /* [m][r]: bound of V */
	int    *won;                /* [m]: r of the plan of the state before */
	int    *at;                 /* [m][r]: where the curves crossed last */
	int    *height, *k;         /* [m - r]: entries of its stack; their states, n each */
	double *a;                  /* .. and their A */
} Cross;

static const double SLACK = 1 + 1e-9;       /* bounds are not rounded as the costs are */

static inline double larger(double a, double b) { return a > b ? a : b; }
static inline double smaller(double a, double b) { return a < b ? a : b; }

/* S(k, j, r) * r but for rounding. */
static inline double nearly(const Cross *w, int k, int j, int r)
{
	const State *s = w->l->st->s;

	return s[j].time - s[k].time + w->sync[r] * (s[j].parameters - s[k].parameters);
}

static inline double cost(const Cross *w, int k, int j, int r)
{
	return last_cost(w->l, k, j, r, 0);
}

/* A(k) < S(k, j, r) */
static inline bool below(const Cross *w, double a, int k, int j, int r)
{
	const double s = nearly(w, k, j, r), y = a * r;

	return fabs(s - y) > y * 1e-12 ? y < s : a < cost(w, k, j, r);
}

static void push(const Cross *w, int m, int j)
{
	const double f = w->best[(size_t)j * w->row + (size_t)m];
	double *a = w->a + (size_t)m * (size_t)w->n;
	int n = w->height[m];

	while (n && a[n - 1] >= f)
		n--;
	a[n] = f;
	w->k[(size_t)m * (size_t)w->n + (size_t)n] = j;
	w->height[m] = n + 1;
}

/* The best of all k with transfers, if below `best`; p: an entry of the stack with A < best or one before all of these. */
static double between(const Cross *w, int i, int j, int m, int r, int p, double best)
{
	const double *a = w->a + (size_t)(m - r) * (size_t)w->n;
	const int *at = w->k + (size_t)(m - r) * (size_t)w->n, n = w->height[m - r];

	while (p + 1 < n && a[p + 1] < best)
		p++;
	for (int k = at[p]; k >= i && nearly(w, k, j, r) < best * r * SLACK; k--) {
		const double f = larger(w->best[(size_t)k * w->row + (size_t)(m - r)], w->x[(size_t)k * w->row + (size_t)r]);

		if (f < best)
			best = smaller(best, larger(f, cost(w, k, j, r)));
	}
	return best;
}

/* The best over all k, if below `best`. Leaves its bound in `low`. */
static double crossing(const Cross *w, int i, int j, int m, int r, double best)
{
	const size_t pair = (size_t)m * w->row + (size_t)r;
	const double *a = w->a + (size_t)(m - r) * (size_t)w->n;
	const int *k = w->k + (size_t)(m - r) * (size_t)w->n, n = w->height[m - r];
	int p = w->at[pair] < n ? w->at[pair] : n - 1;
	double left = INFINITY, right = INFINITY;

	while (p < n && below(w, a[p], k[p], j, r))
		p++;
	while (p > 0 && !below(w, a[p - 1], k[p - 1], j, r))
		p--;
	w->at[pair] = p;
	if (p < n)
		right = a[p];
	if (p)
		left = nearly(w, k[p - 1], j, r) / r / SLACK;
	w->low[pair] = smaller(left, right);
	if (w->low[pair] >= best)
		return best;
	if (w->l->o->compression > 0)
		return w->low[pair] = between(w, i, j, m, r, p ? p - 1 : 0, best);
	return smaller(best, smaller(right, left < best ? cost(w, k[p - 1], j, r) : INFINITY));
}

static void state(const Cross *w, int i, int j, int m)
{
	const double *last = w->best + (size_t)(j - 1) * w->row;
	const double *in = w->x + (size_t)(j - 1) * w->row, *out = w->x + (size_t)j * w->row;
	double *low = w->low + (size_t)m * w->row, *b = &w->best[(size_t)j * w->row + (size_t)m];
	const int most = m - 1 < w->most ? m - 1 : w->most, won = w->won[m];

	if (j == i)
		return;
	for (int r = 1; r <= most; r++)
		low[r] = smaller(low[r], larger(last[m - r], in[r]));
	if (won)
		*b = smaller(*b, larger(out[won], crossing(w, i, j, m, won, *b)));
	for (int r = 1; r <= most; r++)
		if (low[r] < *b && out[r] < *b) {
			const double t = larger(out[r], crossing(w, i, j, m, r, *b));

			if (t < *b) {
				*b = t;
				w->won[m] = r;
			}
		}
}

static bool start(Cross *w, Arena *a, const Level *l)
{
	const int n = l->st->n, M = l->M;
	const size_t row = (size_t)M + 1;

	*w = (Cross){ .l = l, .M = M, .n = n, .most = l->o->straight ? 1 : M - 1, .row = row };
	if (l->time || l->o->memory > 0 || (double)row * ((double)row + 3 * n) * sizeof(double) > TABLE_BYTES)
		return false;
	w->x = NEWN(a, double, (size_t)n * row);
	w->sync = NEWN(a, double, row);
	for (int r = 1; r <= M; r++) {
		w->sync[r] = 4 * (r - 1) / (l->B * r);
		for (int k = 0; k < n - 1 && l->o->compression > 0; k++)
			w->x[(size_t)k * row + (size_t)r] = 2 * l->st->s[k].cut / (l->B * l->o->compression) / r;
	}
	w->best = NEWN(a, double, (size_t)n * row);
	w->low = NEWN(a, double, row * row);
	w->won = NEWN(a, int, row);
	w->at = NEWN(a, int, row * row);
	w->height = NEWN(a, int, row);
	w->k = NEWN(a, int, row * (size_t)n);
	w->a = NEWN(a, double, row * (size_t)n);
	return true;
}

bool cross_chain_rows(const Level *l, double *time)
{
	Arena *a = arena_new();
	const int n = l->st->n, M = l->M;
	const size_t row = (size_t)M + 1;
	Cross w;
	const bool can = start(&w, a, l);

	for (int i = 0; can && i <= n; i++) {
		memset(w.won, 0, row * sizeof *w.won);
		memset(w.at, 0, row * row * sizeof *w.at);
		memset(w.height, 0, row * sizeof *w.height);
		for (size_t k = 0; k < row * row; k++)
			w.low[k] = INFINITY;
		for (int j = 0; j < n; j++) {
			double *b = w.best + (size_t)j * row;

			for (int m = 1; j >= i && m <= M; m++) {
				b[m] = m == 1 || !l->o->straight ? single_cost(l, i, j, m) : INFINITY;
				state(&w, i, j, m);
			}
			for (int m = 2; j >= i && l->o->fewer && m <= M; m++)
				b[m] = smaller(b[m], b[m - 1]);
			for (int m = 1; j >= i && m <= M; m++)
				push(&w, m, j);
			time[(size_t)i * (size_t)n + (size_t)j] = j < i ? INFINITY : b[M];
		}
	}
	arena_free(a);
	return can;
}
