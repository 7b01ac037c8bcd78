/* How many labels have the greatest score, the first of equals, and how many count, of x. */
#if PARTS
/* Here are C of the classes; the other members of the group have the others. */
#endif
#if CLASSES
/* There are CLASSES; scores behind them are no classes. */
#endif
static void NAME(T *restrict y, const T *restrict x, const TL *restrict labels)
{
	int64_t hits = 0, all = 0;
#include "classes.part.h"
#if PARTS
	const int64_t first = (int64_t)pd_member() * C;
	T *own = pd_tensor_room(OUTER * INNER * 2 * sizeof *own);

#if PAR
#pragma omp parallel for
#endif
	for (int64_t o = 0; o < OUTER; o++)
		for (int i = 0; i < INNER; i++) {
			const T *restrict from = x + o * C * INNER + i;
			int best = 0;

			for (int c = 1; c < HAS; c++)
				best = from[c * INNER] > from[best * INNER] ? c : best;
			own[(o * INNER + i) * 2] = best < HAS ? from[best * INNER] : -INFINITY;
			own[(o * INNER + i) * 2 + 1] = (T)(first + best);
		}
	const T *told = pd_tensor_all(own, OUTER * INNER * 2 * sizeof *own);
#endif

#if PAR
#pragma omp parallel for reduction(+ : hits, all)
#endif
	for (int64_t o = 0; o < OUTER; o++)
		for (int i = 0; i < INNER; i++) {
			const int64_t label = labels[o * INNER + i];
#if PARTS
			const T *of = told + (o * INNER + i) * 2;
			int64_t best;

			for (int k = 1; k < PARTS; k++)
				of = told[(k * OUTER * INNER + o * INNER + i) * 2] > of[0] ? told + (k * OUTER * INNER + o * INNER + i) * 2 : of;
			best = (int64_t)of[1];
#else
			const T *restrict from = x + o * C * INNER + i;
			int best = 0;
#endif

#if IGNORE
			if (label == IGNORED)
				continue;
#endif
#if !PARTS
			for (int c = 1; c < HAS; c++)
				best = from[c * INNER] > from[best * INNER] ? c : best;
#endif
			hits += best == label;
			all++;
		}
	y[0] = (T)hits;
	y[1] = (T)all;
}
