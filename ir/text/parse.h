/* Private to lex.c, parse.c and parse_stage.c: the state of a parse and what it is made of. One fault ends a parse. */
#ifndef PDCC_IR_PARSE_H
#define PDCC_IR_PARSE_H

#include <setjmp.h>
#include "ir/op.h"
#include "ir/schedule.h"
#include "text.h"

enum { MOST_ITEMS = 1 << 20, MOST_DEVICES = 1 << 16 };

typedef struct Parser {
	Arena *a;
	Diag *d;
	const char *file, *p, *line_start;
	int line;
	Module *m;
	jmp_buf fail; /* what follows a fault would be noise */
} Parser;

Loc parse_here(const Parser *s);

#define fault(s, ...) (diag_error((s)->d, parse_here(s), 220, __VA_ARGS__), longjmp((s)->fail, 1))

/* ---- words (lex.c); all skip blanks and comments first ---- */
void lex_blanks(Parser *s);
bool lex_at(Parser *s, const char *word);   /* is this what follows? */
bool lex_eat(Parser *s, const char *word);  /* takes it if so */
void lex_want(Parser *s, const char *word); /* takes it; a fault if it is not there */
const char *lex_word(Parser *s);            /* bare or quoted; never empty when bare */
int64_t lex_int(Parser *s, int64_t lo, int64_t hi);
double lex_real(Parser *s);
unsigned lex_facts(Parser *s); /* Module.has, from words */
int lex_choice(Parser *s, const char *const *words, int n);
Type lex_type(Parser *s); /* f32[2,3]nhwc rows<=8 */
/* The next key of a brace list and its =; NULL at its end. *first is true before the first. */
const char *lex_key(Parser *s, bool *first);
void lex_unknown_key(Parser *s, const char *k);

/* ---- grammar ---- */
Value *parse_value(Parser *s, Graph *g);            /* %value of g, @param or @const; g may be NULL */
void parse_graph(Parser *s, Graph *g, Phase phase); /* from its ( to its } */
void parse_stage(Parser *s);                        /* behind the word stage (parse_stage.c) */
void parse_schedule(Parser *s);

#endif
