/* Rows of N elements are brought to mean 0 (MEAN) and to a mean square of 1, then scaled and shifted. A block per row. */
namespace device::NAME {
static __global__ void run(T *y, T *mean, T *inv, const T *x, const T *scale, const T *bias)
{
	const int64_t at = (int64_t)blockIdx.x * N;
	T m = 0, v = 0;

#if MEAN
	for (int i = threadIdx.x; i < N; i += blockDim.x)
		m += x[at + i];
	m = pd_block_sum(m) / N;
#endif
	for (int i = threadIdx.x; i < N; i += blockDim.x)
		v += (x[at + i] - m) * (x[at + i] - m);
	v = 1 / SQRT(pd_block_sum(v) / N + (T)EPSILON);
	for (int i = threadIdx.x; i < N; i += blockDim.x)
#if BIAS
		y[at + i] = (x[at + i] - m) * v * scale[i] + bias[i];
#elif SCALE
		y[at + i] = (x[at + i] - m) * v * scale[i];
#else
		y[at + i] = (x[at + i] - m) * v;
#endif
	if (threadIdx.x == 0) {
#if MEAN
		mean[blockIdx.x] = m;
#endif
		inv[blockIdx.x] = v;
	}
	(void)mean;
	(void)scale;
	(void)bias;
}
}

PD_HOST void NAME(T *y,
#if MEAN
	T *mean,
#endif
	T *inv, const T *x
#if SCALE
	, const T *scale
#endif
#if BIAS
	, const T *bias
#endif
	)
{
	PD_LAUNCH(device::NAME::run, ROWS, N <= 32 ? 32 : N <= 1024 ? 128 : 512, 0, y,
#if MEAN
		mean,
#else
		(T *)nullptr,
#endif
		inv, x,
#if SCALE
		scale,
#else
		(const T *)nullptr,
#endif
#if BIAS
		bias);
#else
		(const T *)nullptr);
#endif
}
