/* y[o][k] = a[o][ids[k]]: rows of a table. */
#if CHECK
/* Nobody has looked at the indices: one that points nowhere gives NaN (or the least number), so that the loss shows it,
 * and never touches other memory. */
#endif
static void NAME(T *restrict y, const T *restrict a, const TI *restrict ids)
{
#if PARTS
	const TI first = (TI)pd_member() * DIM; /* the others have the other rows, and add theirs */

#endif
#if PAR
#pragma omp PARALLEL
#endif
#if OUTER != 1
	for (IX o = 0; o < OUTER; o++)
#endif
	for (IX k = 0; k < IDS; k++) {
#if PARTS
#if NEG
		const TI id = ids[k] < 0 ? ids[k] + WHOLE : ids[k], row = id - first;
#else
		const TI id = ids[k], row = id - first;
#endif
		if (row < 0 || row >= DIM) {
			for (IX i = 0; i < INNER; i++)
#if CHECK
				y[TO * INNER + i] = id < 0 || id >= WHOLE ? MISSING : 0;
#else
				y[TO * INNER + i] = 0;
#endif
			continue;
		}
#else
#if NEG
		const TI row = ids[k] < 0 ? ids[k] + DIM : ids[k];
#else
		const TI row = ids[k];
#endif
#if CHECK
		if (row < 0 || row >= DIM) {
			for (IX i = 0; i < INNER; i++)
				y[TO * INNER + i] = MISSING;
			continue;
		}
#endif
#endif
#if INNER == 1
		y[TO] = a[FROM];
#else
		memcpy(y + TO * INNER, a + FROM * INNER, INNER * sizeof *y);
#endif
	}
}
