/* All rows of the lowest level of PipeDream's planner on a chain (pipedream_rows.c), by where two curves cross.
 *
 * Behind k a last stage of r machines costs max(A, S, X), A = A(i, k, m - r), S = (T + gradients) / r of the states (k, j],
 * X the transfers at its borders. A does not depend on j, and S falls as k grows: but for X a k with A(k) >= A(k') for some
 * k' > k is never needed. What is left is a stack for each m - r on which A rises and S falls, so that the least of both
 * is where they cross, near to where they crossed for the state before. With X the two k there are tried, and what else
 * lies between the curves below the best plan known. A limit of memory is a first k for the number of versions and j.
 * Rounding keeps the order of S and of bytes, so that the values are those of solve_row to the bit.
 *
 * Few of the pairs (m, r) are looked at: V(m, r, j), the least over all k < j, is no less than the smaller of V(m, r, j')
 * and the A and X of j' <= k < j. Of the k < j' those on one side of the crossing stay at its A, on the other S grows by
 * what the states (j', j] take. These bounds lie in rows, and what is not below the best plan known, with as many replicas
 * as were best for the state before, is left alone.
 *
 * A(i, j, m) is at least T(i, j) / m. Only values on all machines are asked for; where none of a row is above a limit, what
 * is above it on fewer machines is in none of their plans. The limit is tried that the row before would have kept.
 * O(N^2 M^2) with a small constant. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "pipedream.h"

enum { TABLE_BYTES = 300000000 };

typedef struct Cross {
	const Level *l;
	int M, n, most;            /* machines, states, replicas of a last stage at most */
	size_t row;                /* M + 1 */
	double *x;                 /* [r][k]: seconds of the transfers behind k */
	double *out;               /* [k][r]: the same */
	double *time, *parameters; /* [j]: up to it */
	double *sync;              /* [r]: of gradients, per byte */
	double *grown;        /* [j][r]: time + sync * parameters, divided by r: what S grows by, but for rounding */
	double *best;         /* [m][j]: of the row at hand */
	double *last;         /* [M - m]: .. of the last state */
	double *low;          /* [m][r]: bound of V as it was found */
	double *right, *left; /* [m][r]: bounds of A on the right of the crossing, of S - grown[j][r] on its left */
	double *bound;        /* [r]: the bounds that these give */
	int *won;             /* [m]: r of the plan of the state before */
	int *at;              /* [m][r]: where the curves crossed last */
	int *height, *k;      /* [m - r]: entries of its stack; their states, n each */
	double *a;            /* .. and their A */
	int *first;           /* [v][j]: the first k of (k, j] that fits v times; NULL without a limit */
} Cross;

static const double SLACK = 1 + 1e-9; /* bounds are not rounded as the costs are */

static inline double larger(double a, double b) { return a > b ? a : b; }
static inline double smaller(double a, double b) { return a < b ? a : b; }

/* S(k, j, r) * r but for rounding. */
static inline double nearly(const Cross *w, int k, int j, int r)
{
	return w->time[j] - w->time[k] + w->sync[r] * (w->parameters[j] - w->parameters[k]);
}

/* S(k, j, r) */
static inline double cost(const Cross *w, int k, int j, int r)
{
	return sosp_cost(w->time[j] - w->time[k], w->parameters[j] - w->parameters[k], w->l->B, 1, r);
}

/* A(k) < S(k, j, r) */
static inline bool below(const Cross *w, double a, int k, int j, int r)
{
	const double s = nearly(w, k, j, r), y = a * r;

	return fabs(s - y) > y * 1e-12 ? y < s : a < cost(w, k, j, r);
}

static void push(const Cross *w, int m, int j)
{
	const double f = w->best[(size_t)m * (size_t)w->n + (size_t)j];
	double *a = w->a + (size_t)m * (size_t)w->n;
	int n = w->height[m];

	while (n && a[n - 1] >= f)
		n--;
	a[n] = f;
	w->k[(size_t)m * (size_t)w->n + (size_t)n] = j;
	w->height[m] = n + 1;
}

/* The best of all k from `first` on with transfers, if below `best`; p: where the curves cross. */
static double between(const Cross *w, int first, int j, int m, int r, int p, double best)
{
	const size_t left = (size_t)(m - r) * (size_t)w->n;
	const double *a = w->a + left, *all = w->best + left, *x = w->x + (size_t)r * (size_t)w->n;
	const int *at = w->k + left, n = w->height[m - r];

	for (int q = p > 0 ? p - 1 : 0; q <= p && q < n; q++)
		if (at[q] >= first)
			best = smaller(best, larger(larger(a[q], x[at[q]]), cost(w, at[q], j, r)));
	for (p = p > 0 ? p - 1 : 0; p + 1 < n && a[p + 1] < best;)
		p++;
	for (int k = at[p]; k >= first && nearly(w, k, j, r) < best * r * SLACK; k--) {
		const double f = larger(all[k], x[k]);

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
	int p = w->at[pair] < n ? w->at[pair] : n - 1, first = i;
	double left = INFINITY, right = INFINITY;

	if (!n) /* all of it is above the limit */
		return best;
	if (w->first && w->first[(size_t)((w->M - m + r - 1) / r) * (size_t)w->n + (size_t)j] > i)
		first = w->first[(size_t)((w->M - m + r - 1) / r) * (size_t)w->n + (size_t)j];
	while (p < n && (k[p] < first || below(w, a[p], k[p], j, r)))
		p++;
	while (p > 0 && k[p - 1] >= first && !below(w, a[p - 1], k[p - 1], j, r))
		p--;
	w->at[pair] = p;
	if (p < n)
		right = a[p];
	if (p && k[p - 1] >= first)
		left = nearly(w, k[p - 1], j, r) / r / SLACK;
	w->right[pair] = right;
	w->left[pair] = left - w->grown[(size_t)j * w->row + (size_t)r] -
	                w->grown[(size_t)(w->n - 1) * w->row + (size_t)r] * 1e-12;
	w->low[pair] = smaller(left, right);
	if (w->low[pair] >= best)
		return best;
	if (w->l->o->compression > 0)
		return w->low[pair] = between(w, first, j, m, r, p, best);
	return smaller(best, smaller(right, left < best ? cost(w, k[p - 1], j, r) : INFINITY));
}

/* The bounds of m machines and state j learn of k = j - 1. */
static void learn(const Cross *w, int j, int m, int most)
{
	const double *last = w->last + (w->M - m), *in = w->out + (size_t)(j - 1) * w->row;
	const double *grown = w->grown + (size_t)j * w->row, *left = w->left + (size_t)m * w->row;
	double *low = w->low + (size_t)m * w->row, *right = w->right + (size_t)m * w->row, *bound = w->bound;

#pragma omp simd
	for (int r = 1; r <= most; r++) {
		const double a = last[r] > in[r] ? last[r] : in[r], s = left[r] + grown[r];
		const double l = a < low[r] ? a : low[r], q = a < right[r] ? a : right[r], v = s < q ? s : q;

		low[r] = l;
		right[r] = q;
		bound[r] = l > v ? l : v;
	}
}

/* The best plan of several stages on m machines, if below `best`. */
static double several(const Cross *w, int i, int j, int m, double best)
{
	const double *out = w->out + (size_t)j * w->row, *bound = w->bound;
	const int most = m - 1 < w->most ? m - 1 : w->most, won = w->won[m];

	learn(w, j, m, most);
	if (won)
		best = smaller(best, larger(out[won], crossing(w, i, j, m, won, best)));
	for (int r = 1; r <= most; r++)
		if (bound[r] < best && out[r] < best && r != won) {
			const double t = larger(out[r], crossing(w, i, j, m, r, best));

			if (t < best) {
				best = t;
				w->won[m] = r;
			}
		}
	return best;
}

/* State j of the row that begins with i, on m machines from `least` on; what fewer machines take is above the limit. */
static void state(const Cross *w, int i, int j, int least)
{
	const size_t n = (size_t)w->n;
	const int M = w->M;

	for (int m = 1; m <= M; m++) {
		const bool fits = m >= least && (m == 1 || !w->l->o->straight) && span_fits(w->l, i, j, m, M - m);
		double *b = &w->best[(size_t)m * n + (size_t)j];

		*b = fits ? single_cost(w->l, i, j, m) : INFINITY;
		if (j > i && m >= least)
			*b = several(w, i, j, m, *b);
	}
	for (int m = least + 1; w->l->o->fewer && m <= M; m++)
		w->best[(size_t)m * n + (size_t)j] =
			smaller(w->best[(size_t)m * n + (size_t)j], w->best[(size_t)(m - 1) * n + (size_t)j]);
	for (int m = 1; m <= M; m++) {
		w->last[M - m] = w->best[(size_t)m * n + (size_t)j];
		if (m >= least)
			push(w, m, j);
	}
}

/* The row that begins with i; its highest value on all machines, but for spans too short for a straight pipeline.
 * The values are right where that is not above the limit. */
static double row_of(const Cross *w, int i, double limit, double *time)
{
	const int n = w->n, M = w->M;
	const double *all = w->best + (size_t)M * (size_t)n;
	double highest = 0;

	memset(w->won, 0, w->row * sizeof *w->won);
	memset(w->at, 0, w->row * w->row * sizeof *w->at);
	memset(w->height, 0, w->row * sizeof *w->height);
	for (size_t k = 0; k < w->row * w->row; k++)
		w->low[k] = w->right[k] = w->left[k] = INFINITY;
	for (int j = i, least = 1; j < n; j++) {
		while (least < M && span_time(w->l, i, j) > least * limit * SLACK)
			least++;
		state(w, i, j, least);
		time[j] = all[j];
		if (!w->l->o->straight || w->l->o->fewer || j - i + 1 >= M)
			highest = larger(highest, all[j]);
	}
	return highest;
}

/* The first k of (k, j] that a limit of memory allows a stage of v versions; rounding keeps the order of sums of bytes. */
static void first_fits(Cross *w, Arena *a)
{
	const Level *l = w->l;
	const int n = w->n;

	if (l->o->memory <= 0)
		return;
	w->first = NEWN(a, int, (size_t)w->M *(size_t)n);
	for (int v = 0; v < w->M; v++)
		for (int j = 1, k = 0; j < n; j++) {
			while (k < j && !span_fits(l, k + 1, j, 1, v))
				k++;
			w->first[(size_t)v * (size_t)n + (size_t)j] = k;
		}
}

static bool start(Cross *w, Arena *a, const Level *l)
{
	const int n = l->st->n, M = l->M;
	const size_t row = (size_t)M + 1;

	*w = (Cross){ .l = l, .M = M, .n = n, .most = l->o->straight ? 1 : M - 1, .row = row };
	if (l->time || (double)row * (3.0 * (double)row + 6 * n) * sizeof(double) > TABLE_BYTES)
		return false;
	w->x = NEWN(a, double, (size_t)n *row);
	w->out = NEWN(a, double, (size_t)n *row);
	w->sync = NEWN(a, double, row);
	w->grown = NEWN(a, double, (size_t)n *row);
	w->time = NEWN(a, double, n);
	w->parameters = NEWN(a, double, n);
	for (int k = 0; k < n; k++) {
		w->time[k] = l->st->s[k].time;
		w->parameters[k] = l->st->s[k].parameters;
	}
	for (int r = 1; r <= M; r++) {
		w->sync[r] = 4 * (r - 1) / (l->B * r);
		for (int k = 0; k < n; k++)
			w->grown[(size_t)k * row + (size_t)r] = (w->time[k] + w->sync[r] * w->parameters[k]) / r;
		for (int k = 0; k < n - 1 && l->o->compression > 0; k++)
			w->x[(size_t)r * (size_t)n + (size_t)k] = w->out[(size_t)k * row + (size_t)r] =
				2 * l->st->s[k].cut / (l->B * l->o->compression) / r;
	}
	w->best = NEWN(a, double, (size_t)n *row);
	w->last = NEWN(a, double, row);
	w->low = NEWN(a, double, row *row);
	w->right = NEWN(a, double, row *row);
	w->left = NEWN(a, double, row *row);
	w->bound = NEWN(a, double, row);
	w->won = NEWN(a, int, row);
	w->at = NEWN(a, int, row *row);
	w->height = NEWN(a, int, row);
	w->k = NEWN(a, int, row *(size_t)n);
	w->a = NEWN(a, double, row *(size_t)n);
	first_fits(w, a);
	return true;
}

bool cross_chain_rows(const Level *l, double *time)
{
	Arena *a = arena_new();
	const int n = l->st->n;
	double limit = INFINITY;
	Cross w;
	const bool can = start(&w, a, l);

	for (int i = 0; can && i <= n; i++) {
		double *row = time + (size_t)i * (size_t)n, highest;

		for (int j = 0; j < i; j++)
			row[j] = INFINITY;
		if ((highest = row_of(&w, i, limit, row)) > limit)
			highest = row_of(&w, i, INFINITY, row);
		limit = highest * 1.01;
	}
	arena_free(a);
	return can;
}
