/* A GRU over all steps of a batch of sequences; gates z r n:
 *     z, r = sigmoid of gx + h R';  h = (1 - z) n + z h */
#if LINEAR
/* n = tanh(gx + r (h R' + rb)). A step is two products and a kernel with a thread per unit of a sequence. */
#endif
#if !LINEAR
/* n = tanh(gx + (r h) R'). A step is two products and a kernel with a thread per unit of a sequence, another between
 * them. */
#endif
namespace device::NAME {
#if !LINEAR
static __global__ void reset(T *g, T *q, const T *h)
{
	const int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

	if (e >= (int64_t)BATCH * H)
		return;
	T *gr = g + e / H * 3 * H + H + e % H;

	*gr = 1 / (1 + EXP(-*gr));
	q[e] = *gr * h[e];
}

#endif
static __global__ void run(T *y, T *h, T *g, T *q, const T *rb, const int32_t *lens, int64_t t)
{
	const int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

	if (e >= (int64_t)BATCH * H)
		return;
	T *z = g + e / H * 3 * H + e % H, *gr = z + H, *n = gr + H;

#if LENS
	if (t >= lens[e / H]) {
		*z = *gr = *n = y[e] = q[e] = 0;
		return;
	}
#endif
	*z = 1 / (1 + EXP(-*z));
#if LINEAR
	*gr = 1 / (1 + EXP(-*gr));
#if HAS_RB
	q[e] += rb[e % H];
#endif
	*n = TANH(*n + *gr * q[e]);
#else
	*n = TANH(*n);
#endif
	h[e] = (1 - *z) * *n + *z * h[e];
	y[e] = h[e];
	(void)rb;
	(void)lens;
	(void)t;
}
}

PD_HOST void NAME(T *y, T *h, T *gates, T *hn, const T *gx, const T *r, const T *rb, const T *h0, const int32_t *lens)
{
#if HAS_H0
	pd_copy(h, h0, sizeof(T) * BATCH * H);
#else
	pd_fill(h, 0, sizeof(T) * BATCH * H);
	(void)h0;
#endif
	pd_copy(gates, gx, sizeof(T) * STEPS * BATCH * 3 * H);
	for (int s = 0; s < STEPS; s++) {
		#include "turn.part.h"
		T *g = gates + t * BATCH * 3 * H, *q = hn + t * BATCH * H;

		pd_gemm(0, 1, BATCH, 2 * H, H, h, H, r, H, 1, g, 3 * H);
#if LINEAR
		pd_gemm(0, 1, BATCH, H, H, h, H, r + 2 * H * H, H, 0, q, H);
#else
		PD_LAUNCH(device::NAME::reset, pd_blocks((int64_t)BATCH * H, 128), 128, 0, g, q, h);
		pd_gemm(0, 1, BATCH, H, H, q, H, r + 2 * H * H, H, 1, g + 2 * H, 3 * H);
#endif
		PD_LAUNCH(device::NAME::run, pd_blocks((int64_t)BATCH * H, 128), 128, 0, y + t * BATCH * H, h, g, q, rb, lens, t);
	}
}
