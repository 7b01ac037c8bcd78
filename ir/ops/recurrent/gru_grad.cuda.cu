/* Backward through time: dg, the gradients before the gates' functions; hprev, the h each step began with; dh runs
 * along and ends as that of the initial state. */
#if LINEAR
/* dq: the gradients of h R'. A step is a kernel with a thread per unit of a sequence and a product. */
#endif
#if !LINEAR
/* dq: the gradients of r h. A step is two kernels with a thread per unit of a sequence and two products. */
#endif
namespace device::NAME {
static __global__ void run(T *dg, T *dq, T *hprev, T *dh, const T *y, const T *gates, const T *hn, const T *dy, const T *h0,
	const int32_t *lens, int64_t t, int64_t before, int first)
{
	const int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

	if (e >= (int64_t)BATCH * H)
		return;
	const int64_t at = t * BATCH * H + e, gate = (t * BATCH + e / H) * 3 * H + e % H;
	T *d = dg + gate;

#if LENS
	if (t >= lens[e / H]) {
		d[0] = d[H] = d[2 * H] = hprev[at] = 0;
#if LINEAR
		dq[gate] = dq[gate + H] = dq[gate + 2 * H] = 0;
#endif
		return;
	}
#if REVERSE
	first |= before >= lens[e / H];
#endif
#endif
#if HAS_H0
	const T hp = first ? h0[e] : y[before * BATCH * H + e];
#else
	const T hp = first ? 0 : y[before * BATCH * H + e];
#endif
	const T z = gates[gate], n = gates[gate + 2 * H];
#if HAS_DY
	const T v = dh[e] + dy[at];
#else
	const T v = dh[e];
#endif

	hprev[at] = hp;
	d[2 * H] = v * (1 - z) * (1 - n * n);
	d[0] = v * (hp - n) * z * (1 - z);
	dh[e] = v * z;
#if LINEAR
	const T r = gates[gate + H];

	d[H] = d[2 * H] * hn[at] * r * (1 - r);
	dq[gate] = d[0];
	dq[gate + H] = d[H];
	dq[gate + 2 * H] = d[2 * H] * r;
#endif
	(void)dq;
	(void)hn;
	(void)dy;
	(void)h0;
	(void)lens;
}

#if !LINEAR
/* What went into r h goes on to r and h; behind an end r is 0: nothing is added. */
static __global__ void reset(T *dg, T *dh, const T *dq, const T *hprev, const T *gates)
{
	const int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

	if (e >= (int64_t)BATCH * H)
		return;
	const int64_t gate = e / H * 3 * H + H + e % H;
	const T r = gates[gate];

	dg[gate] = dq[e] * hprev[e] * r * (1 - r);
	dh[e] += dq[e] * r;
}
#endif
}

PD_HOST void NAME(T *dg, T *dq, T *hprev, T *dh, const T *r, const T *y, const T *gates, const T *hn, const T *dy,
	const T *dhn, const T *h0, const int32_t *lens)
{
#if HAS_DH
	pd_copy(dh, dhn, sizeof(T) * BATCH * H);
#else
	pd_fill(dh, 0, sizeof(T) * BATCH * H);
	(void)dhn;
#endif
	for (int s = STEPS - 1; s >= 0; s--) {
		#include "turn_back.part.h"

		PD_LAUNCH(device::NAME::run, pd_blocks((int64_t)BATCH * H, 128), 128, 0, dg, dq, hprev, dh, y, gates, hn, dy, h0, lens,
			t, before, s == 0);
#if LINEAR
		pd_gemm(0, 0, BATCH, H, 3 * H, dq + t * BATCH * 3 * H, 3 * H, r, H, 1, dh, H);
#else
		T *d = dg + t * BATCH * 3 * H, *e = dq + t * BATCH * H;

		pd_gemm(0, 0, BATCH, H, H, d + 2 * H, 3 * H, r + 2 * H * H, H, 0, e, H);
		PD_LAUNCH(device::NAME::reset, pd_blocks((int64_t)BATCH * H, 128), 128, 0, d, dh, e, hprev + t * BATCH * H,
			gates + t * BATCH * 3 * H);
		pd_gemm(0, 0, BATCH, H, 2 * H, d, 3 * H, r, H, 1, dh, H);
#endif
	}
}
