/* Private to patterns.c and pattern_*.c: the nodes that a pattern covers, found from operands and from users.
 *
 * A pattern starts at one node and joins others to its Match as it recognises them. What it covers may be replaced when
 * nothing outside reads what lies inside (match_closed); then match_finish puts the one node in their place. */
#ifndef PDCC_PASSES_PATTERNS_H
#define PDCC_PASSES_PATTERNS_H

#include "passes/common/pass.h"

enum { MATCH_NODES = 64 };

typedef struct Match {
	Module *m;
	PassCx *cx;
	Node *node[MATCH_NODES]; /* what is covered, each once */
	int n;
	Value *also; /* a second result, which may be read from outside; NULL: none */
} Match;

bool match_cover(Match *p, Node *n); /* joins n; false: too many nodes */
/* The node that computes v, joined to the match; NULL unless v is the first result of a forward node of that op. */
Node *match_def(Match *p, const Value *v, OpKind op);
/* The only reader of v, joined to the match; NULL when it is of another op, or v is read twice or a graph output. */
Node *match_user(Match *p, const Value *v, OpKind op);
/* n reads v and one other value, which is given; NULL when it does not, or n has other than two operands. */
Value *match_other(const Node *n, const Value *v);

/* A constant of one element. */
bool match_scalar(const Value *v, double *x);
bool match_is(const Value *v, double want); /* such a constant, within 1e-6 of its size */
bool match_near(double x, double want);     /* equal within 1e-6 of want's size */

bool match_trained(const Value *v); /* depends on a parameter that is trained */

bool match_covers(const Match *p, const Node *n);
/* Nothing but covered nodes reads what lies inside; `last` is the result. */
bool match_closed(const Match *p, const Value *last);
/* The field of an op's attributes (attr_new) by name: an int64_t, a double or a const char *. */
void *match_field(OpKind op, void *attr, const char *name);
/* Where the one node goes: in place of the node that computes `last`. */
Builder match_builder(const Match *p, const Value *last);
/* The results of `fused` take the places and names of `last` and `also`; the covered nodes go. Gives fused. */
Node *match_finish(Match *p, Value *last, Node *fused);

/* Each looks at one node; on a match the graph is changed and the new node given. NULL: not this pattern. */
Node *pattern_layernorm(Match *p, Node *n);
Node *pattern_gelu(Match *p, Node *n);
Node *pattern_lrn(Match *p, Node *n);
Node *pattern_swish(Match *p, Node *n);
Node *pattern_matmul(Match *p, Node *n);
Node *pattern_attention(Match *p, Node *n);
Node *pattern_lstm(Match *p, Node *n);

#endif
