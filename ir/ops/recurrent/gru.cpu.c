/* A GRU over all steps of a batch of sequences; gates z r n:
 *     z, r = sigmoid of gx + h R';  h = (1 - z) n + z h */
#if LINEAR
/* n = tanh(gx + r (h R' + rb)) */
#endif
#if !LINEAR
/* n = tanh(gx + (r h) R') */
#endif
static void NAME(T *restrict y, T *restrict h, T *restrict gates, T *restrict hn,
#if TRANSPOSED
	T *restrict rt,
#endif
	const T *restrict gx, const T *restrict r, const T *rb, const T *h0, const int32_t *lens)
{
#if HAS_H0
	memcpy(h, h0, sizeof(T) * BATCH * H);
#else
	memset(h, 0, sizeof(T) * BATCH * H);
	(void)h0;
#endif
	(void)rb;
	(void)lens;
#if TRANSPOSED
	pd_transpose(rt, r, 3 * H, H);
#endif
	for (int s = 0; s < STEPS; s++) {
		#include "turn.part.h"
		T *restrict g = gates + t * BATCH * 3 * H, *restrict q = hn + t * BATCH * H;

		memcpy(g, gx + t * BATCH * 3 * H, sizeof(T) * BATCH * 3 * H);
#if GEMM
#if TRANSPOSED
		pd_gemm(0, 0, BATCH, 2 * H, H, h, H, rt, 3 * H, 1, g, 3 * H);
#else
		pd_gemm(0, 1, BATCH, 2 * H, H, h, H, r, H, 1, g, 3 * H);
#endif
#if LINEAR
#if TRANSPOSED
		pd_gemm(0, 0, BATCH, H, H, h, H, rt + 2 * H, 3 * H, 0, q, H);
#else
		pd_gemm(0, 1, BATCH, H, H, h, H, r + 2 * H * H, H, 0, q, H);
#endif
#endif
#else
		for (int b = 0; b < BATCH; b++)
			for (int j = 0; j < 2 * H; j++)
				for (int k = 0; k < H; k++)
					g[b * 3 * H + j] += h[b * H + k] * r[j * H + k];
#if LINEAR
		for (int b = 0; b < BATCH; b++)
			for (int j = 0; j < H; j++) {
				q[b * H + j] = 0;
				for (int k = 0; k < H; k++)
					q[b * H + j] += h[b * H + k] * r[(2 * H + j) * H + k];
			}
#endif
#endif
#if PAR
#pragma omp parallel for
#endif
		for (int b = 0; b < BATCH; b++) {
			T *restrict gz = g + (int64_t)b * 3 * H, *restrict gr = gz + H;
#if HAS_RB || !LINEAR
			T *restrict qb = q + (int64_t)b * H;
#endif
#if !LINEAR
			const T *restrict hb = h + (int64_t)b * H;
#endif

#pragma omp simd
			for (int k = 0; k < H; k++) {
				gz[k] = 1 / (1 + EXP(-gz[k]));
				gr[k] = 1 / (1 + EXP(-gr[k]));
#if HAS_RB
				qb[k] += rb[k];
#endif
#if !LINEAR
				qb[k] = gr[k] * hb[k];
#endif
			}
		}
#if !LINEAR
#if GEMM
#if TRANSPOSED
		pd_gemm(0, 0, BATCH, H, H, q, H, rt + 2 * H, 3 * H, 1, g + 2 * H, 3 * H);
#else
		pd_gemm(0, 1, BATCH, H, H, q, H, r + 2 * H * H, H, 1, g + 2 * H, 3 * H);
#endif
#else
		for (int b = 0; b < BATCH; b++)
			for (int j = 0; j < H; j++)
				for (int k = 0; k < H; k++)
					g[b * 3 * H + 2 * H + j] += q[b * H + k] * r[(2 * H + j) * H + k];
#endif
#endif
#if PAR
#pragma omp parallel for
#endif
		for (int b = 0; b < BATCH; b++) {
			T *restrict z = g + (int64_t)b * 3 * H, *restrict n = z + 2 * H, *restrict hb = h + (int64_t)b * H;
			T *restrict yb = y + (t * BATCH + b) * H;
#if LINEAR
			const T *restrict gr = z + H, *restrict qb = q + (int64_t)b * H;
#endif

#if LENS
			if (t >= lens[b]) {
				memset(z, 0, sizeof(T) * 3 * H);
				memset(yb, 0, sizeof(T) * H);
				memset(q + (int64_t)b * H, 0, sizeof(T) * H);
				continue;
			}
#endif
#pragma omp simd
			for (int k = 0; k < H; k++) {
#if LINEAR
				n[k] = TANH(n[k] + gr[k] * qb[k]);
#else
				n[k] = TANH(n[k]);
#endif
				hb[k] = (1 - z[k]) * n[k] + z[k] * hb[k];
				yb[k] = hb[k];
			}
		}
	}
}
