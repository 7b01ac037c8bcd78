/* Backward through time: dg, the gradients before the gates' functions; hprev, the h each step began with; dh runs
 * along and ends as that of the initial state. */
#if LINEAR
/* dq: the gradients of h R'. */
#endif
#if !LINEAR
/* dq: the gradients of r h. */
#endif
static void NAME(T *restrict dg, T *restrict dq, T *restrict hprev, T *restrict dh, const T *restrict r,
	const T *restrict y, const T *restrict gates, const T *restrict hn, const T *dy, const T *dhn, const T *h0,
	const int32_t *lens)
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
	(void)hn;
	for (int s = STEPS - 1; s >= 0; s--) {
		#include "turn_back.part.h"

#if PAR
#pragma omp parallel for
#endif
		for (int b = 0; b < BATCH; b++) {
			const int64_t at = (t * BATCH + b) * H, was = (before * BATCH + b) * H;
			const T *restrict z = gates + 3 * at, *restrict n = z + 2 * H;
			T *restrict dz = dg + 3 * at, *restrict dn = dz + 2 * H, *restrict hp = hprev + at;
			T *restrict dhb = dh + (int64_t)b * H;
			int first = s == 0;

#if LENS
			if (t >= lens[b]) {
				memset(dz, 0, sizeof(T) * 3 * H);
#if LINEAR
				memset(dq + 3 * at, 0, sizeof(T) * 3 * H);
#endif
				memset(hp, 0, sizeof(T) * H);
				continue;
			}
#endif
			#include "began.part.h"
#if LINEAR
			const T *restrict gr = z + H, *restrict qb = hn + at;
			T *restrict dr = dz + H, *restrict ez = dq + 3 * at, *restrict er = ez + H, *restrict en = er + H;
#endif
#pragma omp simd
			for (int k = 0; k < H; k++) {
#if HAS_DY
				const T d = dhb[k] + dy[at + k];
#else
				const T d = dhb[k];
#endif
				dn[k] = d * (1 - z[k]) * (1 - n[k] * n[k]);
				dz[k] = d * (hp[k] - n[k]) * z[k] * (1 - z[k]);
				dhb[k] = d * z[k];
#if LINEAR
				dr[k] = dn[k] * qb[k] * gr[k] * (1 - gr[k]);
				ez[k] = dz[k];
				er[k] = dr[k];
				en[k] = dn[k] * gr[k];
#endif
			}
		}
#if LINEAR
#if GEMM
		pd_gemm(0, 0, BATCH, H, 3 * H, dq + t * BATCH * 3 * H, 3 * H, r, H, 1, dh, H);
#else
		for (int b = 0; b < BATCH; b++)
			for (int j = 0; j < 3 * H; j++)
				for (int k = 0; k < H; k++)
					dh[b * H + k] += dq[(t * BATCH + b) * 3 * H + j] * r[j * H + k];
#endif
#else
		T *restrict e = dq + t * BATCH * H, *restrict d = dg + t * BATCH * 3 * H;

#if GEMM
		pd_gemm(0, 0, BATCH, H, H, d + 2 * H, 3 * H, r + 2 * H * H, H, 0, e, H);
#else
		memset(e, 0, sizeof(T) * BATCH * H);
		for (int b = 0; b < BATCH; b++)
			for (int j = 0; j < H; j++)
				for (int k = 0; k < H; k++)
					e[b * H + k] += d[b * 3 * H + 2 * H + j] * r[(2 * H + j) * H + k];
#endif
		for (int b = 0; b < BATCH; b++)         /* behind an end r is 0: nothing is added */
			for (int k = 0; k < H; k++) {
				const T gr = gates[(t * BATCH + b) * 3 * H + H + k];
				d[b * 3 * H + H + k] = e[b * H + k] * hprev[(t * BATCH + b) * H + k] * gr * (1 - gr);
				dh[b * H + k] += e[b * H + k] * gr;
			}
#if GEMM
		pd_gemm(0, 0, BATCH, H, 2 * H, d, 3 * H, r, H, 1, dh, H);
#else
		for (int b = 0; b < BATCH; b++)
			for (int j = 0; j < 2 * H; j++)
				for (int k = 0; k < H; k++)
					dh[b * H + k] += d[b * 3 * H + j] * r[j * H + k];
#endif
#endif
	}
}
