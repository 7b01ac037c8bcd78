/* dx = y (dy - sum(dy y)); LOGS: dx = dy - exp(y) sum(dy). [OUTER, C, INNER] along C; dx may be dy. A block per row. */
namespace device::NAME {
static __global__ void run(T *dx, const T *dy, const T *y)
{
	const int64_t at = (int64_t)(blockIdx.x / INNER) * C * INNER + blockIdx.x % INNER;
	T sum = 0;

	for (int c = threadIdx.x; c < C; c += blockDim.x) {
		const int64_t e = at + (int64_t)c * INNER;
#if LOGS
		sum += dy[e];
#else
		sum += dy[e] * y[e];
#endif
	}
	sum = pd_block_sum(sum);
	for (int c = threadIdx.x; c < C; c += blockDim.x) {
		const int64_t e = at + (int64_t)c * INNER;
#if LOGS
		dx[e] = dy[e] - EXP(y[e]) * sum;
#else
		dx[e] = y[e] * (dy[e] - sum);
#endif
	}
}
}

PD_HOST void NAME(T *dx, const T *dy, const T *y)
{
	PD_LAUNCH(device::NAME::run, OUTER * INNER, C <= 32 ? 32 : C <= 512 ? 128 : 512, 0, dx, dy, y);
}
