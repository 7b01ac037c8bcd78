/* Hash maps with iteration in insertion order. */
#include "map.h"
#include <stdint.h>
#include <string.h>

void map_init(Map *m, Arena *a, bool by_name) { *m = (Map){ .arena = a, .by_name = by_name }; }

static size_t hash_of(const Map *m, const void *key)
{
	uint64_t h = 0xcbf29ce484222325u;

	if (m->by_name) {
		for (const unsigned char *s = key; *s; s++)
			h = (h ^ *s) * 0x100000001b3u;
	} else {
		h = ((uint64_t)(uintptr_t)key >> 4) * 0x9E3779B97F4A7C15u;
	}
	return (size_t)(h ^ (h >> 29));
}

static bool same(const Map *m, const void *a, const void *b) { return m->by_name ? strcmp(a, b) == 0 : a == b; }

/* The place of key in the index table: where it is, or where it would go. */
static size_t probe(const Map *m, const void *key, size_t sum)
{
	size_t i = sum & (m->nhash - 1);

	while (m->hash[i] && (m->slot[m->hash[i] - 1].sum != sum || !same(m, m->slot[m->hash[i] - 1].key, key)))
		i = (i + 1) & (m->nhash - 1);
	return i;
}

static const MapSlot *find(const Map *m, const void *key)
{
	if (!m->n)
		return NULL;
	unsigned k = m->hash[probe(m, key, hash_of(m, key))];
	return k ? &m->slot[k - 1] : NULL;
}

void *map_get(const Map *m, const void *key)
{
	const MapSlot *s = find(m, key);

	return s ? s->val : NULL;
}

bool map_has(const Map *m, const void *key) { return find(m, key) != NULL; }

static void rehash(Map *m, size_t nhash)
{
	m->nhash = nhash;
	m->hash = NEWN(m->arena, unsigned, nhash);
	for (size_t i = 0; i < m->n; i++)
		m->hash[probe(m, m->slot[i].key, m->slot[i].sum)] = (unsigned)i + 1;
}

void map_put(Map *m, const void *key, void *val)
{
	if (2 * (m->n + 1) > m->nhash)
		rehash(m, m->nhash ? 2 * m->nhash : 16);
	const size_t sum = hash_of(m, key), i = probe(m, key, sum);
	if (m->hash[i]) {
		m->slot[m->hash[i] - 1].val = val;
		return;
	}
	if (m->by_name)
		key = arena_str(m->arena, key);
	PUSH(m->arena, m->slot, m->n, m->cap) = ((MapSlot){ key, val, sum });
	m->hash[i] = (unsigned)m->n;
}
