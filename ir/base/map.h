/* Hash maps keyed by string or by pointer. Iteration is in insertion order, so output never depends on addresses. */
#ifndef PDCC_IR_MAP_H
#define PDCC_IR_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include "arena.h"

typedef struct MapSlot {
	const void *key;
	void *val;
	size_t sum; /* hash of the key */
} MapSlot;

typedef struct Map {
	Arena *arena;
	bool by_name;  /* keys are strings compared by content; else pointers */
	MapSlot *slot; /* n entries in order of insertion */
	size_t n, cap;
	unsigned *hash; /* open addressing over slot index + 1 */
	size_t nhash;
} Map;

void map_init(Map *m, Arena *a, bool by_name); /* string keys are copied into the arena */
void *map_get(const Map *m, const void *key);  /* NULL when absent */
bool map_has(const Map *m, const void *key);
void map_put(Map *m, const void *key, void *val); /* replaces */

#endif
