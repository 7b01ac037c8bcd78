/* tied, stage 0 of 2: the kernels of its functions, one per op and shape. Written by pdcc 0.1, edits are
 * lost. Comments name the value as in ir/, its type and the node of the model. */
#include "pd.h"

/* y[o][k] = a[o][ids[k]]: rows of a table. */
static void gather_1x7x4_by_4(float *restrict y, const float *restrict a, const int64_t *restrict ids)
{
	for (int k = 0; k < 4; k++) {
		const int64_t row = ids[k];
		memcpy(y + k * 4, a + (int)row * 4, 4 * sizeof *y);
	}
}

/* A loop nest over every element: elementwise ops, fused chains, and ops that move elements. The innermost loop is the
 * one along which y lies in memory. y may be the same memory as an operand that is read at the same index, so nothing
 * is restrict; omp simd says that turns are independent. */
static void tanh_16(float *y, const float *a)
{
#pragma omp simd
	for (int i = 0; i < 16; i++) {
		y[i] = tanhf(a[i]);
	}
}

static void tanhgrad_16(float *y, const float *a, const float *b)
{
#pragma omp simd
	for (int i = 0; i < 16; i++) {
		y[i] = a[i] * (1 - b[i] * b[i]);
	}
}

/* The gradient of a gather, written whole: zeros, then y[o][ids[k]] += dy[o][k] in the order of k, so that equal
 * indices always add up in one order. Threads share the columns, never a sum. */
static void gather_grad_1x7x4_by_4(float *restrict y, const float *restrict dy, const int64_t *restrict ids)
{
	memset(y, 0, 28 * sizeof *y);
	for (int k = 0; k < 4; k++) {
		const int64_t row = ids[k];
#pragma omp simd
		for (int i = 0; i < 4; i++)
			y[(int)row * 4 + i] += dy[k * 4 + i];
	}
}

static void add_28(float *y, const float *a, const float *b)
{
#pragma omp simd
	for (int i = 0; i < 28; i++) {
		y[i] = a[i] + b[i];
	}
}

/* One step over `count` elements. g is a sum over the global batch, n[0] what it is divided by. */
static void sgd(float *restrict w, const float *restrict g, const float *restrict n, int count)
{
	const float scale = 1 / n[0];
	const double lr = 0.5;
#pragma omp simd
	for (int i = 0; i < count; i++) {
		const float d = g[i] * scale;
		w[i] -= (float)lr * d;
	}
}
