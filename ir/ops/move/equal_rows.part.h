/* Indices that mean equal rows of INNER elements are taken together, in their order: a block per index and piece of a
 * row; the first index of a row goes through all that are equal. row_of(id) says which row an index means (-1: none),
 * add(sum, rows, at) what index number `at` does to EACH elements. How often a row is meant is counted before, so that
 * only those look for others that have some. */
enum { EACH = INNER % 4 ? 1 : 4, ALL = (INNER / EACH + 31) / 32 * 32, THREADS = ALL < 256 ? ALL : 256, PIECE = THREADS * EACH,
       PIECES = (INNER + PIECE - 1) / PIECE };

static __global__ void count(int *times, const TI *ids)
{
	const int64_t k = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, row = k < IDS ? row_of(ids[k]) : -1;

	if (row >= 0)
		atomicAdd(times + row, 1);
}

static __device__ __forceinline__ void add(pd_vec<T, EACH> &sum, const T *rows, int64_t at, T by, T scale)
{
	const pd_vec<T, EACH> x = pd_read<EACH>(rows + at);

	PD_UNROLL
	for (int u = 0; u < EACH; u++)
		sum.v[u] += by * (x.v[u] * scale);
}

/* Adds by * scale times column i of all rows whose index means this row to those of `start` (nullptr: zeros), when
 * index k is the first; else false, and `start`, which the first one's block may be writing, is not read. */
static __device__ __forceinline__ bool add_equal(pd_vec<T, EACH> &sum, const T *start, const T *rows, T by, T scale, int64_t i,
                                                 const TI *ids, int64_t k, int64_t row, int left)
{
	__shared__ unsigned equal[THREADS / 32];

	if (left == 1 && i < INNER) {
		sum = start ? pd_read<EACH>(start + i) : pd_vec<T, EACH>{};
		add(sum, rows, k * INNER + i, by, scale);
	}
	for (int64_t from = 0, met = 0; left > 1 || (met && left); from += THREADS) {
		const int64_t j = from + threadIdx.x;
		const unsigned mine = j < IDS && row_of(ids[j]) == row, bits = pd_warp_sum(mine << threadIdx.x % 32);

		__syncthreads();
		if (threadIdx.x % 32 == 0)
			equal[threadIdx.x / 32] = bits;
		__syncthreads();
		for (int w = 0; w < THREADS / 32; w++)
			for (unsigned rest = equal[w]; rest; rest &= rest - 1, left--) {
				const int64_t at = from + 32 * w + __ffs((int)rest) - 1;

				if (!met++) {
					if (at != k)
						return false;
					if (i < INNER)
						sum = start ? pd_read<EACH>(start + i) : pd_vec<T, EACH>{};
				}
				if (i < INNER)
					add(sum, rows, at * INNER + i, by, scale);
			}
	}
	return true;
}
