/* The gradient of a gather, written whole: zeros, then y[o][ids[k]] += dy[o][k] in the order of k, so that equal
 * indices always add up in one order. Threads share the columns, never a sum. */
#if PARTS
/* Here are DIM of the rows; the other members of the group have the others. */
#endif
#if ADDS
/* Here y begins as a, whose memory it may have. */
static void NAME(T *y, const T *a, const T *restrict dy, const TI *restrict ids)
{
	if (y != a)
		memcpy(y, a, NUMEL * sizeof *y);
#elif SUM
/* What other microbatches left in y stays. */
static void NAME(T *restrict y, const T *restrict dy, const TI *restrict ids, bool more)
{
	if (!more)
		memset(y, 0, NUMEL * sizeof *y);
#else
static void NAME(T *restrict y, const T *restrict dy, const TI *restrict ids)
{
	memset(y, 0, NUMEL * sizeof *y);
#endif
#if PARTS
	const TI first = (TI)pd_member() * DIM;

#endif
#if PAR
#pragma omp parallel for
	for (IX c = 0; c < INNER; c += 64)
#endif
#if OUTER != 1
	for (IX o = 0; o < OUTER; o++)
#endif
	for (IX k = 0; k < IDS; k++) {
#if PARTS
#if NEG
		const TI row = (ids[k] < 0 ? ids[k] + WHOLE : ids[k]) - first;
#else
		const TI row = ids[k] - first;
#endif
		if (row < 0 || row >= DIM)
			continue;
#if PADDED
		if (row == PADDING - first)
			continue;
#endif
#else
#if NEG
		const TI row = ids[k] < 0 ? ids[k] + DIM : ids[k];
#else
		const TI row = ids[k];
#endif
#if CHECK
		if (row < 0 || row >= DIM)
			continue;
#endif
#if PADDED
		if (row == PADDING)
			continue;
#endif
#endif
#if INNER == 1
		y[FROM] += dy[TO];
#elif PAR
#pragma omp simd
		for (IX i = c; i < (c + 64 < INNER ? c + 64 : INNER); i++)
			y[FROM * INNER + i] += dy[TO * INNER + i];
#else
#pragma omp simd
		for (IX i = 0; i < INNER; i++)
			y[FROM * INNER + i] += dy[TO * INNER + i];
#endif
	}
}
