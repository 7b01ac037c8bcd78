/* dx = w (softmax(x) - one at the label) dy, of rows of C scores, W apart, by a block per row: x is read once, and dx
 * written once in the type that products read. */
namespace device::NAME {
#include "score_weight.part.h"
#include "score_grad.part.h"
static __global__ void __launch_bounds__(THREADS) run(TY *dx, const float *dy, const TX *x, const float *sums, const TL *labels,
                                                      const float *weights)
{
	const int64_t at = (int64_t)blockIdx.x * W, label = labels[blockIdx.x];
	const float own = weight_of(label, weights);
#if MEAN
	const float w = own * dy[0] / weight_of_all(labels, weights);
#else
	const float w = own * dy[0];
#endif

	gradient(dx + at, x + at, sums[blockIdx.x], label, w, own != 0);
}
}

PD_HOST void NAME(TY *dx, const float *dy, const TX *x, const float *sums, const TL *labels
#if WEIGHTS
	, const float *weights
#endif
	)
{
#if !WEIGHTS
	const float *weights = nullptr;
#endif

	PD_LAUNCH(device::NAME::run, ROWS, THREADS, 0, dx, dy, x, sums, labels, weights);
}
