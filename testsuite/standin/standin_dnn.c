/* standin_dnn.c: the part of cuDNN that emitted programs use, by oneDNN (runtime/cpu_conv.c). */
#include <cudnn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "pd.h"
#include "standin.h"

struct cudnnTensorStruct { int rank, dim[5]; cudnnDataType_t type; };
struct cudnnFilterStruct { int rank, dim[5]; cudnnDataType_t type; };
struct cudnnConvolutionStruct { int n, pad[3], stride[3], dilation[3], groups; };

API const char *cudnnGetErrorString(cudnnStatus_t s)
{
	return s == CUDNN_STATUS_SUCCESS ? "success" : "not supported";
}

static cudnnStatus_t made(void *p)
{
	if (!p)
		abort();
	return CUDNN_STATUS_SUCCESS;
}

API cudnnStatus_t cudnnCreate(cudnnHandle_t *h)
{
	pd_threads(1);
	return made(*h = calloc(1, 1));
}

API cudnnStatus_t cudnnSetStream(cudnnHandle_t h, cudaStream_t s)
{
	(void)h;
	(void)s;
	return CUDNN_STATUS_SUCCESS;
}

API cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t *t) { return made(*t = calloc(1, sizeof **t)); }
API cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t *w) { return made(*w = calloc(1, sizeof **w)); }
API cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t *c)
{
	return made(*c = calloc(1, sizeof **c));
}

API cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t t, cudnnDataType_t type, int rank, const int dim[],
                                             const int stride[])
{
	if (rank < 4 || rank > 5)       /* as cuDNN: fewer are not taken */
		return CUDNN_STATUS_NOT_SUPPORTED;
	for (int i = rank - 1, s = 1; i >= 0; s *= dim[i--])
		if (stride[i] != s)
			return CUDNN_STATUS_NOT_SUPPORTED;
	t->rank = rank;
	t->type = type;
	memcpy(t->dim, dim, (size_t)rank * sizeof *dim);
	return CUDNN_STATUS_SUCCESS;
}

API cudnnStatus_t cudnnSetFilterNdDescriptor(cudnnFilterDescriptor_t w, cudnnDataType_t type, cudnnTensorFormat_t format,
                                             int rank, const int dim[])
{
	if (format != CUDNN_TENSOR_NCHW || rank < 4 || rank > 5)
		return CUDNN_STATUS_NOT_SUPPORTED;
	w->rank = rank;
	w->type = type;
	memcpy(w->dim, dim, (size_t)rank * sizeof *dim);
	return CUDNN_STATUS_SUCCESS;
}

API cudnnStatus_t cudnnSetConvolutionNdDescriptor(cudnnConvolutionDescriptor_t c, int n, const int pad[], const int stride[],
                                                  const int dilation[], cudnnConvolutionMode_t mode, cudnnDataType_t type)
{
	if (type != CUDNN_DATA_FLOAT || mode != CUDNN_CROSS_CORRELATION || n < 2 || n > 3)
		return CUDNN_STATUS_NOT_SUPPORTED;
	c->n = n;
	c->groups = 1;
	memcpy(c->pad, pad, (size_t)n * sizeof *pad);
	memcpy(c->stride, stride, (size_t)n * sizeof *stride);
	memcpy(c->dilation, dilation, (size_t)n * sizeof *dilation);
	return CUDNN_STATUS_SUCCESS;
}

API cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t c, cudnnMathType_t type)
{
	(void)c;
	return type == CUDNN_FMA_MATH || type == CUDNN_DEFAULT_MATH ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
}

API cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t c, int groups)
{
	c->groups = groups;
	return CUDNN_STATUS_SUCCESS;
}

/* ---- algorithms: there is one ---- */

static cudnnStatus_t one(int asked, int *found, struct cudnnPerf *perf)
{
	*found = asked > 0;
	if (asked > 0)
		*perf = (struct cudnnPerf){ .status = CUDNN_STATUS_SUCCESS, .memory = 1024, .determinism = CUDNN_DETERMINISTIC };
	return CUDNN_STATUS_SUCCESS;
}

API cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t h, cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w,
	cudnnConvolutionDescriptor_t c, cudnnTensorDescriptor_t y, int asked, int *found, cudnnConvolutionFwdAlgoPerf_t *perf)
{
	(void)h; (void)x; (void)w; (void)c; (void)y;
	return one(asked, found, perf);
}

API cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(cudnnHandle_t h, cudnnFilterDescriptor_t w,
	cudnnTensorDescriptor_t dy, cudnnConvolutionDescriptor_t c, cudnnTensorDescriptor_t dx, int asked, int *found,
	cudnnConvolutionBwdDataAlgoPerf_t *perf)
{
	(void)h; (void)w; (void)dy; (void)c; (void)dx;
	return one(asked, found, perf);
}

API cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(cudnnHandle_t h, cudnnTensorDescriptor_t x,
	cudnnTensorDescriptor_t dy, cudnnConvolutionDescriptor_t c, cudnnFilterDescriptor_t dw, int asked, int *found,
	cudnnConvolutionBwdFilterAlgoPerf_t *perf)
{
	(void)h; (void)x; (void)dy; (void)c; (void)dw;
	return one(asked, found, perf);
}

/* ---- convolutions ---- */

typedef struct known { pd_conv_desc d; pd_conv conv; void *scratch; } known;

/* oneDNN's object for the convolution, made once. NULL: the descriptors do not fit each other. */
static const known *object(int what, const struct cudnnTensorStruct *x, const struct cudnnFilterStruct *w,
                           const struct cudnnConvolutionStruct *c, const struct cudnnTensorStruct *y)
{
	static known *table;
	static int    n;
	pd_conv_desc  d;

	memset(&d, 0, sizeof d);
	d.what = what;
	d.nd = c->n;
	d.n = x->dim[0];
	d.c = x->dim[1];
	d.oc = y->dim[1];
	d.groups = c->groups;
	if (x->type != w->type || x->type != y->type)
		return NULL;
	d.type = x->type == CUDNN_DATA_BFLOAT16 ? PD_BF16 : x->type == CUDNN_DATA_HALF ? PD_F16 : PD_F32;
	if (x->rank != c->n + 2 || y->rank != x->rank || w->rank != x->rank || y->dim[0] != d.n || w->dim[0] != d.oc ||
	    w->dim[1] * d.groups != d.c)
		return NULL;
	for (int i = 0; i < d.nd; i++) {
		d.in[i] = x->dim[2 + i];
		d.out[i] = y->dim[2 + i];
		d.kernel[i] = w->dim[2 + i];
		d.stride[i] = c->stride[i];
		d.dilation[i] = c->dilation[i];
		d.pad_begin[i] = c->pad[i];
		d.pad_end[i] = (d.out[i] - 1) * d.stride[i] + d.dilation[i] * (d.kernel[i] - 1) + 1 - d.in[i] - c->pad[i];
		if (d.out[i] != (d.in[i] + 2 * c->pad[i] - d.dilation[i] * (d.kernel[i] - 1) - 1) / d.stride[i] + 1)
			return NULL;
	}
	for (int i = 0; i < n; i++)
		if (!memcmp(&table[i].d, &d, sizeof d))
			return &table[i];
	table = realloc(table, (size_t)(n + 1) * sizeof *table);
	const size_t bytes = pd_conv_scratch(&d);

	if (!table || bytes == SIZE_MAX)
		return NULL;
	table[n] = (known){ .d = d, .scratch = aligned_alloc(64, bytes / 64 * 64 + 64) };
	pd_conv_init(&table[n].conv, &d);
	return &table[n++];
}

typedef struct convolution { known k; void *to; const void *a, *b; } convolution;

/* The three tensors of a convolution belong to the program (standin_touch). */
static void touch(const convolution *c)
{
	const pd_conv_desc *d = &c->k.d;
	const size_t        wide = d->type == PD_F32 ? 4 : 2;
	size_t              x = wide * (size_t)d->n * (size_t)d->c, y = wide * (size_t)d->n * (size_t)d->oc;
	size_t              w = wide * (size_t)d->oc * (size_t)(d->c / d->groups);

	for (int i = 0; i < d->nd; i++) {
		x *= (size_t)d->in[i];
		y *= (size_t)d->out[i];
		w *= (size_t)d->kernel[i];
	}
	standin_touch("cuDNN, result", c->to, d->what == PD_FORWARD ? y : d->what == PD_BACKWARD_DATA ? x : w);
	standin_touch("cuDNN, first operand", c->a, d->what == PD_BACKWARD_DATA ? y : x);
	standin_touch("cuDNN, second operand", c->b, d->what == PD_BACKWARD_WEIGHTS ? y : w);
}

static standin_end convolve(void *what)
{
	const convolution *c = what;

	standin_device(1);
	touch(c);
	switch (c->k.d.what) {
	case PD_FORWARD: pd_conv_forward(&c->k.conv, c->to, c->a, c->b, NULL, c->k.scratch); break;
	case PD_BACKWARD_DATA: pd_conv_backward_data(&c->k.conv, c->to, c->a, c->b, c->k.scratch); break;
	default: pd_conv_backward_weights(&c->k.conv, c->to, NULL, c->a, c->b, c->k.scratch);
	}
	standin_device(0);
	return STANDIN_DONE;
}

static bool plain(const void *alpha, const void *beta)
{
	return *(const float *)alpha == 1 && *(const float *)beta == 0;
}

API cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t h, const void *alpha, cudnnTensorDescriptor_t xd, const void *x,
	cudnnFilterDescriptor_t wd, const void *w, cudnnConvolutionDescriptor_t c, cudnnConvolutionFwdAlgo_t algo, void *workspace,
	size_t bytes, const void *beta, cudnnTensorDescriptor_t yd, void *y)
{
	const known *k = object(PD_FORWARD, xd, wd, c, yd);

	(void)h; (void)algo; (void)workspace; (void)bytes;
	if (!k || !plain(alpha, beta))
		return CUDNN_STATUS_NOT_SUPPORTED;
	standin_do(NULL, convolve, &(convolution){ *k, y, x, w }, sizeof(convolution));
	return CUDNN_STATUS_SUCCESS;
}

API cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t h, const void *alpha, cudnnFilterDescriptor_t wd, const void *w,
	cudnnTensorDescriptor_t dyd, const void *dy, cudnnConvolutionDescriptor_t c, cudnnConvolutionBwdDataAlgo_t algo,
	void *workspace, size_t bytes, const void *beta, cudnnTensorDescriptor_t dxd, void *dx)
{
	const known *k = object(PD_BACKWARD_DATA, dxd, wd, c, dyd);

	(void)h; (void)algo; (void)workspace; (void)bytes;
	if (!k || !plain(alpha, beta))
		return CUDNN_STATUS_NOT_SUPPORTED;
	standin_do(NULL, convolve, &(convolution){ *k, dx, dy, w }, sizeof(convolution));
	return CUDNN_STATUS_SUCCESS;
}

API cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t h, const void *alpha, cudnnTensorDescriptor_t xd, const void *x,
	cudnnTensorDescriptor_t dyd, const void *dy, cudnnConvolutionDescriptor_t c, cudnnConvolutionBwdFilterAlgo_t algo,
	void *workspace, size_t bytes, const void *beta, cudnnFilterDescriptor_t dwd, void *dw)
{
	const known *k = object(PD_BACKWARD_WEIGHTS, xd, dwd, c, dyd);

	(void)h; (void)algo; (void)workspace; (void)bytes;
	if (!k || !plain(alpha, beta))
		return CUDNN_STATUS_NOT_SUPPORTED;
	standin_do(NULL, convolve, &(convolution){ *k, dw, x, dy }, sizeof(convolution));
	return CUDNN_STATUS_SUCCESS;
}

static float get(const struct cudnnTensorStruct *t, const void *x, int64_t i)
{
	return t->type == CUDNN_DATA_BFLOAT16 ? pd_from_bf16(((const uint16_t *)x)[i]) :
		t->type == CUDNN_DATA_HALF ? pd_from_f16(((const uint16_t *)x)[i]) : ((const float *)x)[i];
}

static void put(const struct cudnnTensorStruct *t, void *x, int64_t i, float v)
{
	if (t->type == CUDNN_DATA_FLOAT)
		((float *)x)[i] = v;
	else
		((uint16_t *)x)[i] = t->type == CUDNN_DATA_BFLOAT16 ? pd_to_bf16(v) : pd_to_f16(v);
}

static int64_t points(const struct cudnnTensorStruct *t)
{
	int64_t n = 1;

	for (int i = 2; i < t->rank; i++)
		n *= t->dim[i];
	return n;
}

typedef struct bias { struct cudnnTensorStruct large, small; const void *from; void *to; } bias;

static standin_end sum_bias(void *what)
{
	const bias   *x = what;
	const int64_t sp = points(&x->large);

	standin_device(1);
	for (int c = 0; c < x->large.dim[1]; c++) {
		double sum = 0;

		for (int n = 0; n < x->large.dim[0]; n++)
			for (int64_t i = 0; i < sp; i++)
				sum += (double)get(&x->large, x->from, ((int64_t)n * x->large.dim[1] + c) * sp + i);
		put(&x->small, x->to, c, (float)sum);
	}
	standin_device(0);
	return STANDIN_DONE;
}

static standin_end add_bias(void *what)
{
	const bias   *x = what;
	const int64_t sp = points(&x->large);

	standin_device(1);
	for (int64_t nc = 0; nc < (int64_t)x->large.dim[0] * x->large.dim[1]; nc++)
		for (int64_t i = 0; i < sp; i++)
			put(&x->large, x->to, nc * sp + i, get(&x->large, x->to, nc * sp + i) + get(&x->small, x->from, nc % x->large.dim[1]));
	standin_device(0);
	return STANDIN_DONE;
}

API cudnnStatus_t cudnnConvolutionBackwardBias(cudnnHandle_t h, const void *alpha, cudnnTensorDescriptor_t dyd, const void *dy,
	const void *beta, cudnnTensorDescriptor_t dbd, void *db)
{
	(void)h;
	if (!plain(alpha, beta) || dbd->dim[1] != dyd->dim[1])
		return CUDNN_STATUS_NOT_SUPPORTED;
	standin_do(NULL, sum_bias, &(bias){ *dyd, *dbd, dy, db }, sizeof(bias));
	return CUDNN_STATUS_SUCCESS;
}

API cudnnStatus_t cudnnAddTensor(cudnnHandle_t h, const void *alpha, cudnnTensorDescriptor_t bd, const void *b,
	const void *beta, cudnnTensorDescriptor_t yd, void *y)
{
	(void)h;
	if (*(const float *)alpha != 1 || *(const float *)beta != 1 || bd->dim[1] != yd->dim[1] || bd->dim[0] != 1)
		return CUDNN_STATUS_NOT_SUPPORTED;
	standin_do(NULL, add_bias, &(bias){ *yd, *bd, b, y }, sizeof(bias));
	return CUDNN_STATUS_SUCCESS;
}
