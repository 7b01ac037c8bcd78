/* Private to the translation of Einsum (canon_einsum.c, einsum_join.c): operands with labelled axes. */
#ifndef PDCC_FRONTEND_EINSUM_H
#define PDCC_FRONTEND_EINSUM_H

#include "canon.h"

enum { LETTERS = 52, LABELS = LETTERS + MAXRANK };

/* A value and the label of each of its axes. */
typedef struct Term {
	Value *v;
	int n, label[LABELS];
} Term;

typedef struct Ein {
	Import *im;
	const char *eq; /* without spaces */
	int64_t dim[LABELS];
	int owner[LABELS]; /* the operand that gave the size; -1: none has the label */
	int count[LABELS]; /* how often the labels of the operands name it */
	int ell;           /* axes under the ellipsis, at most */
	int nin;
	Term *in, out;
	const char *text[2 * MAXIN]; /* the terms as they stand in the equation */
	int len[2 * MAXIN];
} Ein;

int ein_find(const Term *t, int label); /* its axis, -1: the term has it not */
bool ein_refuse(const Ein *e, const char *what);
/* x with these dimensions; x itself where it has them. */
Value *ein_reshape(Ein *e, Value *x, int rank, const int64_t *dim);
/* The axes of t in the order of `order` (labels that t has not are passed over): must something be copied for that? Axes of
 * 1 move for nothing. ein_permute does it. */
bool ein_moves(const Ein *e, const Term *t, const Term *order);
void ein_permute(Ein *e, Term *t, const Term *order);
void ein_sum(Ein *e, Term *t, const bool *gone); /* over the labels for which gone is set */
/* Joins y to x; `keep`: labels that the output or a later operand has. */
bool ein_join(Ein *e, Term *x, Term *y, const bool *keep);

#endif
