/* -w[label] log softmax(x)[label] of rows of scores, f32 or 16 bits, by a block per row: each score is read once, and
 * of a row only the logarithm of its sum of exponentials is kept, in sums. Their sum by one block, always in one
 * order. */
#if MEAN
/* It is divided by the weight of what counts. */
#endif
namespace device::NAME {
#include "score_sum.part.h"
#include "score_weight.part.h"
#if PARTS
#include "score_parts.part.h"

/* sums: of each row, over all members. */
static __global__ void run(float *loss, float *sums, const told *all, const TL *labels, const float *weights)
#else
static __global__ void __launch_bounds__(THREADS) rows(float *sums, const TX *x)
{
	const float sum = log_sum(x + (int64_t)blockIdx.x * W, C);

	if (threadIdx.x == 0)
		sums[blockIdx.x] = sum;
}

static __global__ void run(float *loss, const float *sums, const TX *x, const TL *labels, const float *weights)
#endif
{
	float sum = 0, total = 0;

	for (int k = threadIdx.x; k < ROWS; k += blockDim.x) {
		const int64_t label = labels[k];
		const float w = weight_of(label, weights);

#if PARTS
		const told of = told_of(all, k, label);

		sums[k] = of.sum;
		sum += w != 0 ? w * (of.sum - of.score) : 0;
#else
		sum += w != 0 ? w * (sums[k] - LOAD(x[(int64_t)k * W + label])) : 0;
#endif
		total += w;
	}
	sum = pd_block_sum(sum);
	total = pd_block_sum(total);
	if (threadIdx.x == 0)
#if MEAN
		loss[0] = sum / total;
#else
		loss[0] = sum;
#endif
	(void)total;
}
}

PD_HOST void NAME(float *loss, float *sums, const TX *x, const TL *labels
#if WEIGHTS
	, const float *weights
#endif
	)
{
#if !WEIGHTS
	const float *weights = nullptr;
#endif

#if PARTS
	device::NAME::told *own = (device::NAME::told *)pd_room(ROOM), *all = own + ROWS;

	PD_LAUNCH(device::NAME::own, ROWS, THREADS, 0, own, x, labels, (int64_t)pd_member());
	pd_tensor_gather(all, own, 1, ROWS * sizeof *own);
	PD_LAUNCH(device::NAME::run, 1, ROWS <= 128 ? 128 : 1024, 0, loss, sums, (const device::NAME::told *)all, labels, weights);
#else
	PD_LAUNCH(device::NAME::rows, ROWS, THREADS, 0, sums, x);
	PD_LAUNCH(device::NAME::run, 1, ROWS <= 128 ? 128 : 1024, 0, loss, (const float *)sums, x, labels, weights);
#endif
}
