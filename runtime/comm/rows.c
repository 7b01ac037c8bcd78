/* rows.c: row-sparse gradients of a table over the replicas of a stage (Parallax section 3.1: AllGatherv).
 *
 * A step has `grains` lists of n rows: ids[g][k] is the row of the table that rows[g][k] adds to, -1: none. Each member
 * of the group has filled those of its grains. Joining them takes three steps:
 *     merge     in a list of one's own, equal ids become one row, their sum in the order of the lookup
 *     gather    heads (how many rows each list has), then ids, then rows, only as many as there are, go to all others;
 *               lists stand in the order of grains, which is that of the ranks
 *     tree      rows of equal ids in several lists become one row, in the first of them: summed by the tree over grains
 *               of tree.c, so that the sum has the bits of the dense gradient's and any plan those of one device
 * What is left has each id once. Lists are sorted by id in linear time; nothing is allocated behind pd_gatherv_new. */
#include "rt.h"

enum { MOST = 1024 }; /* members */

struct pd_gatherv {
	int grains, nmine;
	int64_t n, width;
	bool *mine;            /* by grain */
	int32_t *count;        /* by member and grain: rows that it sends */
	uint64_t *key, *other; /* id << 32 | place */
};

pd_gatherv *pd_gatherv_new(int grains, int64_t n, int64_t width, const int *mine, int nmine, int members)
{
	pd_gatherv *r = rt_alloc(sizeof *r);

	if (members > MOST || n > (int64_t)UINT32_MAX / grains)
		rt_fail(RT_ERROR, "R501", "rows of %d members, %lld of each of %d grains, are more than can be joined",
			members, (long long)n, grains);
	*r = (pd_gatherv){ .grains = grains, .nmine = nmine, .n = n, .width = width };
	r->mine = rt_alloc((size_t)grains * sizeof *r->mine);
	r->count = rt_alloc((size_t)grains * (size_t)members * sizeof *r->count);
	r->key = rt_alloc((size_t)(grains * n + 1) * sizeof *r->key);
	r->other = rt_alloc((size_t)(grains * n + 1) * sizeof *r->other);
	for (int i = 0; i < nmine; i++)
		r->mine[mine[i]] = true;
	return r;
}

/* By id; equal ones stay in their order. */
static void sort(pd_gatherv *r, int64_t n)
{
	uint64_t most = 0;

	for (int64_t i = 0; i < n; i++)
		most |= r->key[i];
	for (int shift = 32; shift < 64 && most >> shift; shift += 8) {
		int64_t at[257] = { 0 };

		for (int64_t i = 0; i < n; i++)
			at[(r->key[i] >> shift & 255) + 1]++;
		for (int i = 0; i < 256; i++)
			at[i + 1] += at[i];
		for (int64_t i = 0; i < n; i++)
			r->other[at[r->key[i] >> shift & 255]++] = r->key[i];
		uint64_t *t = r->key;
		r->key = r->other;
		r->other = t;
	}
}

static void add_row(pd_gatherv *r, float *rows, uint32_t to, uint32_t from)
{
	float *restrict a = rows + (size_t)to * (size_t)r->width;
	const float *restrict b = rows + (size_t)from * (size_t)r->width;

	for (int64_t i = 0; i < r->width; i++)
		a[i] += b[i];
}

/* Keys of the rows in [from, from + n) that belong somewhere. */
static int64_t keys(pd_gatherv *r, const int32_t *ids, int64_t from, int64_t n)
{
	int64_t k = 0;

	for (int64_t i = from; i < from + n; i++)
		if (ids[i] >= 0)
			r->key[k++] = (uint64_t)(uint32_t)ids[i] << 32 | (uint64_t)i;
	sort(r, k);
	return k;
}

/* Each id of a list once, in the order in which they came first; gives how many. */
static int32_t merge(pd_gatherv *r, int32_t *ids, float *rows, int grain)
{
	const int64_t from = grain * r->n, n = keys(r, ids, from, r->n);
	int32_t left = 0;

	for (int64_t i = 1, first = 0; i < n; i++) {
		if (r->key[i] >> 32 != r->key[first] >> 32) {
			first = i;
			continue;
		}
		add_row(r, rows, (uint32_t)r->key[first], (uint32_t)r->key[i]);
		ids[(uint32_t)r->key[i]] = -1;
	}
	for (int64_t i = from; i < from + r->n; i++) {
		if (ids[i] < 0)
			continue;
		if (i != from + left) {
			memcpy(rows + (size_t)(from + left) * (size_t)r->width, rows + (size_t)i * (size_t)r->width,
				(size_t)r->width * sizeof *rows);
			ids[from + left] = ids[i];
			ids[i] = -1;
		}
		left++;
	}
	return left;
}

/* To and from all others: `own` bytes at mine, and from member i theirs[i] bytes to at[i]; what is empty is not sent. */
static void exchange(
	const pd_group *g, int self, int tag, const void *mine, size_t own, void *const *at, const size_t *theirs)
{
	rt_lock();
	for (int i = 0; i < g->n; i++) {
		if (i == self)
			continue;
		if (theirs[i])
			rt_post_recv(rt_peer(i), g->rank[i], tag, at[i], theirs[i]);
		if (own)
			rt_post_send(rt_peer(i) + 1, g->rank[i], tag, mine, own);
	}
	rt_unlock();
	rt_wait(rt_peer(0), 2 * g->n);
}

/* The how manieth list of each member, of those that have so many. */
static void gather_lists(pd_gatherv *r, const pd_group *g, int self, int which, int32_t *ids, float *rows)
{
	void *at[2][MOST];
	size_t bytes[2][MOST] = { { 0 } };

	for (int i = 0; i < g->n; i++) {
		int k = 0, seen = 0;

		while (k < r->grains && (r->count[i * r->grains + k] < 0 || seen++ < which))
			k++;
		const size_t n = k < r->grains ? (size_t)r->count[i * r->grains + k] : 0,
			     from = (size_t)k * (size_t)r->n;
		at[0][i] = ids + (n ? from : 0);
		at[1][i] = rows + (n ? from : 0) * (size_t)r->width;
		bytes[0][i] = n * sizeof *ids;
		bytes[1][i] = n * (size_t)r->width * sizeof *rows;
	}
	exchange(g, self, RT_TAG_IDS, at[0][self], bytes[0][self], at[0], bytes[0]);
	exchange(g, self, RT_TAG_VALUES, at[1][self], bytes[1][self], at[1], bytes[1]);
}

/* count[self] is known; -1: a grain of someone else. */
static void gather(pd_gatherv *r, const pd_group *g, int self, int32_t *ids, float *rows)
{
	const size_t head = (size_t)r->grains * sizeof *r->count;
	void *at[MOST];
	size_t bytes[MOST];
	int most = 0;

	for (int i = 0; i < g->n; i++) {
		at[i] = r->count + i * r->grains;
		bytes[i] = head;
	}
	exchange(g, self, RT_TAG_HEAD, at[self], head, at, bytes);
	for (int i = 0; i < g->n; i++) {
		int have = 0;

		for (int k = 0; k < r->grains; k++) {
			const int32_t n = r->count[i * r->grains + k];

			have += n >= 0;
			for (int64_t x = n; i != self && n >= 0 && x < r->n; x++)
				ids[k * r->n + x] = -1;
		}
		most = have > most ? have : most;
	}
	for (int which = 0; which < most; which++)
		gather_lists(r, g, self, which, ids, rows);
}

/* The sum of the rows key[from..to) of one id, of grains lo .. lo + n - 1, into the first of them. */
static void tree(pd_gatherv *r, int32_t *ids, float *rows, int64_t from, int64_t to, int lo, int n)
{
	int p = 1;
	int64_t cut = from;

	if (to - from < 2)
		return;
	while (2 * p < n)
		p *= 2;
	while (cut < to && (uint32_t)r->key[cut] < (uint64_t)(lo + p) * (uint64_t)r->n)
		cut++;
	tree(r, ids, rows, from, cut, lo, p);
	tree(r, ids, rows, cut, to, lo + p, n - p);
	if (cut == from || cut == to)
		return;
	add_row(r, rows, (uint32_t)r->key[from], (uint32_t)r->key[cut]);
	ids[(uint32_t)r->key[cut]] = -1;
}

void pd_gatherv_join(pd_gatherv *r, const pd_group *g, int32_t *ids, float *rows)
{
	int self = 0;

	while (g && g->n > 1 && g->rank[self] != rt_program->rank)
		self++;
	for (int k = 0; k < r->grains; k++)
		r->count[self * r->grains + k] = r->mine[k] ? merge(r, ids, rows, k) : -1;
	if (g && g->n > 1 && !rt_alone)
		gather(r, g, self, ids, rows);
	const int64_t n = keys(r, ids, 0, r->grains * r->n);
	for (int64_t i = 0, j; i < n; i = j) {
		for (j = i + 1; j < n && r->key[j] >> 32 == r->key[i] >> 32;)
			j++;
		tree(r, ids, rows, i, j, 0, r->grains);
	}
}
