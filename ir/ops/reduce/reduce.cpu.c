/* y = a with some axes reduced. KEPT_LOOPS walk what stays, GONE_LOOPS what goes, the innermost loop is here. */
static void NAME(T *restrict y, const T *restrict a)
{
#if PAR && !COLS
#pragma omp parallel for collapse(KEPT)
#elif PAR
#pragma omp parallel for collapse(KEPT + 1)
#endif
#if KEPT > 0
	KEPT_LOOPS
#endif
#if COLS
	for (IX block = 0; block < D0; block += 256) {
		const IX width = D0 - block < 256 ? D0 - block : 256;
		T sum[D0 < 256 ? D0 : 256];

		for (IX i = 0; i < width; i++)
			sum[i] = START;
#if GONE > 0
		GONE_LOOPS
#endif
		{
#pragma omp simd
			for (IX c = 0; c < width; c++) {
				const IX i = block + c;
				const T s = sum[c], v = FROM;
				sum[c] = JOIN;
			}
		}
		for (IX c = 0; c < width; c++) {
			const IX i = block + c;
			const T s = sum[c];
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
