/* The template engine: a partial preprocessor. A template is C as it stands; holes are identifiers in it.
 *
 *     #if #elif #else #endif on integer expressions over holes    resolved
 *     a hole as a whole word, outside of comments and strings     replaced; what it stands for is looked at again
 *     everything else                                             copied
 *
 * So `cpp -DHOLE=TEXT ...` of the same file gives the same tokens, and a template compiles without pdcc. */
#ifndef PDCC_CODEGEN_TMPL_H
#define PDCC_CODEGEN_TMPL_H

#include "ir/base/buf.h"
#include "ir/op.h"

/* Files that the build embeds: templates of the ops, sources of the runtime, frames of the build folder. */
typedef struct Embedded {
	const char *name; /* "ops/reduce/reduce.cpu.c", "runtime/pd.h", "codegen/frames/Makefile.in" */
	const char *text;
} Embedded;
extern const Embedded embedded[];
extern const int nembedded;

const char *embedded_text(const char *name); /* NULL: no such file */

/* --templates=DIR: read templates from DIR (as ir/ops: DIR/family/file) instead; NULL: embedded ones. */
void tmpl_dir(const char *dir);
/* Text of the template called `file` ("softmax.cpu.c"), in arena or static memory; NULL: there is none. */
const char *tmpl_text(Arena *a, const char *file);

/* Adds the filled template to out, and to host (may be NULL) the head of the function behind PD_HOST. NAME is h->name; holes that
 * h lacks are taken from more (may be NULL). Faults of the template (E0701) are reported with its line. */
bool tmpl_fill(Buf *out, Buf *host, const char *file, const char *text, const Holes *h, const Holes *more, Diag *d);
/* Length of the head of a template: the comment it begins with, and comments between #if and #endif behind it, which hold where
 * their branch is taken; 0: none. */
size_t tmpl_head(const char *text);

#endif
