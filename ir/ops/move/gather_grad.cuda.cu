/* The gradient of a gather, written whole: zeros, then y[o][ids[k]] += dy[o][k] in the order of k, so that equal
 * indices always add up in one order. Rows of few elements: a thread owns a column. Else equal_rows.part.h. */
#if ADDS
/* Here y begins as a, whose memory it may have. */
#elif SUM
/* What other microbatches left in y stays. */
#endif
#if PARTS
/* Here are DIM of the rows; the other members of the group have the others. */
#endif
namespace device::NAME {
/* The row that an index means; -1: none. */
static __device__ __forceinline__ int64_t row_of(TI id)
{
#if PARTS
	return id;
#else
#if NEG
	const int64_t row = id < 0 ? id + DIM : id;
#else
	const int64_t row = id;
#endif
#if CHECK
	if (row < 0 || row >= DIM)
		return -1;
#endif
#if PADDED
	if (row == PADDING)
		return -1;
#endif
	return row;
#endif
}

#if PARTS
/* Which of the rows here an index means; -1: none of them. */
static __global__ void own(TI *to, const TI *ids, int64_t first)
{
	const int64_t k = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

	if (k >= IDS)
		return;
#if NEG
	const int64_t id = ids[k] < 0 ? ids[k] + WHOLE : ids[k];
#else
	const int64_t id = ids[k];
#endif
	bool here = id >= first && id < first + DIM;

#if PADDED
	here = here && id != PADDING;
#endif
	to[k] = here ? (TI)(id - first) : -1;
}
#endif

#if INNER < 32
static __global__ void run(T *y, const T *dy, const TI *ids)
{
	const int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

	if (e >= (int64_t)OUTER * INNER)
		return;
	const int64_t i = e % INNER, o = e / INNER;

	for (int64_t k = 0; k < IDS; k++) {
		const int64_t row = row_of(ids[k]);

		if (row >= 0)
			y[(o * DIM + row) * INNER + i] += dy[(o * IDS + k) * INNER + i];
	}
}
#else
#include "equal_rows.part.h"

static __global__ void run(T *y, const T *dy, const TI *ids, const int *times, bool more)
{
	const int64_t i = (int64_t)(blockIdx.x % PIECES) * PIECE + threadIdx.x * EACH, k = blockIdx.x / PIECES % IDS;
	const int64_t o = blockIdx.x / PIECES / IDS, row = row_of(ids[k]);
	pd_vec<T, EACH> sum = {};

	if (row >= 0 && add_equal(sum, nullptr, dy + o * IDS * INNER, 1, 1, i, ids, k, row, times[row]) && i < INNER) {
		T *to = y + (o * DIM + row) * INNER + i;
		if (more) {
			const pd_vec<T, EACH> was = pd_read<EACH>(to);

			PD_UNROLL
			for (int u = 0; u < EACH; u++)
				sum.v[u] += was.v[u];
		}
		pd_write(to, sum);
	}
}
#endif
}

#if ADDS
PD_HOST void NAME(T *y, const T *a, const T *dy, const TI *ids)
{
	if (y != a)
		pd_copy(y, a, NUMEL * sizeof *y);
	const bool more = true;
#elif SUM
PD_HOST void NAME(T *y, const T *dy, const TI *ids, bool more)
{
	if (!more)
		pd_fill(y, 0, NUMEL * sizeof *y);
#else
PD_HOST void NAME(T *y, const T *dy, const TI *ids)
{
	const bool more = false;

	pd_fill(y, 0, NUMEL * sizeof *y);
#endif
#if PARTS
	TI *own = (TI *)(void *)((char *)pd_room(ROOM) + TIMES);

	PD_LAUNCH(device::NAME::own, pd_blocks(IDS, 256), 256, 0, own, ids, (int64_t)pd_member() * DIM);
	ids = own;
#endif
#if INNER < 32
	PD_LAUNCH(device::NAME::run, pd_blocks((int64_t)OUTER * INNER, 64), 64, 0, y, dy, ids);
	(void)more;
#else
	int *times = (int *)pd_room(ROOM);

	pd_fill(times, 0, TIMES);
	PD_LAUNCH(device::NAME::count, pd_blocks(IDS, 256), 256, 0, times, ids);
	PD_LAUNCH(device::NAME::run, (int64_t)IDS * device::NAME::PIECES * OUTER, device::NAME::THREADS, 0, y, dy, ids, (const int *)times, more);
#endif
}
