/* Differences of two texts, line by line. */
#ifndef PDCC_PASSES_DIFF_H
#define PDCC_PASSES_DIFF_H

#include <stdbool.h>
#include "ir/base/arena.h"
#include "ir/base/buf.h"

/* A line of either text or of both, in order. x, y: indices of lines, -1: it is on the other side only. Where both are there
 * and same is false the line became another: what it defines (the words before " = " or " : ") kept its name. */
typedef struct DiffRow {
	int x, y;
	bool same;
} DiffRow;

typedef struct Diff {
	const char **x, **y; /* lines without their ends */
	int nx, ny;
	DiffRow *row;
	int n, cap;
	int removed, added; /* lines that are not in both; one that became another is counted in each */
} Diff;

/* Patience diff: lines that are once in each text hold the others apart. Deterministic; O(n log n) but for recursion. */
Diff diff_texts(Arena *a, const char *before, const char *after);
void diff_unified(Buf *b, const Diff *d); /* "@@ -1,2 +1,3 @@" and lines with - and +; no context */
/* The rows of a table, both texts side by side, `context` equal lines round every change, at most `most` rows. */
void diff_html(Buf *b, const Diff *d, int context, int most);

#endif
