/* gpu_dnn.c: cuDNN's handle and descriptors, and pooling. What is called of it are the functions on descriptors of tensors, filters and
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

/* ---- pooling ---- */

typedef struct pool {
	cudnnPoolingDescriptor_t how;
	cudnnTensorDescriptor_t x, y;
	pd_pool_desc d;
} pool;

/* Of --reproducible programs maxima by the mode that always gives the same; averages have one. NaN loses, as in kernels of ours. */
static cudnnPoolingMode_t mode(pd_pool_kind k)
{
	return k == PD_AVERAGE            ? CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING
	       : k == PD_AVERAGE_PADDED   ? CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING
	       : rt_program->reproducible ? CUDNN_POOLING_MAX_DETERMINISTIC
	                                  : CUDNN_POOLING_MAX;
}

static size_t bytes(const pool *o, const int *sp)
{
	size_t n = sizeof(float) * (size_t)o->d.n * (size_t)o->d.c;

	for (int i = 0; i < o->d.nd; i++)
		n *= (size_t)sp[i];
	return n;
}

static void run_once(void *of, char *scrap)
{
	const pool *o = of;
	const pd_pool p = { of };
	float *x = rt_part(&scrap, bytes(o, o->d.in)), *y = (float *)(void *)scrap;

	pd_pool_forward(&p, y, x);
	if (o->d.kind != PD_MAX)
		pd_pool_backward(&p, x, y);
}

void pd_pool_init(pd_pool *p, const pd_pool_desc *d)
{
	const int nd = d->nd < 2 ? 2 : d->nd, lead = nd - d->nd;
	int kernel[3] = { 1, 1, 1 }, stride[3] = { 1, 1, 1 }, pad[3] = { 0 };
	pool *o;

	if (rt_virtual)
		return;
	for (int i = 0; i < d->nd; i++) {
		kernel[lead + i] = d->kernel[i];
		stride[lead + i] = d->stride[i];
		pad[lead + i] = d->pad[i];
	}
	p->impl = o = rt_alloc(sizeof *o);
	o->d = *d;
	o->x = dnn_tensor(PD_F32, d->n, d->c, d->nd, d->in, false);
	o->y = dnn_tensor(PD_F32, d->n, d->c, d->nd, d->out, false);
	dnn_check(cudnnCreatePoolingDescriptor(&o->how), "pooling");
	dnn_check(cudnnSetPoolingNdDescriptor(o->how, mode(d->kind), CUDNN_NOT_PROPAGATE_NAN, nd, kernel, pad, stride),
		"pooling");
	rt_first_run(run_once, o, rt_part_bytes(bytes(o, d->in)) + rt_part_bytes(bytes(o, d->out)));
}

void pd_pool_forward(const pd_pool *p, float *y, const float *x)
{
	const pool *o = p->impl;
	const float one = 1, none = 0;

	dnn_check(cudnnPoolingForward(dnn_handle(), o->how, &one, o->x, x, &none, o->y, y), "cudnnPoolingForward");
}

/* The gradient of an average does not depend on x and y, for which the library wants an address all the same. */
void pd_pool_backward(const pd_pool *p, float *dx, const float *dy)
{
	const pool *o = p->impl;
	const float one = 1, none = 0;

	dnn_check(cudnnPoolingBackward(dnn_handle(), o->how, &one, o->y, dy, o->y, dy, o->x, dx, &none, o->x, dx),
		"cudnnPoolingBackward");
}
