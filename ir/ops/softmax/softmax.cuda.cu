/* Softmax of x [OUTER, C, INNER] along C; LOGS: its logarithm. y may be x. A block per row. */
namespace device::NAME {
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
}

PD_HOST void NAME(T *y, const T *x)
{
	PD_LAUNCH(device::NAME::run, OUTER * INNER, C <= 32 ? 32 : C <= 512 ? 128 : 512, 0, y, x);
}
