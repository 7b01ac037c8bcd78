/* dx = mask dy / (1 - ratio); dx may be dy. A thread per element. */
namespace device::NAME {
static __global__ void run(T *dx, const T *dy, const uint8_t *mask)
{
	const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

	if (i < N)
		dx[i] = mask[i] ? dy[i] * (T)SCALE : 0;
}
}

PD_HOST void NAME(T *dx, const T *dy, const uint8_t *mask)
{
	PD_LAUNCH(device::NAME::run, pd_blocks(N, 256), 256, 0, dx, dy, mask);
}
