/* gpu_pool.c: pooling by cuDNN. */
#include "gpu_dnn.h"

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
