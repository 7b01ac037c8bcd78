/* Local response normalisation over channels, a thread per element. */
#if BACK
/* What is summed over the window: dy x s^(-beta - 1). */
#endif
#if !BACK
/* What is summed over the window: the squares of x. */
#endif
namespace device::NAME {
/* s^-BETA */
static __device__ T power(T s)
{
#if ROOTS
	return 1 / (SQRT(s) * SQRT(SQRT(s)));
#else
	return POW(s, -(T)BETA);
#endif
}

#if BACK
static __global__ void run(T *dx, const T *dy, const T *x, const T *s)
#else
static __global__ void run(T *y, T *s, const T *x)
#endif
{
	const int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

	if (e >= (int64_t)OUTER * CH * INNER)
		return;
	const int64_t first = e / INNER % CH - BEFORE;
	T v = 0;

	for (int64_t c = first < 0 ? 0 : first; c < first + WINDOW && c < CH; c++) {
		const int64_t at = e + (c - first - BEFORE) * INNER;
#if BACK
		v += dy[at] * x[at] * power(s[at]) / s[at];
#else
		v += x[at] * x[at];
#endif
	}
#if BACK
	dx[e] = dy[e] * power(s[e]) - 2 * (T)BETA * (T)SHARE * x[e] * v;
#else
	const T w = (T)BIAS + (T)SHARE * v;

	s[e] = w;
	y[e] = x[e] * power(w);
#endif
}
}

#if BACK
PD_HOST void NAME(T *dx, const T *dy, const T *x, const T *s)
{
	PD_LAUNCH(device::NAME::run, pd_blocks((int64_t)OUTER * CH * INNER, 256), 256, 0, dx, dy, x, s);
}
#else
PD_HOST void NAME(T *y, T *s, const T *x)
{
	PD_LAUNCH(device::NAME::run, pd_blocks((int64_t)OUTER * CH * INNER, 256), 256, 0, y, s, x);
}
#endif
