/* pull.c: a device's side of parameter servers. It pulls what the step reads before it is read, and pushes sums of
 * gradients. Messages go to all servers of a parameter at once: a head, row numbers in ascending order, values. Whole
 * parameters travel between where they lie on both sides; rows are gathered into a buffer on their way. */
#include "rt.h"
#include <stdlib.h>

typedef struct held {
	const pd_held *h;
	float   *at;
	int32_t *round; /* by row: the round it was pulled in, from 1; of a whole parameter: [0] */
	int32_t *ids;   /* rows of this round, ascending */
	int32_t *fresh; /* those that are pulled now */
	int64_t  n;
} held;

static held   *all;
static int     nheld, member;
static float  *rows;    /* on their way */
static rt_head *heads;  /* by rank */
static int    *servers, nservers;
static int32_t now = 1; /* the round */

static void know_server(int rank)
{
	int i = 0;

	while (i < nservers && servers[i] != rank)
		i++;
	servers[i] = rank;
	nservers += i == nservers;
}

void pd_held_open(const pd_held *h, int n, char *arena, int which)
{
	size_t most = 0;

	nheld = n;
	member = which;
	all = rt_alloc((size_t)n * sizeof *all);
	heads = rt_alloc((size_t)rt_program->world * sizeof *heads);
	servers = rt_alloc((size_t)rt_program->world * sizeof *servers);
	for (int k = 0; k < n; k++) {
		all[k] = (held){ .h = &h[k], .at = (float *)(void *)(arena + h[k].at) };
		all[k].round = rt_alloc((size_t)(h[k].whole ? 1 : h[k].rows) * sizeof(int32_t));
		if (!h[k].whole) {
			all[k].ids = rt_alloc((size_t)h[k].most * sizeof(int32_t));
			all[k].fresh = rt_alloc((size_t)h[k].most * sizeof(int32_t));
			if ((size_t)(h[k].most * h[k].width) > most)
				most = (size_t)(h[k].most * h[k].width);
		}
		for (int i = 0; i < h[k].npieces; i++)
			know_server(h[k].piece[i].server);
	}
	rows = rt_alloc(most * sizeof *rows + 1);
}

/* Lock held. The head goes with a request of its own; the one before was waited for. */
static void send_head(int server, rt_head x)
{
	x.round = now;
	heads[server] = x;
	rt_post_send(rt_between(server, 0), server, RT_TAG_HEAD, &heads[server], sizeof x);
}

static void wait_pieces(const pd_held *h)
{
	for (int i = 0; i < h->npieces; i++)
		rt_wait(rt_between(h->piece[i].server, 0), 4);
}

/* Of n ascending row numbers, those that a piece holds: from the first, how many. */
static int64_t range_of(const int32_t *ids, int64_t n, const pd_rows *piece, int64_t *first)
{
	int64_t from = 0, to;

	while (from < n && ids[from] < piece->row)
		from++;
	for (to = from; to < n && ids[to] < piece->row + piece->rows;)
		to++;
	*first = from;
	return to - from;
}

/* ---- pulling ---- */

void pd_pull(int k)
{
	const held    *x = &all[k];
	const pd_held *h = x->h;

	if (rt_alone || x->round[0] == now)
		return;
	rt_pause();
	rt_record("pull", -1, -1, h->piece[0].server);
	for (int i = 0; i < h->npieces; i++) {      /* two pieces may lie at one server */
		const pd_rows *p = &h->piece[i];

		rt_wait(rt_between(p->server, 0), 4);
		rt_lock();
		send_head(p->server, (rt_head){ .kind = RT_PULL, .key = h->key, .row = p->row, .rows = -1 });
		rt_post_recv(rt_between(p->server, 3), p->server, RT_TAG_VALUES, x->at + p->row * h->width,
		             (size_t)(p->rows * h->width) * sizeof(float));
		rt_unlock();
	}
	wait_pieces(h);
	x->round[0] = now;
}

static int by_number(const void *a, const void *b)
{
	const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

	return (x > y) - (x < y);
}

/* Rows that this round has not pulled yet, each once, ascending. */
static int64_t fresh_rows(held *x, const void *ids, int64_t n, int bytes)
{
	int64_t m = 0;

	for (int64_t i = 0; i < n; i++) {
		int64_t id = bytes == 8 ? ((const int64_t *)ids)[i] : (int64_t)((const int32_t *)ids)[i];

		id += id < 0 ? x->h->rows : 0;
		if (id < 0 || id >= x->h->rows)
			rt_fail(RT_ERROR, "R124", "row %lld of '%s' is looked up; it has %lld", (long long)id, x->h->name,
			        (long long)x->h->rows);
		if (x->round[id] == now)
			continue;
		x->round[id] = now;
		x->fresh[m++] = (int32_t)id;
	}
	qsort(x->fresh, (size_t)m, sizeof *x->fresh, by_number);
	return m;
}

static void merge_fresh(held *x, int64_t m)
{
	int64_t a = x->n - 1, b = m - 1;

	for (int64_t to = x->n + m - 1; b >= 0; to--)
		x->ids[to] = a >= 0 && x->ids[a] > x->fresh[b] ? x->ids[a--] : x->fresh[b--];
	x->n += m;
}

void pd_pull_rows(int k, const void *ids, int64_t n, int bytes)
{
	held          *x = &all[k];
	const pd_held *h = x->h;
	const size_t   row = (size_t)h->width * sizeof(float);

	if (rt_alone)
		return;
	const int64_t m = fresh_rows(x, ids, n, bytes);

	if (!m)
		return;
	rt_pause();
	rt_record("pull", -1, -1, h->piece[0].server);
	for (int i = 0; i < h->npieces; i++) {
		const pd_rows *p = &h->piece[i];
		int64_t        first;
		const int64_t  some = range_of(x->fresh, m, p, &first);

		if (!some)
			continue;
		rt_wait(rt_between(p->server, 0), 4);
		rt_lock();
		send_head(p->server, (rt_head){ .kind = RT_PULL, .key = h->key, .row = p->row, .rows = some });
		rt_post_send(rt_between(p->server, 1), p->server, RT_TAG_IDS, x->fresh + first, (size_t)some * sizeof(int32_t));
		rt_post_recv(rt_between(p->server, 3), p->server, RT_TAG_VALUES, rows + first * h->width, (size_t)some * row);
		rt_unlock();
	}
	wait_pieces(h);
	for (int64_t i = 0; i < m; i++)
		memcpy(x->at + x->fresh[i] * h->width, rows + i * h->width, row);
	merge_fresh(x, m);
}

/* ---- pushing ---- */

static bool is_zero(const float *v, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		if (v[i] != 0 || signbit(v[i]))
			return false;
	return true;
}

/* The touched rows of a sum into the buffer, their numbers into fresh. some: those that are not zero, where the sum is not of
 * all lookups. */
static int64_t gather(held *x, const float *sum, bool some)
{
	const int64_t width = x->h->width;
	int64_t       m = 0;

	for (int64_t i = 0; i < x->n; i++) {
		const float *from = sum + x->ids[i] * width;

		if (some && is_zero(from, width))
			continue;
		memcpy(rows + m * width, from, (size_t)width * sizeof *from);
		x->fresh[m++] = x->ids[i];
	}
	return m;
}

/* A sum over `leaves` leaves from lo on. */
static void push(int k, rt_head head, const float *sum, bool some)
{
	held          *x = &all[k];
	const pd_held *h = x->h;
	const int64_t  m = h->whole ? 0 : gather(x, sum, some);

	rt_record("push", -1, -1, h->piece[0].server);
	for (int i = 0; i < h->npieces; i++) {
		const pd_rows *p = &h->piece[i];
		int64_t        first = p->row;
		const int64_t  n = h->whole ? p->rows : range_of(x->fresh, m, p, &first);

		rt_wait(rt_between(p->server, 0), 4);
		rt_lock();
		head.key = h->key;
		head.row = p->row;
		head.rows = h->whole ? -1 : n;
		send_head(p->server, head);
		if (!h->whole && n)
			rt_post_send(rt_between(p->server, 1), p->server, RT_TAG_IDS, x->fresh + first, (size_t)n * sizeof(int32_t));
		if (n)
			rt_post_send(rt_between(p->server, 2), p->server, RT_TAG_VALUES, (h->whole ? sum : rows) + first * h->width,
			             (size_t)(n * h->width) * sizeof(float));
		rt_unlock();
	}
	wait_pieces(h);
}

void pd_push(int k, int part, const float *sum)
{
	if (rt_alone)
		return;
	rt_pause();
	push(k, (rt_head){ .kind = RT_PUSH, .part = part, .lo = member, .leaves = 1 }, sum,
	     all[k].h->parts > 1);
}

void pd_push_tree(int k, int part, pd_tree *t, size_t at)
{
	const int n = rt_tree_sums(t);

	if (rt_alone)
		return;
	rt_pause();
	for (int i = 0; i < n; i++) {
		rt_head head = { .kind = RT_PUSH, .part = part };
		int     lo, leaves;
		const float *sum = rt_tree_sum(t, i, &lo, &leaves) + at;

		head.lo = lo;
		head.leaves = leaves;
		push(k, head, sum, n > 1 || all[k].h->parts > 1);
	}
}

void pd_push_end(void)
{
	if (rt_alone)
		return;
	for (int i = 0; i < nservers; i++) {
		rt_lock();
		send_head(servers[i], (rt_head){ .kind = RT_END });
		rt_unlock();
	}
	for (int i = 0; i < nservers; i++)
		rt_wait(rt_between(servers[i], 0), 4);
	for (int k = 0; k < nheld; k++)
		all[k].n = 0;
	now++;
}
