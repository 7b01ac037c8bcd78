/* mlp, stage 0 of 2: the kernels of its functions, one per op and shape. Written by pdcc 0.1, edits are
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
static void gemm_4x5x6_bias(float *restrict y, const float *restrict a, const float *restrict b
	, const float *restrict c
	)
{
	for (int i = 0; i < 4; i++)
		for (int j = 0; j < 5; j++)
			y[i * 5 + j] = c[i * 0 + j * 1];
	pd_gemm(0, 0, 4, 5, 6, a, 6, b, 5, 1, y, 5);
}

/* A loop nest over every element: elementwise ops, fused chains, and ops that move elements. Loops of one turn are
 * gone and neighbours are joined (nest.c); the innermost loop is the one along which y lies in memory. y may be the
 * same memory as an operand that is read at the same index, so nothing is restrict; omp simd says that turns are
 * independent. TILE: loop j is the one along which a lies in memory, so both go in blocks that
 * stay in the first cache. FILL: y is larger than the nest and gets VALUE where the nest does not write. */
static void relu_20(float *y, const float *a)
{
#pragma omp simd
	for (int i = 0; i < 20; i++) {
		y[i] = a[i] < 0 ? 0 : a[i];
	}
}

static void relugrad_20(float *y, const float *a, const float *b)
{
#pragma omp simd
	for (int i = 0; i < 20; i++) {
		y[i] = b[i] > 0 ? a[i] : 0;
	}
}

static void gemm_6x5x4_ta(float *restrict y, const float *restrict a, const float *restrict b
	)
{
	pd_gemm(1, 0, 6, 5, 4, a, 6, b, 5, 0, y, 5);
}

/* y = a with some axes reduced. KEPT_LOOPS walk what stays, GONE_LOOPS what goes, the innermost loop is here. COLS: it
 * is a kept one, and BLOCK columns are summed at a time. */
static void reduce_sum_4x5_axes0(float *restrict y, const float *restrict a)
{
	{
		const int block = 0, end = 5;
		float sum[5];

		for (int i = block; i < end; i++)
			sum[i - block] = 0;
		for (int j = 0; j < 4; j++)
#pragma omp simd
			for (int i = block; i < end; i++) {
				const float s = sum[i - block], v = a[j * 5 + i];
				sum[i - block] = s + v;
			}
		for (int i = block; i < end; i++) {
			const float s = sum[i - block];
			y[i] = s;
		}
	}
}

/* One step over N elements. g is a sum over the global batch, n[0] what it is divided by. */
static void adamw_30(float *restrict w,
	float *restrict m, float *restrict v,
	const float *restrict g, const float *restrict n)
{
	const float scale = 1 / n[0];
	const double t = (double)pd_step_index() + 1;
	const float rate = (float)(0.01 / (1 - pow(0.90000000000000002, t))), root = (float)(1 / sqrt(1 - pow(0.999, t)));
#pragma omp simd
	for (int i = 0; i < 30; i++) {
		const float d = g[i] * scale;
		m[i] = (float)0.90000000000000002 * m[i] + (float)(1 - 0.90000000000000002) * d;
		v[i] = (float)0.999 * v[i] + (float)(1 - 0.999) * d * d;
		w[i] -= rate * m[i] / (sqrtf(v[i]) * root + (float)1e-08);
	}
}

static void adamw_5(float *restrict w,
	float *restrict m, float *restrict v,
	const float *restrict g, const float *restrict n)
{
	const float scale = 1 / n[0];
	const double t = (double)pd_step_index() + 1;
	const float rate = (float)(0.01 / (1 - pow(0.90000000000000002, t))), root = (float)(1 / sqrt(1 - pow(0.999, t)));
#pragma omp simd
	for (int i = 0; i < 5; i++) {
		const float d = g[i] * scale;
		m[i] = (float)0.90000000000000002 * m[i] + (float)(1 - 0.90000000000000002) * d;
		v[i] = (float)0.999 * v[i] + (float)(1 - 0.999) * d * d;
		w[i] -= rate * m[i] / (sqrtf(v[i]) * root + (float)1e-08);
	}
}
