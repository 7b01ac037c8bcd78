/* Where along the axis the extreme of x stands. NaN is more extreme than all. */
#if WIDE
/* A block per column, whose threads look at neighbouring parts, of which the first thread compares the winners in
 * order. */
#endif
namespace device::NAME {
static __device__ void best_of(const T *from, int64_t first, int64_t end, T *best, int64_t *at)
{
	T q = from[first * INNER];
	int64_t where = first;

	for (int64_t k = first + 1; k < end; k++) {
		const T p = from[k * INNER];

		if (BEFORE) {
			q = p;
			where = k;
		}
	}
	*best = q;
	*at = where;
}

#if WIDE
static __global__ void run(int64_t *y, const T *x)
{
	const int64_t o = blockIdx.x, share = (N + 255) / 256, first = threadIdx.x * share;
	__shared__ T best[256];
	__shared__ int64_t at[256];

	if (first < N)
		best_of(x + o / INNER * N * INNER + o % INNER, first, first + share < N ? first + share : N, &best[threadIdx.x],
			&at[threadIdx.x]);
	__syncthreads();
	if (threadIdx.x != 0)
		return;
	T q = best[0];
	int64_t where = at[0];

	for (int k = 1; k * share < N; k++) {
		const T p = best[k];

		if (BEFORE) {
			q = p;
			where = at[k];
		}
	}
	y[o] = where;
}
#else
static __global__ void run(int64_t *y, const T *x)
{
	const int64_t o = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
	T best;

	if (o < (int64_t)OUTER * INNER)
		best_of(x + o / INNER * N * INNER + o % INNER, 0, N, &best, &y[o]);
}
#endif
}

PD_HOST void NAME(int64_t *y, const T *x)
{
#if WIDE
	PD_LAUNCH(device::NAME::run, OUTER * INNER, 256, 0, y, x);
#else
	PD_LAUNCH(device::NAME::run, pd_blocks((int64_t)OUTER * INNER, 128), 128, 0, y, x);
#endif
}
