/* The data-moving ops among themselves: kernels that are one strided copy. */
#ifndef PDCC_IR_OPS_MOVE_H
#define PDCC_IR_OPS_MOVE_H

#include "../common/common.h"

/* Completes a nest of y (op 0) and a (op 1) into the kernel y[..] = a[..]; fill: y is larger and gets `value`. */
void copy_holes(const Node *n, Holes *h, Nest *s, bool fill, const char *value);
/* The same at compile time; out[0] is filled with `value`. */
bool copy_eval(const Node *n, Nest *s, const Tensor *in, Tensor *out, Arena *a, double value);
const char *ints_name(Arena *a, int n, const int64_t *v); /* "2_0_m1" */
Cost move_cost(const Node *n);
bool need_operands(const Node *n, Diag *d); /* the first minin operands are there */

#endif
