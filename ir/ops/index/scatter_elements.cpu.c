/* y is a (ZERO: zeros), then every update joins it at place ROW of the axis; BASE is place 0. LOOPS are all but the
 * innermost one. The loops before the axis run in threads; COLS: there are none, but columns of which threads take
 * blocks. What shares a place follows in one order. CHECK: nobody has looked at the indices; LOST: an update that goes
 * nowhere makes place 0 NaN. */
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
