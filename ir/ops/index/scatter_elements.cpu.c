/* Every update joins y at its place of the axis. The loops before the axis run in threads, or threads take blocks of
 * columns. What shares a place follows in one order. */
#if ZERO
/* y begins as zeros. */
#endif
#if CHECK
/* Nobody has looked at the indices: an update that goes nowhere is left out. */
#endif
#if LOST
/* An update that goes nowhere makes place 0 NaN. */
#endif
static void NAME(T *restrict y, PARAMS)
{
#if ZERO
	memset(y, 0, NUMEL * sizeof *y);
#else
	memcpy(y, a, NUMEL * sizeof *y);
#endif
#if NUMEL > 0
#if COLS
#pragma omp parallel for
	for (IX block = 0; block < D0; block += 64)
#elif PAR
#pragma omp PARALLEL
#endif
#if RANK > 1
	LOOPS
#endif
#if COLS
	for (IX i = block; i < (block + 64 < D0 ? block + 64 : D0); i++)
#elif RANK > 0
	for (IX i = 0; i < D0; i++)
#endif
	{
		const int64_t row = ROW;

#if CHECK
		if (row >= 0 && row < DIM)
			JOIN
#if LOST
		else
			BASE = NAN;
#endif
#else
		JOIN
#endif
	}
#else
	(void)u, (void)ids;
#endif
}
