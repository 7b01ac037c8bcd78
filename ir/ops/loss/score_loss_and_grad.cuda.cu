/* -w[label] log softmax(x)[label] of rows of C scores, W apart, and their gradient, w (softmax(x) - one at the label) dy,
 * by a block per row; the gradient may take the scores' place. The rows' losses are added up by one block, always in one
 * order. */
#if !KEPT
/* A row is read from memory once, and again from the caches that it just went through. */
#endif
#if MEAN
/* The loss is divided by the weight of what counts, and so is the gradient. */
#endif
namespace device::NAME {
#include "score_sum.part.h"
#include "score_weight.part.h"
#include "score_grad.part.h"
#include "score_kept.part.h"
#include "score_parts.part.h"
#if PARTS
static __global__ void __launch_bounds__(THREADS) rows(TY *dx, float *losses, const TX *x, const float *dy, const TL *labels,
                                                       const float *weights, const told *all, int64_t member)
{
	const int64_t at = (int64_t)blockIdx.x * W, label = labels[blockIdx.x];
	const float own = weight_of(label, weights);
	const told of = told_of(all, blockIdx.x, label);
#if MEAN
	const float w = own * dy[0] / weight_of_all(labels, weights);
#else
	const float w = own * dy[0];
#endif

	if (threadIdx.x == 0)
		losses[blockIdx.x] = own != 0 ? own * (of.sum - of.score) : 0;
	gradient(dx + at, x + at, classes_of(member), of.sum, label - member * C, w, own != 0);
}
#else
static __global__ void __launch_bounds__(THREADS) rows(TY *dx, float *losses, const TX *x, const float *dy, const TL *labels,
                                                       const float *weights)
{
	const int64_t at = (int64_t)blockIdx.x * W, label = labels[blockIdx.x];
	const float own = weight_of(label, weights), score = own != 0 ? LOAD(x[at + label]) : 0;
#if KEPT
	pd_vec<uint32_t, 4> kept[KEPT];

	keep(kept, x + at);
	const float of_two = kept_sum(kept), sum = of_two / LOG2E;
#else
	const float sum = log_sum(x + at, C);
#endif
#if MEAN
	const float w = own * dy[0] / weight_of_all(labels, weights);
#else
	const float w = own * dy[0];
#endif

	if (threadIdx.x == 0)
		losses[blockIdx.x] = own != 0 ? own * (sum - score) : 0;
#if KEPT
	kept_gradient(dx + at, kept, of_two, label, score, w, own != 0);
#else
	gradient(dx + at, x + at, C, sum, label, w, own != 0);
#endif
}
#endif

static __global__ void add(float *loss, const float *losses, const TL *labels, const float *weights)
{
	float sum = 0;

	for (int k = threadIdx.x; k < ROWS; k += blockDim.x)
		sum += losses[k];
	sum = pd_block_sum(sum);
#if MEAN
	sum /= weight_of_all(labels, weights);
#endif
	if (threadIdx.x == 0)
		loss[0] = sum;
	(void)labels;
	(void)weights;
}
}

PD_HOST void NAME(TY *dx, float *loss, const TX *x, const float *dy, const TL *labels
#if WEIGHTS
	, const float *weights
#endif
	)
{
	float *losses = (float *)pd_room(ROOM);
#if PARTS
	device::NAME::told *own = (device::NAME::told *)(void *)(losses + ROWS), *all = own + ROWS;
	const int64_t member = pd_member();
#endif
#if !WEIGHTS
	const float *weights = nullptr;
#endif

#if PARTS
	PD_LAUNCH(device::NAME::own, ROWS, THREADS, 0, own, x, labels, member);
	pd_tensor_gather(all, own, 1, ROWS * sizeof *own);
	PD_LAUNCH(device::NAME::rows, ROWS, THREADS, 0, dx, losses, x, dy, labels, weights, (const device::NAME::told *)all, member);
#else
	PD_LAUNCH(device::NAME::rows, ROWS, THREADS, 0, dx, losses, x, dy, labels, weights);
#endif
	PD_LAUNCH(device::NAME::add, 1, THREADS, 0, loss, (const float *)losses, labels, weights);
}
