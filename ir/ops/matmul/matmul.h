/* What the products of matrices share: the problem behind operands of any rank. */
#ifndef PDCC_IR_OPS_MATMUL_H
#define PDCC_IR_OPS_MATMUL_H

#include "../common/common.h"

/* One problem: batch of [m,k] x [k,n]; strides of the operands per batch axis, 0 where broadcast. */
typedef struct Dims {
	int64_t m, n, k, batch;
	int rank;
	int64_t dim[MAXRANK], sa[MAXRANK], sb[MAXRANK];
} Dims;

/* Of operands 0 and 1, transposed or not; false: their sizes do not fit. */
bool product_dims(const Node *n, bool transa, bool transb, Dims *d);
/* One matrix on the right for all of the left becomes a taller matrix. */
void product_flatten(Dims *p, bool transa);
/* From a matrix to the next one of the batch, in elements (sa or sb); -1: there is no such number. */
int64_t product_step(const Dims *p, const int64_t *stride);

bool product_end_adds(const Node *n); /* product_adds of a Product */

#endif
