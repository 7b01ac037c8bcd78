/* What the ops that read or write through indices share: checks of indices, blocks round an axis, and how updates join.
 *
 * Indices are i32 or i64. A negative one counts from the end. Constants that point nowhere are refused by the shape
 * rules; at run time nothing outside of a tensor is touched: what is gathered from nowhere is NaN, and an update that
 * goes nowhere makes place 0 of what it was meant for NaN, so that the loss shows it. */
#ifndef PDCC_IR_OPS_INDEX_H
#define PDCC_IR_OPS_INDEX_H

#include "../move/move.h"

/* A tensor as [outer, dim, inner] round one axis. */
typedef struct Blocks {
	int64_t outer, dim, inner;
} Blocks;
Blocks blocks_of(const Type *t, int axis);
int64_t dims_product(const Type *t, int from, int to); /* of dim[from] .. dim[to - 1] */
int axis_from(int64_t axis, int rank);                 /* an axis that the shape rule has seen, made non-negative */

/* Operand i is i32 or i64. */
bool index_dtype(const Node *n, int i, Diag *d);
/* v, when it is a constant, lies in [-dim, dim). */
bool index_inside(const Node *n, const Value *v, int64_t at, int64_t dim, Diag *d);
/* What a kernel must do about the indices v: test the range (nobody has yet), add dim to negative ones. */
bool index_checked(const Value *v);
bool index_negative(const Value *v);
const char *index_missing(DType t); /* "NAN", or "0" where there is none */

/* GPU: threads that share a column of a table, each with every so manieth of its rows, where there are few columns and many
 * updates of each. */
int scatter_ways(int64_t columns, int64_t updates);

/* ---- reductions of scatters ---- */
bool reduction_ok(const Node *n, const char *reduction, Diag *d);
/* The C statement by which `from` joins `to`. */
const char *reduction_text(Arena *a, const char *reduction, const char *to, const char *from);
void reduction_eval(const char *reduction, Tensor *to, int64_t i, const Tensor *from, int64_t k);

/* Gradient of ScatterElements and ScatterND: operands data, indices, updates. */
void scatter_grad(Builder *b, const Node *n, Value *const *dy, Value **dx);

#endif
