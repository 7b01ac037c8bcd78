/* y is a (ZERO: zeros), then every update joins it at place ROW of the axis; BASE is place 0. The loops before the axis
 * run in threads, what shares a place follows in one order. CHECK: nobody has looked at the indices; LOST: an update
 * that goes nowhere makes place 0 NaN. */
static void NAME(T *restrict y, PARAMS)
{
#if ZERO
	memset(y, 0, NUMEL * sizeof *y);
#else
	memcpy(y, a, NUMEL * sizeof *y);
#endif
#if NUMEL > 0
#if PAR
#pragma omp PARALLEL
#endif
#if RANK > 0
	LOOPS
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
