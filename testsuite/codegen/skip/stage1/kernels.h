/* skip, stage 1 of 3: the kernels of its functions, one per op and shape. Written by pdcc 0.1, edits are
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

/* A loop nest over every element: elementwise ops, fused chains, and ops that move elements. Loops of one turn are
 * gone and neighbours are joined (nest.c); the innermost loop is the one along which y lies in memory. y may be the
 * same memory as an operand that is read at the same index, so nothing is restrict; omp simd says that turns are
 * independent. TILE: loop j is the one along which a lies in memory, so both go in blocks that
 * stay in the first cache. FILL: y is larger than the nest and gets VALUE where the nest does not write. */
static void fused_tanh_add_8_9f383262(float *y0, float *y1, const float *x0, const float *x1)
{
#pragma omp simd
	for (int i = 0; i < 8; i++) {
		const float v0 = x0[i];
		const float v1 = x1[i];
		const float v2 = tanhf(v0);
		const float v3 = v2 + v1;
		y0[i] = v2;
		y1[i] = v3;
	}
}

static void tanhgrad_8(float *y, const float *a, const float *b)
{
#pragma omp simd
	for (int i = 0; i < 8; i++) {
		y[i] = a[i] * (1 - b[i] * b[i]);
	}
}

static void gemm_2x4x4_tb(float *restrict y, const float *restrict a, const float *restrict b
	)
{
	pd_gemm(0, 1, 2, 4, 4, a, 4, b, 4, 0, y, 4);
}

static void gemm_4x4x2_ta(float *restrict y, const float *restrict a, const float *restrict b
	)
{
	pd_gemm(1, 0, 4, 4, 2, a, 4, b, 4, 0, y, 4);
}

static void sum_8_of3(float *y, const float *a, const float *b, const float *c)
{
#pragma omp simd
	for (int i = 0; i < 8; i++) {
		y[i] = a[i] + b[i] + c[i];
	}
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
