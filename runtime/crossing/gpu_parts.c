/* gpu_parts.c: tensors of which each replica has a part (--zero), on the device: ReduceScatter and AllGather, in place or from and to
 * where a replica has its own part alone. What a function begins and waits for between kernels is the host's, between two graphs
 * (gpu_graph.c). The sums of a microbatch's gradients come first to where these lie, and are added behind the wait. */
#include "gpu_parts.h"
#include <stdlib.h>

void host_scatter_start(const pd_group *g, float *buf, const pd_part *p, int n);

size_t rt_moved_bytes(const pd_part *p, int n, size_t size)
{
	size_t bytes = 0;

	for (int i = 0; i < n; i++)
		bytes += size * (size_t)p[i].n;
	return bytes;
}

/* ---- staged through the host ---- */

static void pack(rt_moved *m)
{
	int64_t at = 0;

	if (m->n > m->room) {
		m->packed = realloc(m->packed, (size_t)m->n * sizeof *m->packed);
		if (!m->packed)
			rt_fail(RT_MEMORY, "R501", "no memory for %d parts", m->n);
		m->room = m->n;
	}
	for (int i = 0; i < m->n; i++) {
		m->packed[i] = (pd_part){ .at = at, .n = m->part[i].n, .part = m->part[i].part };
		at += m->part[i].n;
	}
}

/* Of tensor i, bytes from its beginning to this replica's part; of that. */
static size_t part_at(const rt_moved *m, int i)
{
	return m->size * pd_part_at(rt_program->replica, m->part[i].part, m->part[i].n);
}

static size_t part_of(const rt_moved *m, int i)
{
	return m->size * pd_part_of(rt_program->replica, m->part[i].part, m->part[i].n);
}

static char *on_device(const rt_moved *m, int i) { return (char *)m->buf + m->size * (size_t)m->part[i].at; }

static char *on_host(const rt_moved *m, int i) { return m->host + m->size * (size_t)m->packed[i].at; }

static const char *own_part(const rt_moved *m, int i)
{
	return m->own ? (const char *)m->own + m->size * (size_t)m->part[i].own : on_device(m, i) + part_at(m, i);
}

void rt_moved_alone(const rt_moved *m)
{
	for (int i = 0; i < m->n && m->own; i++)
		if (part_of(m, i))
			pd_copy(on_device(m, i) + part_at(m, i), own_part(m, i), part_of(m, i));
}

void rt_moved_there(rt_moved *m)
{
	pack(m);
	for (int i = 0; i < m->n; i++) {
		if (!m->gathers)
			rt_copy_on(RT_SUMS, on_host(m, i), on_device(m, i), m->size * (size_t)m->part[i].n, true);
		else if (part_of(m, i))
			rt_copy_on(RT_SUMS, on_host(m, i) + part_at(m, i), own_part(m, i), part_of(m, i), true);
	}
}

void rt_moved_begin(const rt_moved *m)
{
	if (m->gathers)
		rt_gather_begin(m->group, m->host, m->packed, m->n, m->size);
	else
		host_scatter_start(m->group, (float *)(void *)m->host, m->packed, m->n);
}

void rt_moved_back(const rt_moved *m)
{
	for (int i = 0; i < m->n; i++) {
		if (m->gathers)
			rt_copy_on(RT_RETURNS, on_device(m, i), on_host(m, i), m->size * (size_t)m->part[i].n, false);
		else if (part_of(m, i))
			rt_copy_on(RT_RETURNS, on_device(m, i) + part_at(m, i), on_host(m, i) + part_at(m, i),
				part_of(m, i), false);
	}
}

/* ---- the sums of a microbatch ---- */

/* Rows of .n floats, to a sum from where a microbatch's lie. */
typedef struct rows {
	pd_many *v;
	int n, room;
} rows;
static rows added, first; /* first: of a step */

static void put(rows *r, float *sum, const float *one, size_t n)
{
	if (r->n == r->room) {
		r->room = r->room ? 2 * r->room : 64;
		r->v = realloc(r->v, (size_t)r->room * sizeof *r->v);
		if (!r->v)
			rt_fail(RT_MEMORY, "R501", "no memory for the sums of %d parts", r->room);
	}
	r->v[r->n++] = (pd_many){ .n = (int64_t)n, .at = { sum, one } };
}

void rt_moved_add(void)
{
	if (first.n && !rt_virtual) /* which computes nothing */
		pd_copy_many(first.v, first.n);
	if (added.n && !rt_virtual)
		pd_add_many(added.v, added.n);
	first.n = added.n = 0;
}

/* ---- what programs call ---- */

static void scatter_between(const rt_cut *b) { pd_scatter_start(b->group, b->to, b->part, (int)b->count); }

void pd_scatter_start(const pd_group *g, float *buf, const pd_part *p, int n)
{
	if (rt_section_cut(&(rt_cut){ .begin = scatter_between, .group = g, .to = buf, .count = n, .part = p }))
		return;
	rt_moved_start(&(rt_moved){ .group = g, .buf = buf, .part = p, .n = n, .size = sizeof *buf });
}

static void add_between(const rt_cut *b)
{
	pd_scatter_add(b->group, b->to, b->from, b->part, (int)b->count, (int)b->run);
}

void pd_scatter_add(const pd_group *g, float *sum, const float *one, const pd_part *p, int n, int add)
{
	if (rt_section_cut(&(rt_cut){
		    .begin = add_between, .group = g, .to = sum, .from = one, .count = n, .part = p, .run = add }))
		return;
	rt_moved_start(
		&(rt_moved){ .group = g, .buf = (void *)(uintptr_t)one, .part = p, .n = n, .size = sizeof *one });
	for (int i = 0; i < n; i++) {
		const size_t of = pd_part_of(rt_program->replica, p[i].part, p[i].n);

		if (of)
			put(add ? &added : &first, sum + p[i].own,
				one + p[i].at + pd_part_at(rt_program->replica, p[i].part, p[i].n), of);
	}
}

static void gather_between(const rt_cut *b)
{
	pd_gather_start(b->group, b->to, b->from, b->part, (int)b->count, (size_t)b->run);
}

void pd_gather_start(const pd_group *g, void *buf, const void *own, const pd_part *p, int n, size_t size)
{
	if (rt_section_cut(&(rt_cut){ .begin = gather_between,
		    .group = g,
		    .to = buf,
		    .from = own,
		    .count = n,
		    .part = p,
		    .run = (int64_t)size }))
		return;
	rt_moved_start(
		&(rt_moved){ .group = g, .buf = buf, .own = own, .part = p, .n = n, .size = size, .gathers = true });
}

/* In place. */
void pd_gather_parts(const pd_group *g, void *buf, const pd_part *p, int n, size_t size)
{
	pd_gather_start(g, buf, NULL, p, n, size);
	pd_allreduce_wait();
}

void pd_gradients_whole(const pd_group *g, void *buf, const pd_part *p, int n)
{
	if (rt_keeps_gradients())
		pd_gather_parts(g, buf, p, n, sizeof(float));
}
