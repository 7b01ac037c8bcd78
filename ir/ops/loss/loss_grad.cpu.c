/* The gradient of loss.cpu.c. */
#if CE
/* dx = w (softmax - one at the label) dy. */
#else
/* dx = -w dy at the label. */
#endif
static void NAME(T *restrict dx, const T *restrict dy,
#if CE
	const T *restrict logp,
#endif
	const TL *restrict labels
#if WEIGHTS
	, const T *restrict weights
#endif
	)
{
#if PARTS
	const int64_t first = (int64_t)pd_member() * C; /* the others have the other classes */

#endif
#if MEAN
	T total = 0;

	for (int64_t i = 0; i < OUTER * INNER; i++) {
#if IGNORE
		if (labels[i] == IGNORED)
			continue;
#endif
#if WEIGHTS
		total += weights[labels[i]];
#else
		total += 1;
#endif
	}
#endif
#if PAR
#pragma omp parallel for
#endif
	for (int64_t o = 0; o < OUTER; o++)
		for (int i = 0; i < INNER; i++) {
			const int64_t label = labels[o * INNER + i];
			T *restrict to = dx + o * C * INNER + i;
#if MEAN
			T w = dy[0] / total;
#elif EACH
			T w = dy[o * INNER + i];
#else
			T w = dy[0];
#endif
			bool counts = true;

#if IGNORE
			counts = label != IGNORED;
#endif
			if (!counts)
				w = 0;
#if WEIGHTS
			if (counts)
				w *= weights[label];
#endif
#if CE
			const T *restrict from = logp + o * C * INNER + i;
#pragma omp simd
			for (int c = 0; c < C; c++)
				to[c * INNER] = w * EXP(from[c * INNER]);
#else
			for (int c = 0; c < C; c++)
				to[c * INNER] = 0;
#endif
#if PARTS
			if (counts && label >= first && label < first + C)
				to[(label - first) * INNER] -= w;
#else
			if (counts)
				to[label * INNER] -= w;
#endif
		}
}
