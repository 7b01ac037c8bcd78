/* The gradient of a gather, written whole: zeros, then y[o][ids[k]] += dy[o][k] in the order of k, so that equal
 * indices always add up in one order. Threads share the columns, never a sum. */
static void NAME(T *restrict y, const T *restrict dy, const TI *restrict ids)
{
	memset(y, 0, sizeof *y * OUTER * DIM * INNER);
#if PAR && INNER > 64
#pragma omp parallel for
	for (IX c = 0; c < INNER; c += 64) {
		const IX end = c + 64 < INNER ? c + 64 : INNER;
#else
	{
		const IX c = 0, end = INNER;
#endif
		for (IX o = 0; o < OUTER; o++)
			for (IX k = 0; k < IDS; k++) {
#if NEG
				const TI row = ids[k] < 0 ? ids[k] + DIM : ids[k];
#else
				const TI row = ids[k];
#endif
#if CHECK
				if (row < 0 || row >= DIM)
					continue;
#endif
				T *restrict to = y + (o * DIM + (IX)row) * INNER;
				const T *restrict from = dy + (o * IDS + k) * INNER;
#pragma omp simd
				for (IX i = c; i < end; i++)
					to[i] += from[i];
			}
	}
}
