/* The line writer: owns indentation, braces of blocks, line ends and the column of comments. Long statements are broken
 * after a comma. */
#ifndef PDCC_CODEGEN_CW_H
#define PDCC_CODEGEN_CW_H

#include "ir/base/buf.h"

typedef struct Cw {
	Buf *out;
	int indent;
	int pending; /* a blank line is due before the next line */
	bool whole;  /* lines are never broken */
} Cw;

void cw_line(Cw *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The statement, and at the right the comment (NULL or "": none). */
void cw_stmt(Cw *w, const char *comment, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Statements, one per line of text; the comment goes with the first. */
void cw_stmts(Cw *w, const char *comment, const char *text);
void cw_blank(Cw *w); /* at most one in a row, none before a closing brace */
/* Bytes of a character that turns the direction of what stands behind it (U+061C, U+200E, U+200F, U+202A to U+202E, U+2066 to
 * U+2069), breaks lines or controls a terminal: what a person reads is then not what a compiler reads. 0: none begins here. */
int cw_turns(const char *s);
void cw_comment(Cw *w, const char *fmt, ...) __attribute__((format(printf, 2, 3))); /* wrapped at the margin */
void cw_func(Cw *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));    /* brace on a line of its own */
void cw_brace(Cw *w);                                                               /* an opening brace alone */
void cw_end(Cw *w);                                                                 /* a closing brace alone */
void cw_open(Cw *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));    /* brace at the end of the line */
void cw_close(Cw *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));   /* what follows the brace */
void cw_label(Cw *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));   /* one step to the left */
/* Items of a braced list, packed into lines: begin with cw_open, one call per item, cw_items_end, then cw_close. */
typedef struct CwItems {
	Cw *w;
	Buf line;
} CwItems;
void cw_item(CwItems *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void cw_items_end(CwItems *l);

#endif
