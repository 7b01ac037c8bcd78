/* What every pass changed, as a page for a browser: ir/index.html beside the dumps, and a part of --report. */
#ifndef PDCC_PASSES_CHANGES_H
#define PDCC_PASSES_CHANGES_H

#include "ir/ir.h"
#include "ir/base/buf.h"

typedef struct Changes {
	Buf table, parts;    /* rows of the table of passes; the differences */
	char *text;          /* behind the pass before, heap */
	int count[OP_COUNT]; /* nodes by operator, likewise */
	int idle;            /* passes that changed nothing: shown when asked for */
} Changes;

void changes_begin(Changes *c, const Module *m, const char *text); /* forgets what it had */
/* The pass that is the number-th of the pipeline left m, whose text is `text`. dumped: NN-name.pdir lies beside the page. */
void changes_add(
	Changes *c, int number, const char *name, const char *help, const Module *m, const char *text, bool dumped);
void changes_free(Changes *c);

extern const char changes_style[]; /* CSS for what changes_body writes */
void changes_body(Buf *b, const Changes *c);
void changes_page(Buf *b, const Changes *c, const char *title);

#endif
