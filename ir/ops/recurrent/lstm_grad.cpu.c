/* Backward through time: dg, the gradients before the gates' functions; hprev, the h each step began with; dh and dc
 * run along and end as those of the initial state. */
static void NAME(T *restrict dg, T *restrict hprev, T *restrict dh, T *restrict dc,
#if PEEP
	T *restrict dp,
#endif
	const T *restrict r, const T *restrict y, const T *restrict gates, const T *restrict cells, const T *dy,
	const T *dhn, const T *dcn, const T *h0, const T *c0, const T *p, const int32_t *lens)
{
#if HAS_DH
	memcpy(dh, dhn, sizeof(T) * BATCH * H);
#else
	memset(dh, 0, sizeof(T) * BATCH * H);
	(void)dhn;
#endif
#if HAS_DC
	memcpy(dc, dcn, sizeof(T) * BATCH * H);
#else
	memset(dc, 0, sizeof(T) * BATCH * H);
	(void)dcn;
#endif
#if PEEP
	memset(dp, 0, sizeof(T) * 3 * H);
#endif
	(void)dy;
	(void)h0;
	(void)c0;
	(void)p;
	(void)lens;
	for (int s = STEPS - 1; s >= 0; s--) {
		#include "turn_back.part.h"

#if PAR && !PEEP
#pragma omp parallel for
#endif
		for (int b = 0; b < BATCH; b++) {
			const int64_t at = (t * BATCH + b) * H, was = (before * BATCH + b) * H;
			const T *restrict i = gates + 4 * at, *restrict o = i + H, *restrict f = o + H, *restrict a = f + H;
			T *restrict di = dg + 4 * at, *restrict dout = di + H, *restrict df = dout + H, *restrict da = df + H;
			T *restrict dhb = dh + (int64_t)b * H, *restrict dcb = dc + (int64_t)b * H, *restrict hp = hprev + at;
			const T *restrict c = cells + at;
			const T *cp = NULL;
			int first = s == 0;

#if LENS
			if (t >= lens[b]) {
				memset(di, 0, sizeof(T) * 4 * H);
				memset(hp, 0, sizeof(T) * H);
				continue;
			}
#if REVERSE
			first |= before >= lens[b];
#endif
#endif
			if (!first) {
				cp = cells + was;
				memcpy(hp, y + was, sizeof(T) * H);
			} else {
#if HAS_C0
				cp = c0 + (int64_t)b * H;
#endif
#if HAS_H0
				memcpy(hp, h0 + (int64_t)b * H, sizeof(T) * H);
#else
				memset(hp, 0, sizeof(T) * H);
#endif
			}
#pragma omp simd
			for (int k = 0; k < H; k++) {
				const T tc = TANH(c[k]), old = cp ? cp[k] : 0;
#if HAS_DY
				const T d = dhb[k] + dy[at + k];
#else
				const T d = dhb[k];
#endif
				dout[k] = d * tc * o[k] * (1 - o[k]);
#if PEEP
				const T e = dcb[k] + d * o[k] * (1 - tc * tc) + dout[k] * p[H + k];
#else
				const T e = dcb[k] + d * o[k] * (1 - tc * tc);
#endif
				di[k] = e * a[k] * i[k] * (1 - i[k]);
				df[k] = e * old * f[k] * (1 - f[k]);
				da[k] = e * i[k] * (1 - a[k] * a[k]);
#if PEEP
				dcb[k] = e * f[k] + di[k] * p[k] + df[k] * p[2 * H + k];
				dp[k] += di[k] * old;
				dp[H + k] += dout[k] * c[k];
				dp[2 * H + k] += df[k] * old;
#else
				dcb[k] = e * f[k];
#endif
				dhb[k] = 0;
			}
		}
#if GEMM
		pd_gemm(0, 0, BATCH, H, 4 * H, dg + t * BATCH * 4 * H, 4 * H, r, H, 1, dh, H);
#else
		for (int b = 0; b < BATCH; b++)
			for (int j = 0; j < 4 * H; j++)
				for (int k = 0; k < H; k++)
					dh[b * H + k] += dg[(t * BATCH + b) * 4 * H + j] * r[j * H + k];
#endif
	}
}
