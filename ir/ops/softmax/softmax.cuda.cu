/* Softmax of x along one axis. y may be x. */
#if LOGS
/* y is its logarithm. */
#endif
#if VECTORS
/* A row is read once, four elements at a time, and stays in the registers of a warp, or of a block of 256 threads. */
#endif
#if !VECTORS
/* A block per row reads it three times. */
#endif
namespace device::NAME {
#if VECTORS
enum { GROUP = C <= 1024 ? 32 : 256, AT_ONCE = 256 / GROUP, EACH = (C / 4 + GROUP - 1) / GROUP };

static __global__ void __launch_bounds__(256) run(T *y, const T *x)
{
	const int64_t row = (int64_t)blockIdx.x * AT_ONCE + threadIdx.x / GROUP;
	const int lane = threadIdx.x % GROUP;
	pd_vec<T, 4> v[EACH];
	T top = -INFINITY, sum = 0;

	if (row >= OUTER)
		return;
	PD_UNROLL
	for (int k = 0; k < EACH; k++) {
		const int c = 4 * (lane + GROUP * k);

		v[k] = c < C ? pd_read<4>(x + row * C + c) : pd_vec<T, 4>{ { -INFINITY, -INFINITY, -INFINITY, -INFINITY } };
		top = FMAX(FMAX(FMAX(top, v[k].v[0]), v[k].v[1]), FMAX(v[k].v[2], v[k].v[3]));
	}
	top = GROUP == 32 ? pd_warp_max(top) : pd_block_max(top);
	PD_UNROLL
	for (int k = 0; k < EACH; k++)
		for (int u = 0; u < 4; u++) {
			v[k].v[u] -= top;
			sum += EXP(v[k].v[u]);
		}
	sum = GROUP == 32 ? pd_warp_sum(sum) : pd_block_sum(sum);
#if LOGS
	sum = LOG(sum);
#else
	sum = 1 / sum;
#endif
	PD_UNROLL
	for (int k = 0; k < EACH; k++) {
		const int c = 4 * (lane + GROUP * k);

		for (int u = 0; u < 4; u++)
#if LOGS
			v[k].v[u] -= sum;
#else
			v[k].v[u] = EXP(v[k].v[u]) * sum;
#endif
		if (c < C)
			pd_write(y + row * C + c, v[k]);
	}
}
#else
static __global__ void run(T *y, const T *x)
{
	const int64_t at = (int64_t)(blockIdx.x / INNER) * C * INNER + blockIdx.x % INNER;
	T top = -INFINITY, sum = 0;

	for (int c = threadIdx.x; c < C; c += blockDim.x)
		top = FMAX(top, x[at + (int64_t)c * INNER]);
	top = pd_block_max(top);
	for (int c = threadIdx.x; c < C; c += blockDim.x)
		sum += EXP(x[at + (int64_t)c * INNER] - top);
	sum = pd_block_sum(sum);
#if LOGS
	top += LOG(sum);
	for (int c = threadIdx.x; c < C; c += blockDim.x)
		y[at + (int64_t)c * INNER] = x[at + (int64_t)c * INNER] - top;
#else
	for (int c = threadIdx.x; c < C; c += blockDim.x)
		y[at + (int64_t)c * INNER] = EXP(x[at + (int64_t)c * INNER] - top) / sum;
#endif
}
#endif
}

PD_HOST void NAME(T *y, const T *x)
{
#if VECTORS
	PD_LAUNCH(device::NAME::run, pd_blocks(OUTER, device::NAME::AT_ONCE), 256, 0, y, x);
#else
	PD_LAUNCH(device::NAME::run, OUTER * INNER, C <= 32 ? 32 : C <= 512 ? 128 : 512, 0, y, x);
#endif
}
