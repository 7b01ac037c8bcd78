/* y = a with some axes reduced. KEPT_LOOPS walk what stays, GONE_LOOPS what goes, the innermost loop is here. COLS: it
 * is a kept one, and BLOCK columns are summed at a time. */
static void NAME(T *restrict y, const T *restrict a)
{
#if PAR
#pragma omp PARALLEL
#endif
#if KEPT > 0
	KEPT_LOOPS
#endif
#if COLS
#if BLOCK < D0
	for (IX block = 0; block < D0; block += BLOCK) {
		const IX end = block + BLOCK < D0 ? block + BLOCK : D0;
#else
	{
		const IX block = 0, end = D0;
#endif
		T sum[BLOCK];

		for (IX i = block; i < end; i++)
			sum[i - block] = START;
#if GONE > 0
		GONE_LOOPS
#endif
#pragma omp simd
			for (IX i = block; i < end; i++) {
				const T s = sum[i - block], v = FROM;
				sum[i - block] = JOIN;
			}
		for (IX i = block; i < end; i++) {
			const T s = sum[i - block];
			TO = FINISH;
		}
	}
#else
	{
		T s = START;

#if GONE > 0
		GONE_LOOPS
#endif
#if D0 >= 8
#pragma omp simd reduction(SIMD s)
#endif
#if RANK > 0
		for (IX i = 0; i < D0; i++)
#endif
		{
			const T v = FROM;
			s = JOIN;
		}
		TO = FINISH;
	}
#endif
}
