/* Private to fold.c and fold_conditions.c: a filled template as tokens. */
#ifndef PDCC_CODEGEN_FOLD_TOKENS_H
#define PDCC_CODEGEN_FOLD_TOKENS_H

#include <stdbool.h>
#include "ir/base/arena.h"

typedef enum TokenKind { TOKEN_WORD, TOKEN_INT, TOKEN_NUMBER, TOKEN_OP, TOKEN_OPAQUE } TokenKind;

/* Text with the blanks before it. OPAQUE: a comment, a string, a line of the preprocessor. */
typedef struct Token {
	const char *gap, *s;
	size_t ngap, n;
	TokenKind kind;
	bool result; /* of a comparison */
} Token;

typedef struct Fold {
	Arena *a;
	Token *t;
	int n, cap;
} Fold;

extern const char *const token_open[]; /* brackets */
bool token_is(const Fold *f, int i, const char *s);
bool token_in(const Fold *f, int i, const char *const *list);
bool token_int(const Fold *f, int i, long *v);
/* Which of the brackets at i is, from 1; 0: none of them. */
int token_bracket(const Fold *f, int i, const char *const *list);
/* The bracket that belongs to the one at i; step: 1 or -1; -1: there is none, or it is of another kind: texts of users
 * may be anything. */
int token_partner(const Fold *f, int i, int step);
/* Behind the statement at i; -1: it is not understood. */
int statement_end(const Fold *f, int i);
void tokens_drop(Fold *f, int i, int n);

/* Rules: true where one was applied at i. A constant that && or || joins to what stands behind or before it in brackets;
 * if (0) and if (1), where a comparison of constants has become that. */
bool fold_joined(Fold *f, int i);
bool fold_decided(Fold *f, int i);

#endif
