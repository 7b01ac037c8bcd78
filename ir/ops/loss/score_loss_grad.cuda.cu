/* dx = w (softmax(x) - one at the label) dy, of rows of C scores, W apart, by a block per row: x is read once, and dx
 * written once in the type that products read. */
#if PARTS
/* Here are the scores of C classes; sums are those of all. */
#endif
namespace device::NAME {
#include "own_classes.part.h"
#include "score_weight.part.h"
#include "score_grad.part.h"
static __global__ void __launch_bounds__(THREADS) run(TY *dx, const float *dy, const TX *x, const float *sums, const TL *labels,
                                                      const float *weights, int64_t member)
{
	const int64_t at = (int64_t)blockIdx.x * W, label = labels[blockIdx.x];
	const float own = weight_of(label, weights);
#if MEAN
	const float w = own * dy[0] / weight_of_all(labels, weights);
#else
	const float w = own * dy[0];
#endif

	gradient(dx + at, x + at, classes_of(member), sums[blockIdx.x], label - member * C, w, own != 0);
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

#if PARTS
	const int64_t member = pd_member();
#else
	const int64_t member = 0;
#endif

	PD_LAUNCH(device::NAME::run, ROWS, THREADS, 0, dx, dy, x, sums, labels, weights, member);
}
