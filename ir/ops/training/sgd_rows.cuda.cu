/* w[ids[k]] -= lr rows[k] / n in the order of k. Rows of few elements: a thread owns a column. Else
 * equal_rows.part.h. */
namespace device::NAME {
static void late(double *to)
{
	to[0] = LR;
}

#if INNER < 32
static __global__ void run(T *w, const int32_t *ids, const T *rows, const T *n, const double *late)
{
	const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
	const T rate = (T)late[0], scale = 1 / n[0];

	if (i >= INNER)
		return;
	for (int64_t k = 0; k < IDS; k++)
		if (ids[k] >= 0)
			w[(int64_t)ids[k] * INNER + i] -= rate * (rows[k * INNER + i] * scale);
}
#else
static __device__ __forceinline__ int64_t row_of(int32_t id)
{
	return id;
}

#include "equal_rows.part.h"

static __global__ void run(T *w, const int32_t *ids, const T *rows, const T *n, const double *late, const int *times)
{
	const int64_t i = (int64_t)(blockIdx.x % PIECES) * PIECE + threadIdx.x * EACH, k = blockIdx.x / PIECES, row = ids[k];

	if (row < 0)
		return;
	pd_vec<T, EACH> sum = {};

	if (add_equal(sum, w + row * INNER, rows, -(T)late[0], 1 / n[0], i, ids, k, row, times[row]) && i < INNER)
		pd_write(w + row * INNER + i, sum);
}
#endif
}

PD_HOST void NAME(T *w, const int32_t *ids, const T *rows, const T *n)
{
#if INNER < 32
	PD_LAUNCH(device::NAME::run, pd_blocks(INNER, 64), 64, 0, w, ids, rows, n, pd_late(device::NAME::late, 1));
#else
	int *times = (int *)pd_room(ROOM);

	pd_fill(times, 0, ROOM);
	PD_LAUNCH(device::NAME::count, pd_blocks(IDS, 256), 256, 0, times, ids);
	PD_LAUNCH(device::NAME::run, (int64_t)IDS * device::NAME::PIECES, device::NAME::THREADS, 0, w, ids, rows, n, pd_late(device::NAME::late, 1),
	          (const int *)times);
#endif
}
