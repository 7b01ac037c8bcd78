/* standin_dnn.h: cuDNN's descriptors, for the files that stand in for it. */
#ifndef STANDIN_DNN_H
#define STANDIN_DNN_H

#include <stdbool.h>
#include <stdint.h>
#include <cudnn.h>
#include "standin.h"

struct cudnnContext {
	cudaStream_t stream;
};
/* last: channels lie last; either: in both orders all elements have the same places. */
struct cudnnTensorStruct {
	int rank, dim[5];
	cudnnDataType_t type;
	bool last, either;
};
struct cudnnFilterStruct {
	int rank, dim[5];
	cudnnDataType_t type;
	bool last;
};
struct cudnnConvolutionStruct {
	int n, pad[3], stride[3], dilation[3], groups;
	cudnnMathType_t math;
};
struct cudnnActivationStruct {
	cudnnActivationMode_t mode;
	cudnnNanPropagation_t nan;
};
struct cudnnPoolingStruct {
	cudnnPoolingMode_t mode;
	cudnnNanPropagation_t nan;
	int n, window[3], pad[3], stride[3];
};

/* standin_dnn.c */
cudnnStatus_t standin_dnn_made(void *p);                    /* of a descriptor */
size_t standin_dnn_wide(const struct cudnnTensorStruct *t); /* bytes of a number */
float standin_dnn_get(const struct cudnnTensorStruct *t, const void *x, int64_t i);
void standin_dnn_put(const struct cudnnTensorStruct *t, void *x, int64_t i, float v);
int64_t standin_dnn_at(const struct cudnnTensorStruct *t, int n, int c, int64_t point); /* where that element lies */
int64_t standin_dnn_points(const struct cudnnTensorStruct *t);                          /* of an image's channel */
int standin_dnn_lacks_ends(void); /* no bias, Relu or bias' gradient as calls of their own; an error is left */
bool standin_dnn_plain(const void *alpha, const void *beta); /* 1 and 0 */

#endif
