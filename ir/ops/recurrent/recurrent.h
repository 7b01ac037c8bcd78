/* Private to the recurrent ops: one direction of one layer over a whole sequence, the input's product taken outside:
 *     gx [T,B,G*H]    x W' and all biases that may be added to it, for all steps at once (a Gemm)
 *     R  [G*H,H]      the recurrent weights
 *     h0 [B,H]        state before the first step; absent: zero
 *     lens i32 [B]    steps of each sequence; absent: T. What lies behind an end has result 0 and no gradient
 * Gradients by R are one product of all steps too: the gradient op gives its operands, dg and hprev. */
#ifndef PDCC_IR_OPS_RECURRENT_H
#define PDCC_IR_OPS_RECURRENT_H

#include "../common/common.h"

struct recurrent {
	int64_t reverse, linear_before_reset;
	const char *activation;
};

/* The sizes of a node, from gx (gates: G). False after a diagnostic. */
typedef struct RecSizes {
	int64_t steps, batch, hidden;
} RecSizes;
RecSizes rec_sizes(const Type *gx, int gates);
bool rec_check_gx(const Node *n, const Type *gx, const Value *r, int gates, Diag *d);
/* Operand i, where it is there, has this shape; `what` names it. */
bool rec_check(const Node *n, int i, const char *what, int rank, const int64_t *dim, Diag *d);
bool rec_check_lens(const Node *n, int i, int64_t batch, Diag *d);

Type rec_type(const Node *n, int rank, int64_t a, int64_t b, int64_t c);
Value *rec_opt(const Node *n, int i); /* operand i or NULL */
/* The operands from..to of the call, ", $3" or ", NULL". */
const char *rec_args(const Node *n, Arena *a, int from, int to);
Value *rec_rows(Builder *b, Value *x);                              /* [T,B,K] -> [T*B,K] */
Value *rec_product(Builder *b, Value *dg, Value *hprev);            /* dR = dg' hprev over all steps */
Value *rec_columns(Builder *b, Value *x, int64_t from, int64_t to); /* of a matrix */

/* CPUs: the forward multiplies by R' in every step. A library reads rows of R' faster than its columns: where there are steps
 * enough, a call writes R' into scratch first. TRANSPOSED says so. The backward multiplies by R as it lies. */
bool rec_transposed(const Type *gx, int gates);
/* OpDef.lib: room for R'. */
void rec_lib(const Node *n, Lib *l, int gates);
/* The call: `outs`, then operands 0 to last; with TRANSPOSED the scratch between them. */
void rec_call(const Node *n, Holes *h, const char *outs, int last, bool transposed);

/* Holes that all kernels share: T STEPS BATCH H REVERSE LENS PAR GEMM. */
void rec_holes(const Node *n, Holes *h, RecSizes s, const Value *lens);
Cost rec_cost(const Node *n, RecSizes s, int gates);
extern const AttrDef rec_attrs[];

#endif
