/* standin_lt.c: cuBLASLt, by columns as there: the product by the processor's library in f32, then the epilogue, then one
 * rounding. STANDIN_EPILOGUES=0: none but the default is there; =late: the heuristic has them, runs do not; =drelu: none for the gradient
 * of a Relu; =drelu-late: likewise, but runs alone refuse it. What the library's header forbids is refused. The bits that a Relu keeps have an order of their own.
 *
 * Several algorithms (standin_times.c): that of number N adds up the first N products of a sum by themselves, so that its bits are others.
 * What is told of one is what a run has to keep to, and a sum of that: a check refuses what the heuristic has not named.
 *
 * Numbers of 8 bits: as its documentation says of devices of compute capability 8.9 and 9.0, A transposed, B not, extents that are
 * multiples of 16, not both E5M2; the sum is times both scales, then as ever. */
#include <cublasLt.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "pd.h"
#include "standin.h"

#define REFUSED CUBLAS_STATUS_INVALID_VALUE
#define LACKING CUBLAS_STATUS_NOT_SUPPORTED

struct standin_product {
	int32_t ta, tb;
	uint32_t end;
	void *bias, *aux;
	const float *scale[2]; /* of A, B */
	int64_t aux_ld;
};
struct standin_matrix {
	cudaDataType type;
	int rows, cols;
	int64_t ld, step;
	int32_t batch;
};
struct standin_wish {
	uint64_t room;
	uint32_t align[4];
};

API cublasStatus_t cublasLtCreate(cublasLtHandle_t *h)
{
	standin_asks("cublasLtCreate");
	if (standin_full("cublaslt"))
		return CUBLAS_STATUS_ALLOC_FAILED;
	*h = malloc(1);
	pd_threads(1);
	return CUBLAS_STATUS_SUCCESS;
}

API cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *d, cublasComputeType_t compute, cudaDataType scale)
{
	*d = calloc(1, sizeof **d);
	if (*d)
		(*d)->end = CUBLASLT_EPILOGUE_DEFAULT;
	return *d && compute == CUBLAS_COMPUTE_32F && scale == CUDA_R_32F ? CUBLAS_STATUS_SUCCESS : LACKING;
}

API cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d)
{
	free(d);
	return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t put(void *at, size_t want, const void *to, size_t bytes)
{
	if (bytes != want)
		return REFUSED;
	memcpy(at, to, bytes);
	return CUBLAS_STATUS_SUCCESS;
}

API cublasStatus_t cublasLtMatmulDescSetAttribute(
	cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t what, const void *to, size_t bytes)
{
	switch (what) {
	case CUBLASLT_MATMUL_DESC_TRANSA: return put(&d->ta, sizeof d->ta, to, bytes);
	case CUBLASLT_MATMUL_DESC_TRANSB: return put(&d->tb, sizeof d->tb, to, bytes);
	case CUBLASLT_MATMUL_DESC_EPILOGUE: return put(&d->end, sizeof d->end, to, bytes);
	case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return put(&d->bias, sizeof d->bias, to, bytes);
	case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: return put(&d->aux, sizeof d->aux, to, bytes);
	case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER: return put(&d->scale[0], sizeof d->scale[0], to, bytes);
	case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER: return put(&d->scale[1], sizeof d->scale[1], to, bytes);
	case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: return put(&d->aux_ld, sizeof d->aux_ld, to, bytes);
	default: return REFUSED;
	}
}

API cublasStatus_t cublasLtMatrixLayoutCreate(
	cublasLtMatrixLayout_t *l, cudaDataType type, uint64_t rows, uint64_t cols, int64_t ld)
{
	*l = malloc(sizeof **l);
	if (!*l || !rows || !cols || ld < (int64_t)rows)
		return REFUSED;
	**l = (struct standin_matrix){ type, (int)rows, (int)cols, ld, 0, 1 };
	return CUBLAS_STATUS_SUCCESS;
}

API cublasStatus_t cublasLtMatrixLayoutSetAttribute(
	cublasLtMatrixLayout_t l, cublasLtMatrixLayoutAttribute_t what, const void *to, size_t bytes)
{
	return what == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT            ? put(&l->batch, sizeof l->batch, to, bytes)
	       : what == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET ? put(&l->step, sizeof l->step, to, bytes)
	                                                             : REFUSED;
}

API cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *p)
{
	*p = malloc(sizeof **p);
	if (!*p)
		return REFUSED;
	**p = (struct standin_wish){ 0, { 256, 256, 256, 256 } };
	return CUBLAS_STATUS_SUCCESS;
}

API cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{
	free(p);
	return CUBLAS_STATUS_SUCCESS;
}

API cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
	cublasLtMatmulPreference_t p, cublasLtMatmulPreferenceAttributes_t what, const void *to, size_t bytes)
{
	if (what == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
		return put(&p->room, sizeof p->room, to, bytes);
	if (what < CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES || what > CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES)
		return REFUSED;
	return put(&p->align[what - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], sizeof *p->align, to, bytes);
}

static int relu(uint32_t end) { return (end & 2) || end == CUBLASLT_EPILOGUE_DRELU; }

static bool eight(cudaDataType t) { return t == CUDA_R_8F_E4M3 || t == CUDA_R_8F_E5M2; }

/* A [k, m] by columns, B [k, n]. */
static bool fits_eight(
	cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t y)
{
	const bool even = !(a->rows % 16 || a->cols % 16 || b->cols % 16 || a->ld % 16 || b->ld % 16 || y->ld % 16);
	const bool half = y->type == CUDA_R_16BF || y->type == CUDA_R_16F, bias = d->end & 4;

	return eight(b->type) && (a->type != CUDA_R_8F_E5M2 || b->type != CUDA_R_8F_E5M2) && d->ta == CUBLAS_OP_T &&
	       d->tb == CUBLAS_OP_N && even && (half || (y->type == CUDA_R_32F && !bias)) &&
	       d->end < CUBLASLT_EPILOGUE_BGRADA;
}

/* What the header says of sizes, types and rows that are kept. */
static cublasStatus_t fits(
	cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t y)
{
	const int m = d->ta == CUBLAS_OP_T ? a->cols : a->rows, k = d->ta == CUBLAS_OP_T ? a->rows : a->cols;
	const int n = d->tb == CUBLAS_OP_T ? b->rows : b->cols, k2 = d->tb == CUBLAS_OP_T ? b->cols : b->rows;

	if (k != k2 || y->rows != m || y->cols != n || a->batch != b->batch || a->batch != y->batch)
		return REFUSED;
	if (eight(a->type) && !fits_eight(d, a, b, y))
		return LACKING;
	if (!eight(a->type) &&
		(a->type != b->type || (y->type != a->type && y->type != CUDA_R_32F) || d->scale[0] || d->scale[1]))
		return REFUSED;
	if ((d->end & 128) && (d->aux_ld < m || d->aux_ld % (relu(d->end) ? 128 : 8)))
		return REFUSED;
	return y->batch > 1 && d->end != CUBLASLT_EPILOGUE_DEFAULT ? LACKING : CUBLAS_STATUS_SUCCESS;
}

static uint64_t alignment(const void *p) { return (uintptr_t)p % 64 == 0 ? 64 : (uintptr_t)p & -(uintptr_t)p; }

/* How bias and kept values lie is read off the pointers, which a heuristic asked too early does not have; a run has to keep to it. A bias
 * of a product that has none is refused, as the library does. */
static int placed(cublasLtMatmulDesc_t d, uint64_t bias)
{
	return (d->end & 772 ? d->bias && alignment(d->bias) >= bias : !d->bias) &&
	       (!(d->end & 128) || (d->aux && (uintptr_t)d->aux % 64 == 0));
}

static int lacks(uint32_t end, const char *when)
{
	const char *s = getenv("STANDIN_EPILOGUES");

	return s && !strcmp(s, when) &&
	       (strncmp(s, "drelu", 5) ? end != CUBLASLT_EPILOGUE_DEFAULT : end == CUBLASLT_EPILOGUE_DRELU);
}

static uint64_t signature(const cublasLtMatmulAlgo_t *algo)
{
	uint64_t s = 1;

	for (int i = 0; i < 7; i++)
		s = (s ^ algo->data[i]) * 0x100000001b3u + (s >> 40);
	return s;
}

API cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t h, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a,
	cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t y, cublasLtMatmulPreference_t p,
	int asked, cublasLtMatmulHeuristicResult_t found[], int *n)
{
	const cublasStatus_t ok = fits(d, a, b, y);

	(void)h;
	*n = 0;
	if (asked < 1 || c != y)
		return REFUSED;
	if (ok != CUBLAS_STATUS_SUCCESS || !placed(d, 16) || lacks(d->end, "0") || lacks(d->end, "drelu"))
		return LACKING;
	for (uint64_t i = 0; i < (uint64_t)standin_algorithms(d->end) && *n < asked; i++) {
		cublasLtMatmulAlgo_t algo = { { d->end, p->room / 2, p->align[0], p->align[1], p->align[3],
			alignment(d->bias), i } };

		algo.data[7] = signature(&algo);
		found[(*n)++] = (cublasLtMatmulHeuristicResult_t){ .algo = algo, .workspaceSize = (size_t)p->room / 2 };
	}
	return CUBLAS_STATUS_SUCCESS;
}

API size_t cublasLtGetVersion(void)
{
	const char *s = getenv("STANDIN_CUBLASLT");

	return s ? strtoul(s, NULL, 10) : 130000;
}

API cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t h, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a,
	cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t y, const cublasLtMatmulAlgo_t *algo,
	cublasLtMatmulHeuristicResult_t *result)
{
	const cublasStatus_t ok = fits(d, a, b, y);

	(void)h;
	if (c != y || ok != CUBLAS_STATUS_SUCCESS || algo->data[0] != d->end || algo->data[7] != signature(algo) ||
		(int)algo->data[6] >= standin_algorithms(d->end) || standin_refused((int)algo->data[6], 0))
		return LACKING;
	*result = (cublasLtMatmulHeuristicResult_t){ .algo = *algo, .workspaceSize = (size_t)algo->data[1] };
	return CUBLAS_STATUS_SUCCESS;
}

static float load(cudaDataType t, const void *x, int64_t i)
{
	return t == CUDA_R_16BF  ? pd_from_bf16(((const uint16_t *)x)[i])
	       : t == CUDA_R_16F ? pd_from_f16(((const uint16_t *)x)[i])
	                         : ((const float *)x)[i];
}

static void store(cudaDataType t, void *x, int64_t i, float v)
{
	if (t == CUDA_R_32F)
		((float *)x)[i] = v;
	else
		((uint16_t *)x)[i] = t == CUDA_R_16BF ? pd_to_bf16(v) : pd_to_f16(v);
}

/* x Phi(x), Phi by tanh. */
static float gelu(float x, float *slope)
{
	const double u = 0.7978845608028654 * (x + 0.044715 * (double)x * x * x), t = tanh(u);

	*slope = (float)(0.5 * (1 + t) +
			 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 3 * 0.044715 * (double)x * x));
	return (float)(0.5 * x * (1 + t));
}

/* Row i of column j. */
static float ended(const struct standin_product *d, cudaDataType t, float v, int i, int64_t j)
{
	uint8_t *bits = (uint8_t *)d->aux + j * d->aux_ld / 8 + i / 8;
	const int bit = 7 - i % 8;
	float slope;

	if (d->end & 4)
		v += load(t, d->bias, i);
	if (d->end == CUBLASLT_EPILOGUE_DRELU)
		return *bits >> bit & 1 ? v : 0;
	if (d->end == CUBLASLT_EPILOGUE_DGELU) {
		gelu(load(t, d->aux, j * d->aux_ld + i), &slope);
		return v * slope;
	}
	if ((d->end & 2) && (d->end & 128))
		*bits = (uint8_t)((*bits & ~(1 << bit)) | (v > 0) << bit);
	if (d->end & 2)
		return v > 0 ? v : 0;
	if ((d->end & 32) && (d->end & 128))
		store(t, d->aux, j * d->aux_ld + i, v);
	return d->end & 32 ? gelu(v, &slope) : v;
}

/* Of A the sums of its rows, of B those of its columns, over k. */
static void sums(
	const struct standin_product *d, const void *x, const struct standin_matrix *l, cudaDataType t, int n, int k)
{
	const int by_rows = d->end == CUBLASLT_EPILOGUE_BGRADA ? d->ta == CUBLAS_OP_N : d->tb == CUBLAS_OP_T;

	for (int i = 0; i < n; i++) {
		float s = 0;
		for (int q = 0; q < k; q++)
			s += load(l->type, x, by_rows ? q * l->ld + i : i * l->ld + q);
		store(t, d->bias, i, s);
	}
}

static int64_t bytes_of(cudaDataType t) { return t == CUDA_R_32F ? 4 : eight(t) ? 1 : 2; }

/* What `bits` stand for: an exponent with that bias, then `fraction` bits. */
static float opened(uint8_t bits, int fraction, int bias)
{
	const int exponent = (bits & 0x7f) >> fraction, part = bits & ((1 << fraction) - 1);
	const float x =
		ldexpf((float)(exponent ? part | 1 << fraction : part), (exponent ? exponent : 1) - bias - fraction);
	const bool none = fraction == 3 ? (bits & 0x7f) == 0x7f : exponent == 31 && part;

	return none                              ? NAN
	       : fraction == 2 && exponent == 31 ? (bits & 0x80 ? -INFINITY : INFINITY)
	       : bits & 0x80                     ? -x
	                                         : x;
}

/* A matrix of 8 bits as one of f32 without gaps. */
static float *widened(const uint8_t *x, const struct standin_matrix *l)
{
	float *to = malloc((size_t)l->rows * (size_t)l->cols * sizeof *to);

	if (!to)
		abort();
	for (int64_t j = 0; j < l->cols; j++)
		for (int64_t i = 0; i < l->rows; i++)
			to[j * l->rows + i] = l->type == CUDA_R_8F_E4M3 ? opened(x[j * l->ld + i], 3, 7)
			                                                : opened(x[j * l->ld + i], 2, 15);
	return to;
}

static void multiply_eight(const struct standin_product *d, const uint8_t *a, const struct standin_matrix *la,
	const uint8_t *b, const struct standin_matrix *lb, float *y)
{
	float *x[2] = { widened(a, la), widened(b, lb) }, scale = 1;

	for (int i = 0; i < 2; i++)
		if (d->scale[i]) {
			standin_touch("cuBLASLt's product", ORDER_READS, d->scale[i], sizeof *d->scale[i]);
			scale *= *d->scale[i];
		}
	pd_gemm(0, 1, lb->cols, la->cols, la->rows, x[1], la->rows, x[0], la->rows, 0, y, la->cols);
	for (int64_t i = 0; i < (int64_t)la->cols * lb->cols; i++)
		y[i] *= scale;
	free(x[0]);
	free(x[1]);
}

static pd_dtype dtype(cudaDataType t) { return t == CUDA_R_16BF ? PD_BF16 : t == CUDA_R_16F ? PD_F16 : PD_F32; }

/* Bias or its gradient, what is kept of rows: bits of Relu, or values. */
static void touch_ends(const struct standin_product *d, const struct standin_matrix *y)
{
	const bool wide = y->type == CUDA_R_32F,
		   sums = d->end == CUBLASLT_EPILOGUE_BGRADA || d->end == CUBLASLT_EPILOGUE_BGRADB;
	const bool back = d->end == CUBLASLT_EPILOGUE_DRELU || d->end == CUBLASLT_EPILOGUE_DGELU;
	const size_t n = (size_t)(d->end == CUBLASLT_EPILOGUE_BGRADB ? y->cols : y->rows) * (wide ? 4 : 2);

	if (d->end & 772)
		standin_touch("cuBLASLt's product", sums ? ORDER_WRITES : ORDER_READS, d->bias, n);
	for (int64_t j = 0; (d->end & 128) && j < y->cols; j++)
		standin_touch("cuBLASLt's product", back ? ORDER_READS : ORDER_WRITES,
			(const char *)d->aux + (relu(d->end) ? j * d->aux_ld / 8 : j * d->aux_ld * (wide ? 4 : 2)),
			relu(d->end) ? (size_t)(y->rows + 7) / 8 : (size_t)y->rows * (wide ? 4 : 2));
}

static void touch_operand(const void *x, cublasLtMatrixLayout_t l)
{
	if (eight(l->type))
		standin_touch("cuBLASLt's product", ORDER_READS, x, (size_t)l->cols * (size_t)l->ld);
	else
		standin_touch_rows(
			"cuBLASLt's product", ORDER_READS, x, l->type != CUDA_R_32F, l->cols, l->rows, l->ld);
}

/* op(A) op(B), of which the first `apart` products of each sum are added up by themselves; by rows it is op(B)' op(A)'. */
static void product(cublasLtMatmulDesc_t d, const void *a, cublasLtMatrixLayout_t la, const void *b,
	cublasLtMatrixLayout_t lb, cublasLtMatrixLayout_t ly, int k, int apart, float *to)
{
	const int ta = d->ta == CUBLAS_OP_T, tb = d->tb == CUBLAS_OP_T, wide = la->type == CUDA_R_32F ? 4 : 2;

	for (int from = 0, end = apart > 0 && apart < k ? apart : k; from < k; from = end, end = k) {
		const void *p = (const char *)b + wide * (tb ? from * lb->ld : from);
		const void *q = (const char *)a + wide * (ta ? from : from * la->ld);

		if (la->type == CUDA_R_32F)
			pd_gemm(tb, ta, ly->cols, ly->rows, end - from, p, (int)lb->ld, q, (int)la->ld, from > 0, to,
				ly->rows);
		else
			pd_gemm_half(dtype(la->type), PD_F32, tb, ta, ly->cols, ly->rows, end - from, p, (int)lb->ld, q,
				(int)la->ld, from > 0, to, ly->rows);
	}
}

static void one(cublasLtMatmulDesc_t d, const void *a, cublasLtMatrixLayout_t la, const void *b,
	cublasLtMatrixLayout_t lb, void *y, cublasLtMatrixLayout_t ly, float *room, bool more, int algorithm)
{
	const int k = d->ta == CUBLAS_OP_T ? la->rows : la->cols;

	touch_operand(a, la);
	touch_operand(b, lb);
	if (more)
		standin_touch_rows(
			"cuBLASLt's product", ORDER_READS, y, ly->type != CUDA_R_32F, ly->cols, ly->rows, ly->ld);
	standin_touch_rows("cuBLASLt's product", ORDER_WRITES, y, ly->type != CUDA_R_32F, ly->cols, ly->rows, ly->ld);
	touch_ends(d, ly);
	if (eight(la->type))
		multiply_eight(d, a, la, b, lb, room);
	else
		product(d, a, la, b, lb, ly, k, algorithm, room);
	for (int64_t j = 0; j < ly->cols; j++)
		for (int i = 0; i < ly->rows; i++) {
			const float before = more ? load(ly->type, y, j * ly->ld + i) : 0;
			store(ly->type, y, j * ly->ld + i, ended(d, ly->type, room[j * ly->rows + i] + before, i, j));
		}
	if (d->end == CUBLASLT_EPILOGUE_BGRADA)
		sums(d, a, la, ly->type, ly->rows, k);
	if (d->end == CUBLASLT_EPILOGUE_BGRADB)
		sums(d, b, lb, ly->type, ly->cols, k);
}

typedef struct call {
	struct standin_product d;
	struct standin_matrix la, lb, ly;
	const void *a, *b;
	void *y, *workspace;
	size_t bytes;
	bool more;
	int algorithm;
} call;

static standin_end multiply(void *what)
{
	call *x = what;
	const int64_t result = bytes_of(x->ly.type);
	float *room = malloc((size_t)x->ly.rows * (size_t)x->ly.cols * sizeof *room);

	if (!room)
		abort();
	standin_device(1);
	standin_touch("cuBLASLt's product", ORDER_WRITES, x->workspace, x->bytes);
	if (x->bytes)
		memset(x->workspace, 0x7f, x->bytes); /* the library writes there */
	for (int q = 0; q < x->ly.batch; q++)
		one(&x->d, (const char *)x->a + q * x->la.step * bytes_of(x->la.type), &x->la,
			(const char *)x->b + q * x->lb.step * bytes_of(x->lb.type), &x->lb,
			(char *)x->y + q * x->ly.step * result, &x->ly, room, x->more, x->algorithm);
	standin_device(0);
	standin_takes(standin_time(x->d.end, x->algorithm));
	standin_product(
		x->d.end, x->algorithm, x->ly.cols, x->ly.rows, x->d.ta == CUBLAS_OP_T ? x->la.rows : x->la.cols);
	free(room);
	return STANDIN_DONE;
}

API cublasStatus_t cublasLtMatmul(cublasLtHandle_t h, cublasLtMatmulDesc_t d, const void *alpha, const void *a,
	cublasLtMatrixLayout_t la, const void *b, cublasLtMatrixLayout_t lb, const void *beta, const void *c,
	cublasLtMatrixLayout_t lc, void *y, cublasLtMatrixLayout_t ly, const cublasLtMatmulAlgo_t *algo,
	void *workspace, size_t bytes, cudaStream_t s)
{
	const float added = *(const float *)beta;

	(void)h;
	if (*(const float *)alpha != 1 || (added != 0 && added != 1) || c != y || lc != ly || fits(d, la, lb, ly) ||
		!placed(d, algo->data[5]) || !s || !algo || algo->data[0] != d->end || algo->data[1] > bytes ||
		(bytes && !standin_within(workspace, bytes)) || (uintptr_t)workspace % 256 ||
		(uintptr_t)a % algo->data[2] || (uintptr_t)b % algo->data[3] || (uintptr_t)y % algo->data[4])
		return REFUSED;
	if (lacks(d->end, "late") || lacks(d->end, "drelu-late") || standin_refused((int)algo->data[6], 1))
		return LACKING;
	const call x = { *d, *la, *lb, *ly, a, b, y, workspace, bytes, added == 1, (int)algo->data[6] };

	standin_do(standin_stream(s), multiply, &x, sizeof x);
	return CUBLAS_STATUS_SUCCESS;
}
