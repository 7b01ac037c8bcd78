/* Diagnostics: errors with places for the user, bug() for our own faults. UX: gcc's form,
 *     FILE:LINE:COL: error: text [E0104]          a text file, and below it the line with a caret under the place
 *     FILE: node #12 'layer1/If_3' (If): error: text [E0312]      a model
 * A message names the thing, both values and the rule; lower case, no full stop. Errors are counted; printing
 * stops after the limit (20), checking goes on. */
#ifndef PDCC_IR_DIAG_H
#define PDCC_IR_DIAG_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include "arena.h"

/* Where something comes from. A text place has line > 0; a model place has node >= 0; else only the file. */
typedef struct Loc {
	const char *file; /* as the user named it; NULL: no place */
	int line, col;
	int node;         /* ONNX node index, -1: none */
	const char *name; /* ONNX node name, may be NULL or "" */
	const char *op;   /* ONNX op type */
	const char *
		module; /* PyTorch's module, where the file tells it beside the name: blocks.3.down; NULL: see loc_module */
} Loc;

#define NOLOC ((Loc){ .node = -1 })
#define FILELOC(f) ((Loc){ .file = (f), .node = -1 })
#define TEXTLOC(f, l, c) ((Loc){ .file = (f), .line = (l), .col = (c), .node = -1 })

/* The module that PyTorch has the node in, h.0.ln_1: told by the file, or by a name that its exporter made of modules,
 * /h.0/ln_1/Add_1. NULL: not known, or the model itself. */
const char *loc_module(Arena *a, const Loc *l);

/* Text for people; one JSON object per line; one SARIF 2.1.0 document, closed by diag_finish. */
typedef enum DiagFormat { DIAG_TEXT, DIAG_JSON, DIAG_SARIF } DiagFormat;

typedef struct Diag {
	FILE *out; /* stderr, or a test's memory stream */
	DiagFormat format;
	int shown;  /* messages written as JSON or SARIF */
	bool quiet; /* no notes and warnings */
	bool werror;
	bool color;
	int errors, warnings, limit;
	int last_code;            /* of the last error */
	const char *last_text;    /* its text, in scratch */
	int last_line, last_col;  /* its place; 0: in no text file */
	const char *disabled[16]; /* -Wno-x */
	int ndisabled;
	Arena *scratch; /* str_type() and friends print here */
} Diag;

void diag_init(Diag *d, FILE *out, Arena *scratch);

/* Always false, so rules read: return diag_error(d, n->loc, 203, "inner sizes differ: ..."). */
bool diag_error(Diag *d, Loc loc, int code, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
void diag_warn(Diag *d, Loc loc, const char *flag, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
void diag_note(Diag *d, Loc loc, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* The end of a SARIF document (an empty one when there was no message); nothing in other formats. */
void diag_finish(Diag *d);
/* diag.c's own: one message as JSON or SARIF; the line of a text file, with a caret under the column. */
void diag_json(Diag *d, const Loc *l, const char *severity, const char *code, const char *text);
void diag_excerpt(const Diag *d, const Loc *l);
/* Bytes of the UTF-8 character at s; 0: it is none, or would move the cursor or change the terminal. */
int diag_plain_char(const unsigned char *s);
/* A name of a model for a line of text: in it nothing moves the cursor, ends the line or turns its direction. */
const char *str_shown(Arena *a, const char *name);

/* The nearest of n words to `word` (edit distance at most a third of its length), NULL if none is near. */
const char *diag_nearest(const char *word, const char *const *words, int n);

/* Our own fault: prints the running pass (bug_context), file:line and text, then exits 70. */
#define bug(...) bug_at(__FILE__, __LINE__, __VA_ARGS__)
_Noreturn void bug_at(const char *file, int line, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
extern const char *bug_context;
extern void (*bug_hook)(void); /* writes the reproducer; may be NULL */

#endif
