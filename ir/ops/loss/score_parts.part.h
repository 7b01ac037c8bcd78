#if PARTS
#include "own_classes.part.h"
/* Of each row what the members have, one member's behind the other's: the logarithm of the sum of exp(x), and the label's score. */
typedef struct told {
	float sum, score;
} told;

static __global__ void __launch_bounds__(THREADS) own(told *to, const TX *x, const TL *labels, int64_t member)
{
	const int64_t row = blockIdx.x, label = labels[row] - member * C;
	const int has = classes_of(member);
	const float sum = has ? log_sum(x + row * W, has) : -INFINITY;

	if (threadIdx.x == 0)
		to[row] = told{ sum, label >= 0 && label < C ? LOAD(x[row * W + label]) : 0 };
}

/* The same over all members. */
static __device__ __forceinline__ told told_of(const told *all, int64_t row, int64_t label)
{
	float top = -INFINITY, sum = 0;

	for (int k = 0; k < PARTS; k++)
		top = fmaxf(top, all[k * ROWS + row].sum);
	for (int k = 0; k < PARTS; k++)
		sum += expf(all[k * ROWS + row].sum - top);
	return told{ top + logf(sum), label >= 0 && label / C < PARTS ? all[label / C * ROWS + row].score : NAN };
}
#endif
