/* gpu_dnn.h: what the files that call cuDNN share (gpu_dnn.c). */
#ifndef GPU_DNN_H
#define GPU_DNN_H

#include "gpu_rt.h"
#include <cudnn.h>

cudnnHandle_t dnn_handle(void);
void dnn_check(cudnnStatus_t s, const char *what); /* R523; R521 where it lacks memory */
bool dnn_refused(cudnnStatus_t s);                 /* the library has no such operation */
cudnnDataType_t dnn_type(pd_dtype t);
/* [n, c, sp ...], plain or channels-last */
cudnnTensorDescriptor_t dnn_tensor(pd_dtype type, int n, int c, int nd, const int *sp, bool nhwc);
bool dnn_takes(int n, int c, int nd, const int *sp); /* no more numbers than it counts */

#endif
