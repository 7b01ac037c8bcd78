/* cpu_half.c: matrix products of 16-bit floats. Where oneDNN has none for the processor (cpu_product.c) they are widened
 * to f32, which is exact, multiplied there and rounded once, as the units of processors and GPUs do that have such
 * products. Room is kept per thread and grows in the first step. */
#include "cpu.h"
#include <stdlib.h>

int omp_in_parallel(void);

enum { A = 8, B, C, PAD, NROOM }; /* the first 8 are the callers' */

static _Thread_local struct {
	float *at;
	size_t n;
} room[NROOM];

float *pd_room_f32(int which, size_t n)
{
	if (n > room[which].n) {
		free(room[which].at);
		room[which].at = cpu_alloc(n * sizeof(float));
		room[which].n = n;
	}
	return room[which].at;
}

/* Whole tensors by all threads; what a thread of a team turns it turns alone. */
enum { MANY = 65536 };

static void widen(pd_dtype t, float *to, const uint16_t *from, size_t n)
{
	const bool all = n >= MANY && !omp_in_parallel();

	if (t == PD_BF16) {
#pragma omp parallel for simd if (parallel : all)
		for (size_t i = 0; i < n; i++)
			to[i] = pd_from_bf16(from[i]);
	} else {
#pragma omp parallel for simd if (parallel : all)
		for (size_t i = 0; i < n; i++)
			to[i] = pd_from_f16(from[i]);
	}
}

void pd_narrow(pd_dtype t, uint16_t *to, const float *from, size_t n)
{
	const bool all = n >= MANY && !omp_in_parallel();

	if (t == PD_BF16) {
#pragma omp parallel for simd if (parallel : all)
		for (size_t i = 0; i < n; i++)
			to[i] = pd_to_bf16(from[i]);
	} else {
#pragma omp parallel for simd if (parallel : all)
		for (size_t i = 0; i < n; i++)
			to[i] = pd_to_f16(from[i]);
	}
}

float *pd_widen(int which, pd_dtype t, const uint16_t *x, size_t n)
{
	float *to = pd_room_f32(which, n);

	widen(t, to, x, n);
	return to;
}

/* rows x cols with a leading dimension, dense. */
static const float *widened(int which, pd_dtype t, const uint16_t *x, int rows, int cols, int ld)
{
	float *to = pd_room_f32(which, (size_t)rows * (size_t)cols);

	for (int i = 0; i < rows; i++)
		widen(t, to + (size_t)i * (size_t)cols, x + (size_t)i * (size_t)ld, (size_t)cols);
	return to;
}

void pd_gemm_half(pd_dtype in, pd_dtype out, int transa, int transb, int m, int n, int k, const uint16_t *a, int lda,
	const uint16_t *b, int ldb, float beta, void *c, int ldc)
{
	const int wa = transa ? m : k, wb = transb ? k : n;

	if (cpu_product(PAD, in, out, transa, transb, m, n, k, a, lda, b, ldb, beta, c, ldc))
		return;
	const float *fa = widened(A, in, a, transa ? k : m, wa, lda);
	const float *fb = widened(B, in, b, transb ? n : k, wb, ldb);

	if (out == PD_F32) {
		pd_gemm(transa, transb, m, n, k, fa, wa, fb, wb, beta, c, ldc);
		return;
	}
	float *fc = pd_room_f32(C, (size_t)m * (size_t)n);
	uint16_t *h = c;

	for (int i = 0; beta != 0 && i < m; i++)
		widen(out, fc + (size_t)i * (size_t)n, h + (size_t)i * (size_t)ldc, (size_t)n);
	pd_gemm(transa, transb, m, n, k, fa, wa, fb, wb, beta, fc, n);
	for (int i = 0; i < m; i++)
		pd_narrow(out, h + (size_t)i * (size_t)ldc, fc + (size_t)i * (size_t)n, (size_t)n);
}
