/* With h = (x - mean) inv and d = dy scale, per row: dx = inv (d - mean(d) - h mean(d h)); over the rows: dscale = sum
 * of dy h, dbias = sum of dy. */
#if !MEAN
/* The forward took no mean away, so mean(d) is not there. */
#endif
#if MORE
/* dx = that + more. */
#endif
#if PAST && !DROP
/* past = dx, rounded. */
#endif
#if DROP
/* past = dx behind the gradient of a dropout, whose mask is drawn again by global sample and element (late[0] is the
 * step's first sample, the operand's first comes of_step behind it). */
#endif
#if VECTORS
/* x and dy are read once, four elements at a time, by a warp or a block of 256 threads per row, which goes through rows
 * at even distances and keeps its sums over them; a second kernel adds up those of all blocks. */
#endif
#if !VECTORS
/* A block per row, and one per 32 columns that reads x and dy again. */
#endif
namespace device::NAME {
#if VECTORS
enum { THREADS = GROUP * AT_ONCE, EACH = (N / 4 + GROUP - 1) / GROUP };

static __device__ __forceinline__ T sum(T v)
{
	return GROUP == 32 ? pd_warp_sum(v) : pd_block_sum(v);
}

static __global__ void __launch_bounds__(THREADS, RESIDENT) run(T *dx, T *part,
#if PAST
	TY *past,
#endif
	const TD *dy, const T *x, const T *mean, const T *inv, const T *scale, const T *more
#if DROP
	, const double *late, int64_t of_step, uint64_t id
#endif
	)
{
	const int lane = threadIdx.x % GROUP;
#if SCALE
	pd_vec<T, 4> dscale[EACH] = {}, dbias[EACH] = {};
#endif

	for (int64_t row = (int64_t)blockIdx.x * AT_ONCE + threadIdx.x / GROUP; row < ROWS; row += BLOCKS * AT_ONCE) {
		const T v = inv[row];
		pd_vec<T, 4> h[EACH], d[EACH];
		T m = 0, s = 0, p = 0;

#if DROP
		const int64_t sample = (int64_t)late[0] + of_step + row * N / SAMPLE;
		const uint64_t stream = pd_random_stream(SEED, id, (uint64_t)sample), of = (uint64_t)(row % (SAMPLE / N));

#endif
#if MEAN
		m = mean[row];
#endif
		PD_UNROLL
		for (int k = 0; k < EACH; k++) {
			const int i = 4 * (lane + GROUP * k);

			h[k] = i < N ? pd_read<4>(x + row * N + i) : pd_vec<T, 4>{};
			const pd_vec<TD, 4> in = i < N ? pd_read<4>(dy + row * N + i) : pd_vec<TD, 4>{};

			for (int u = 0; u < 4; u++)
				d[k].v[u] = LOAD(in.v[u]);
		}
		PD_UNROLL
		for (int k = 0; k < EACH; k++) {
			const int i = 4 * (lane + GROUP * k);
#if SCALE
			const pd_vec<T, 4> by = i < N ? pd_read<4>(scale + i) : pd_vec<T, 4>{};
#endif

			for (int u = 0; u < 4; u++) {
				h[k].v[u] = (h[k].v[u] - m) * v;
#if SCALE
				dscale[k].v[u] += d[k].v[u] * h[k].v[u];
				dbias[k].v[u] += d[k].v[u];
				d[k].v[u] *= by.v[u];
#endif
				s += d[k].v[u];
				p += d[k].v[u] * h[k].v[u];
			}
			(void)i;
		}
#if MEAN
		s = sum(s) / N;
#else
		s = 0;
#endif
		p = sum(p) / N;
		PD_UNROLL
		for (int k = 0; k < EACH; k++) {
			const int i = 4 * (lane + GROUP * k);

			if (i >= N)
				break;
#if MORE
			const pd_vec<T, 4> other = pd_read<4>(more + row * N + i);
#endif
			for (int u = 0; u < 4; u++)
#if MORE
				d[k].v[u] = other.v[u] + v * (d[k].v[u] - s - h[k].v[u] * p);
#else
				d[k].v[u] = v * (d[k].v[u] - s - h[k].v[u] * p);
#endif
			pd_write(dx + row * N + i, d[k]);
#if PAST
			pd_vec<TY, 4> out;
#if DROP
			const pd_vec<uint8_t, 4> kept = pd_kept<4>(stream, of, N, (uint64_t)i, DROPPED);
#endif

			for (int u = 0; u < 4; u++)
#if DROP
				out.v[u] = AS(kept.v[u] ? d[k].v[u] * (T)FACTOR : 0);
#else
				out.v[u] = AS(d[k].v[u]);
#endif
			pd_write(past + row * N + i, out);
#endif
		}
	}
#if SCALE
	__shared__ T both[2 * N];

	for (int turn = 0; turn < AT_ONCE; turn++) {
		for (int k = 0; k < EACH && (int)threadIdx.x / GROUP == turn; k++)
			for (int u = 0; u < 4; u++) {
				const int i = 4 * (lane + GROUP * k) + u;

				if (i < N) {
					both[i] = dscale[k].v[u] + (turn ? both[i] : 0);
					both[N + i] = dbias[k].v[u] + (turn ? both[N + i] : 0);
				}
			}
		__syncthreads();
	}
	for (int i = threadIdx.x; i < 2 * N; i += THREADS)
		part[(int64_t)blockIdx.x * 2 * N + i] = both[i];
#endif
	(void)part;
	(void)mean;
	(void)scale;
	(void)more;
}

#if SCALE
/* Columns of part [BLOCKS][2 N] are added up: first those of dscale, then those of dbias. A block has 8 of them, so that
 * there are enough for all multiprocessors, and a thread every 32nd row. */
static __global__ void join(T *dscale, T *dbias, const T *part)
{
	__shared__ T more[32][8];
	const int column = threadIdx.x % 8, first = threadIdx.x / 8, i = blockIdx.x * 8 + column;
	T s = 0;

	for (int r = first; i < 2 * N && r < BLOCKS; r += 32)
		s += part[(int64_t)r * 2 * N + i];
	more[first][column] = s;
	__syncthreads();
	if (first != 0 || i >= 2 * N)
		return;
	for (int k = 1; k < 32; k++)
		s += more[k][column];
	if (i < N)
		dscale[i] = s;
#if BIAS
	else
		dbias[i - N] = s;
#endif
	(void)dbias;
}
#endif

#if DROP
static void late(double *to)
{
	to[0] = (double)pd_sample(0);
}

#endif
#else
static __global__ void run(T *dx, const TD *dy, const T *x, const T *mean, const T *inv, const T *scale, const T *more)
{
	const int64_t at = (int64_t)blockIdx.x * N;
	const T v = inv[blockIdx.x];
	T m = 0, s = 0, p = 0;

#if MEAN
	m = mean[blockIdx.x];
#endif
	for (int i = threadIdx.x; i < N; i += blockDim.x) {
#if SCALE
		const T g = LOAD(dy[at + i]) * scale[i];
#else
		const T g = LOAD(dy[at + i]);
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
		const T g = LOAD(dy[at + i]) * scale[i];
#else
		const T g = LOAD(dy[at + i]);
#endif
#if MORE
		dx[at + i] = more[at + i] + v * (g - s - (x[at + i] - m) * v * p);
#else
		dx[at + i] = v * (g - s - (x[at + i] - m) * v * p);
#endif
	}
	(void)mean;
	(void)scale;
	(void)more;
}

#if SCALE
static __global__ void columns(T *dscale, T *dbias, const TD *dy, const T *x, const T *mean, const T *inv)
{
	__shared__ T part[2][8][32];
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, i = blockIdx.x * 32 + lane;
	T s = 0, p = 0;

	for (int r = warp; i < N && r < ROWS; r += 8) {
		const T d = LOAD(dy[(int64_t)r * N + i]);
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
#endif
}

PD_HOST void NAME(T *dx,
#if SCALE
	T *dscale,
#endif
#if BIAS
	T *dbias,
#endif
#if PAST
	TY *past,
#endif
	const TD *dy, const T *x,
#if MEAN
	const T *mean,
#endif
	const T *inv
#if SCALE
	, const T *scale
#endif
#if MORE
	, const T *more
#endif
#if DROP
	, int64_t of_step, uint64_t id
#endif
	)
{
#if !MORE
	const T *more = nullptr;
#endif
#if !MEAN
	const T *mean = nullptr;
#endif
#if !SCALE
	const T *scale = nullptr;
#endif
#if SCALE && !BIAS
	T *dbias = nullptr;
#endif

#if VECTORS
#if SCALE
	T *part = (T *)pd_room(ROOM);
#else
	T *part = nullptr;
#endif

	PD_LAUNCH(device::NAME::run, BLOCKS, device::NAME::THREADS, 0, dx, part,
#if PAST
		past,
#endif
		dy, x, mean, inv, scale, more
#if DROP
		, pd_late(device::NAME::late, 1), of_step, id
#endif
		);
#if SCALE
	PD_LAUNCH(device::NAME::join, pd_blocks(2 * N, 8), 256, 0, dscale, dbias, (const T *)part);
#endif
#else
	PD_LAUNCH(device::NAME::run, ROWS, N <= 32 ? 32 : N <= 1024 ? 128 : 512, 0, dx, dy, x, mean, inv, scale, more);
#if SCALE
	PD_LAUNCH(device::NAME::columns, pd_blocks(N, 32), 256, 0, dscale, dbias, dy, x, mean, inv);
#endif
#endif
}
