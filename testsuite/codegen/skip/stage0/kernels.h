/* skip, stage 0 of 3: the kernels of its functions, one per op and shape. Written by pdcc 0.1, edits are
 * lost. Comments name the value as in ir/, its type and the node of the model. */
#include "pd.h"

/* glibc has vector versions of these functions, which gcc uses in simd loops once they are declared so. Their error is
 * at most 4 ulp; infinities and NaN keep their meaning. */
#if defined __x86_64__ && defined __GNUC__ && !defined __clang__ && defined __GLIBC_PREREQ
#if __GLIBC_PREREQ(2, 35)
#define PD_VECTOR __attribute__((simd("notinbranch")))
PD_VECTOR extern float  expf(float);
PD_VECTOR extern float  logf(float);
PD_VECTOR extern float  powf(float, float);
PD_VECTOR extern float  sinf(float);
PD_VECTOR extern float  cosf(float);
PD_VECTOR extern float  tanhf(float);
PD_VECTOR extern float  erff(float);
PD_VECTOR extern float  log1pf(float);
PD_VECTOR extern float  expm1f(float);
#endif
#endif

/* y = op(a) op(b) + c for BATCH matrices, by the library's product of two. */
static void gemm_2x4x4(float *restrict y, const float *restrict a, const float *restrict b
	)
{
	pd_gemm(0, 0, 2, 4, 4, a, 4, b, 4, 0, y, 4);
}

static void gemm_4x4x2_ta(float *restrict y, const float *restrict a, const float *restrict b
	)
{
	pd_gemm(1, 0, 4, 4, 2, a, 4, b, 4, 0, y, 4);
}

/* One step over N elements. g is a sum over the global batch, n[0] what it is divided by. */
static void sgd_16(float *restrict w,
	const float *restrict g, const float *restrict n)
{
	const float scale = 1 / n[0];
#pragma omp simd
	for (int i = 0; i < 16; i++) {
		const float d = g[i] * scale;
		w[i] -= (float)0.5 * d;
	}
}
