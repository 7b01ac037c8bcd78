/* sums.c: sums of gradients from several devices, for one parameter and step, added as the fixed tree over their leaves
 * (tree.c), whatever the order in which they came. Each is of a subtree and has all of the parameter, or some of its
 * rows in ascending order; rows that a sum lacks are zero. Servers add what is pushed to them; the first device of a
 * host adds what its neighbours have before it leaves the host. */
#include "rt.h"

void rt_sums_open(rt_sums *b, int most, int64_t room, int64_t width, bool whole)
{
	*b = (rt_sums){ .most = most, .room = room, .width = width };
	b->sum = rt_alloc((size_t)most * sizeof *b->sum);
	b->order = rt_alloc((size_t)(2 * most) * sizeof *b->order);
	b->values = rt_alloc((size_t)(room * width) * sizeof *b->values);
	if (!whole)
		b->ids = rt_alloc((size_t)room * sizeof *b->ids);
}

void rt_sums_clear(rt_sums *b)
{
	b->n = 0;
	b->rows = 0;
}

const rt_pushed *rt_sums_twice(const rt_sums *b, int lo, int leaves)
{
	for (int i = 0; i < b->n; i++)
		if (lo < b->sum[i].lo + b->sum[i].leaves && b->sum[i].lo < lo + leaves)
			return &b->sum[i];
	return NULL;
}

rt_pushed *rt_sums_put(rt_sums *b, int lo, int leaves, int64_t n)
{
	int i = b->n;

	if (b->n == b->most || b->rows + n > b->room)
		return NULL;
	for (b->n++; i > 0 && b->sum[i - 1].lo > lo; i--)
		b->sum[i] = b->sum[i - 1];
	b->sum[i] = (rt_pushed){ .lo = lo,
		.leaves = leaves,
		.n = n,
		.values = b->values + b->rows * b->width,
		.ids = b->ids ? b->ids + b->rows : NULL };
	b->rows += n;
	return &b->sum[i];
}

/* Lists the sums of the subtree (lo, leaves) and where two are added; false: some leaf is in none. */
static bool list_order(rt_sums *b, int *next, int lo, int leaves)
{
	int p = 1;

	if (*next < b->n && b->sum[*next].lo == lo && b->sum[*next].leaves == leaves) {
		b->sum[*next].next = 0;
		b->order[b->norder++] = (*next)++;
		return true;
	}
	if (leaves == 1)
		return false;
	while (2 * p < leaves)
		p *= 2;
	if (!list_order(b, next, lo, p) || !list_order(b, next, lo + p, leaves - p))
		return false;
	b->order[b->norder++] = -1;
	return true;
}

bool rt_sums_begin(rt_sums *b, int lo, int leaves)
{
	int first = 0;

	while (first < b->n && b->sum[first].lo < lo)
		first++;
	b->norder = 0;
	return list_order(b, &first, lo, leaves);
}

/* a + b where one may lack the row: a zero. Where both do the sum is zero too. */
static float *add(float *restrict a, float *restrict b, int64_t n)
{
	if (!a || !b) {
		float *one = a ? a : b;

		for (int64_t i = 0; one && i < n; i++)
			one[i] += 0.0f; /* -0 becomes 0, as it does beside a zero */
		return one;
	}
#pragma omp parallel for simd if (parallel : n >= 65536)
	for (int64_t i = 0; i < n; i++)
		a[i] += b[i];
	return a;
}

static int32_t next_row(const rt_sums *b)
{
	int32_t row = INT32_MAX;

	for (int k = 0; k < b->norder; k++) {
		const rt_pushed *x = b->order[k] < 0 ? NULL : &b->sum[b->order[k]];

		if (x && x->next < x->n && x->ids[x->next] < row)
			row = x->ids[x->next];
	}
	return row;
}

float *rt_sums_next(rt_sums *b, int32_t *row)
{
	float *stack[64];
	int n = 0;

	*row = b->ids ? next_row(b) : 0;
	if (*row == INT32_MAX)
		return NULL;
	for (int k = 0; k < b->norder; k++) {
		if (b->order[k] < 0) {
			n--;
			stack[n - 1] = add(stack[n - 1], stack[n], b->width);
			continue;
		}
		rt_pushed *x = &b->sum[b->order[k]];
		const bool here = x->next < x->n && (!x->ids || x->ids[x->next] == *row);

		stack[n++] = here ? x->values + x->next * b->width : NULL;
		x->next += here;
	}
	return stack[0];
}
