/* gpu_library.c: cuBLAS behind the calls of pd.h; matrices are plain. */
#include "gpu_rt.h"
#include <cublas_v2.h>

enum { SMALL = 64 }; /* rows and columns of a first product */

static cublasHandle_t blas;
static rt_piece workspace;

static void check_blas(cublasStatus_t s, const char *what)
{
	if (s == CUBLAS_STATUS_SUCCESS || rt_capture_refused("cuBLAS", what))
		return;
	if (s == CUBLAS_STATUS_ALLOC_FAILED)
		rt_gpu_lacks("cuBLAS");
	rt_fail(RT_ERROR, "R523", "%s: cuBLAS: %s: status %d", pd_device_name(), what, (int)s);
}

/* Its workspace is of the size that NVIDIA names for the architecture; a handle without makes memory while it works, which neither a
 * graph that is captured nor a message under way allows. A new stream takes the workspace away. */
void pd_gemm_open(void)
{
	if (!rt_virtual)
		rt_want(&workspace, (size_t)(rt_gpu_major() >= 9 ? 32 : 4) << 20, "cuBLAS's workspace");
}

static cublasHandle_t products(void)
{
	if (!blas) {
		pd_gemm_open();
		check_blas(cublasCreate(&blas), "cublasCreate");
		check_blas(cublasSetStream(blas, pd_stream()), "cublasSetStream");
		check_blas(cublasSetWorkspace(blas, workspace.at, workspace.bytes), "cublasSetWorkspace");
	}
	return blas;
}

/* Row-major C = op(A) op(B) is column-major C' = op(B)' op(A)'. */
void pd_gemm(int transa, int transb, int m, int n, int k, const float *a, int lda, const float *b, int ldb, float beta,
	float *c, int ldc)
{
	const float one = 1;

	check_blas(cublasSgemm(products(), transb ? CUBLAS_OP_T : CUBLAS_OP_N, transa ? CUBLAS_OP_T : CUBLAS_OP_N, n, m,
			   k, &one, b, ldb, a, lda, &beta, c, ldc),
		"cublasSgemm");
}

static cudaDataType blas_type(pd_dtype t) { return t == PD_BF16 ? CUDA_R_16BF : t == PD_F16 ? CUDA_R_16F : CUDA_R_32F; }

void pd_gemm_half(pd_dtype in, pd_dtype out, int transa, int transb, int m, int n, int k, const uint16_t *a, int lda,
	const uint16_t *b, int ldb, float beta, void *c, int ldc)
{
	const float one = 1;

	check_blas(cublasGemmEx(products(), transb ? CUBLAS_OP_T : CUBLAS_OP_N, transa ? CUBLAS_OP_T : CUBLAS_OP_N, n,
			   m, k, &one, b, blas_type(in), ldb, a, blas_type(in), lda, &beta, c, blas_type(out), ldc,
			   CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
		"cublasGemmEx");
}

void pd_gemm_batch(pd_dtype in, pd_dtype out, int transa, int transb, int m, int n, int k, const void *a, int lda,
	int64_t astep, const void *b, int ldb, int64_t bstep, void *y, int batch)
{
	const float one = 1, none = 0;

	check_blas(cublasGemmStridedBatchedEx(products(), transb ? CUBLAS_OP_T : CUBLAS_OP_N,
			   transa ? CUBLAS_OP_T : CUBLAS_OP_N, n, m, k, &one, b, blas_type(in), ldb, bstep, a,
			   blas_type(in), lda, astep, &none, y, blas_type(out), n, (int64_t)m * n, batch,
			   CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
		"cublasGemmStridedBatchedEx");
}

/* One product of each call and type. */
static void run_once(void *unused, char *scrap)
{
	const int n = SMALL;
	float *a = rt_part(&scrap, sizeof(float) * SMALL * SMALL), *b = rt_part(&scrap, sizeof(float) * SMALL * SMALL);

	(void)unused;
	for (int t = 0; t < 4; t++)
		pd_gemm(t & 1, t >> 1, n, n, n, a, n, b, n, 0, (float *)(void *)scrap, n);
	for (int t = 0; t < 4 && rt_gpu_major() >= 8; t++) {
		pd_gemm_half(PD_BF16, PD_F32, t & 1, t >> 1, n, n, n, (void *)a, n, (void *)b, n, 0, scrap, n);
		pd_gemm_half(PD_F16, PD_F32, t & 1, t >> 1, n, n, n, (void *)a, n, (void *)b, n, 0, scrap, n);
	}
	pd_gemm_batch(PD_F32, PD_F32, 0, 0, n, n, n, a, n, 0, b, n, 0, scrap, 1);
}

void rt_gpu_library(void)
{
	if (!workspace.at)
		return;
	products();
	rt_first_run(run_once, NULL, 3 * rt_part_bytes(sizeof(float) * SMALL * SMALL));
}
