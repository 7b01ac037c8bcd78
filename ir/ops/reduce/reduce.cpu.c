/* y = a with some axes reduced. The outer loops walk what stays, those within what goes. */
#if COLS
/* The innermost loop is of what stays: so many columns are summed at a time. */
#endif
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
		T sum[D0];

		for (IX i = 0; i < D0; i++)
			sum[i] = START;
#if GONE > 0
		GONE_LOOPS
#endif
#pragma omp simd
			for (IX i = 0; i < D0; i++) {
				const T s = sum[i], v = FROM;
				sum[i] = JOIN;
			}
		for (IX i = 0; i < D0; i++) {
			const T s = sum[i];
			TO = FINISH;
		}
	}
#endif
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
