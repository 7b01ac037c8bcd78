/* -w[label] log p[label] over the axis of classes. */
#if CE
/* x holds scores, and their log-softmax goes to logp. */
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
#if CE && !PARTS
	const T *score = logp;
#elif !CE
	const T *score = x;
#endif
#if !EACH
	T sum = 0;
#endif
#if MEAN
	T total = 0;
#endif
#include "classes.part.h"
#if PARTS
	const int64_t first = (int64_t)pd_member() * C;
	T *stat = pd_tensor_room(OUTER * INNER * 3 * sizeof *stat);

#endif
#if CE
#if PAR
#pragma omp parallel for
#endif
	for (int64_t o = 0; o < OUTER; o++)
		for (int i = 0; i < INNER; i++) {
			const T *restrict from = x + o * C * INNER + i;
#if PARTS
			const int64_t own = labels[o * INNER + i] - first;
#else
			T *restrict to = logp + o * C * INNER + i;
#endif
			T top = -INFINITY, s = 0;

#pragma omp simd reduction(max : top)
			for (int c = 0; c < HAS; c++)
				top = top < from[c * INNER] ? from[c * INNER] : top;
#pragma omp simd reduction(+ : s)
			for (int c = 0; c < HAS; c++)
				s += EXP(from[c * INNER] - top);
#if PARTS
			stat[(o * INNER + i) * 3] = top;
			stat[(o * INNER + i) * 3 + 1] = top > -INFINITY ? s : 0;
			stat[(o * INNER + i) * 3 + 2] = own >= 0 && own < C ? from[own * INNER] : 0;
#else
			top += LOG(s);
			for (int c = 0; c < HAS; c++)
				to[c * INNER] = from[c * INNER] - top;
#if CLASSES
			for (int c = has; c < C; c++)
				to[c * INNER] = -1e30f;
#endif
#endif
		}
#endif
#if PARTS
	const T *all = pd_tensor_all(stat, OUTER * INNER * 3 * sizeof *stat);
#if PAR
#pragma omp parallel for
#endif
	for (int64_t o = 0; o < OUTER; o++)
		for (int i = 0; i < INNER; i++) {
			const T *restrict from = x + o * C * INNER + i, *of = all + (o * INNER + i) * 3;
			T *restrict to = logp + o * C * INNER + i;
			const int64_t owner = labels[o * INNER + i] / C;
			T top = -INFINITY, s = 0;

			for (int k = 0; k < PARTS; k++)
				top = top < of[k * OUTER * INNER * 3] ? of[k * OUTER * INNER * 3] : top;
			for (int k = 0; k < PARTS; k++)
				s += of[k * OUTER * INNER * 3 + 1] * EXP(of[k * OUTER * INNER * 3] - top);
			top += LOG(s);
			for (int c = 0; c < HAS; c++)
				to[c * INNER] = from[c * INNER] - top;
#if CLASSES
			for (int c = has; c < C; c++)
				to[c * INNER] = -1e30f;
#endif
			stat[(o * INNER + i) * 3] = owner >= 0 && owner < PARTS ? of[owner * OUTER * INNER * 3 + 2] - top : NAN;
		}
#endif
	for (int64_t o = 0; o < OUTER; o++)
		for (int i = 0; i < INNER; i++) {
#if IGNORE || WEIGHTS || !PARTS
			const int64_t label = labels[o * INNER + i];
#endif
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
			loss[o * INNER + i] = w != 0 ? -w * SCORE : 0;
#else
			if (w != 0)
				sum -= w * SCORE;
#endif
		}
#if MEAN
	loss[0] = sum / total;
#elif !EACH
	loss[0] = sum;
#endif
}
