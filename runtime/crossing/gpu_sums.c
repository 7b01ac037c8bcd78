/* gpu_sums.c: AllReduces, and what replicas have parts of (--zero), that run in the background of a GPU program. By NCCL
 * where GPUs exchange messages themselves; else staged through pinned memory, on streams of their own (gpu_streams.c): a sum begins when
 * the copy of its last gradient is there, and is on its way back to the device as soon as it is made, whatever others do. That memory is
 * made before step 0, from what the program says of its sums (pd_sum_open, pd_parts_open). */
#include "gpu_parts.h"
#include <stdlib.h>

void host_allreduce_start(const pd_group *g, float *buf, size_t count, const pd_sum *how);
void host_allreduce_wait(void);
void host_count_join(const pd_group *g, bool later);
void host_sums_wait(void);

/* In the order in which a step begins them: those of the GPUs themselves are waited for by the last. */
static rt_flight direct;

/* Where a later update takes them: an event behind those of the step. */
static cudaEvent_t *behind_step(int64_t step)
{
	static cudaEvent_t *event;
	const int64_t n = rt_program->flow + 1;

	if (!event)
		event = rt_alloc((size_t)n * sizeof *event);
	return &event[step % n];
}

/* A tensor of the device, its place in the host's memory, and when that has it, or the device has it back. */
typedef struct stage {
	void *host, *tensor;
	size_t bytes, room;
	cudaEvent_t ready, copied;
} stage;

/* Sums that are staged, in the order in which they were begun: n of a step so far, of which `begun` are the host's to make and `back`
 * on their way back. */
typedef struct sum_of {
	stage sum, residual;
	const pd_group *group;
	pd_sum how;
	bool plain;
	rt_moved parts; /* n > 0: these, in place of a sum */
	int64_t number;
} sum_of;
static struct {
	sum_of **v;
	int n, begun, back, room;
} sums;

static void make_room(stage *s, size_t bytes)
{
	if (bytes <= s->room)
		return;
	s->host = rt_pinned(s->host, bytes);
	s->room = bytes;
}

/* What a step will begin, each with the rooms that it needs; which of them is which shows in the first step. */
static void more_sums(void)
{
	const int n = sums.room ? 2 * sums.room : 64;

	sums.v = realloc(sums.v, (size_t)n * sizeof *sums.v);
	if (!sums.v)
		rt_fail(RT_MEMORY, "R501", "no memory for %d sums", n);
	while (sums.room < n)
		sums.v[sums.room++] = rt_alloc(sizeof **sums.v);
}

static struct opened {
	size_t bytes;
	bool exact, residual;
} *opened;
static int nopened;

static void open_one(struct opened of)
{
	opened = realloc(opened, (size_t)(nopened + 1) * sizeof *opened);
	if (!opened)
		rt_fail(RT_MEMORY, "R501", "no memory for %d sums", nopened + 1);
	opened[nopened++] = of;
}

void pd_sum_open(size_t count, const pd_sum *how)
{
	open_one((struct opened){ count * sizeof(float), !how || how->codec == PD_CODEC_EXACT, how && how->residual });
}

/* Groups that move parts: those of the stages of this device. */
static const pd_group **moving;
static int nmoving;

bool rt_moves_parts(const pd_group *g)
{
	for (int i = 0; i < nmoving; i++)
		if (moving[i]->n == g->n && !memcmp(moving[i]->rank, g->rank, (size_t)g->n * sizeof *g->rank))
			return true;
	return false;
}

void pd_parts_open(const pd_group *g, const pd_part *p, int n, size_t size)
{
	open_one((struct opened){ rt_moved_bytes(p, n, size), true, false });
	if (rt_moves_parts(g))
		return;
	moving = realloc(moving, (size_t)(nmoving + 1) * sizeof *moving);
	if (!moving)
		rt_fail(RT_MEMORY, "R501", "no memory for %d groups", nmoving + 1);
	moving[nmoving++] = g;
}

void rt_sum_rooms(bool by_nccl)
{
	for (int i = 0, n = 0; i < nopened; i++) {
		if (by_nccl && opened[i].exact)
			continue;
		if (n == sums.room)
			more_sums();
		make_room(&sums.v[n]->sum, opened[i].bytes);
		make_room(&sums.v[n++]->residual, opened[i].residual ? opened[i].bytes : 0);
	}
}

/* A place for the next sum of the step, the smallest that suffices; it stays the place of this sum of a step. */
static sum_of *next_sum(size_t bytes, bool residual)
{
	int found = sums.n;

	if (sums.n == sums.room)
		more_sums();
	for (int k = sums.n; k < sums.room; k++) {
		const sum_of *s = sums.v[k], *best = sums.v[found];

		if (s->sum.room >= bytes && (!residual || s->residual.room >= bytes) &&
			(best->sum.room < bytes || (residual && best->residual.room < bytes) ||
				s->sum.room < best->sum.room))
			found = k;
	}
	sum_of *s = sums.v[found];

	sums.v[found] = sums.v[sums.n];
	return sums.v[sums.n++] = s;
}

/* Its place in the host's memory is free, and what the device was told so far will be done before it is copied there. */
static void before_copy(stage *s, void *tensor, size_t bytes)
{
	rt_until(s->copied);
	make_room(s, bytes);
	s->tensor = tensor;
	s->bytes = bytes;
	rt_record_on(&s->ready, RT_COMPUTE);
	rt_wait_on(RT_SUMS, s->ready);
}

static void to_host(stage *s, void *tensor, size_t bytes)
{
	before_copy(s, tensor, bytes);
	rt_copy_on(RT_SUMS, s->host, tensor, bytes, true);
	rt_record_on(&s->copied, RT_SUMS);
}

static void to_device(stage *s)
{
	rt_copy_on(RT_RETURNS, s->tensor, s->host, s->bytes, false);
	rt_record_on(&s->copied, RT_RETURNS);
}

static void begin_sum(void *what)
{
	sum_of *s = what;

	if (s->parts.n)
		rt_moved_begin(&s->parts);
	else
		host_allreduce_start(s->group, s->sum.host, s->sum.bytes / sizeof(float), s->plain ? NULL : &s->how);
	s->number = rt_ring_begun();
	sums.begun++;
}

void rt_sums_return(void)
{
	while (sums.back < sums.begun && rt_ring_over() >= sums.v[sums.back]->number) {
		sum_of *s = sums.v[sums.back++];

		if (s->parts.n) {
			rt_moved_back(&s->parts);
			rt_record_on(&s->sum.copied, RT_RETURNS);
			continue;
		}
		to_device(&s->sum);
		if (s->how.residual)
			to_device(&s->residual);
	}
}

static void start_between(const rt_cut *b)
{
	pd_allreduce_start(b->group, b->to, (size_t)b->count, b->plain ? NULL : &b->how);
}

void pd_allreduce_start(const pd_group *g, float *buf, size_t count, const pd_sum *how)
{
	static int64_t step = -1;

	if (rt_section_cut(&(rt_cut){ .begin = start_between,
		    .group = g,
		    .to = buf,
		    .count = (int64_t)count,
		    .plain = !how,
		    .how = how ? *how : (pd_sum){ 0 } }))
		return;
	if ((!how || how->codec == PD_CODEC_EXACT) && rt_nccl_sum(&direct, g, buf, count))
		return;
	if (how && how->residual && step != rt_step) {
		pd_allreduce_wait(); /* sums of earlier steps have left what their residuals are */
		step = rt_step;
	}
	sum_of *s = next_sum(count * sizeof *buf, how && how->residual);

	s->group = g;
	s->plain = !how;
	s->how = how ? *how : (pd_sum){ 0 };
	s->parts.n = 0;
	if (s->how.residual) {
		to_host(&s->residual, s->how.residual, count * sizeof *buf);
		s->how.residual = s->residual.host;
	}
	to_host(&s->sum, buf, count * sizeof *buf);
	rt_then(s->sum.copied, begin_sum, s);
}

void rt_moved_start(const rt_moved *m)
{
	if (rt_alone)
		rt_moved_alone(m);
	if (m->group->n == 1 || rt_alone || rt_nccl_parts(&direct, m))
		return;
	sum_of *s = next_sum(rt_moved_bytes(m->part, m->n, m->size), false);
	pd_part *table = s->parts.packed;
	const int room = s->parts.room;

	s->parts = *m;
	s->parts.packed = table;
	s->parts.room = room;
	s->how.residual = NULL;
	before_copy(&s->sum, NULL, rt_moved_bytes(m->part, m->n, m->size));
	s->parts.host = s->sum.host;
	rt_moved_there(&s->parts);
	rt_record_on(&s->sum.copied, RT_SUMS);
	rt_then(s->sum.copied, begin_sum, s);
}

/* What is started next has the first n sums; the host waits for those that it makes itself, in their order. Their places are free. */
static void have_sums(int n)
{
	for (rt_sums_return(); sums.back < n; rt_sums_return())
		rt_wait_sum(sums.v[sums.back]->number);
	for (int i = 0; i < n; i++) {
		sum_of *s = sums.v[0];

		rt_wait_on(RT_COMPUTE, s->sum.copied);
		if (s->how.residual)
			rt_wait_on(RT_COMPUTE, s->residual.copied);
		memmove(sums.v, sums.v + 1, (size_t)--sums.n * sizeof *sums.v);
		sums.v[sums.n] = s;
	}
	sums.begun -= n;
	sums.back -= n;
}

static void wait_between(const rt_cut *b)
{
	(void)b;
	pd_allreduce_wait();
}

void pd_allreduce_wait(void)
{
	if (rt_section_cut(&(rt_cut){ .begin = wait_between }))
		return;
	rt_wait_on(RT_COMPUTE, direct.done);
	rt_gpu_drain();
	have_sums(sums.n);
	host_allreduce_wait(); /* what the host sums for itself */
	rt_moved_add();
}

void pd_allreduce_as(const pd_group *g, float *buf, size_t count, const pd_sum *how)
{
	pd_allreduce_start(g, buf, count, how);
	pd_allreduce_wait();
}

/* Sums begin in one order on every rank, and the count's begins at once. */
void pd_count_join(const pd_group *g, bool later)
{
	rt_gpu_drain();
	host_count_join(g, later);
	if (later)
		rt_record_on(behind_step(rt_step), RT_SUMS);
}

void pd_sums_wait(void)
{
	const int64_t last = rt_flow_sums();
	int n = 0;

	rt_wait_on(RT_COMPUTE, *behind_step(rt_update_step));
	while (n < sums.begun && sums.v[n]->number <= last)
		n++;
	have_sums(n);
	host_sums_wait(); /* how many labels count */
}
