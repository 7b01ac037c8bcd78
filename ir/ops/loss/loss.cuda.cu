/* -w[label] log p[label] over the axis of classes. */
#if CE
/* x holds scores, and their log-softmax goes to logp, by a block per row. */
#endif
#if PARTS
/* Here are C of the classes; the other members of the group have the others. */
#endif
#if CLASSES
/* There are CLASSES; scores behind them are no classes. */
#endif
#if EACH
/* A loss per label. */
#endif
#if !EACH
/* The sum of the losses by one block, always in one order. */
#endif
#if MEAN
/* It is divided by the weight of what counts. */
#endif
namespace device::NAME {
#if CE && PARTS
#include "own_classes.part.h"
/* The greatest score of a row here, the sum of exponentials beside it, and the label's score. */
static __global__ void own(T *stat, const T *x, const TL *labels, int64_t member)
{
	const int64_t row = blockIdx.x, at = row / INNER * C * INNER + row % INNER, label = labels[row] - member * C;
	const int has = classes_of(member);
	T top = -INFINITY, sum = 0;

	for (int c = threadIdx.x; c < has; c += blockDim.x)
		top = FMAX(top, x[at + (int64_t)c * INNER]);
	top = pd_block_max(top);
	for (int c = threadIdx.x; c < has; c += blockDim.x)
		sum += EXP(x[at + (int64_t)c * INNER] - top);
	sum = pd_block_sum(sum);
	if (threadIdx.x == 0) {
		stat[row * 3] = top;
		stat[row * 3 + 1] = has ? sum : 0;
		stat[row * 3 + 2] = label >= 0 && label < C ? x[at + label * INNER] : 0;
	}
}

/* With those of all members. */
static __global__ void join(T *logp, T *score, const T *x, const T *all, const TL *labels, int64_t member)
{
	const int64_t row = blockIdx.x, at = row / INNER * C * INNER + row % INNER, owner = labels[row] / C;
	const int has = classes_of(member);
	const T *of = all + row * 3;
	T top = -INFINITY, sum = 0;

	for (int k = 0; k < PARTS; k++)
		top = FMAX(top, of[k * OUTER * INNER * 3]);
	for (int k = 0; k < PARTS; k++)
		sum += of[k * OUTER * INNER * 3 + 1] * EXP(of[k * OUTER * INNER * 3] - top);
	top += LOG(sum);
	for (int c = threadIdx.x; c < C; c += blockDim.x)
		logp[at + (int64_t)c * INNER] = c < has ? x[at + (int64_t)c * INNER] - top : (T)-1e30;
	if (threadIdx.x == 0)
		score[row] = labels[row] >= 0 && owner < PARTS ? of[owner * OUTER * INNER * 3 + 2] - top : (T)NAN;
}

#elif CE
static __global__ void rows(T *logp, const T *x)
{
	const int64_t at = (int64_t)(blockIdx.x / INNER) * C * INNER + blockIdx.x % INNER;
#if CLASSES
	const int has = CLASSES;
#endif
	T top = -INFINITY, sum = 0;

	for (int c = threadIdx.x; c < HAS; c += blockDim.x)
		top = FMAX(top, x[at + (int64_t)c * INNER]);
	top = pd_block_max(top);
	for (int c = threadIdx.x; c < HAS; c += blockDim.x)
		sum += EXP(x[at + (int64_t)c * INNER] - top);
	top += LOG(pd_block_sum(sum));
	for (int c = threadIdx.x; c < C; c += blockDim.x)
#if CLASSES
		logp[at + (int64_t)c * INNER] = c < HAS ? x[at + (int64_t)c * INNER] - top : (T)-1e30;
#else
		logp[at + (int64_t)c * INNER] = x[at + (int64_t)c * INNER] - top;
#endif
}

#endif
static __global__ void run(T *loss, const T *score, const TL *labels, const T *weights)
{
	T sum = 0, total = 0;

	for (int k = threadIdx.x; k < OUTER * INNER; k += blockDim.x) {
		const int64_t label = labels[k];
		T w = 1;

#if IGNORE
		if (label == IGNORED)
			w = 0;
#endif
#if WEIGHTS
		if (w != 0)
			w = weights[label];
#endif
#if CE && PARTS
		const T one = w != 0 ? -w * score[k] : 0;
#else
		const T one = w != 0 ? -w * score[((int64_t)(k / INNER) * C + label) * INNER + k % INNER] : 0;
#endif
#if EACH
		loss[k] = one;
#endif
		sum += one;
		total += w;
	}
#if !EACH
	sum = pd_block_sum(sum);
	total = pd_block_sum(total);
	if (threadIdx.x == 0)
#if MEAN
		loss[0] = sum / total;
#else
		loss[0] = sum;
#endif
#endif
	(void)weights;
	(void)total;
}
}

PD_HOST void NAME(T *loss,
#if CE
	T *logp,
#endif
	const T *x, const TL *labels
#if WEIGHTS
	, const T *weights
#endif
	)
{
#if CE && PARTS
	T *stat = (T *)pd_room(ROOM), *all = stat + OUTER * INNER * 3, *score = all + PARTS * OUTER * INNER * 3;
	const int64_t member = pd_member();

	PD_LAUNCH(device::NAME::own, OUTER * INNER, C <= 32 ? 32 : C <= 512 ? 128 : 512, 0, stat, x, labels, member);
	pd_tensor_gather(all, stat, 1, OUTER * INNER * 3 * sizeof *stat);
	PD_LAUNCH(device::NAME::join, OUTER * INNER, C <= 32 ? 32 : C <= 512 ? 128 : 512, 0, logp, score, x, (const T *)all, labels, member);
#elif CE
	PD_LAUNCH(device::NAME::rows, OUTER * INNER, C <= 32 ? 32 : C <= 512 ? 128 : 512, 0, logp, x);
#endif
	PD_LAUNCH(device::NAME::run, 1, OUTER * INNER <= 128 ? 128 : 1024, 0, loss,
#if CE && PARTS
		(const T *)score,
#elif CE
		logp,
#else
		x,
#endif
#if WEIGHTS
		labels, weights);
#else
		labels, (const T *)nullptr);
#endif
}
