/* standin.c: the CUDA runtime and cuBLAS for machines without a GPU: device memory is this process's,
 * matrix products are oneDNN's. See README.md. */
#include <cuda_runtime_api.h>
#include <cublas_v2.h>
#include <sanitizer/asan_interface.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "pd.h"
#include "standin.h"

static size_t in_use;

/* As many bytes as STANDIN_MEMORY says, 4 GiB otherwise: what a device of this kind has. */
static size_t memory(void)
{
	const char *s = getenv("STANDIN_MEMORY");

	return s ? (size_t)strtoull(s, NULL, 10) : (size_t)4 << 30;
}

API cudaError_t cudaGetDeviceCount(int *n)
{
	const char *s = getenv("STANDIN_DEVICES");

	*n = s ? atoi(s) : 1;
	return *n > 0 ? cudaSuccess : cudaErrorNoDevice;
}

static _Thread_local int device; /* as in CUDA: of each thread, the first one at the start */

API cudaError_t cudaSetDevice(int d)
{
	int n;

	cudaGetDeviceCount(&n);
	if (d < 0 || d >= n)
		return cudaErrorInvalidValue;
	device = d;
	return cudaSuccess;
}

int standin_uuid(char uuid[16])
{
	memset(uuid, 0, 16);
	snprintf(uuid, 16, "stand-in %d", device);
	return device;
}

static int number_of(const char *name, int otherwise)
{
	const char *s = getenv(name);

	return s ? atoi(s) : otherwise;
}

/* A kernel is about to be started: whether it was compiled for a device like this one. */
API int standin_image(void)
{
	return number_of("STANDIN_ARCH", 90) >= number_of("STANDIN_KERNELS", 0) ||
	       !standin_said(cudaErrorNoKernelImageForDevice);
}

API cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int d)
{
	const int arch = number_of("STANDIN_ARCH", 90);
	const char *name = getenv("STANDIN_NAME");

	*p = (struct cudaDeviceProp){ .totalGlobalMem = memory(), .major = arch / 10, .minor = arch % 10 };
	snprintf(p->name, sizeof p->name, "%s", name ? name : "stand-in for a GPU");
	snprintf(p->uuid.bytes, sizeof p->uuid.bytes, "stand-in %d", d);
	return cudaSuccess;
}

API cudaError_t cudaMemGetInfo(size_t *unused, size_t *total)
{
	*total = memory();
	*unused = *total > in_use ? *total - in_use : 0;
	return cudaSuccess;
}

/* ---- device memory: the host may touch it only through this library ---- */

static struct {
	char *at;
	size_t bytes;
	int aside;
} *blocks;
static int nblocks, inside;

/* A call or kernel begins or ends: between them every page is closed, so that a program which takes a tensor for host memory
 * ends with a fault, as on a GPU. */
API void standin_device(int enters)
{
	inside += enters ? 1 : -1;
	if (inside != (enters != 0))
		return;
	for (int i = 0; i < nblocks; i++)
		if (blocks[i].at && !blocks[i].aside &&
			mprotect(blocks[i].at, blocks[i].bytes, enters ? PROT_READ | PROT_WRITE : PROT_NONE))
			abort();
}

/* Under AddressSanitizer what is behind a piece of memory is closed, and what libraries are given is looked through. */
void standin_touch(const char *who, order_use use, const void *p, size_t bytes)
{
	order_touch(who, use, p, bytes);
#if defined __SANITIZE_ADDRESS__
	const char *bad = p && bytes ? __asan_region_is_poisoned((void *)(uintptr_t)p, bytes) : NULL;

	if (!bad)
		return;
	fprintf(stderr, "SUMMARY: %s: byte %zu of %zu belongs to no tensor\n", who, (size_t)(bad - (const char *)p),
		bytes);
	abort();
#else
	(void)who;
	(void)p;
	(void)bytes;
#endif
}

/* A matrix of `rows` rows, `n` numbers each of which every `ld`-th place begins one. */
void standin_touch_rows(const char *who, order_use use, const void *at, int narrow, int rows, int n, int64_t ld)
{
	const size_t wide = narrow ? 2 : 4;

	for (int i = 0; i < rows; i++)
		standin_touch(who, use, (const char *)at + (size_t)i * (size_t)ld * wide, (size_t)n * wide);
}

/* Which piece of device memory p is in, counted since the start, and where that begins; -1: in none. */
int standin_piece(const void *p, const void **start, size_t *bytes)
{
	for (int i = 0; i < nblocks; i++)
		if (blocks[i].at && (uintptr_t)p - (uintptr_t)blocks[i].at < blocks[i].bytes) {
			*start = blocks[i].at;
			*bytes = blocks[i].bytes;
			return i;
		}
	return -1;
}

int standin_within(const void *p, size_t bytes)
{
	const void *start;
	size_t all;

	return standin_piece(p, &start, &all) >= 0 && bytes <= all - ((uintptr_t)p - (uintptr_t)start);
}

/* Memory comes filled with NaN: what nobody wrote shows. */
API cudaError_t cudaMalloc(void **p, size_t bytes)
{
	const size_t room = (bytes + 4096) / 4096 * 4096;
	void *at = in_use + room > memory()
	                   ? MAP_FAILED
	                   : mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	*p = NULL;
	if (standin_forbidden())
		return standin_said(cudaErrorStreamCaptureUnsupported);
	standin_asks("cudaMalloc");
	blocks = realloc(blocks, (size_t)(nblocks + 1) * sizeof *blocks);
	if (at == MAP_FAILED || !blocks)
		return cudaErrorMemoryAllocation;
	in_use += room;
	memset(at, 0xff, room);
	blocks[nblocks].aside = 0;
	blocks[nblocks].at = at;
	blocks[nblocks++].bytes = room;
	ASAN_POISON_MEMORY_REGION((char *)at + bytes, room - bytes);
	if (!inside && mprotect(at, room, PROT_NONE))
		abort();
	*p = at;
	order_piece(at, room);
	return cudaSuccess;
}

API cudaError_t cudaFree(void *p)
{
	if (standin_forbidden())
		return standin_said(cudaErrorStreamCaptureUnsupported);
	if (p)
		standin_frees("cudaFree");
	for (int i = 0; i < nblocks; i++)
		if (p && blocks[i].at == p) {
			ASAN_UNPOISON_MEMORY_REGION(p, blocks[i].bytes);
			order_piece_gone(p);
			munmap(p, blocks[i].bytes);
			in_use -= blocks[i].bytes;
			blocks[i].at = NULL;
			return cudaSuccess;
		}
	return p ? cudaErrorInvalidValue : cudaSuccess;
}

/* ---- pinned memory of the host ---- */

static struct {
	const char *at;
	size_t bytes;
} *pins;
static int npins;

static cudaError_t pin(const void *p, size_t bytes)
{
	pins = realloc(pins, (size_t)(npins + 1) * sizeof *pins);
	if (!p || !pins)
		return cudaErrorMemoryAllocation;
	pins[npins].at = p;
	pins[npins++].bytes = bytes;
	return cudaSuccess;
}

int standin_pinned(const void *p, size_t bytes)
{
	for (int i = 0; i < npins; i++)
		if ((const char *)p >= pins[i].at && (const char *)p + bytes <= pins[i].at + pins[i].bytes)
			return 1;
	return 0;
}

API cudaError_t cudaMallocHost(void **p, size_t bytes)
{
	if (standin_forbidden())
		return standin_said(cudaErrorStreamCaptureUnsupported);
	standin_asks("cudaMallocHost");
	*p = standin_full("pinned") ? NULL : order_pinned(bytes ? bytes : 1);
	return pin(*p, bytes);
}

API cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned flags)
{
	(void)flags;
	standin_asks("cudaHostRegister");
	return pin(p, bytes);
}

API cudaError_t cudaFreeHost(void *p)
{
	if (standin_forbidden())
		return standin_said(cudaErrorStreamCaptureUnsupported);
	if (p)
		standin_frees("cudaFreeHost");
	for (int i = 0; i < npins; i++)
		if (p && pins[i].at == p)
			pins[i] = pins[--npins];
	order_piece_gone(p);
	free(p);
	return cudaSuccess;
}

/* ---- errors ---- */

static _Thread_local cudaError_t last; /* as in CUDA, answers of queries too */

cudaError_t standin_said(cudaError_t e)
{
	last = e ? e : last;
	return e;
}

API cudaError_t cudaGetLastError(void)
{
	const cudaError_t e = last;

	last = cudaSuccess;
	return e;
}

API const char *cudaGetErrorString(cudaError_t e)
{
	switch (e) {
	case cudaSuccess: return "no error";
	case cudaErrorMemoryAllocation: return "out of memory";
	case cudaErrorNoDevice: return "no CUDA-capable device is detected";
	case cudaErrorNoKernelImageForDevice: return "no kernel image is available for execution on the device";
	case cudaErrorNotReady: return "device not ready";
	case cudaErrorStreamCaptureInvalidated: return "operation failed due to a previous error during capture";
	case cudaErrorStreamCaptureUnsupported: return "operation not permitted when stream is capturing";
	default: return "invalid argument";
	}
}

/* ---- cuBLAS: column-major ---- */

/* STANDIN_FULL=WHAT: there is no memory left for what a library (`cublas`, `cublaslt`, `cudnn`, `nccl`) makes for itself, or of the host's
 * (`pinned`). */
int standin_full(const char *what)
{
	const char *s = getenv("STANDIN_FULL");

	return s && !strcmp(s, what);
}

struct cublasContext {
	cudaStream_t s;
	int room;
};

API cublasStatus_t cublasCreate(cublasHandle_t *h)
{
	standin_asks("cublasCreate");
	if (standin_full("cublas"))
		return CUBLAS_STATUS_ALLOC_FAILED;
	*h = calloc(1, sizeof **h);
	pd_threads(1);
	return *h ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

/* It takes the workspace away. */
API cublasStatus_t cublasSetStream(cublasHandle_t h, cudaStream_t s)
{
	*h = (struct cublasContext){ s, 0 };
	return CUBLAS_STATUS_SUCCESS;
}

/* A piece of device memory for the library alone: from now on it is closed to everybody. */
API cublasStatus_t cublasSetWorkspace(cublasHandle_t h, void *workspace, size_t bytes)
{
	h->room = 1;
	if ((uintptr_t)workspace % 256)
		return CUBLAS_STATUS_INVALID_VALUE;
	for (int i = 0; i < nblocks; i++)
		if (blocks[i].at && blocks[i].at == workspace && blocks[i].bytes >= bytes) {
			blocks[i].aside = 1;
			return mprotect(workspace, blocks[i].bytes, PROT_NONE) ||
			                       madvise(workspace, blocks[i].bytes, MADV_DONTNEED)
			               ? CUBLAS_STATUS_INVALID_VALUE
			               : CUBLAS_STATUS_SUCCESS;
		}
	return CUBLAS_STATUS_INVALID_VALUE;
}

typedef struct product {
	pd_dtype in, out;
	int ta, tb, m, n, k, lda, ldb, ldc;
	const void *a, *b;
	float beta;
	void *c;
} product;

static standin_end multiply(void *what)
{
	const product *p = what;

	standin_device(1);
	standin_touch_rows("cuBLAS's product", ORDER_READS, p->a, p->in != PD_F32, p->ta ? p->m : p->k,
		p->ta ? p->k : p->m, p->lda);
	standin_touch_rows("cuBLAS's product", ORDER_READS, p->b, p->in != PD_F32, p->tb ? p->k : p->n,
		p->tb ? p->n : p->k, p->ldb);
	standin_touch_rows("cuBLAS's product", ORDER_WRITES, p->c, p->out != PD_F32, p->n, p->m, p->ldc);
	if (p->in == PD_F32)
		pd_gemm(p->tb, p->ta, p->n, p->m, p->k, p->b, p->ldb, p->a, p->lda, p->beta, p->c, p->ldc);
	else
		pd_gemm_half(p->in, p->out, p->tb, p->ta, p->n, p->m, p->k, p->b, p->ldb, p->a, p->lda, p->beta, p->c,
			p->ldc);
	standin_device(0);
	return STANDIN_DONE;
}

static int at_least(int ld, int rows) { return ld >= (rows > 1 ? rows : 1); }

/* Where the header's rules are broken, or the library would make memory of its own, or work on the NULL stream. */
static int wrong(cublasHandle_t h, const product *p)
{
	return !h || !h->s || !h->room || p->m < 0 || p->n < 0 || p->k < 0 || !at_least(p->lda, p->ta ? p->k : p->m) ||
	       !at_least(p->ldb, p->tb ? p->n : p->k) || !at_least(p->ldc, p->m);
}

API cublasStatus_t cublasSgemm(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
	const float *alpha, const float *a, int lda, const float *b, int ldb, const float *beta, float *c, int ldc)
{
	const product p = { PD_F32, PD_F32, ta == CUBLAS_OP_T, tb == CUBLAS_OP_T, m, n, k, lda, ldb, ldc, a, b, *beta,
		c };

	if (*alpha != 1 || wrong(h, &p))
		return CUBLAS_STATUS_INVALID_VALUE; /* an alpha is not asked for by what pdcc writes */
	standin_do(standin_stream(h->s), multiply, &p, sizeof p);
	return CUBLAS_STATUS_SUCCESS;
}

static pd_dtype dtype(cudaDataType t) { return t == CUDA_R_16BF ? PD_BF16 : t == CUDA_R_16F ? PD_F16 : PD_F32; }

API cublasStatus_t cublasGemmEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
	const void *alpha, const void *a, cudaDataType ka, int lda, const void *b, cudaDataType kb, int ldb,
	const void *beta, void *c, cudaDataType kc, int ldc, cublasComputeType_t compute, cublasGemmAlgo_t algorithm)
{
	const product p = { dtype(ka), dtype(kc), ta == CUBLAS_OP_T, tb == CUBLAS_OP_T, m, n, k, lda, ldb, ldc, a, b,
		*(const float *)beta, c };

	if (*(const float *)alpha != 1 || ka != kb || ka == CUDA_R_32F || (kc != ka && kc != CUDA_R_32F) ||
		compute != CUBLAS_COMPUTE_32F || algorithm != CUBLAS_GEMM_DEFAULT || wrong(h, &p))
		return CUBLAS_STATUS_INVALID_VALUE;
	standin_do(standin_stream(h->s), multiply, &p, sizeof p);
	return CUBLAS_STATUS_SUCCESS;
}

API cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m,
	int n, int k, const void *alpha, const void *a, cudaDataType ka, int lda, long long sa, const void *b,
	cudaDataType kb, int ldb, long long sb, const void *beta, void *c, cudaDataType kc, int ldc, long long sc,
	int batch, cublasComputeType_t compute, cublasGemmAlgo_t algorithm)
{
	const long long wide = ka == CUDA_R_32F ? 4 : 2, result = kc == CUDA_R_32F ? 4 : 2;
	cublasStatus_t s = CUBLAS_STATUS_SUCCESS;

	if (ka != kb || compute != CUBLAS_COMPUTE_32F || batch < 1 || sc < (long long)m * n)
		return CUBLAS_STATUS_INVALID_VALUE;
	for (int q = 0; q < batch && s == CUBLAS_STATUS_SUCCESS; q++) {
		const char *aq = (const char *)a + q * sa * wide, *bq = (const char *)b + q * sb * wide;
		char *cq = (char *)c + q * sc * result;

		s = ka == CUDA_R_32F ? cublasSgemm(h, ta, tb, m, n, k, alpha, (const void *)aq, lda, (const void *)bq,
					       ldb, beta, (void *)cq, ldc)
		                     : cublasGemmEx(h, ta, tb, m, n, k, alpha, aq, ka, lda, bq, kb, ldb, beta, cq, kc,
					       ldc, compute, algorithm);
	}
	return s;
}
