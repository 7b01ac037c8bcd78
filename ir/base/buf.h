/* A growing string on the heap; what every printer writes into. */
#ifndef PDCC_IR_BUF_H
#define PDCC_IR_BUF_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "arena.h"

typedef struct Buf {
	char *s; /* always terminated once something was added; NULL before */
	size_t n, cap;
} Buf;

void buf_printf(Buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buf_vprintf(Buf *b, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));
void buf_int(Buf *b, int64_t n); /* in decimal */
void buf_puts(Buf *b, const char *s);
void buf_putc(Buf *b, char c);
void buf_add(Buf *b, const void *p, size_t n);
const char *buf_str(const Buf *b); /* "" when empty */
void buf_free(Buf *b);
void buf_clear(Buf *b);
const char *buf_kept(Buf *b, Arena *a); /* its text in the arena; the buffer is empty again */

/* Whole files. file_read returns heap memory with a terminating 0 byte, NULL with errno set; what can be read once ("-", a pipe) is
 * given to everyone who asks, and a pipe that nobody writes is ETIMEDOUT after five seconds. file_write replaces
 * the file only when all bytes were written (temporary name, then rename); what is no file, or a link to one, stays what it is. */
char *file_read(const char *path, size_t *n);
bool file_is_regular(const char *path); /* or a link to one: no folder, pipe or device, of which some never end */
bool file_write(const char *path, const void *p, size_t n);

/* A string of JSON, quotes and all, which is one of YAML too: control characters, separators of lines and marks of direction as \uNNNN. */
void buf_json(Buf *b, const char *s);
/* One character of it; how many bytes of s that is. */
int json_char(const char *s, char to[8]);

/* As text or in an attribute of XML and HTML: &, <, > and quotes as entities, marks of direction as "[U+202E]", bytes that
 * are no UTF-8 as U+FFFD, so that no name leaves its string or turns what is behind it. */
void buf_xml(Buf *b, const char *text);

#endif
