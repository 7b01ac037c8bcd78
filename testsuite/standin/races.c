/* races.c: accesses of a kernel's threads held against each other (watch.h). Two to the same byte by different threads, at least one of
 * them a write, not both atomic, are a race but where they are ordered:
 *
 *   - in a block, by a barrier of the block between them, or of the warp that both belong to;
 *   - between blocks, where the thread of the first has a __threadfence and then an atomic operation on some word, and a thread of the
 *     other block one on the same word later: what came before the fence comes before what is behind the second operation, and so
 *     does the first operation itself. A barrier of the block carries that to its other threads, on both sides.
 *
 * Blocks run one after the other, threads until they wait: the order in which accesses come here is one of many. What is in memory is
 * kept per cell of 1 to 16 bytes, as large as the accesses to it are: the last write and two reads. Two are enough: of different
 * threads, of different warps or blocks where there are such, so that a write that is not ordered behind all reads is not behind one of
 * these. Atomic operations are kept like reads. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "standin.h"
#include "watch.h"

typedef struct access {
	uint32_t block;      /* stamp: blocks are counted since the start, 0: there is none */
	uint32_t epoch;      /* barriers of its block before */
	uint32_t warp_epoch; /* barriers of its warp since */
	uint16_t thread;
	uint16_t fences; /* of the thread, before */
	const void *code;
} access;
typedef struct cell {
	access write, read[2], *atomic;
} cell;
typedef struct line {
	cell *cells;
	unsigned bytes;
} line; /* of a cell */
enum { LINE = 64, LINES = 4096 / LINE };
typedef struct page {
	uintptr_t number;
	line lines[LINES];
} page;

enum { MOST = 1024, WARP = 32 };
static const char *kernel;
static unsigned threads;
static uint32_t first_block, stamp; /* of this launch; of this block */
static access now;                  /* the thread that runs */
static uint32_t epoch, warp_epochs[MOST / WARP];
static uint16_t fences[MOST];
static access fenced[MOST]; /* the last fence of each thread of this block */

static void *room(void *old, size_t bytes)
{
	void *p = realloc(old, bytes);

	if (!p)
		abort();
	return p;
}

/* ---- memory ---- */

static page **table;
static size_t slots, used;

static size_t slot_of(uintptr_t number)
{
	size_t i = (size_t)(number * UINT64_C(0x9e3779b97f4a7c15) >> 20) & (slots - 1);

	while (table[i] && table[i]->number != number)
		i = (i + 1) & (slots - 1);
	return i;
}

static page *page_of(uintptr_t number)
{
	static page *last;

	if (last && last->number == number)
		return last;
	if (2 * used >= slots) {
		page **old = table;
		const size_t n = slots;

		slots = n ? 2 * n : 1024;
		table = calloc(slots, sizeof *table);
		if (!table)
			abort();
		for (size_t i = 0; i < n; i++)
			if (old[i])
				table[slot_of(old[i]->number)] = old[i];
		free(old);
	}
	page **p = &table[slot_of(number)];
	if (!*p) {
		*p = calloc(1, sizeof **p);
		if (!*p)
			abort();
		(*p)->number = number;
		used++;
	}
	return last = *p;
}

static unsigned lowest_bit(size_t x) { return (unsigned)(x & -x); }

/* Cells become as small as what is accessed begins and ends. */
static void divide(line *l, unsigned bytes)
{
	cell *old = l->cells;

	l->cells = calloc(LINE / bytes, sizeof *l->cells);
	if (!l->cells)
		abort();
	for (unsigned i = 0; old && i < LINE / bytes; i++) {
		l->cells[i] = old[i * bytes / l->bytes];
		if (l->cells[i].atomic)
			l->cells[i].atomic =
				memcpy(room(NULL, 2 * sizeof(access)), l->cells[i].atomic, 2 * sizeof(access));
	}
	for (unsigned i = 0; old && i < LINE / l->bytes; i++)
		free(old[i].atomic);
	free(old);
	l->bytes = bytes;
}

/* ---- order ---- */

/* Of two accesses in a block: a comes before b. */
static bool before(const access *a, const access *b)
{
	return a->thread == b->thread || a->epoch < b->epoch ||
	       (a->epoch == b->epoch && a->thread / WARP == b->thread / WARP && a->warp_epoch < b->warp_epoch);
}

/* Words on which atomic operations took place, with the fences in front of them, in this launch. */
typedef struct told {
	access fence;
	unsigned fences;
} told; /* of its thread until the operation */
typedef struct word {
	const void *at;
	size_t bytes;
	told *v;
	size_t n, room;
} word;
static word *words;
static size_t nwords, words_room;
/* What threads of this block have so read: the first n of a word. */
static struct heard {
	access by;
	size_t word, n;
} *heard;
static size_t nheard, heard_room;

static size_t word_of(const void *p, size_t bytes)
{
	for (size_t i = 0; i < nwords; i++)
		if (words[i].at == p && words[i].bytes == bytes)
			return i;
	if (nwords == words_room)
		words = room(words, (words_room = 2 * words_room + 16) * sizeof *words);
	words[nwords] = (word){ .at = p, .bytes = bytes };
	return nwords++;
}

static void tell_and_hear(const void *p, size_t bytes)
{
	const size_t k = word_of(p, bytes);
	word *w = &words[k];

	if (nheard == heard_room)
		heard = room(heard, (heard_room = 2 * heard_room + 16) * sizeof *heard);
	heard[nheard++] = (struct heard){ now, k, w->n };
	if (!now.fences)
		return;
	if (w->n == w->room)
		w->v = room(w->v, (w->room = 2 * w->room + 16) * sizeof *w->v);
	w->v[w->n++] = (told){ fenced[now.thread], now.fences };
}

/* An access of an earlier block comes before the thread that runs. */
static bool passed_on(const access *a, bool atomic, const void *p)
{
	for (size_t i = 0; i < nheard; i++) {
		const word *w = &words[heard[i].word];

		if (!before(&heard[i].by, &now))
			continue;
		if (atomic && (uintptr_t)p - (uintptr_t)w->at < w->bytes)
			return true; /* an operation on that very word */
		for (size_t k = 0; k < heard[i].n; k++) {
			const told *t = &w->v[k];

			if (t->fence.block != a->block)
				continue;
			if (a->thread == t->fence.thread ? a->fences < t->fences : before(a, &t->fence))
				return true;
		}
	}
	return false;
}

static bool ordered(const access *a, bool atomic, bool shared, const void *p)
{
	if (a->block < first_block || (shared && a->block != stamp))
		return true; /* of another launch, or block: there is none */
	return a->block == stamp ? before(a, &now) : passed_on(a, atomic, p);
}

/* ---- what is found ---- */

typedef struct race {
	access a, b;
	watch_how a_how, b_how;
	const void *p;
	size_t times;
} race;
enum { RACES = 64 };
static race races[RACES]; /* of this launch */
static size_t nraces;
static struct {
	const char *kernel;
	const void *a, *b;
} told_of[RACES]; /* since the start */
static size_t ntold;

static void found(const access *a, watch_how a_how, watch_how b_how, const void *p)
{
	for (size_t i = 0; i < nraces; i++)
		if (races[i].a.code == a->code && races[i].b.code == now.code) {
			races[i].times++;
			return;
		}
	if (nraces < RACES)
		races[nraces++] = (race){ *a, now, a_how, b_how, p, 1 };
}

static void say(const race *r)
{
	static const char *const did[] = { "reads", "writes", "changes atomically" };
	char where[2][WATCH_WHERE], memory[96];

	for (size_t i = 0; i < ntold; i++)
		if (told_of[i].a == r->a.code && told_of[i].b == r->b.code && told_of[i].kernel == kernel)
			return;
	if (ntold == RACES)
		return;
	told_of[ntold].kernel = kernel;
	told_of[ntold].a = r->a.code;
	told_of[ntold++].b = r->b.code;
	watch_where(2, (const void *const[]){ r->a.code, r->b.code }, where);
	watch_memory(r->p, memory, sizeof memory);
	watch_say("race in kernel %s, %s, %zu times: block %u, thread %u %s (%s); block %u, thread %u %s (%s)\n",
		kernel, memory, r->times, r->a.block - first_block, r->a.thread, did[r->a_how], where[0],
		r->b.block - first_block, r->b.thread, did[r->b_how], where[1]);
}

/* ---- what happens ---- */

/* b is put among the two that are kept: in the place of one that it stands for. */
static void keep(access v[2], bool atomic, bool shared, const void *p)
{
	for (int i = 0; i < 2; i++) {
		if (ordered(&v[i], atomic, shared, p)) {
			v[i] = now;
			if (ordered(&v[1 - i], atomic, shared, p))
				v[1 - i] = (access){ 0 };
			return;
		}
	}
	if (v[0].block == v[1].block && v[0].thread / WARP == v[1].thread / WARP &&
		(now.block != v[0].block || now.thread / WARP != v[0].thread / WARP))
		v[1] = now;
	else if (v[0].block == v[1].block && now.block != v[0].block)
		v[1] = now;
}

static void meet(cell *c, watch_how how, bool shared, const void *p)
{
	if (!ordered(&c->write, false, shared, p))
		found(&c->write, WATCH_WRITES, how, p);
	for (int i = 0; i < 2 && how != WATCH_READS; i++)
		if (!ordered(&c->read[i], false, shared, p))
			found(&c->read[i], WATCH_READS, how, p);
	for (int i = 0; i < 2 && how != WATCH_ATOMIC && c->atomic; i++)
		if (!ordered(&c->atomic[i], true, shared, p))
			found(&c->atomic[i], WATCH_ATOMIC, how, p);
	if (how == WATCH_ATOMIC && !c->atomic) {
		c->atomic = calloc(2, sizeof *c->atomic);
		if (!c->atomic)
			abort();
	}
	if (how == WATCH_READS) {
		keep(c->read, false, shared, p);
	} else if (how == WATCH_ATOMIC) {
		keep(c->atomic, true, shared, p);
	} else {
		c->write = now;
		memset(c->read, 0, sizeof c->read);
		if (c->atomic)
			memset(c->atomic, 0, 2 * sizeof *c->atomic);
	}
}

void races_access(const void *p, size_t bytes, watch_how how, bool shared, const void *code)
{
	now.code = code;
	if (how == WATCH_ATOMIC && !shared)
		tell_and_hear(p, bytes);
	for (uintptr_t at = (uintptr_t)p, end = at + bytes; at < end;) {
		page *g = page_of(at >> 12);
		line *l = &g->lines[at % 4096 / LINE];
		const size_t from = at % LINE, n = end - at < LINE - from ? end - at : LINE - from;
		const unsigned fits = lowest_bit(from | n | 16);

		if (!l->cells || fits < l->bytes)
			divide(l, fits);
		for (size_t i = from; i < from + n; i += l->bytes)
			meet(&l->cells[i / l->bytes], how, shared, (const char *)at + (i - from));
		at += n;
	}
}

void races_begin(const char *name, unsigned n)
{
	kernel = name;
	threads = n;
	first_block = stamp + 1;
	for (size_t i = 0; i < nwords; i++)
		free(words[i].v);
	nwords = nraces = 0;
}

void races_block(unsigned block)
{
	stamp = first_block + block;
	epoch = 0;
	nheard = 0;
	memset(warp_epochs, 0, sizeof warp_epochs);
	memset(fences, 0, threads * sizeof *fences);
}

void races_thread(unsigned t) { now = (access){ stamp, epoch, warp_epochs[t / WARP], (uint16_t)t, fences[t], NULL }; }

void races_barrier(unsigned first, unsigned n)
{
	if (first == 0 && n == threads) {
		epoch++;
		memset(warp_epochs, 0, sizeof warp_epochs);
	} else {
		warp_epochs[first / WARP]++;
	}
}

void races_fence(void)
{
	now.fences = ++fences[now.thread];
	fenced[now.thread] = now;
}

size_t races_found(void) { return nraces; }

void races_end(void)
{
	for (size_t i = 0; i < nraces; i++)
		say(&races[i]);
}
