/* Rows are brought to a mean square of 1, then scaled and shifted. */
#if MEAN
/* Their mean is taken away before. */
#endif
#if VECTORS
/* A row is read once, four elements at a time, and stays in the registers of a warp, or of a block of 256 threads. */
#endif
#if !VECTORS
/* A block per row reads it from memory for each of its sums. */
#endif
#if SUM
/* What is normalised is made on the way and goes to total: x, which may be of 16 bits, */
#if DROP
/* as dropout leaves it, by a mask that is drawn by global sample and element as Dropout draws it (late[0] is the step's
 * first sample, the operand's first comes of_step behind it), */
#endif
#if MORE
/* plus more. */
#endif
#endif
namespace device::NAME {
#if VECTORS
enum { GROUP = N <= 1024 ? 32 : 256, AT_ONCE = 256 / GROUP, EACH = (N / 4 + GROUP - 1) / GROUP };

static __device__ __forceinline__ T sum(T v)
{
	return GROUP == 32 ? pd_warp_sum(v) : pd_block_sum(v);
}

static __global__ void __launch_bounds__(256, EACH * sizeof(T) <= 24 ? 4 : 1) run(TY *y, T *mean, T *inv,
#if SUM
	T *total,
#endif
	const TX *x, const T *scale, const T *bias
#if MORE
	, const T *more
#endif
#if DROP
	, const double *late, int64_t of_step, uint64_t id
#endif
	)
{
	const int64_t row = (int64_t)blockIdx.x * AT_ONCE + threadIdx.x / GROUP;
	const int lane = threadIdx.x % GROUP;
	pd_vec<T, 4> v[EACH];
	T m = 0, p = 0;

	if (row >= ROWS)
		return;
#if DROP
#if EVALUATES
	const double before = late ? late[0] : 0;
#else
	const double before = late[0];
#endif
	const int64_t sample = (int64_t)before + of_step + row * N / SAMPLE;
	const uint64_t stream = pd_random_stream(SEED, id, (uint64_t)sample), of = (uint64_t)(row % (SAMPLE / N));
#endif
	PD_UNROLL
	for (int k = 0; k < EACH; k++) {
		const int i = 4 * (lane + GROUP * k);

#if SUM
		v[k] = {};
		if (i < N) {
			const pd_vec<TX, 4> in = pd_read<4>(x + row * N + i);

#if MORE
			v[k] = pd_read<4>(more + row * N + i);
#endif
#if DROP
			const pd_vec<uint8_t, 4> kept = pd_kept<4>(stream, of, N, (uint64_t)i, DROPPED);

#endif
			for (int u = 0; u < 4; u++)
#if DROP && EVALUATES
				if (!late)
					v[k].v[u] += LOAD(in.v[u]);
				else
					v[k].v[u] += kept.v[u] ? LOAD(in.v[u]) * (T)FACTOR : 0;
#elif DROP
				v[k].v[u] += kept.v[u] ? LOAD(in.v[u]) * (T)FACTOR : 0;
#else
				v[k].v[u] += LOAD(in.v[u]);
#endif
			pd_write(total + row * N + i, v[k]);
		}
#else
		v[k] = i < N ? pd_read<4>(x + row * N + i) : pd_vec<T, 4>{};
#endif
#if MEAN
		m += v[k].v[0] + v[k].v[1] + v[k].v[2] + v[k].v[3];
#endif
	}
#if MEAN
	m = sum(m) / N;
#endif
	PD_UNROLL
	for (int k = 0; k < EACH; k++)
		for (int u = 0; u < 4; u++)
			if (4 * (lane + GROUP * k) < N)
				p += (v[k].v[u] - m) * (v[k].v[u] - m);
	p = 1 / SQRT(sum(p) / N + (T)EPSILON);
	PD_UNROLL
	for (int k = 0; k < EACH; k++) {
		const int i = 4 * (lane + GROUP * k);
		pd_vec<TY, 4> out;

		if (i >= N)
			break;
#if SCALE
		const pd_vec<T, 4> by = pd_read<4>(scale + i);
#endif
#if BIAS
		const pd_vec<T, 4> shift = pd_read<4>(bias + i);
#endif
		for (int u = 0; u < 4; u++)
#if BIAS
			out.v[u] = AS((v[k].v[u] - m) * p * by.v[u] + shift.v[u]);
#elif SCALE
			out.v[u] = AS((v[k].v[u] - m) * p * by.v[u]);
#else
			out.v[u] = AS((v[k].v[u] - m) * p);
#endif
		pd_write(y + row * N + i, out);
	}
	if (lane == 0) {
#if MEAN
		mean[row] = m;
#endif
		inv[row] = p;
	}
	(void)mean;
	(void)scale;
	(void)bias;
}

#if DROP
static void late(double *to)
{
	to[0] = (double)pd_sample(0);
}
#endif
#else
static __global__ void run(TY *y, T *mean, T *inv, const T *x, const T *scale, const T *bias)
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
		y[at + i] = AS((x[at + i] - m) * v * scale[i] + bias[i]);
#elif SCALE
		y[at + i] = AS((x[at + i] - m) * v * scale[i]);
#else
		y[at + i] = AS((x[at + i] - m) * v);
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
#endif
}

PD_HOST void NAME(TY *y,
#if MEAN
	T *mean,
#endif
	T *inv,
#if SUM
	T *total,
#endif
	const TX *x
#if SCALE
	, const T *scale
#endif
#if BIAS
	, const T *bias
#endif
#if MORE
	, const T *more
#endif
#if DROP
	, int64_t of_step, uint64_t id
#endif
	)
{
#if !MEAN
	T *mean = nullptr;
#endif
#if !SCALE
	const T *scale = nullptr;
#endif
#if !BIAS
	const T *bias = nullptr;
#endif

#if DROP && EVALUATES
	const double *late = pd_evaluating() ? nullptr : pd_late(device::NAME::late, 1);
#elif DROP
	const double *late = pd_late(device::NAME::late, 1);
#endif
#if VECTORS
	PD_LAUNCH(device::NAME::run, pd_blocks(ROWS, device::NAME::AT_ONCE), 256, 0, y, mean, inv,
#if SUM
		total,
#endif
		x, scale, bias
#if MORE
		, more
#endif
#if DROP
		, late, of_step, id
#endif
		);
#else
	PD_LAUNCH(device::NAME::run, ROWS, N <= 32 ? 32 : N <= 1024 ? 128 : 512, 0, y, mean, inv, x, scale, bias);
#endif
}
