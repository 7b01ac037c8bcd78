/* Block partitions of a row of costs (planner.h): the heuristic of torchgpipe and the best one. */
#include <math.h>
#include <string.h>
#include "planner.h"

static double sum(const double *v, int from, int to)
{
	double s = 0;

	for (int i = from; i < to; i++)
		s += v[i];
	return s;
}

/* The largest (sign 1) or smallest (sign -1) block; among equals the last of the largest, the first of the smallest. */
static int extreme(const double *v, const int *end, int parts, int sign, double *size)
{
	int at = 0;

	*size = 0;
	for (int i = 0; i < parts; i++) {
		const double s = sum(v, i ? end[i - 1] : 0, end[i]);

		if (!i || sign * (s - *size) > 0 || (sign > 0 && s >= *size)) {
			*size = s;
			at = i;
		}
	}
	return at;
}

static double blocks_answer(const double *cost, const int *end, int parts, int *size)
{
	double most = 0;

	for (int i = 0; i < parts; i++) {
		const int from = i ? end[i - 1] : 0;

		size[i] = end[i] - from;
		most = fmax(most, sum(cost, from, end[i]));
	}
	return most;
}

double blocks_published(Arena *a, const double *cost, int n, int parts, int *size)
{
	double *v = NEWN(a, double, n), low = cost[0], high = cost[0];
	int *end = NEWN(a, int, parts);

	for (int i = 1; i < n; i++) {
		low = fmin(low, cost[i]);
		high = fmax(high, cost[i]);
	}
	for (int i = 0; i < n; i++) /* the scale of the published code: the range is at most 1 */
		v[i] = high > low ? (cost[i] - low) / (high - low) : 0;
	for (int i = 0; i < parts; i++)
		end[i] = i == parts - 1 ? n : n / parts * (i + 1);
	/* Every move lessens the spread; rounding could make two of them undo each other, so they are counted. */
	for (int64_t moves = 4 * (int64_t)n * n * parts; moves > 0;) {
		double most, least;
		const int p = extreme(v, end, parts, 1, &most);
		int next = -1;

		while (next != p && moves-- > 0) {
			int q = extreme(v, end, parts, -1, &least);

			if (most <= least + 1)
				return blocks_answer(cost, end, parts, size);
			next = p < q ? q - 1 : q + 1;
			while (end[next] ==
				(next ? end[next - 1] : 0)) { /* nothing to give: it is a smallest block as well */
				q = next;
				next = p < q ? q - 1 : q + 1;
			}
			if (p < q)
				end[next]--;
			else
				end[q]++;
		}
	}
	return blocks_answer(cost, end, parts, size);
}

double blocks_optimal(Arena *a, const double *cost, int n, int parts, int *size)
{
	const size_t row = (size_t)n + 1;
	double *best = NEWN(a, double, row *(size_t)(parts + 1)), *upto = NEWN(a, double, row);
	int *from = NEWN(a, int, row *(size_t)(parts + 1)), *end = NEWN(a, int, parts);

	for (int i = 0; i < n; i++)
		upto[i + 1] = upto[i] + cost[i];
	for (int p = 1; p <= parts; p++)
		for (int j = p; j <= n; j++) {
			double *b = &best[row * (size_t)p + (size_t)j];

			*b = INFINITY;
			for (int k = j - 1; k >= p - 1; k--) {
				const double t = fmax(upto[j] - upto[k], best[row * (size_t)(p - 1) + (size_t)k]);

				if ((p > 1 || k == 0) && t < *b) {
					*b = t;
					from[row * (size_t)p + (size_t)j] = k;
				}
			}
			if (p == 1)
				*b = upto[j];
		}
	for (int p = parts, j = n; p; j = from[row * (size_t)p + (size_t)j], p--)
		end[p - 1] = j;
	return blocks_answer(cost, end, parts, size);
}
