/* The words of a command line. */
#ifndef PDCC_FRONTEND_WORDS_H
#define PDCC_FRONTEND_WORDS_H

#include "ir/base/diag.h"

typedef struct Words {
	const char **w;
	int n, cap;
} Words;

/* Words part at white space; '...' and "..." keep it; # begins a comment. */
void words_split(Arena *a, Words *to, const char *s);
/* w, or the words of FILE where w is @FILE; false after E0001. */
bool words_add(Arena *a, Words *to, const char *w, Diag *d);
/* All words but --save-config itself, a flag a line, so that `pdcc @FILE` is the same command; false after E0008. */
bool words_save(const Words *w, const char *path, Diag *d);

#endif
