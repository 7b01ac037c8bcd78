/* y = g times the product of all elements of x that were reduced together with this one: first what stands before it,
 * then, from the end, what stands behind it. */
static void NAME(T *restrict y, const T *restrict x, const T *restrict g)
{
#if PAR
#pragma omp parallel for
#endif
	for (IX o = 0; o < KEPT_COUNT; o++) {
		KEPT_INDEX
		T before = GRADIENT, behind = 1;

		for (IX r = 0; r < GONE_COUNT; r++) {
			GONE_INDEX
			TO = before;
			before *= FROM;
		}
		for (IX r = GONE_COUNT - 1; r >= 0; r--) {
			GONE_INDEX
			TO *= behind;
			behind *= FROM;
		}
	}
}
