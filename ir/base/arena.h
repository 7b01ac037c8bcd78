/* Bump arenas: one per module, one scratch arena per pass. Nothing is freed on its own; an arena dies whole. */
#ifndef PDCC_IR_ARENA_H
#define PDCC_IR_ARENA_H

#include <stdarg.h>
#include <stddef.h>

typedef struct Arena Arena;

Arena *arena_new(void);
void arena_free(Arena *a);
void arena_reset(Arena *a); /* forgets everything, keeps the first block */

/* Zeroed, aligned to 16 bytes; never NULL (memory exhaustion ends the program with a message, exit 1). */
void *arena_alloc(Arena *a, size_t bytes);
void *arena_raw(Arena *a, size_t bytes); /* the same, not zeroed */
void *arena_dup(Arena *a, const void *p, size_t bytes);
char *arena_str(Arena *a, const char *s);
char *arena_strn(Arena *a, const char *s, size_t n);
char *arena_vprintf(Arena *a, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));
char *arena_printf(Arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define NEW(a, T) ((T *)arena_alloc((a), sizeof(T)))
#define NEWN(a, T, n) ((T *)arena_alloc((a), sizeof(T) * (size_t)((n) > 0 ? (n) : 1)))

/* Appends to an arena-owned vector of pointers or structs: PUSH(a, v, n, cap) = item; v, n and cap are lvalues. */
#define PUSH(a, v, n, cap) \
	(*((n) == (cap) ? ((v) = arena_grow((a), (v), (size_t)(n) * sizeof *(v), \
				   (size_t)((cap) = (cap) ? 2 * (cap) : 8) * sizeof *(v))) \
			: (v), \
		&(v)[(n)++]))
void *arena_grow(Arena *a, const void *old, size_t used, size_t bytes);

#endif
