/* The rows of a lookup's gradient beside where they belong; -1 where they belong nowhere. A thread per index. */
namespace device::NAME {
static __global__ void run(int32_t *to, const TI *ids)
{
	const int64_t k = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

	if (k >= N)
		return;
	const int64_t row = ids[k] < 0 ? ids[k] + DIM : ids[k];

	to[k] = row >= 0 && row < DIM ? (int32_t)row : -1;
#if PADDED
	if (row == PADDING)
		to[k] = -1;
#endif
}
}

PD_HOST void NAME(int32_t *to, T *rows, const T *dy, const TI *ids)
{
	PD_LAUNCH(device::NAME::run, pd_blocks(N, 256), 256, 0, to, ids);
	pd_copy(rows, dy, sizeof(T) * N * D);
}
