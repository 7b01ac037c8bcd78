/* fetch.c: sums of gradients that a server gives the devices, which do something with them before the update (norms,
 * clipping; Parallax section 5.3.2 without its placement), and what the first of them gives back. A message is a head, row
 * numbers in ascending order, values; rows that are zero stay where they are. Whole parameters are one row. */
#include "rt.h"
#include <stdlib.h>

static int32_t *ids; /* on their way */
static float *rows;
static size_t nids, nrows;

static void room(const pd_way *w)
{
	const size_t m = w->whole ? 0 : (size_t)w->rows, n = w->whole ? 0 : (size_t)(w->rows * w->width);

	if (m > nids) {
		free(ids);
		ids = rt_alloc(m * sizeof *ids);
		nids = m;
	}
	if (n > nrows) {
		free(rows);
		rows = rt_alloc(n * sizeof *rows);
		nrows = n;
	}
}

static bool is_zero(const float *v, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		if (v[i] != 0 || signbit(v[i]))
			return false;
	return true;
}

/* The same to `n` ranks from `first` on. */
static void send_all(const pd_way *w, int first, int n, const float *from)
{
	static rt_head head; /* is read until it was waited for */

	room(w);
	head = (rt_head){ .kind = RT_SUM, .key = w->key, .round = (int32_t)rt_step, .rows = w->whole ? -1 : 0 };
	for (int64_t i = 0; i < w->rows && !w->whole; i++)
		if (!is_zero(from + i * w->width, w->width)) {
			memcpy(rows + head.rows * w->width, from + i * w->width, (size_t)w->width * sizeof *rows);
			ids[head.rows++] = (int32_t)i;
		}
	const size_t m = w->whole ? 1 : (size_t)head.rows, bytes = m * (size_t)w->width * sizeof *rows;

	rt_lock();
	for (int r = first; r < first + n; r++) {
		rt_post_send(rt_between(r, 0), r, RT_TAG_HEAD, &head, sizeof head);
		if (!w->whole && m)
			rt_post_send(rt_between(r, 1), r, RT_TAG_IDS, ids, m * sizeof *ids);
		if (m)
			rt_post_send(rt_between(r, 2), r, RT_TAG_VALUES, w->whole ? from : rows, bytes);
	}
	rt_unlock();
	for (int r = first; r < first + n; r++)
		rt_wait(rt_between(r, 0), 3);
}

static void receive(int rank, int j, int tag, void *to, size_t bytes)
{
	rt_lock();
	rt_post_recv(rt_between(rank, j), rank, tag, to, bytes);
	rt_unlock();
	rt_wait(rt_between(rank, j), 1);
}

static void take(const pd_way *w, int rank, float *to)
{
	rt_head head;

	room(w);
	receive(rank, 0, RT_TAG_HEAD, &head, sizeof head);
	if (head.kind != RT_SUM || head.key != w->key || head.round != (int32_t)rt_step ||
		(head.rows < 0) != w->whole || head.rows > w->rows)
		rt_fail(RT_ERROR, "R123",
			"%s sends %lld rows of gradient %d of step %d; of gradient %d up to %lld are waited for in step "
			"%lld",
			rt_name(rank), (long long)head.rows, head.key, head.round, w->key, (long long)w->rows,
			(long long)rt_step);
	if (w->whole) {
		receive(rank, 2, RT_TAG_VALUES, to, (size_t)w->width * sizeof *to);
		return;
	}
	memset(to, 0, (size_t)(w->rows * w->width) * sizeof *to);
	if (!head.rows)
		return;
	receive(rank, 1, RT_TAG_IDS, ids, (size_t)head.rows * sizeof *ids);
	receive(rank, 2, RT_TAG_VALUES, rows, (size_t)(head.rows * w->width) * sizeof *rows);
	for (int64_t i = 0; i < head.rows; i++) {
		if (ids[i] < 0 || ids[i] >= w->rows)
			rt_fail(RT_ERROR, "R124", "%s sends row %d of gradient %d; it has %lld", rt_name(rank), ids[i],
				w->key, (long long)w->rows);
		memcpy(to + ids[i] * w->width, rows + i * w->width, (size_t)w->width * sizeof *to);
	}
}

void pd_give(const pd_way *w, const float *sum)
{
	if (rt_alone)
		return;
	rt_pause();
	send_all(w, w->first, w->members, sum);
}

void pd_fetch(const pd_way *w, float *sum)
{
	if (rt_alone)
		return;
	rt_pause();
	rt_record("fetch", -1, -1, w->server);
	take(w, w->server, sum);
}

void pd_return(const pd_way *w, const float *made)
{
	if (rt_alone || rt_program->rank != w->first)
		return;
	rt_pause();
	rt_record("return", -1, -1, w->server);
	send_all(w, w->server, 1, made);
}

void pd_take(const pd_way *w, float *made)
{
	if (rt_alone)
		return;
	pd_norm_end(); /* who gives it back waits for the norm, and the norm for all */
	if (pd_overflow())
		return; /* nobody updates in this step */
	rt_pause();
	take(w, w->first, made);
}
