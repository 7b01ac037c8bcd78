/* An LSTM over all steps of a batch of sequences; gates i o f c:
 *     i, o, f = sigmoid, g = tanh of gx + h R'  (peepholes: + p c, o's with the new c);  c = f c + i g;  h = o tanh(c)
 * A step is a product and a kernel with a thread per unit of a sequence. */
namespace device::NAME {
static __global__ void run(T *y, T *h, T *c, T *gates, T *cells, const T *p, const int32_t *lens, int64_t t)
{
	const int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

	if (e >= (int64_t)BATCH * H)
		return;
	const int64_t b = e / H, k = e % H;
	T *i = gates + b * 4 * H + k, *o = i + H, *f = o + H, *a = f + H;

#if LENS
	if (t >= lens[b]) {
		*i = *o = *f = *a = y[e] = cells[e] = 0;
		return;
	}
#endif
#if PEEP
	*i = 1 / (1 + EXP(-(*i + p[k] * c[e])));
	*f = 1 / (1 + EXP(-(*f + p[2 * H + k] * c[e])));
#else
	*i = 1 / (1 + EXP(-*i));
	*f = 1 / (1 + EXP(-*f));
#endif
	*a = TANH(*a);
	const T sum = *f * c[e] + *i * *a;
#if PEEP
	*o = 1 / (1 + EXP(-(*o + p[H + k] * sum)));
#else
	*o = 1 / (1 + EXP(-*o));
#endif
	c[e] = cells[e] = sum;
	h[e] = y[e] = *o * TANH(sum);
	(void)p;
	(void)lens;
	(void)t;
}
}

PD_HOST void NAME(T *y, T *h, T *c, T *gates, T *cells, const T *gx, const T *r, const T *h0, const T *c0, const T *p,
	const int32_t *lens)
{
#if HAS_H0
	pd_copy(h, h0, sizeof(T) * BATCH * H);
#else
	pd_fill(h, 0, sizeof(T) * BATCH * H);
	(void)h0;
#endif
#if HAS_C0
	pd_copy(c, c0, sizeof(T) * BATCH * H);
#else
	pd_fill(c, 0, sizeof(T) * BATCH * H);
	(void)c0;
#endif
	pd_copy(gates, gx, sizeof(T) * STEPS * BATCH * 4 * H);
	for (int s = 0; s < STEPS; s++) {
		#include "turn.part.h"
		T *g = gates + t * BATCH * 4 * H;

		pd_gemm(0, 1, BATCH, 4 * H, H, h, H, r, H, 1, g, 4 * H);
		PD_LAUNCH(device::NAME::run, pd_blocks((int64_t)BATCH * H, 128), 128, 0, y + t * BATCH * H, h, c, g,
			cells + t * BATCH * H, p, lens, t);
	}
}
