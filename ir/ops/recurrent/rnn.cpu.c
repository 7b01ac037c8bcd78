#if !BACK
/* h = tanh or relu of gx + h R', over all steps of a batch of sequences. */
static void NAME(T *restrict y, T *restrict h,
#if TRANSPOSED
	T *restrict rt,
#endif
	const T *restrict gx, const T *restrict r, const T *h0, const int32_t *lens)
{
#if HAS_H0
	memcpy(h, h0, sizeof(T) * BATCH * H);
#else
	memset(h, 0, sizeof(T) * BATCH * H);
	(void)h0;
#endif
	(void)lens;
#if TRANSPOSED
	pd_transpose(rt, r, H, H);
#endif
	for (int s = 0; s < STEPS; s++) {
		#include "turn.part.h"
		T *restrict g = y + t * BATCH * H;

		memcpy(g, gx + t * BATCH * H, sizeof(T) * BATCH * H);
#if GEMM
#if TRANSPOSED
		pd_gemm(0, 0, BATCH, H, H, h, H, rt, H, 1, g, H);
#else
		pd_gemm(0, 1, BATCH, H, H, h, H, r, H, 1, g, H);
#endif
#else
		for (int b = 0; b < BATCH; b++)
			for (int j = 0; j < H; j++)
				for (int k = 0; k < H; k++)
					g[b * H + j] += h[b * H + k] * r[j * H + k];
#endif
		for (int b = 0; b < BATCH; b++) {
#if LENS
			if (t >= lens[b]) {
				memset(g + b * H, 0, sizeof(T) * H);
				continue;
			}
#endif
#pragma omp simd
			for (int k = 0; k < H; k++) {
#if RELU
				g[b * H + k] = g[b * H + k] < 0 ? 0 : g[b * H + k];
#else
				g[b * H + k] = TANH(g[b * H + k]);
#endif
				h[b * H + k] = g[b * H + k];
			}
		}
	}
}
#else
/* Backward through time: dg, the gradients before the function; hprev, the h each step began with; dh runs along and
 * ends as that of the initial state. */
static void NAME(T *restrict dg, T *restrict hprev, T *restrict dh, const T *restrict r, const T *restrict y,
	const T *dy, const T *dhn, const T *h0, const int32_t *lens)
{
#if HAS_DH
	memcpy(dh, dhn, sizeof(T) * BATCH * H);
#else
	memset(dh, 0, sizeof(T) * BATCH * H);
	(void)dhn;
#endif
	(void)dy;
	(void)h0;
	(void)lens;
	for (int s = STEPS - 1; s >= 0; s--) {
		#include "turn_back.part.h"

		for (int b = 0; b < BATCH; b++) {
			const int64_t at = (t * BATCH + b) * H, was = (before * BATCH + b) * H;
			T *restrict hp = hprev + at, *restrict dhb = dh + (int64_t)b * H;
			int first = s == 0;

#if LENS
			if (t >= lens[b]) {
				memset(dg + at, 0, sizeof(T) * H);
				memset(hp, 0, sizeof(T) * H);
				continue;
			}
#endif
			#include "began.part.h"
#pragma omp simd
			for (int k = 0; k < H; k++) {
#if HAS_DY
				const T d = dhb[k] + dy[at + k];
#else
				const T d = dhb[k];
#endif
#if RELU
				dg[at + k] = y[at + k] > 0 ? d : 0;
#else
				dg[at + k] = d * (1 - y[at + k] * y[at + k]);
#endif
				dhb[k] = 0;
			}
		}
#if GEMM
		pd_gemm(0, 0, BATCH, H, H, dg + t * BATCH * H, H, r, H, 1, dh, H);
#else
		for (int b = 0; b < BATCH; b++)
			for (int j = 0; j < H; j++)
				for (int k = 0; k < H; k++)
					dh[b * H + k] += dg[(t * BATCH + b) * H + j] * r[j * H + k];
#endif
	}
}
#endif
