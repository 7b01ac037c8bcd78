/* An LSTM over all steps of a batch of sequences; gates i o f c:
 *     i, o, f = sigmoid, g = tanh of gx + h R'  (peepholes: + p c, o's with the new c);  c = f c + i g;  h = o tanh(c) */
static void NAME(T *restrict y, T *restrict h, T *restrict c, T *restrict gates, T *restrict cells,
#if TRANSPOSED
	T *restrict rt,
#endif
	const T *restrict gx, const T *restrict r, const T *h0, const T *c0, const T *p, const int32_t *lens)
{
#if HAS_H0
	memcpy(h, h0, sizeof(T) * BATCH * H);
#else
	memset(h, 0, sizeof(T) * BATCH * H);
	(void)h0;
#endif
#if HAS_C0
	memcpy(c, c0, sizeof(T) * BATCH * H);
#else
	memset(c, 0, sizeof(T) * BATCH * H);
	(void)c0;
#endif
	(void)p;
	(void)lens;
#if TRANSPOSED
	pd_transpose(rt, r, 4 * H, H);
#endif
	for (int s = 0; s < STEPS; s++) {
		#include "turn.part.h"
		T *restrict g = gates + t * BATCH * 4 * H;

		memcpy(g, gx + t * BATCH * 4 * H, sizeof(T) * BATCH * 4 * H);
#if GEMM
#if TRANSPOSED
		pd_gemm(0, 0, BATCH, 4 * H, H, h, H, rt, 4 * H, 1, g, 4 * H);
#else
		pd_gemm(0, 1, BATCH, 4 * H, H, h, H, r, H, 1, g, 4 * H);
#endif
#else
		for (int b = 0; b < BATCH; b++)
			for (int j = 0; j < 4 * H; j++)
				for (int k = 0; k < H; k++)
					g[b * 4 * H + j] += h[b * H + k] * r[j * H + k];
#endif
#if PAR
#pragma omp parallel for
#endif
		for (int b = 0; b < BATCH; b++) {
			T *restrict i = g + (int64_t)b * 4 * H, *restrict o = i + H, *restrict f = o + H, *restrict a = f + H;
			T *restrict hb = h + (int64_t)b * H, *restrict cb = c + (int64_t)b * H;
			T *restrict yb = y + (t * BATCH + b) * H, *restrict kept = cells + (t * BATCH + b) * H;

#if LENS
			if (t >= lens[b]) {
				memset(i, 0, sizeof(T) * 4 * H);
				memset(yb, 0, sizeof(T) * H);
				memset(kept, 0, sizeof(T) * H);
				continue;
			}
#endif
#pragma omp simd
			for (int k = 0; k < H; k++) {
#if PEEP
				i[k] = 1 / (1 + EXP(-(i[k] + p[k] * cb[k])));
				f[k] = 1 / (1 + EXP(-(f[k] + p[2 * H + k] * cb[k])));
#else
				i[k] = 1 / (1 + EXP(-i[k]));
				f[k] = 1 / (1 + EXP(-f[k]));
#endif
				a[k] = TANH(a[k]);
				cb[k] = f[k] * cb[k] + i[k] * a[k];
#if PEEP
				o[k] = 1 / (1 + EXP(-(o[k] + p[H + k] * cb[k])));
#else
				o[k] = 1 / (1 + EXP(-o[k]));
#endif
				kept[k] = cb[k];
				hb[k] = o[k] * TANH(cb[k]);
				yb[k] = hb[k];
			}
		}
	}
}
