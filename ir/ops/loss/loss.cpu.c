/* -w[label] log p[label] over the axis of classes. */
#if CE
/* x holds scores, and their log-softmax goes to logp. */
#endif
#if EACH
/* A loss per label. */
#endif
#if !EACH
/* The sum of the losses, in the order of labels. */
#endif
#if MEAN
/* It is divided by the weight of what counts. */
#endif
static void NAME(T *restrict loss,
#if CE
	T *restrict logp,
#endif
	const T *restrict x, const TL *restrict labels
#if WEIGHTS
	, const T *restrict weights
#endif
	)
{
#if CE
	const T *score = logp;
#else
	const T *score = x;
#endif
#if !EACH
	T sum = 0;
#endif
#if MEAN
	T total = 0;
#endif
#if CE
#if PAR
#pragma omp parallel for
#endif
	for (int64_t o = 0; o < OUTER; o++)
		for (int i = 0; i < INNER; i++) {
			const T *restrict from = x + o * C * INNER + i;
			T *restrict to = logp + o * C * INNER + i;
			T top = -INFINITY, s = 0;

#pragma omp simd reduction(max : top)
			for (int c = 0; c < C; c++)
				top = top < from[c * INNER] ? from[c * INNER] : top;
#pragma omp simd reduction(+ : s)
			for (int c = 0; c < C; c++)
				s += EXP(from[c * INNER] - top);
			top += LOG(s);
			for (int c = 0; c < C; c++)
				to[c * INNER] = from[c * INNER] - top;
		}
#endif
	for (int64_t o = 0; o < OUTER; o++)
		for (int i = 0; i < INNER; i++) {
			const int64_t label = labels[o * INNER + i];
			T w = 1;

#if IGNORE
			if (label == IGNORED)
				w = 0;
#endif
#if WEIGHTS
			if (w != 0)
				w = weights[label];
#endif
#if MEAN
			total += w;
#endif
#if EACH
			loss[o * INNER + i] = w != 0 ? -w * score[(o * C + label) * INNER + i] : 0;
#else
			if (w != 0)
				sum -= w * score[(o * C + label) * INNER + i];
#endif
		}
#if MEAN
	loss[0] = sum / total;
#elif !EACH
	loss[0] = sum;
#endif
}
