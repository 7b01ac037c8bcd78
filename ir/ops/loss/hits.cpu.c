/* How many labels have the greatest score, the first of equals, and how many count, of x. */
static void NAME(T *restrict y, const T *restrict x, const TL *restrict labels)
{
	int64_t hits = 0, all = 0;

#if PAR
#pragma omp parallel for reduction(+ : hits, all)
#endif
	for (int64_t o = 0; o < OUTER; o++)
		for (int i = 0; i < INNER; i++) {
			const T *restrict from = x + o * C * INNER + i;
			const int64_t label = labels[o * INNER + i];
			int best = 0;

#if IGNORE
			if (label == IGNORED)
				continue;
#endif
			for (int c = 1; c < C; c++)
				best = from[c * INNER] > from[best * INNER] ? c : best;
			hits += best == label;
			all++;
		}
	y[0] = (T)hits;
	y[1] = (T)all;
}
