/* How many labels have the greatest score, the first of equals, and how many count, of x, by one block. */
#if PARTS
/* Here are C of the classes; the other members of the group have the others. */
#endif
#if CLASSES
/* There are CLASSES; scores behind them are no classes. */
#endif
namespace device::NAME {
#include "own_classes.part.h"
/* Of row k the greatest score here, and where it is. */
static __device__ __forceinline__ int best_of(const T *x, int64_t k, int has)
{
	const T *from = x + k / INNER * C * INNER + k % INNER;
	int best = 0;

	for (int c = 1; c < has; c++)
		best = from[c * INNER] > from[best * INNER] ? c : best;
	return best;
}

#if PARTS
static __global__ void own(T *stat, const T *x, int64_t member)
{
	const int64_t k = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
	const int has = classes_of(member);

	if (k >= OUTER * INNER)
		return;
	const int best = best_of(x, k, has);

	stat[k * 2] = has ? x[(k / INNER * C + best) * INNER + k % INNER] : -(T)INFINITY;
	stat[k * 2 + 1] = (T)(member * C + best);
}

static __device__ __forceinline__ int64_t best_of_all(const T *all, int64_t k)
{
	int best = 0;

	for (int i = 1; i < PARTS; i++)
		best = all[(i * OUTER * INNER + k) * 2] > all[(best * OUTER * INNER + k) * 2] ? i : best;
	return (int64_t)all[(best * OUTER * INNER + k) * 2 + 1];
}
#endif

/* x: scores, or what all members have of each row. */
static __global__ void run(T *y, const T *x, const TL *labels)
{
	T hits = 0, all = 0;

	for (int k = threadIdx.x; k < OUTER * INNER; k += blockDim.x) {
#if IGNORE
		if (labels[k] == IGNORED)
			continue;
#endif
#if PARTS
		hits += best_of_all(x, k) == labels[k] ? 1 : 0;
#else
		hits += best_of(x, k, classes_of(0)) == labels[k] ? 1 : 0;
#endif
		all += 1;
	}
	hits = pd_block_sum(hits);
	all = pd_block_sum(all);
	if (threadIdx.x == 0) {
		y[0] = hits;
		y[1] = all;
	}
}
}

PD_HOST void NAME(T *y, const T *x, const TL *labels)
{
#if PARTS
	T *stat = (T *)pd_room(ROOM), *all = stat + OUTER * INNER * 2;

	PD_LAUNCH(device::NAME::own, pd_blocks(OUTER * INNER, 64), 64, 0, stat, x, (int64_t)pd_member());
	pd_tensor_gather(all, stat, 1, OUTER * INNER * 2 * sizeof *stat);
	x = all;
#endif
	PD_LAUNCH(device::NAME::run, 1, OUTER * INNER <= 128 ? 128 : 1024, 0, y, x, labels);
}
