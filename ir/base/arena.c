/* Bump arenas. Blocks double in size; big requests get a block of their own. */
#include "arena.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Block {
	struct Block *next;
	size_t used, size;
	_Alignas(16) unsigned char mem[];
} Block;

struct Arena {
	Block *first, *cur;
};

enum { FIRST_BLOCK = 16 << 10, LARGEST_BLOCK = 4 << 20 };

static void *must(void *p, size_t bytes)
{
	if (!p) {
		fprintf(stderr, "pdcc: error: out of memory: %zu bytes wanted\n", bytes);
		exit(1);
	}
	return p;
}

static Block *block_new(size_t size)
{
	Block *b = must(size < SIZE_MAX / 2 ? malloc(sizeof *b + size) : NULL, size);

	b->next = NULL;
	b->used = 0;
	b->size = size;
	return b;
}

Arena *arena_new(void)
{
	Arena *a = must(malloc(sizeof *a), sizeof *a);

	a->first = a->cur = block_new(FIRST_BLOCK);
	return a;
}

static void free_from(Block *b)
{
	while (b) {
		Block *next = b->next;

		free(b);
		b = next;
	}
}

void arena_free(Arena *a)
{
	if (!a)
		return;
	free_from(a->first);
	free(a);
}

void arena_reset(Arena *a)
{
	free_from(a->first->next);
	a->first->next = NULL;
	a->first->used = 0;
	a->cur = a->first;
}

static void *take(Arena *a, size_t bytes)
{
	size_t want = (bytes + 15) & ~(size_t)15;

	if (want < bytes)
		must(NULL, bytes);
	if (a->cur->size - a->cur->used < want) {
		size_t size = 2 * a->cur->size;

		if (size > LARGEST_BLOCK)
			size = LARGEST_BLOCK;
		if (size < want)
			size = want;
		a->cur->next = block_new(size);
		a->cur = a->cur->next;
	}
	void *p = a->cur->mem + a->cur->used;
	a->cur->used += want;
	return p;
}

void *arena_raw(Arena *a, size_t bytes) { return take(a, bytes ? bytes : 1); }

void *arena_alloc(Arena *a, size_t bytes) { return memset(arena_raw(a, bytes), 0, bytes ? bytes : 1); }

void *arena_dup(Arena *a, const void *p, size_t bytes)
{
	void *q = take(a, bytes ? bytes : 1);

	if (bytes)
		memcpy(q, p, bytes);
	return q;
}

char *arena_strn(Arena *a, const char *s, size_t n)
{
	char *q = take(a, n + 1);

	if (n)
		memcpy(q, s, n);
	q[n] = 0;
	return q;
}

char *arena_str(Arena *a, const char *s) { return arena_strn(a, s, strlen(s)); }

char *arena_vprintf(Arena *a, const char *fmt, va_list ap)
{
	va_list again;

	va_copy(again, ap);
	int n = vsnprintf(NULL, 0, fmt, again);
	va_end(again);
	char *s = take(a, (size_t)(n < 0 ? 0 : n) + 1);
	s[0] = 0;
	vsnprintf(s, (size_t)(n < 0 ? 0 : n) + 1, fmt, ap);
	return s;
}

char *arena_printf(Arena *a, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	char *s = arena_vprintf(a, fmt, ap);
	va_end(ap);
	return s;
}

void *arena_grow(Arena *a, const void *old, size_t used, size_t bytes)
{
	Block *b = a->cur;
	const size_t had = (used + 15) & ~(size_t)15, want = (bytes + 15) & ~(size_t)15;

	if (used && (const unsigned char *)old + had == b->mem + b->used && want > had &&
		want - had <= b->size - b->used) {
		unsigned char *same = b->mem + b->used - had; /* the last that was taken grows where it is */
		b->used += want - had;
		memset(same + used, 0, bytes - used);
		return same;
	}
	void *p = arena_alloc(a, bytes);
	if (used)
		memcpy(p, old, used);
	return p;
}
