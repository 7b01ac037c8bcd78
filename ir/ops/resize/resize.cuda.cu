/* Row j of y is the sum of the rows of x that `at` names, by weights w, a thread per element. */
#if BACK
/* y is the gradient that comes in, and every row of x collects what its uses got, a thread per column. */
#endif
namespace device::NAME {
#if BACK
static __global__ void run(T *x, const T *y, const int32_t *at, const T *w)
{
	const int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

	if (e >= (int64_t)OUTER * INNER)
		return;
	const int64_t i = e % INNER, o = e / INNER;

	for (int64_t j = 0; j < OUT; j++)
		for (int k = 0; k < K; k++) {
			T *to = x + (o * IN + at[j * K + k]) * INNER + i;
#if WEIGHTS
			*to += w[j * K + k] * y[(o * OUT + j) * INNER + i];
#else
			*to += y[(o * OUT + j) * INNER + i];
#endif
		}
	(void)w;
}
#else
static __global__ void run(T *y, const T *x, const int32_t *at, const T *w)
{
	const int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

	if (e >= (int64_t)OUTER * OUT * INNER)
		return;
	const int64_t i = e % INNER, j = e / INNER % OUT, o = e / INNER / OUT;
	T s = 0;

	for (int k = 0; k < K; k++)
#if WEIGHTS
		s += w[j * K + k] * x[(o * IN + at[j * K + k]) * INNER + i];
#else
		s += x[(o * IN + at[j * K + k]) * INNER + i];
#endif
	y[e] = s;
	(void)w;
}
#endif
}

PD_HOST void NAME(
#if BACK
	T *x, const T *y
#else
	T *y, const T *x
#endif
	, const int32_t *at
#if WEIGHTS
	, const T *w
#endif
	)
{
#if !WEIGHTS
	const T *w = nullptr;
#endif

#if BACK
	pd_fill(x, 0, sizeof(T) * OUTER * IN * INNER);
	PD_LAUNCH(device::NAME::run, pd_blocks((int64_t)OUTER * INNER, 128), 128, 0, x, y, at, w);
#else
	PD_LAUNCH(device::NAME::run, pd_blocks((int64_t)OUTER * OUT * INNER, 256), 256, 0, y, x, at, w);
#endif
}
