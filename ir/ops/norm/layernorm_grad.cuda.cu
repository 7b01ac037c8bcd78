/* With h = (x - mean) inv and d = dy scale, per row: dx = inv (d - mean(d) - h mean(d h)), where the mean of d is there only
 * with MEAN, by a block per row; over the rows: dscale = sum of dy h, dbias = sum of dy, by a block per 32 columns. */
namespace device::NAME {
static __global__ void run(T *dx, const T *dy, const T *x, const T *mean, const T *inv, const T *scale)
{
	const int64_t at = (int64_t)blockIdx.x * N;
	const T v = inv[blockIdx.x];
	T m = 0, s = 0, p = 0;

#if MEAN
	m = mean[blockIdx.x];
#endif
	for (int i = threadIdx.x; i < N; i += blockDim.x) {
#if SCALE
		const T g = dy[at + i] * scale[i];
#else
		const T g = dy[at + i];
#endif
		s += g;
		p += g * ((x[at + i] - m) * v);
	}
#if MEAN
	s = pd_block_sum(s) / N;
#else
	s = 0;
#endif
	p = pd_block_sum(p) / N;
	for (int i = threadIdx.x; i < N; i += blockDim.x) {
#if SCALE
		const T g = dy[at + i] * scale[i];
#else
		const T g = dy[at + i];
#endif
		dx[at + i] = v * (g - s - (x[at + i] - m) * v * p);
	}
	(void)mean;
	(void)scale;
}

#if SCALE
static __global__ void columns(T *dscale, T *dbias, const T *dy, const T *x, const T *mean, const T *inv)
{
	__shared__ T part[2][8][32];
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, i = blockIdx.x * 32 + lane;
	T s = 0, p = 0;

	for (int r = warp; i < N && r < ROWS; r += 8) {
		const T d = dy[(int64_t)r * N + i];
#if MEAN
		p += d * ((x[(int64_t)r * N + i] - mean[r]) * inv[r]);
#else
		p += d * (x[(int64_t)r * N + i] * inv[r]);
#endif
		s += d;
	}
	part[0][warp][lane] = p;
	part[1][warp][lane] = s;
	__syncthreads();
	if (warp != 0 || i >= N)
		return;
	for (int k = 1; k < 8; k++) {
		p += part[0][k][lane];
		s += part[1][k][lane];
	}
	dscale[i] = p;
#if BIAS
	dbias[i] = s;
#endif
	(void)dbias;
	(void)mean;
}
#endif
}

PD_HOST void NAME(T *dx,
#if SCALE
	T *dscale,
#endif
#if BIAS
	T *dbias,
#endif
	const T *dy, const T *x,
#if MEAN
	const T *mean,
#endif
	const T *inv
#if SCALE
	, const T *scale
#endif
	)
{
#if !MEAN
	const T *mean = nullptr;
#endif
#if !SCALE
	const T *scale = nullptr;
#endif

	PD_LAUNCH(device::NAME::run, ROWS, N <= 32 ? 32 : N <= 1024 ? 128 : 512, 0, dx, dy, x, mean, inv, scale);
#if SCALE && BIAS
	PD_LAUNCH(device::NAME::columns, pd_blocks(N, 32), 256, 0, dscale, dbias, dy, x, mean, inv);
#elif SCALE
	PD_LAUNCH(device::NAME::columns, pd_blocks(N, 32), 256, 0, dscale, (T *)nullptr, dy, x, mean, inv);
#endif
}
