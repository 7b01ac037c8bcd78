/* The gradient of loss.cuda.cu. A block per row. */
#if CE
/* dx = w (softmax - one at the label) dy. */
#else
/* dx = -w dy at the label. */
#endif
namespace device::NAME {
static __global__ void run(T *dx, const T *dy, const T *logp, const TL *labels, const T *weights, int64_t first)
{
	const int row = blockIdx.x;
	const int64_t at = (int64_t)(row / INNER) * C * INNER + row % INNER, label = labels[row];
	bool counts = true;
	T w;

#if MEAN
	T total = 0;
	for (int k = threadIdx.x; k < OUTER * INNER; k += blockDim.x) {
#if IGNORE
		if (labels[k] == IGNORED)
			continue;
#endif
#if WEIGHTS
		total += weights[labels[k]];
#else
		total += 1;
#endif
	}
	w = dy[0] / pd_block_sum(total);
#elif EACH
	w = dy[row];
#else
	w = dy[0];
#endif
#if IGNORE
	counts = label != IGNORED;
#endif
	if (!counts)
		w = 0;
#if WEIGHTS
	if (counts)
		w *= weights[label];
#endif
	for (int c = threadIdx.x; c < C; c += blockDim.x) {
		const int64_t e = at + (int64_t)c * INNER;
#if CE
		const T p = w * EXP(logp[e]);
#else
		const T p = 0;
#endif
		dx[e] = counts && c + first == label ? p - w : p;
	}
	(void)logp;
	(void)weights;
}
}

PD_HOST void NAME(T *dx, const T *dy,
#if CE
	const T *logp,
#endif
	const TL *labels
#if WEIGHTS
	, const T *weights
#endif
	)
{
#if PARTS
	const int64_t first = (int64_t)pd_member() * C;
#else
	const int64_t first = 0;
#endif

	PD_LAUNCH(device::NAME::run, OUTER * INNER, C <= 32 ? 32 : C <= 512 ? 128 : 512, 0, dx, dy,
#if CE
		logp,
#else
		(const T *)nullptr,
#endif
#if WEIGHTS
		labels, weights, first);
#else
		labels, (const T *)nullptr, first);
#endif
}
