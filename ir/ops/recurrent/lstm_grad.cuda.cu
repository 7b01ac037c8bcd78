/* Backward through time: dg, the gradients before the gates' functions; hprev, the h each step began with; dh and dc
 * run along and end as those of the initial state. A step is a kernel with a thread per unit of a sequence and a
 * product. */
namespace device::NAME {
static __global__ void run(T *dg, T *hprev, T *dh, T *dc, const T *y, const T *gates, const T *cells, const T *dy, const T *h0,
	const T *c0, const T *p, const int32_t *lens, int64_t t, int64_t before, int start)
{
	const int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

	if (e >= (int64_t)BATCH * H)
		return;
	const int64_t b = e / H, k = e % H, at = (t * BATCH + b) * H, was = (before * BATCH + b) * H + k;
	const T *x = gates + 4 * at + k;
	T *d = dg + 4 * at + k;
	int first = start;
	T old = 0, hp = 0;

#if LENS
	if (t >= lens[b]) {
		d[0] = d[H] = d[2 * H] = d[3 * H] = hprev[at + k] = 0;
		return;
	}
#if REVERSE
	first |= before >= lens[b];
#endif
#endif
	if (!first) {
		old = cells[was];
		hp = y[was];
	} else {
#if HAS_C0
		old = c0[e];
#endif
#if HAS_H0
		hp = h0[e];
#endif
	}
	hprev[at + k] = hp;
	const T i = x[0], o = x[H], f = x[2 * H], a = x[3 * H], tc = TANH(cells[at + k]);
#if HAS_DY
	const T dhk = dh[e] + dy[at + k];
#else
	const T dhk = dh[e];
#endif
	const T dout = dhk * tc * o * (1 - o);
#if PEEP
	const T g = dc[e] + dhk * o * (1 - tc * tc) + dout * p[H + k];
#else
	const T g = dc[e] + dhk * o * (1 - tc * tc);
#endif

	d[0] = g * a * i * (1 - i);
	d[H] = dout;
	d[2 * H] = g * old * f * (1 - f);
	d[3 * H] = g * i * (1 - a * a);
#if PEEP
	dc[e] = g * f + d[0] * p[k] + d[2 * H] * p[2 * H + k];
#else
	dc[e] = g * f;
#endif
	dh[e] = 0;
	(void)dy;
	(void)h0;
	(void)c0;
	(void)p;
	(void)lens;
}

#if PEEP
/* The peepholes' gradients of a step, in the order of the sequences: a thread per unit. */
static __global__ void peep(T *dp, const T *dg, const T *cells, const T *c0, const int32_t *lens, int64_t t, int64_t before,
	int start)
{
	const int64_t k = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

	if (k >= H)
		return;
	for (int64_t b = 0; b < BATCH; b++) {
		const T *d = dg + (t * BATCH + b) * 4 * H + k;
		int first = start;
		T old = 0;

#if LENS
		if (t >= lens[b])
			continue;
#if REVERSE
		first |= before >= lens[b];
#endif
#endif
		if (!first)
			old = cells[(before * BATCH + b) * H + k];
#if HAS_C0
		else
			old = c0[b * H + k];
#endif
		dp[k] += d[0] * old;
		dp[H + k] += d[H] * cells[(t * BATCH + b) * H + k];
		dp[2 * H + k] += d[2 * H] * old;
	}
	(void)c0;
	(void)lens;
}
#endif
}

PD_HOST void NAME(T *dg, T *hprev, T *dh, T *dc,
#if PEEP
	T *dp,
#endif
	const T *r, const T *y, const T *gates, const T *cells, const T *dy, const T *dhn, const T *dcn, const T *h0, const T *c0,
	const T *p, const int32_t *lens)
{
#if HAS_DH
	pd_copy(dh, dhn, sizeof(T) * BATCH * H);
#else
	pd_fill(dh, 0, sizeof(T) * BATCH * H);
	(void)dhn;
#endif
#if HAS_DC
	pd_copy(dc, dcn, sizeof(T) * BATCH * H);
#else
	pd_fill(dc, 0, sizeof(T) * BATCH * H);
	(void)dcn;
#endif
#if PEEP
	pd_fill(dp, 0, sizeof(T) * 3 * H);
#endif
	for (int s = STEPS - 1; s >= 0; s--) {
		#include "turn_back.part.h"

		PD_LAUNCH(device::NAME::run, pd_blocks((int64_t)BATCH * H, 128), 128, 0, dg, hprev, dh, dc, y, gates, cells, dy, h0, c0,
			p, lens, t, before, s == 0);
#if PEEP
		PD_LAUNCH(device::NAME::peep, pd_blocks(H, 128), 128, 0, dp, dg, cells, c0, lens, t, before, s == 0);
#endif
		pd_gemm(0, 0, BATCH, H, 4 * H, dg + t * BATCH * 4 * H, 4 * H, r, H, 1, dh, H);
	}
}
