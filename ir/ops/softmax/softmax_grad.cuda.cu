/* The gradient of a softmax along one axis; dx may be dy. */
#if LOGS
/* dx = dy - exp(y) sum(dy). */
#endif
#if !LOGS
/* dx = y (dy - sum(dy y)). */
#endif
#if VECTORS
/* Both are read once, four elements at a time, by a warp, or a block of 256 threads. */
#endif
#if !VECTORS
/* A block per row reads them twice. */
#endif
namespace device::NAME {
#if VECTORS
enum { GROUP = C <= 1024 ? 32 : 256, AT_ONCE = 256 / GROUP, EACH = (C / 4 + GROUP - 1) / GROUP };

static __global__ void __launch_bounds__(256) run(T *dx, const T *dy, const T *y)
{
	const int64_t row = (int64_t)blockIdx.x * AT_ONCE + threadIdx.x / GROUP;
	const int lane = threadIdx.x % GROUP;
	pd_vec<T, 4> d[EACH], v[EACH];
	T sum = 0;

	if (row >= OUTER)
		return;
	PD_UNROLL
	for (int k = 0; k < EACH; k++) {
		const int c = 4 * (lane + GROUP * k);

		d[k] = c < C ? pd_read<4>(dy + row * C + c) : pd_vec<T, 4>{};
		v[k] = c < C ? pd_read<4>(y + row * C + c) : pd_vec<T, 4>{};
		for (int u = 0; u < 4; u++)
#if LOGS
			sum += d[k].v[u];
#else
			sum += d[k].v[u] * v[k].v[u];
#endif
	}
	sum = GROUP == 32 ? pd_warp_sum(sum) : pd_block_sum(sum);
	PD_UNROLL
	for (int k = 0; k < EACH; k++) {
		const int c = 4 * (lane + GROUP * k);

		for (int u = 0; u < 4; u++)
#if LOGS
			d[k].v[u] -= EXP(v[k].v[u]) * sum;
#else
			d[k].v[u] = v[k].v[u] * (d[k].v[u] - sum);
#endif
		if (c < C)
			pd_write(dx + row * C + c, d[k]);
	}
}
#else
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
#endif
}

PD_HOST void NAME(T *dx, const T *dy, const T *y)
{
#if VECTORS
	PD_LAUNCH(device::NAME::run, pd_blocks(OUTER, device::NAME::AT_ONCE), 256, 0, dx, dy, y);
#else
	PD_LAUNCH(device::NAME::run, OUTER * INNER, C <= 32 ? 32 : C <= 512 ? 128 : 512, 0, dx, dy, y);
#endif
}
