/* Running sums of x along an axis, a thread per column, in the order of the axis. */
namespace device::NAME {
static __global__ void run(T *y, const T *x)
{
	const int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

	if (e >= (int64_t)OUTER * INNER)
		return;
	const int64_t first = e / INNER * N * INNER + e % INNER;
	T sum = 0;

	for (int64_t k = 0; k < N; k++) {
#if REVERSE
		const int64_t at = first + (N - 1 - k) * INNER;
#else
		const int64_t at = first + k * INNER;
#endif
#if EXCLUSIVE
		y[at] = sum;
		sum += x[at];
#else
		sum += x[at];
		y[at] = sum;
#endif
	}
}
}

PD_HOST void NAME(T *y, const T *x)
{
	PD_LAUNCH(device::NAME::run, pd_blocks((int64_t)OUTER * INNER, 128), 128, 0, y, x);
}
