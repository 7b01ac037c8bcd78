/* -w[label] log p[label] over the axis of classes. */
#if CE
/* x holds scores, and their log-softmax goes to logp, by a block per row. */
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
#if CE
static __global__ void rows(T *logp, const T *x)
{
	const int64_t at = (int64_t)(blockIdx.x / INNER) * C * INNER + blockIdx.x % INNER;
	T top = -INFINITY, sum = 0;

	for (int c = threadIdx.x; c < C; c += blockDim.x)
		top = FMAX(top, x[at + (int64_t)c * INNER]);
	top = pd_block_max(top);
	for (int c = threadIdx.x; c < C; c += blockDim.x)
		sum += EXP(x[at + (int64_t)c * INNER] - top);
	top += LOG(pd_block_sum(sum));
	for (int c = threadIdx.x; c < C; c += blockDim.x)
		logp[at + (int64_t)c * INNER] = x[at + (int64_t)c * INNER] - top;
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
		const T one = w != 0 ? -w * score[((int64_t)(k / INNER) * C + label) * INNER + k % INNER] : 0;
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
#if CE
	PD_LAUNCH(device::NAME::rows, OUTER * INNER, C <= 32 ? 32 : C <= 512 ? 128 : 512, 0, logp, x);
#endif
	PD_LAUNCH(device::NAME::run, 1, OUTER * INNER <= 128 ? 128 : 1024, 0, loss,
#if CE
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
