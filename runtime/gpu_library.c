/* gpu_library.c: cuBLAS and cuDNN behind the calls of pd.h. Matrices and images are f32 and plain. cuDNN's workspace is
 * one piece of device memory for all calls, as large as the largest needs, made before step 0; so are the images of
 * convolutions that pad an axis with more on one side than on the other, which cuDNN does not: they are padded here. */
#include "gpu_rt.h"
#include <cublas_v2.h>
#include <cudnn.h>

static cublasHandle_t blas;
static cudnnHandle_t  dnn;

typedef struct piece { void *at; size_t bytes; } piece;        /* of device memory, for one call at a time */
static piece workspace, padded;

static void check_blas(cublasStatus_t s, const char *what)
{
	if (s != CUBLAS_STATUS_SUCCESS)
		rt_fail(RT_ERROR, "R523", "cuBLAS: %s: status %d", what, (int)s);
}

static void check_dnn(cudnnStatus_t s, const char *what)
{
	if (s != CUDNN_STATUS_SUCCESS)
		rt_fail(RT_ERROR, "R523", "cuDNN: %s: %s", what, cudnnGetErrorString(s));
}

/* Its workspace is of the size that NVIDIA names for the architecture; a handle without makes memory while it works, which neither a
 * graph that is captured nor a message under way allows. A new stream takes the workspace away. */
static cublasHandle_t products(void)
{
	const size_t bytes = (size_t)(rt_gpu_major() >= 9 ? 32 : 4) << 20;

	if (!blas) {
		check_blas(cublasCreate(&blas), "cublasCreate");
		check_blas(cublasSetStream(blas, pd_stream()), "cublasSetStream");
		check_blas(cublasSetWorkspace(blas, rt_device_memory(bytes, "cuBLAS's workspace"), bytes), "cublasSetWorkspace");
	}
	return blas;
}

void rt_gpu_library(void)
{
	products();
}

/* Row-major C = op(A) op(B) is column-major C' = op(B)' op(A)'. */
void pd_gemm(int transa, int transb, int m, int n, int k, const float *a, int lda, const float *b, int ldb, float beta,
             float *c, int ldc)
{
	const float one = 1;

	check_blas(cublasSgemm(products(), transb ? CUBLAS_OP_T : CUBLAS_OP_N, transa ? CUBLAS_OP_T : CUBLAS_OP_N, n, m, k, &one, b,
	                       ldb, a, lda, &beta, c, ldc), "cublasSgemm");
}

static cudaDataType blas_type(pd_dtype t)
{
	return t == PD_BF16 ? CUDA_R_16BF : t == PD_F16 ? CUDA_R_16F : CUDA_R_32F;
}

void pd_gemm_half(pd_dtype in, pd_dtype out, int transa, int transb, int m, int n, int k, const uint16_t *a, int lda,
                  const uint16_t *b, int ldb, float beta, void *c, int ldc)
{
	const float one = 1;

	check_blas(cublasGemmEx(products(), transb ? CUBLAS_OP_T : CUBLAS_OP_N, transa ? CUBLAS_OP_T : CUBLAS_OP_N, n, m, k, &one,
	                        b, blas_type(in), ldb, a, blas_type(in), lda, &beta, c, blas_type(out), ldc, CUBLAS_COMPUTE_32F,
	                        CUBLAS_GEMM_DEFAULT), "cublasGemmEx");
}

void pd_gemm_batch(pd_dtype in, pd_dtype out, int transa, int transb, int m, int n, int k, const void *a, int lda, int64_t astep,
                   const void *b, int ldb, int64_t bstep, void *y, int batch)
{
	const float one = 1, none = 0;

	check_blas(cublasGemmStridedBatchedEx(products(), transb ? CUBLAS_OP_T : CUBLAS_OP_N, transa ? CUBLAS_OP_T : CUBLAS_OP_N, n, m, k,
	                                      &one, b, blas_type(in), ldb, bstep, a, blas_type(in), lda, astep, &none, y,
	                                      blas_type(out), n, (int64_t)m * n, batch, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
	           "cublasGemmStridedBatchedEx");
}

/* ---- convolution ---- */

static cudnnDataType_t dnn_type(pd_dtype t)
{
	return t == PD_BF16 ? CUDNN_DATA_BFLOAT16 : t == PD_F16 ? CUDNN_DATA_HALF : CUDNN_DATA_FLOAT;
}

static size_t size_of(pd_dtype t)
{
	return t == PD_BF16 || t == PD_F16 ? 2 : 4;
}

typedef struct conv {
	pd_conv_desc                 d;
	cudnnTensorDescriptor_t      x, y, bias;
	cudnnFilterDescriptor_t      w;
	cudnnConvolutionDescriptor_t conv;
	int                          algorithm;
	size_t                       bytes;     /* of workspace */
	bool                         uneven;    /* x is padded before the call */
} conv;

static cudnnHandle_t handle(void)
{
	if (!dnn) {
		check_dnn(cudnnCreate(&dnn), "cudnnCreate");
		check_dnn(cudnnSetStream(dnn, pd_stream()), "cudnnSetStream");
	}
	return dnn;
}

/* At least two spatial axes, plain order. */
static cudnnTensorDescriptor_t tensor(pd_dtype type, int n, int c, int nd, const int *sp)
{
	cudnnTensorDescriptor_t t;
	const int rank = 2 + (nd < 2 ? 2 : nd);
	int dim[5] = { n, c, 1, 1, 1 }, stride[5];

	for (int i = 0; i < nd; i++)
		dim[rank - nd + i] = sp[i];
	for (int i = rank - 1, s = 1; i >= 0; s *= dim[i--])
		stride[i] = s;
	check_dnn(cudnnCreateTensorDescriptor(&t), "tensor");
	check_dnn(cudnnSetTensorNdDescriptor(t, dnn_type(type), rank, dim, stride), "tensor");
	return t;
}

static void describe(conv *o)
{
	const pd_conv_desc *d = &o->d;
	const int           nd = d->nd < 2 ? 2 : d->nd, lead = nd - d->nd;
	int                 w[5] = { d->oc, d->c / d->groups, 1, 1, 1 }, pad[3] = { 0 }, stride[3] = { 1, 1, 1 },
		dilation[3] = { 1, 1, 1 }, extent[3] = { 1, 1, 1 };

	for (int i = 0; i < d->nd; i++) {
		w[2 + lead + i] = d->kernel[i];
		pad[lead + i] = o->uneven ? 0 : d->pad_begin[i];
		extent[i] = d->in[i] + d->pad_begin[i] + d->pad_end[i];
		stride[lead + i] = d->stride[i];
		dilation[lead + i] = d->dilation[i];
	}
	o->x = tensor(d->type, d->n, d->c, d->nd, o->uneven ? extent : d->in);
	o->y = tensor(d->type, d->n, d->oc, d->nd, d->out);
	o->bias = tensor(d->type, 1, d->oc, d->nd, (const int[]){ 1, 1, 1 });
	check_dnn(cudnnCreateFilterDescriptor(&o->w), "filter");
	check_dnn(cudnnSetFilterNdDescriptor(o->w, dnn_type(d->type), CUDNN_TENSOR_NCHW, 2 + nd, w), "filter");
	check_dnn(cudnnCreateConvolutionDescriptor(&o->conv), "convolution");
	check_dnn(cudnnSetConvolutionNdDescriptor(o->conv, nd, pad, stride, dilation, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT),
	          "convolution");
	/* of f32 the default takes products of 10-bit mantissas on newer GPUs */
	check_dnn(cudnnSetConvolutionMathType(o->conv, size_of(d->type) == 2 ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH), "math type");
	check_dnn(cudnnSetConvolutionGroupCount(o->conv, d->groups), "groups");
}

/* The library's first choice by its own estimate, or in --reproducible programs the first that always adds in one order. */
#define CHOOSE(PERF, GET, ...) \
	PERF found[8]; \
	int  n = 0, best = 0; \
	check_dnn(GET(handle(), __VA_ARGS__, 8, &n, found), "choice of an algorithm"); \
	while (best < n && (found[best].status != CUDNN_STATUS_SUCCESS || \
	                    (rt_program->reproducible && found[best].determinism != CUDNN_DETERMINISTIC))) \
		best++; \
	if (best == n) \
		rt_fail(RT_ERROR, "R523", "cuDNN has no algorithm for a convolution of %d images", o->d.n); \
	o->algorithm = (int)found[best].algo; \
	o->bytes = found[best].memory

static void choose_forward(conv *o)
{
	CHOOSE(cudnnConvolutionFwdAlgoPerf_t, cudnnGetConvolutionForwardAlgorithm_v7, o->x, o->w, o->conv, o->y);
}

static void choose_data(conv *o)
{
	CHOOSE(cudnnConvolutionBwdDataAlgoPerf_t, cudnnGetConvolutionBackwardDataAlgorithm_v7, o->w, o->y, o->conv, o->x);
}

static void choose_weights(conv *o)
{
	CHOOSE(cudnnConvolutionBwdFilterAlgoPerf_t, cudnnGetConvolutionBackwardFilterAlgorithm_v7, o->x, o->y, o->conv, o->w);
}

static void want(piece *p, size_t bytes, const char *what)
{
	if (bytes <= p->bytes)
		return;
	rt_device_release(p->at);
	p->at = rt_device_memory(bytes, what);
	p->bytes = bytes;
}

/* ---- what cuDNN does not pad ---- */

static bool uneven(const pd_conv_desc *d)
{
	for (int i = 0; i < d->nd; i++)
		if (d->out[i] != (d->in[i] + 2 * d->pad_begin[i] - d->dilation[i] * (d->kernel[i] - 1) - 1) / d->stride[i] + 1)
			return true;
	return false;
}

/* The image's extents, what is padded in front, and the padded ones, as three axes. Bytes of all padded images. */
static size_t extents(const pd_conv_desc *d, int *in, int *front, int *out)
{
	size_t n = (size_t)d->n * (size_t)d->c;

	for (int i = 0; i < 3; i++) {
		const int k = i - (3 - d->nd);
		in[i] = k < 0 ? 1 : d->in[k];
		front[i] = k < 0 ? 0 : d->pad_begin[k];
		out[i] = k < 0 ? 1 : in[i] + d->pad_begin[k] + d->pad_end[k];
		n *= (size_t)out[i];
	}
	return n * size_of(d->type);
}

static const void *pad(const conv *o, const void *x)
{
	int in[3], front[3], out[3];

	if (!o->uneven)
		return x;
	pd_fill(padded.at, 0, extents(&o->d, in, front, out));
	pd_window(padded.at, x, size_of(o->d.type), (int64_t)o->d.n * o->d.c, in, front, out, 1);
	return padded.at;
}

size_t pd_conv_scratch(const pd_conv_desc *d)
{
	(void)d;
	return 0;
}

void pd_conv_init(pd_conv *p, const pd_conv_desc *d)
{
	conv *o = rt_alloc(sizeof *o);

	int in[3], front[3], out[3];

	if (rt_virtual)
		return;
	o->d = *d;
	o->uneven = uneven(d);
	if (o->uneven)
		want(&padded, extents(d, in, front, out), "padded images");
	describe(o);
	if (d->what == PD_FORWARD)
		choose_forward(o);
	else if (d->what == PD_BACKWARD_DATA)
		choose_data(o);
	else
		choose_weights(o);
	want(&workspace, o->bytes, "cuDNN's workspace");
	p->impl = o;
}

void pd_conv_forward(const pd_conv *p, void *y, const void *x, const void *w, const void *b, void *scratch)
{
	const conv *o = p->impl;
	const float one = 1, none = 0;

	(void)scratch;
	check_dnn(cudnnConvolutionForward(handle(), &one, o->x, pad(o, x), o->w, w, o->conv, (cudnnConvolutionFwdAlgo_t)o->algorithm,
	                                  workspace.at, o->bytes, &none, o->y, y), "cudnnConvolutionForward");
	if (o->d.bias)
		check_dnn(cudnnAddTensor(handle(), &one, o->bias, b, &one, o->y, y), "cudnnAddTensor");
}

void pd_conv_backward_data(const pd_conv *p, void *dx, const void *dy, const void *w, void *scratch)
{
	const conv *o = p->impl;
	const float one = 1, none = 0;

	(void)scratch;
	check_dnn(cudnnConvolutionBackwardData(handle(), &one, o->w, w, o->y, dy, o->conv,
	                                       (cudnnConvolutionBwdDataAlgo_t)o->algorithm, workspace.at, o->bytes, &none, o->x,
	                                       o->uneven ? padded.at : dx), "cudnnConvolutionBackwardData");
	if (o->uneven) {
		int in[3], front[3], out[3];

		extents(&o->d, in, front, out);
		pd_window(padded.at, dx, size_of(o->d.type), (int64_t)o->d.n * o->d.c, in, front, out, 0);
	}
}

void pd_conv_backward_weights(const pd_conv *p, void *dw, void *db, const void *x, const void *dy, void *scratch)
{
	const conv *o = p->impl;
	const float one = 1, none = 0;

	(void)scratch;
	check_dnn(cudnnConvolutionBackwardFilter(handle(), &one, o->x, pad(o, x), o->y, dy, o->conv,
	                                         (cudnnConvolutionBwdFilterAlgo_t)o->algorithm, workspace.at, o->bytes, &none,
	                                         o->w, dw), "cudnnConvolutionBackwardFilter");
	if (o->d.bias)
		check_dnn(cudnnConvolutionBackwardBias(handle(), &one, o->y, dy, &none, o->bias, db), "cudnnConvolutionBackwardBias");
}
