/* gpu_dnn.c: cuDNN's handle and descriptors. What is called of it are the functions on descriptors of tensors, filters and
 * windows, which version 9 has marked as old and keeps: each of them is one operation of pd.h and is told its algorithm, and of
 * those the library says which always give the same bits. Its graphs of operations leave the choice to engines that differ
 * from GPU to GPU. */
#include "gpu_dnn.h"

static cudnnHandle_t dnn;

void dnn_check(cudnnStatus_t s, const char *what)
{
	if (s == CUDNN_STATUS_SUCCESS || rt_capture_refused("cuDNN", what))
		return;
	if (s == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED)
		rt_fail(RT_MEMORY, "R501", "%s: no memory of the host for cuDNN: %s", pd_device_name(), what);
	if (s == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)
		rt_gpu_lacks("cuDNN");
	rt_fail(RT_ERROR, "R523", "%s: cuDNN: %s: %s", pd_device_name(), what, cudnnGetErrorString(s));
}

/* Since version 9 a status of the library says more: 3000 and some are kinds of NOT_SUPPORTED, 2000 and some of BAD_PARAM. */
bool dnn_refused(cudnnStatus_t s)
{
	return (int)s / 1000 == CUDNN_STATUS_NOT_SUPPORTED / 1000 || (int)s / 1000 == CUDNN_STATUS_BAD_PARAM / 1000;
}

cudnnHandle_t dnn_handle(void)
{
	if (!dnn) {
		dnn_check(cudnnCreate(&dnn), "cudnnCreate");
		dnn_check(cudnnSetStream(dnn, pd_stream()), "cudnnSetStream");
	}
	return dnn;
}

cudnnDataType_t dnn_type(pd_dtype t)
{
	return t == PD_BF16 ? CUDNN_DATA_BFLOAT16 : t == PD_F16 ? CUDNN_DATA_HALF : CUDNN_DATA_FLOAT;
}

bool dnn_takes(int n, int c, int nd, const int *sp)
{
	int64_t all = (int64_t)n * c;

	for (int i = 0; i < nd && all <= INT32_MAX; i++)
		all *= sp[i];
	return all <= INT32_MAX;
}

/* At least two spatial axes: cuDNN takes no fewer. */
cudnnTensorDescriptor_t dnn_tensor(pd_dtype type, int n, int c, int nd, const int *sp, bool nhwc)
{
	cudnnTensorDescriptor_t t;
	const int rank = 2 + (nd < 2 ? 2 : nd);
	int dim[5] = { n, c, 1, 1, 1 }, stride[5];

	if (!dnn_takes(n, c, nd, sp))
		rt_fail(RT_ERROR, "R523",
			"%s: cuDNN: a tensor of %d images of %d channels has more numbers than 2147483647; smaller microbatches "
			"have fewer",
			pd_device_name(), n, c);
	for (int i = 0; i < nd; i++)
		dim[rank - nd + i] = sp[i];
	stride[1] = 1;
	for (int i = rank - 1, s = nhwc ? c : 1; i >= 0; i--)
		if (i != 1 || !nhwc) {
			stride[i] = s;
			s *= dim[i];
		}
	dnn_check(cudnnCreateTensorDescriptor(&t), "tensor");
	dnn_check(cudnnSetTensorNdDescriptor(t, dnn_type(type), rank, dim, stride), "tensor");
	return t;
}
