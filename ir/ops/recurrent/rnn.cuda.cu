/* A recurrent layer over all steps of a batch of sequences: a step is a product and a kernel with a thread per unit of
 * a sequence. */
#if BACK
/* Backward through time: dg, the gradients before the function; hprev, the h each step began with; dh runs along and
 * ends as that of the initial state. */
#endif
#if !BACK
/* h = f(gx + h R'). */
#endif
namespace device::NAME {
#if !BACK
static __global__ void run(T *g, T *h, const int32_t *lens, int64_t t)
{
	const int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

	if (e >= (int64_t)BATCH * H)
		return;
#if LENS
	if (t >= lens[e / H]) {
		g[e] = 0;
		return;
	}
#endif
#if RELU
	g[e] = g[e] < 0 ? 0 : g[e];
#else
	g[e] = TANH(g[e]);
#endif
	h[e] = g[e];
	(void)lens;
	(void)t;
}
#else
static __global__ void run(T *dg, T *hprev, T *dh, const T *y, const T *dy, const T *h0, const int32_t *lens, int64_t t,
	int64_t before, int first)
{
	const int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

	if (e >= (int64_t)BATCH * H)
		return;
	const int64_t at = t * BATCH * H + e;

#if LENS
	if (t >= lens[e / H]) {
		dg[at] = hprev[at] = 0;
		return;
	}
#if REVERSE
	first |= before >= lens[e / H];
#endif
#endif
#if HAS_H0
	hprev[at] = first ? h0[e] : y[before * BATCH * H + e];
#else
	hprev[at] = first ? 0 : y[before * BATCH * H + e];
#endif
#if HAS_DY
	const T d = dh[e] + dy[at];
#else
	const T d = dh[e];
#endif
#if RELU
	dg[at] = y[at] > 0 ? d : 0;
#else
	dg[at] = d * (1 - y[at] * y[at]);
#endif
	dh[e] = 0;
	(void)dy;
	(void)h0;
	(void)lens;
}
#endif
}

#if !BACK
PD_HOST void NAME(T *y, T *h, const T *gx, const T *r, const T *h0, const int32_t *lens)
{
#if HAS_H0
	pd_copy(h, h0, sizeof(T) * BATCH * H);
#else
	pd_fill(h, 0, sizeof(T) * BATCH * H);
	(void)h0;
#endif
	pd_copy(y, gx, sizeof(T) * STEPS * BATCH * H);
	for (int s = 0; s < STEPS; s++) {
		#include "turn.part.h"
		T *g = y + t * BATCH * H;

		pd_gemm(0, 1, BATCH, H, H, h, H, r, H, 1, g, H);
		PD_LAUNCH(device::NAME::run, pd_blocks((int64_t)BATCH * H, 128), 128, 0, g, h, lens, t);
	}
}
#else
PD_HOST void NAME(T *dg, T *hprev, T *dh, const T *r, const T *y, const T *dy, const T *dhn, const T *h0,
	const int32_t *lens)
{
#if HAS_DH
	pd_copy(dh, dhn, sizeof(T) * BATCH * H);
#else
	pd_fill(dh, 0, sizeof(T) * BATCH * H);
	(void)dhn;
#endif
	for (int s = STEPS - 1; s >= 0; s--) {
		#include "turn_back.part.h"

		PD_LAUNCH(device::NAME::run, pd_blocks((int64_t)BATCH * H, 128), 128, 0, dg, hprev, dh, y, dy, h0, lens, t, before,
			s == 0);
		pd_gemm(0, 0, BATCH, H, H, dg + t * BATCH * H, H, r, H, 1, dh, H);
	}
}
#endif
