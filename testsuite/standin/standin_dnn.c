/* standin_dnn.c: cuDNN's convolutions as emitted programs use them, by oneDNN (runtime/cpu/cpu_conv.c). What it names first takes more
 * workspace than one should give it, or does not always add in one order: some results differ in last bits. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "pd.h"
#include "standin_dnn.h"

API const char *cudnnGetErrorString(cudnnStatus_t s)
{
	return s == CUDNN_STATUS_SUCCESS                                   ? "success"
	       : s == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED ? "no memory"
	       : s == CUDNN_STATUS_BAD_PARAM                               ? "bad parameter"
	                                                                   : "not supported";
}

cudnnStatus_t standin_dnn_made(void *p)
{
	if (!p)
		abort();
	return CUDNN_STATUS_SUCCESS;
}

API cudnnStatus_t cudnnCreate(cudnnHandle_t *h)
{
	standin_asks("cudnnCreate");
	if (standin_full("cudnn"))
		return CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
	pd_threads(1);
	return standin_dnn_made(*h = calloc(1, sizeof **h));
}

API cudnnStatus_t cudnnSetStream(cudnnHandle_t h, cudaStream_t s)
{
	h->stream = s;
	return CUDNN_STATUS_SUCCESS;
}

API cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t *t)
{
	return standin_dnn_made(*t = calloc(1, sizeof **t));
}
API cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t *w)
{
	return standin_dnn_made(*w = calloc(1, sizeof **w));
}
API cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t *c)
{
	return standin_dnn_made(*c = calloc(1, sizeof **c));
}

/* Strides are those of a tensor without gaps, its channels last or in their place. */
static bool lies(int rank, const int *dim, const int *stride, bool last)
{
	int s = last ? dim[1] : 1;

	if (last && stride[1] != 1)
		return false;
	for (int i = rank - 1; i >= 0; i--) {
		if (last && i == 1)
			continue;
		if (stride[i] != s)
			return false;
		s *= dim[i];
	}
	return true;
}

API cudnnStatus_t cudnnSetTensorNdDescriptor(
	cudnnTensorDescriptor_t t, cudnnDataType_t type, int rank, const int dim[], const int stride[])
{
	if (rank < 3 || rank > 5) /* of images and filters no fewer than 4 are taken */
		return CUDNN_STATUS_NOT_SUPPORTED;
	const bool plain = lies(rank, dim, stride, false), last = lies(rank, dim, stride, true);

	if (!plain && !last)
		return CUDNN_STATUS_NOT_SUPPORTED;
	t->last = !plain;
	t->either = plain && last;
	t->rank = rank;
	t->type = type;
	memcpy(t->dim, dim, (size_t)rank * sizeof *dim);
	return CUDNN_STATUS_SUCCESS;
}

API cudnnStatus_t cudnnGetTensorNdDescriptor(
	cudnnTensorDescriptor_t t, int asked, cudnnDataType_t *type, int *rank, int dim[], int stride[])
{
	*type = t->type;
	*rank = t->rank;
	for (int i = t->rank - 1, s = 1; i >= 0; s *= t->dim[i--])
		if (i < asked) {
			dim[i] = t->dim[i];
			stride[i] = s;
		}
	return CUDNN_STATUS_SUCCESS;
}

API cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t t)
{
	free(t);
	return CUDNN_STATUS_SUCCESS;
}

static bool lacks_last(const char *what)
{
	const char *s = getenv("STANDIN_NO_NHWC");

	return s && !strcmp(s, what) && standin_said(cudaErrorInvalidValue) != cudaSuccess;
}

API cudnnStatus_t cudnnSetFilterNdDescriptor(
	cudnnFilterDescriptor_t w, cudnnDataType_t type, cudnnTensorFormat_t format, int rank, const int dim[])
{
	if ((format == CUDNN_TENSOR_NHWC && (rank != 4 || lacks_last("filters"))) || rank < 4 || rank > 5)
		return CUDNN_STATUS_NOT_SUPPORTED;
	w->last = format == CUDNN_TENSOR_NHWC;
	w->rank = rank;
	w->type = type;
	memcpy(w->dim, dim, (size_t)rank * sizeof *dim);
	return CUDNN_STATUS_SUCCESS;
}

API cudnnStatus_t cudnnSetConvolutionNdDescriptor(cudnnConvolutionDescriptor_t c, int n, const int pad[],
	const int stride[], const int dilation[], cudnnConvolutionMode_t mode, cudnnDataType_t type)
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
	c->math = type;
	return CUDNN_STATUS_SUCCESS;
}

API cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t c, int groups)
{
	c->groups = groups;
	return CUDNN_STATUS_SUCCESS;
}

/* ---- algorithms ---- */

enum { ALGORITHMS = 3 };

typedef struct algorithm {
	int number;
	size_t bytes;
	cudnnDeterminism_t determinism;
} algorithm;

static const algorithm forward[ALGORITHMS] = {
	{ 4, (size_t)1 << 30, CUDNN_DETERMINISTIC },
	{ CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, 1024, CUDNN_DETERMINISTIC },
	{ 0, 0, CUDNN_DETERMINISTIC },
};
static const algorithm backward[ALGORITHMS] = {
	{ 2, (size_t)1 << 30, CUDNN_DETERMINISTIC },
	{ 0, 512, CUDNN_NON_DETERMINISTIC },
	{ 1, 1024, CUDNN_DETERMINISTIC },
};

static const algorithm *algorithm_of(int what, int number)
{
	const algorithm *of = what == PD_FORWARD ? forward : backward;

	for (int i = 0; i < ALGORITHMS; i++)
		if (of[i].number == number)
			return &of[i];
	return NULL;
}

/* Products of f32 are those of f32 with FMA_MATH alone. */
static cudnnStatus_t name(int what, const struct cudnnTensorStruct *x, int asked, int *found, struct cudnnPerf *perf)
{
	const algorithm *of = what == PD_FORWARD ? forward : backward;

	if (asked < 1)
		return CUDNN_STATUS_BAD_PARAM;
	if (x->last && lacks_last("algorithms"))
		return CUDNN_STATUS_NOT_SUPPORTED;
	*found = asked < ALGORITHMS ? asked : ALGORITHMS;
	for (int i = 0; i < *found; i++)
		perf[i] = (struct cudnnPerf){ .algo = of[i].number,
			.status = CUDNN_STATUS_SUCCESS,
			.memory = of[i].bytes,
			.determinism = of[i].determinism,
			.mathType = x->type == CUDNN_DATA_FLOAT ? CUDNN_FMA_MATH : CUDNN_TENSOR_OP_MATH };
	return CUDNN_STATUS_SUCCESS;
}

API cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t h, cudnnTensorDescriptor_t x,
	cudnnFilterDescriptor_t w, cudnnConvolutionDescriptor_t c, cudnnTensorDescriptor_t y, int asked, int *found,
	cudnnConvolutionFwdAlgoPerf_t *perf)
{
	(void)h;
	(void)w;
	(void)c;
	(void)y;
	return name(PD_FORWARD, x, asked, found, perf);
}

API cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(cudnnHandle_t h, cudnnFilterDescriptor_t w,
	cudnnTensorDescriptor_t dy, cudnnConvolutionDescriptor_t c, cudnnTensorDescriptor_t dx, int asked, int *found,
	cudnnConvolutionBwdDataAlgoPerf_t *perf)
{
	(void)h;
	(void)w;
	(void)c;
	(void)dx;
	return name(PD_BACKWARD_DATA, dy, asked, found, perf);
}

API cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(cudnnHandle_t h, cudnnTensorDescriptor_t x,
	cudnnTensorDescriptor_t dy, cudnnConvolutionDescriptor_t c, cudnnFilterDescriptor_t dw, int asked, int *found,
	cudnnConvolutionBwdFilterAlgoPerf_t *perf)
{
	(void)h;
	(void)dy;
	(void)c;
	(void)dw;
	return name(PD_BACKWARD_WEIGHTS, x, asked, found, perf);
}

/* ---- convolutions ---- */

typedef struct known {
	pd_conv_desc d;
	pd_conv conv;
	void *scratch;
} known;

/* oneDNN's object for the convolution, made once. NULL: the descriptors do not fit each other. Filters lie as the images do;
 * channels-last ones are taken of 16-bit floats alone. */
static const known *object(int what, const struct cudnnTensorStruct *x, const struct cudnnFilterStruct *w,
	const struct cudnnConvolutionStruct *c, const struct cudnnTensorStruct *y)
{
	static known *table;
	static int n;
	pd_conv_desc d;

	memset(&d, 0, sizeof d);
	d.what = what;
	d.nd = c->n;
	d.n = x->dim[0];
	d.c = x->dim[1];
	d.oc = y->dim[1];
	d.groups = c->groups;
	if (x->type != w->type || x->type != y->type || (w->last && x->type == CUDNN_DATA_FLOAT) ||
		(!x->either && x->last != w->last) || (!y->either && y->last != w->last))
		return NULL;
	d.nhwc = w->last;
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
		d.pad_end[i] =
			(d.out[i] - 1) * d.stride[i] + d.dilation[i] * (d.kernel[i] - 1) + 1 - d.in[i] - c->pad[i];
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

/* ---- how much workspace ---- */

static cudnnStatus_t room(int what, const struct cudnnTensorStruct *x, const struct cudnnFilterStruct *w,
	const struct cudnnConvolutionStruct *c, const struct cudnnTensorStruct *y, int number, size_t *bytes)
{
	const algorithm *a = algorithm_of(what, number);

	if (!a || !object(what, x, w, c, y))
		return CUDNN_STATUS_NOT_SUPPORTED;
	*bytes = a->bytes;
	return CUDNN_STATUS_SUCCESS;
}

API cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t h, cudnnTensorDescriptor_t x,
	cudnnFilterDescriptor_t w, cudnnConvolutionDescriptor_t c, cudnnTensorDescriptor_t y,
	cudnnConvolutionFwdAlgo_t algo, size_t *bytes)
{
	(void)h;
	return room(PD_FORWARD, x, w, c, y, algo, bytes);
}

API cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(cudnnHandle_t h, cudnnFilterDescriptor_t w,
	cudnnTensorDescriptor_t dy, cudnnConvolutionDescriptor_t c, cudnnTensorDescriptor_t dx,
	cudnnConvolutionBwdDataAlgo_t algo, size_t *bytes)
{
	(void)h;
	return room(PD_BACKWARD_DATA, dx, w, c, dy, algo, bytes);
}

API cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(cudnnHandle_t h, cudnnTensorDescriptor_t x,
	cudnnTensorDescriptor_t dy, cudnnConvolutionDescriptor_t c, cudnnFilterDescriptor_t dw,
	cudnnConvolutionBwdFilterAlgo_t algo, size_t *bytes)
{
	(void)h;
	return room(PD_BACKWARD_WEIGHTS, x, dw, c, dy, algo, bytes);
}

/* ---- running them ---- */

typedef struct convolution {
	known k;
	const algorithm *by;
	void *to, *workspace;
	const void *a, *b, *bias;
	struct cudnnTensorStruct y;
	bool relu;
} convolution;

static int64_t results(const pd_conv_desc *d)
{
	int64_t n = d->what == PD_BACKWARD_WEIGHTS ? (int64_t)d->oc * d->c / d->groups : (int64_t)d->n * d->c;

	for (int i = 0; i < d->nd; i++)
		n *= d->what == PD_BACKWARD_WEIGHTS ? d->kernel[i] : d->in[i];
	return n;
}

/* As if it had added in another order. */
static void other_order(const pd_conv_desc *d, void *to)
{
	static unsigned turn;
	const char *begins = getenv("STANDIN_ORDER");

	if (turn == 0 && begins)
		turn = (unsigned)atoi(begins);
	const int64_t n = turn++ % 5 < 2 && d->type == PD_F32 ? results(d) : 0;

	for (int64_t i = 0; i < n; i += 3)
		((float *)to)[i] = nextafterf(((float *)to)[i], INFINITY);
}

/* The three tensors of a convolution belong to the program (standin_touch). */
static void touch(const convolution *c)
{
	static const char *const names[] = { [PD_FORWARD] = "cuDNN's convolution",
		[PD_BACKWARD_DATA] = "cuDNN's gradient of images",
		[PD_BACKWARD_WEIGHTS] = "cuDNN's gradient of filters" };
	const char *who = names[c->k.d.what];
	const pd_conv_desc *d = &c->k.d;
	const size_t wide = d->type == PD_F32 ? 4 : 2;
	size_t x = wide * (size_t)d->n * (size_t)d->c, y = wide * (size_t)d->n * (size_t)d->oc;
	size_t w = wide * (size_t)d->oc * (size_t)(d->c / d->groups);

	for (int i = 0; i < d->nd; i++) {
		x *= (size_t)d->in[i];
		y *= (size_t)d->out[i];
		w *= (size_t)d->kernel[i];
	}
	standin_touch(who, ORDER_WRITES, c->to, d->what == PD_FORWARD ? y : d->what == PD_BACKWARD_DATA ? x : w);
	standin_touch(who, ORDER_READS, c->a, d->what == PD_BACKWARD_DATA ? y : x);
	standin_touch(who, ORDER_READS, c->b, d->what == PD_BACKWARD_WEIGHTS ? y : w);
	if (c->bias)
		standin_touch(who, ORDER_READS, c->bias, wide * (size_t)d->oc);
	if (c->by->bytes)
		standin_touch(who, ORDER_WRITES, c->workspace, c->by->bytes);
}

/* Filters [oc, points, c] from plain order [oc, c, points], or there. */
static void turn_filters(const pd_conv_desc *d, uint16_t *to, const uint16_t *from, bool to_plain)
{
	const int64_t c = d->c / d->groups;
	int64_t points = 1;

	for (int i = 0; i < d->nd; i++)
		points *= d->kernel[i];
	for (int64_t k = 0; k < d->oc; k++)
		for (int64_t p = 0; p < points; p++)
			for (int64_t i = 0; i < c; i++) {
				const int64_t last = (k * points + p) * c + i, plain = (k * c + i) * points + p;
				to[to_plain ? plain : last] = from[to_plain ? last : plain];
			}
}

static standin_end convolve(void *what)
{
	const convolution *c = what;
	const pd_conv_desc *d = &c->k.d;
	const int64_t sp = standin_dnn_points(&c->y);
	const bool makes_filters = d->what == PD_BACKWARD_WEIGHTS;
	void *to = c->to;
	const void *filters = c->b;
	uint16_t *plain = NULL;

	standin_device(1);
	touch(c);
	if (c->by->bytes)
		memset(c->workspace, 0xff, c->by->bytes);
	if (d->nhwc) {
		plain = malloc((size_t)d->oc * (size_t)(d->c / d->groups) * (size_t)d->kernel[0] *
			       (size_t)d->kernel[1] * sizeof *plain);
		if (!plain)
			abort();
		if (makes_filters)
			to = plain;
		else
			turn_filters(d, plain, filters, true), filters = plain;
	}
	switch (d->what) {
	case PD_FORWARD: pd_conv_forward(&c->k.conv, to, c->a, filters, NULL, c->k.scratch); break;
	case PD_BACKWARD_DATA: pd_conv_backward_data(&c->k.conv, to, c->a, filters, c->k.scratch); break;
	default: pd_conv_backward_weights(&c->k.conv, to, NULL, c->a, c->b, c->k.scratch);
	}
	if (d->nhwc && makes_filters)
		turn_filters(d, c->to, plain, false);
	free(plain);
	if (c->by->determinism == CUDNN_NON_DETERMINISTIC)
		other_order(&c->k.d, c->to);
	for (int n = 0; c->bias && n < c->y.dim[0]; n++)
		for (int k = 0; k < c->y.dim[1]; k++)
			for (int64_t i = 0; i < sp; i++) {
				const int64_t at = standin_dnn_at(&c->y, n, k, i);
				const float v = standin_dnn_get(&c->y, c->to, at) + standin_dnn_get(&c->y, c->bias, k);
				standin_dnn_put(&c->y, c->to, at, c->relu && !(v > 0) ? 0 : v);
			}
	standin_device(0);
	return STANDIN_DONE;
}

bool standin_dnn_plain(const void *alpha, const void *beta)
{
	return *(const float *)alpha == 1 && *(const float *)beta == 0;
}

/* c has what is read and written. f32 by products of fewer bits is asked for nowhere. */
static cudnnStatus_t start(cudnnHandle_t h, convolution c, const known *k, const struct cudnnConvolutionStruct *d,
	int number, size_t bytes)
{
	c.by = k ? algorithm_of(k->d.what, number) : NULL;
	if (!c.by || (k->d.type == PD_F32 && d->math != CUDNN_FMA_MATH))
		return CUDNN_STATUS_NOT_SUPPORTED;
	if (bytes < c.by->bytes || (c.by->bytes && !c.workspace))
		return CUDNN_STATUS_BAD_PARAM;
	c.k = *k;
	standin_do(standin_stream(h->stream), convolve, &c, sizeof c);
	return CUDNN_STATUS_SUCCESS;
}

API cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t h, const void *alpha, cudnnTensorDescriptor_t xd, const void *x,
	cudnnFilterDescriptor_t wd, const void *w, cudnnConvolutionDescriptor_t c, cudnnConvolutionFwdAlgo_t algo,
	void *workspace, size_t bytes, const void *beta, cudnnTensorDescriptor_t yd, void *y)
{
	if (!standin_dnn_plain(alpha, beta))
		return CUDNN_STATUS_NOT_SUPPORTED;
	return start(h, (convolution){ .to = y, .a = x, .b = w, .y = *yd, .workspace = workspace },
		object(PD_FORWARD, xd, wd, c, yd), c, algo, bytes);
}

/* A bias alone is added by one algorithm only. z has y's descriptor; times 0 it is not read. */
API cudnnStatus_t cudnnConvolutionBiasActivationForward(cudnnHandle_t h, const void *alpha1, cudnnTensorDescriptor_t xd,
	const void *x, cudnnFilterDescriptor_t wd, const void *w, cudnnConvolutionDescriptor_t c,
	cudnnConvolutionFwdAlgo_t algo, void *workspace, size_t bytes, const void *alpha2, cudnnTensorDescriptor_t zd,
	const void *z, cudnnTensorDescriptor_t bd, const void *bias, cudnnActivationDescriptor_t act,
	cudnnTensorDescriptor_t yd, void *y)
{
	const char *epilogues = getenv("STANDIN_EPILOGUES");

	if (!bias || !z || x == y || x == z || memcmp(zd, yd, sizeof *zd))
		return CUDNN_STATUS_BAD_PARAM;
	if ((epilogues && *epilogues && standin_said(cudaErrorInvalidValue) != cudaSuccess) ||
		!standin_dnn_plain(alpha1, alpha2) || bd->type != yd->type || bd->dim[0] != 1 ||
		bd->dim[1] != yd->dim[1] || standin_dnn_points(bd) != 1 || act->nan != CUDNN_NOT_PROPAGATE_NAN ||
		(act->mode != CUDNN_ACTIVATION_RELU &&
			(act->mode != CUDNN_ACTIVATION_IDENTITY ||
				algo != CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM)))
		return CUDNN_STATUS_NOT_SUPPORTED;
	return start(h,
		(convolution){ .to = y,
			.a = x,
			.b = w,
			.y = *yd,
			.workspace = workspace,
			.bias = bias,
			.relu = act->mode == CUDNN_ACTIVATION_RELU },
		object(PD_FORWARD, xd, wd, c, yd), c, algo, bytes);
}

API cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t h, const void *alpha, cudnnFilterDescriptor_t wd,
	const void *w, cudnnTensorDescriptor_t dyd, const void *dy, cudnnConvolutionDescriptor_t c,
	cudnnConvolutionBwdDataAlgo_t algo, void *workspace, size_t bytes, const void *beta,
	cudnnTensorDescriptor_t dxd, void *dx)
{
	if (!standin_dnn_plain(alpha, beta))
		return CUDNN_STATUS_NOT_SUPPORTED;
	return start(h, (convolution){ .to = dx, .a = dy, .b = w, .workspace = workspace },
		object(PD_BACKWARD_DATA, dxd, wd, c, dyd), c, algo, bytes);
}

API cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t h, const void *alpha, cudnnTensorDescriptor_t xd,
	const void *x, cudnnTensorDescriptor_t dyd, const void *dy, cudnnConvolutionDescriptor_t c,
	cudnnConvolutionBwdFilterAlgo_t algo, void *workspace, size_t bytes, const void *beta,
	cudnnFilterDescriptor_t dwd, void *dw)
{
	if (!standin_dnn_plain(alpha, beta))
		return CUDNN_STATUS_NOT_SUPPORTED;
	return start(h, (convolution){ .to = dw, .a = x, .b = dy, .workspace = workspace },
		object(PD_BACKWARD_WEIGHTS, xd, dwd, c, dyd), c, algo, bytes);
}

size_t standin_dnn_wide(const struct cudnnTensorStruct *t) { return t->type == CUDNN_DATA_FLOAT ? 4 : 2; }

float standin_dnn_get(const struct cudnnTensorStruct *t, const void *x, int64_t i)
{
	return t->type == CUDNN_DATA_BFLOAT16 ? pd_from_bf16(((const uint16_t *)x)[i])
	       : t->type == CUDNN_DATA_HALF   ? pd_from_f16(((const uint16_t *)x)[i])
	                                      : ((const float *)x)[i];
}

void standin_dnn_put(const struct cudnnTensorStruct *t, void *x, int64_t i, float v)
{
	if (t->type == CUDNN_DATA_FLOAT)
		((float *)x)[i] = v;
	else
		((uint16_t *)x)[i] = t->type == CUDNN_DATA_BFLOAT16 ? pd_to_bf16(v) : pd_to_f16(v);
}

int64_t standin_dnn_at(const struct cudnnTensorStruct *t, int n, int c, int64_t point)
{
	const int64_t points = standin_dnn_points(t);

	return t->last ? (n * points + point) * t->dim[1] + c : ((int64_t)n * t->dim[1] + c) * points + point;
}

int64_t standin_dnn_points(const struct cudnnTensorStruct *t)
{
	int64_t n = 1;

	for (int i = 2; i < t->rank; i++)
		n *= t->dim[i];
	return n;
}

int standin_dnn_lacks_ends(void)
{
	const char *s = getenv("STANDIN_EPILOGUES");

	return s && !strcmp(s, "none") && standin_said(cudaErrorInvalidValue) != cudaSuccess;
}

typedef struct bias {
	struct cudnnTensorStruct large, small;
	const void *from;
	void *to;
} bias;

static void touch_bias(const char *who, const bias *x, bool sums)
{
	const size_t small = (size_t)x->small.dim[1] * standin_dnn_wide(&x->small);
	const size_t large = (size_t)x->large.dim[0] * (size_t)x->large.dim[1] * (size_t)standin_dnn_points(&x->large) *
	                     standin_dnn_wide(&x->large);

	standin_touch(who, ORDER_READS, x->from, sums ? large : small);
	standin_touch(who, ORDER_WRITES, x->to, sums ? small : large);
}

static standin_end sum_bias(void *what)
{
	const bias *x = what;
	const int64_t sp = standin_dnn_points(&x->large);

	standin_device(1);
	touch_bias("cuDNN's gradient of a bias", x, true);
	for (int c = 0; c < x->large.dim[1]; c++) {
		double sum = 0;

		for (int n = 0; n < x->large.dim[0]; n++)
			for (int64_t i = 0; i < sp; i++)
				sum += (double)standin_dnn_get(&x->large, x->from, standin_dnn_at(&x->large, n, c, i));
		standin_dnn_put(&x->small, x->to, c, (float)sum);
	}
	standin_device(0);
	return STANDIN_DONE;
}

static standin_end add_bias(void *what)
{
	const bias *x = what;
	const int64_t sp = standin_dnn_points(&x->large);

	standin_device(1);
	touch_bias("cuDNN's sum with a bias", x, false);
	for (int n = 0; n < x->large.dim[0]; n++)
		for (int c = 0; c < x->large.dim[1]; c++) {
			const float b = standin_dnn_get(&x->small, x->from, c);

			for (int64_t i = 0; i < sp; i++) {
				const int64_t at = standin_dnn_at(&x->large, n, c, i);
				standin_dnn_put(&x->large, x->to, at, standin_dnn_get(&x->large, x->to, at) + b);
			}
		}
	standin_device(0);
	return STANDIN_DONE;
}

API cudnnStatus_t cudnnConvolutionBackwardBias(cudnnHandle_t h, const void *alpha, cudnnTensorDescriptor_t dyd,
	const void *dy, const void *beta, cudnnTensorDescriptor_t dbd, void *db)
{
	if (!standin_dnn_plain(alpha, beta) || dbd->dim[1] != dyd->dim[1] || standin_dnn_lacks_ends())
		return CUDNN_STATUS_NOT_SUPPORTED;
	standin_do(standin_stream(h->stream), sum_bias, &(bias){ *dyd, *dbd, dy, db }, sizeof(bias));
	return CUDNN_STATUS_SUCCESS;
}

API cudnnStatus_t cudnnAddTensor(cudnnHandle_t h, const void *alpha, cudnnTensorDescriptor_t bd, const void *b,
	const void *beta, cudnnTensorDescriptor_t yd, void *y)
{
	if (standin_dnn_lacks_ends() || *(const float *)alpha != 1 || *(const float *)beta != 1 ||
		bd->dim[1] != yd->dim[1] || bd->dim[0] != 1)
		return CUDNN_STATUS_NOT_SUPPORTED;
	standin_do(standin_stream(h->stream), add_bias, &(bias){ *yd, *bd, b, y }, sizeof(bias));
	return CUDNN_STATUS_SUCCESS;
}
