/* parts.c: tensors of which each replica has a part. allreduce.c moves them, block by block. */
#include "parts.h"
#include "rt.h"
#include <stdlib.h>

static size_t elements_of(const rt_parts *p, int member)
{
	size_t n = 0;

	for (int i = 0; i < p->n; i++)
		n += pd_part_of(member, p->part[i].part, p->part[i].n);
	return n;
}

int64_t rt_parts_blocks(const rt_parts *p, size_t most)
{
	const size_t bytes = elements_of(p, 0) * p->size; /* nobody has more */

	return (int64_t)((bytes + most - 1) / most);
}

size_t rt_parts_bytes(const rt_parts *p, int member, int64_t block, size_t most)
{
	const size_t bytes = elements_of(p, member) * p->size, at = (size_t)block * most;

	return at >= bytes ? 0 : bytes - at < most ? bytes - at : most;
}

/* What one run of a block is done with: elements where they lie, and in the message. */
typedef void run(const rt_parts *p, char *here, char *packed, size_t n);

static void each_run(const rt_parts *p, int member, int64_t block, char *packed, size_t most, run *what)
{
	size_t at = (size_t)block * most / p->size, left = rt_parts_bytes(p, member, block, most) / p->size;

	for (int i = 0; i < p->n && left; i++) {
		const pd_part *x = &p->part[i];
		const size_t has = pd_part_of(member, x->part, x->n);

		if (at >= has) {
			at -= has;
			continue;
		}
		const size_t n = has - at < left ? has - at : left;
		const bool own = p->own && member == p->self;
		const size_t first = own ? (size_t)x->own : (size_t)x->at + pd_part_at(member, x->part, x->n);

		what(p, (char *)(own ? p->own : p->buf) + (first + at) * p->size, packed, n);
		packed += n * p->size;
		left -= n;
		at = 0;
	}
}

static void take(const rt_parts *p, char *here, char *packed, size_t n) { memcpy(packed, here, n * p->size); }

static void put(const rt_parts *p, char *here, char *packed, size_t n)
{
	float *restrict sum = (float *)(void *)here;
	const float *restrict x = (const float *)(void *)packed;

	if (!p->add) {
		memcpy(here, packed, n * p->size);
		return;
	}
	for (size_t i = 0; i < n; i++)
		sum[i] += x[i];
}

size_t rt_parts_take(const rt_parts *p, int member, int64_t block, void *to, size_t most)
{
	each_run(p, member, block, to, most, take);
	return rt_parts_bytes(p, member, block, most);
}

void rt_parts_put(const rt_parts *p, int member, int64_t block, const void *from, size_t most)
{
	each_run(p, member, block, (char *)(uintptr_t)from, most, put);
}

/* ---- files ---- */

bool rt_parts_mine(const pd_param *q)
{
	return q->owner >= 0 && rt_program->rank >= q->owner && rt_program->rank < q->owner + rt_program->replicas;
}

char *rt_parts_whole(const pd_param *q, const char *part)
{
	const pd_param w = rt_param_local(q);
	const size_t bytes = rt_param_bytes(&w), size = rt_param_bytes(q) / (size_t)q->part;
	const int64_t n = (int64_t)(bytes / size);
	const size_t own = size * pd_part_of(rt_program->replica, q->part, n);

	if (rt_program->rank != q->owner) {
		if (own)
			rt_send(q->owner, RT_TAG_FILE, part, own);
		return NULL;
	}
	char *whole = rt_alloc(bytes + 1);

	memcpy(whole, part, own);
	for (int r = 1; r < rt_program->replicas; r++)
		if (pd_part_of(r, q->part, n))
			rt_recv(q->owner + r, RT_TAG_FILE, whole + size * pd_part_at(r, q->part, n),
				size * pd_part_of(r, q->part, n));
	return whole;
}

/* Lines of the whole, from one index of all axes before the padded one to the next: how many, their bytes as files have them, and with
 * the zeros. */
typedef struct lines {
	size_t n, stored, wide;
} lines;

static lines lines_of(const pd_param *q)
{
	const pd_param w = rt_param_whole(q);
	lines l = { 1, rt_param_bytes(&w), 0 };

	for (int i = 0; i < q->axis; i++)
		l.n *= (size_t)w.dim[i];
	l.stored /= l.n;
	l.wide = l.stored / (size_t)w.dim[q->axis] * (size_t)(w.dim[q->axis] + q->pad);
	return l;
}

char *rt_padded(const pd_param *q, const char *stored)
{
	const lines l = lines_of(q);
	char *wide = rt_alloc(l.n * l.wide + 1);

	for (size_t i = 0; i < l.n; i++) {
		memcpy(wide + i * l.wide, stored + i * l.stored, l.stored);
		memset(wide + i * l.wide + l.stored, 0, l.wide - l.stored);
	}
	return wide;
}

/* In place where to is wide. */
static void unpad(const pd_param *q, const char *wide, char *to)
{
	const lines l = lines_of(q);

	for (size_t i = 0; i < l.n; i++)
		memmove(to + i * l.stored, wide + i * l.wide, l.stored);
}

char *rt_joined(const pd_param *q, const char *value)
{
	const pd_param w = rt_param_local(q);
	char *whole = q->part ? rt_parts_whole(q, value) : NULL;

	if (q->part && !whole)
		return NULL;
	if (q->blocks) {
		char *local = whole;

		whole = rt_tensor_whole(&w, local ? local : value, rt_param_bytes(&w));
		free(local);
	}
	if (!q->pad || (q->blocks && !whole))
		return whole;
	char *own = whole ? whole : rt_alloc(rt_param_bytes(&w) + 1);

	unpad(q, whole ? whole : value, own);
	return own;
}
