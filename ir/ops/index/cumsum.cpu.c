/* Running sums of x along an axis, some columns at a time. */
static void NAME(T *restrict y, const T *restrict x)
{
#if PAR
#pragma omp parallel for collapse(2)
#endif
	for (int64_t o = 0; o < OUTER; o++)
		for (int64_t c = 0; c < INNER; c += BLOCK) {
			const int64_t width = c + BLOCK < INNER ? BLOCK : INNER - c;
			T sum[BLOCK] = { 0 };

			for (int64_t k = 0; k < N; k++) {
#if REVERSE
				const int64_t at = (o * N + N - 1 - k) * INNER + c;
#else
				const int64_t at = (o * N + k) * INNER + c;
#endif
#pragma omp simd
				for (int64_t i = 0; i < width; i++) {
#if EXCLUSIVE
					y[at + i] = sum[i];
					sum[i] += x[at + i];
#else
					sum[i] += x[at + i];
					y[at + i] = sum[i];
#endif
				}
			}
		}
}
