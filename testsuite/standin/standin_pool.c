/* standin_pool.c: cuDNN's pooling of images in plain order: maxima and averages over windows, and the gradients of averages. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "standin_dnn.h"

API cudnnStatus_t cudnnCreatePoolingDescriptor(cudnnPoolingDescriptor_t *p)
{
	return standin_dnn_made(*p = calloc(1, sizeof **p));
}

API cudnnStatus_t cudnnSetPoolingNdDescriptor(cudnnPoolingDescriptor_t p, cudnnPoolingMode_t mode,
	cudnnNanPropagation_t nan, int n, const int window[], const int pad[], const int stride[])
{
	if (n < 2 || n > 3)
		return CUDNN_STATUS_NOT_SUPPORTED;
	*p = (struct cudnnPoolingStruct){ .mode = mode, .nan = nan, .n = n };
	for (int i = 0; i < n; i++) {
		if (window[i] < 1 || pad[i] < 0 || stride[i] < 1)
			return CUDNN_STATUS_BAD_PARAM;
		p->window[i] = window[i];
		p->pad[i] = pad[i];
		p->stride[i] = stride[i];
	}
	return CUDNN_STATUS_SUCCESS;
}

/* Three axes, those that are missing lead with extent 1. */
typedef struct pool {
	struct cudnnTensorStruct t;
	cudnnPoolingMode_t mode;
	int in[3], out[3], window[3], pad[3], stride[3];
	const void *from;
	void *to;
} pool;

static cudnnStatus_t fits(pool *o, const struct cudnnPoolingStruct *p, const struct cudnnTensorStruct *x,
	const struct cudnnTensorStruct *y)
{
	*o = (pool){ .t = *x, .mode = p->mode };
	if (x->rank != p->n + 2 || y->rank != x->rank || x->type != y->type || x->dim[0] != y->dim[0] ||
		x->dim[1] != y->dim[1])
		return CUDNN_STATUS_BAD_PARAM;
	for (int i = 0; i < 3; i++) {
		const int k = i - (3 - p->n);

		o->in[i] = k < 0 ? 1 : x->dim[2 + k];
		o->out[i] = k < 0 ? 1 : y->dim[2 + k];
		o->window[i] = k < 0 ? 1 : p->window[k];
		o->pad[i] = k < 0 ? 0 : p->pad[k];
		o->stride[i] = k < 0 ? 1 : p->stride[k];
		if (o->out[i] != 1 + (o->in[i] + 2 * o->pad[i] - o->window[i]) / o->stride[i])
			return CUDNN_STATUS_BAD_PARAM;
	}
	return p->nan != CUDNN_NOT_PROPAGATE_NAN || x->last || y->last ? CUDNN_STATUS_NOT_SUPPORTED
	                                                               : CUDNN_STATUS_SUCCESS;
}

static bool is_max(const pool *o) { return o->mode == CUDNN_POOLING_MAX || o->mode == CUDNN_POOLING_MAX_DETERMINISTIC; }

/* Where the window of result `at` begins and ends inside the image; how many elements it counts. */
static int window(const pool *o, int64_t at, int *from, int *to)
{
	int n = 1, whole = 1;

	for (int i = 2; i >= 0; at /= o->out[i--]) {
		const int first = (int)(at % o->out[i]) * o->stride[i] - o->pad[i], last = first + o->window[i];

		from[i] = first < 0 ? 0 : first;
		to[i] = last > o->in[i] ? o->in[i] : last;
		n *= to[i] - from[i];
		whole *= o->window[i];
	}
	return o->mode == CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING ? whole : n;
}

#define EACH(AT) \
	for (int p = from[0]; p < to[0]; p++) \
		for (int q = from[1]; q < to[1]; q++) \
			for (int r = from[2], AT = (p * o->in[1] + q) * o->in[2] + r; r < to[2]; r++, AT++)

static void touch(const pool *o, int64_t from, int64_t to)
{
	const size_t wide = o->t.type == CUDNN_DATA_FLOAT ? 4 : 2;

	standin_device(1);
	standin_touch("cuDNN's pooling", ORDER_READS, o->from, (size_t)from * wide);
	standin_touch("cuDNN's pooling", ORDER_WRITES, o->to, (size_t)to * wide);
}

static standin_end forward(void *what)
{
	const pool *o = what;
	const int64_t planes = (int64_t)o->t.dim[0] * o->t.dim[1], small = (int64_t)o->out[0] * o->out[1] * o->out[2];
	const int64_t large = (int64_t)o->in[0] * o->in[1] * o->in[2];

	touch(o, planes * large, planes * small);
	for (int64_t k = 0; k < planes; k++)
		for (int64_t i = 0; i < small; i++) {
			int from[3], to[3];
			const int n = window(o, i, from, to);
			double sum = 0;
			float most = -INFINITY;

			EACH(at)
			{
				const float v = standin_dnn_get(&o->t, o->from, k * large + at);
				sum += (double)v;
				most = v > most ? v : most;
			}
			standin_dnn_put(&o->t, o->to, k * small + i, is_max(o) ? most : (float)(sum / n));
		}
	standin_device(0);
	return STANDIN_DONE;
}

static standin_end average_back(void *what)
{
	const pool *o = what;
	const int64_t planes = (int64_t)o->t.dim[0] * o->t.dim[1], small = (int64_t)o->out[0] * o->out[1] * o->out[2];
	const int64_t large = (int64_t)o->in[0] * o->in[1] * o->in[2];
	double *dx = malloc((size_t)large * sizeof *dx);

	if (!dx)
		abort();
	touch(o, planes * small, planes * large);
	for (int64_t k = 0; k < planes; k++) {
		memset(dx, 0, (size_t)large * sizeof *dx);
		for (int64_t i = 0; i < small; i++) {
			int from[3], to[3];
			const int n = window(o, i, from, to);
			EACH(at)
			dx[at] += (double)standin_dnn_get(&o->t, o->from, k * small + i) / n;
		}
		for (int64_t i = 0; i < large; i++)
			standin_dnn_put(&o->t, o->to, k * large + i, (float)dx[i]);
	}
	standin_device(0);
	free(dx);
	return STANDIN_DONE;
}

API cudnnStatus_t cudnnPoolingForward(cudnnHandle_t h, cudnnPoolingDescriptor_t p, const void *alpha,
	cudnnTensorDescriptor_t xd, const void *x, const void *beta, cudnnTensorDescriptor_t yd, void *y)
{
	pool o;
	const cudnnStatus_t s = fits(&o, p, xd, yd);

	if (s != CUDNN_STATUS_SUCCESS)
		return s;
	if (!standin_dnn_plain(alpha, beta))
		return CUDNN_STATUS_NOT_SUPPORTED;
	o.from = x;
	o.to = y;
	standin_do(standin_stream(h->stream), forward, &o, sizeof o);
	return CUDNN_STATUS_SUCCESS;
}

/* Gradients of maxima, whose winners the library finds again in x and y, are asked for nowhere. */
API cudnnStatus_t cudnnPoolingBackward(cudnnHandle_t h, cudnnPoolingDescriptor_t p, const void *alpha,
	cudnnTensorDescriptor_t yd, const void *y, cudnnTensorDescriptor_t dyd, const void *dy,
	cudnnTensorDescriptor_t xd, const void *x, const void *beta, cudnnTensorDescriptor_t dxd, void *dx)
{
	pool o;
	const cudnnStatus_t s = fits(&o, p, dxd, dyd);

	if (s != CUDNN_STATUS_SUCCESS)
		return s;
	if (!x || !y || memcmp(yd, dyd, sizeof *yd) || memcmp(xd, dxd, sizeof *xd))
		return CUDNN_STATUS_BAD_PARAM;
	if (is_max(&o) || !standin_dnn_plain(alpha, beta))
		return CUDNN_STATUS_NOT_SUPPORTED;
	o.from = dy;
	o.to = dx;
	standin_do(standin_stream(h->stream), average_back, &o, sizeof o);
	return CUDNN_STATUS_SUCCESS;
}
