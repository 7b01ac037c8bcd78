/* Sum of the squares of N elements, in f64 and always in one order. */
namespace device::NAME {
static __global__ void run(double *part, const T *g, int64_t n)
{
	double sum = 0;

	for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x)
		sum += (double)g[i] * (double)g[i];
	sum = pd_block_sum(sum);
	if (threadIdx.x == 0)
		part[blockIdx.x] = sum;
}

static __global__ void join(double *part, int n)
{
	double sum = 0;

	for (int i = threadIdx.x; i < n; i += blockDim.x)
		sum += part[i];
	sum = pd_block_sum(sum);
	if (threadIdx.x == 0)
		part[0] = sum;
}
}

#if PIECE
PD_HOST void NAME(int at, const T *g)
#elif PART
PD_HOST double NAME(const T *g, size_t count) /* at most N */
#else
PD_HOST double NAME(const T *g)
#endif
{
	const int blocks = N > 65536 ? 128 : (N + 511) / 512;
#if PART
	const int64_t n = (int64_t)count;
#else
	const int64_t n = N;
#endif
	double *part = pd_numbers(128);

	PD_LAUNCH(device::NAME::run, blocks, 256, 0, part, g, n);
	PD_LAUNCH(device::NAME::join, 1, 128, 0, part, blocks);
#if PIECE
	for (int b = 0; b < (N + BLOCK - 1) / BLOCK; b++)       /* all of them in the first */
		pd_square(at + b, b ? 0 : pd_number(part));
#else
	return pd_number(part);
#endif
}
