/* Where along an axis the extreme of x stands, some columns at a time. NaN is more extreme than all. */
static void NAME(int64_t *restrict y, const T *restrict x)
{
#if PAR
#pragma omp parallel for collapse(2)
#endif
	for (int64_t o = 0; o < OUTER; o++)
		for (int64_t c = 0; c < INNER; c += BLOCK) {
			const T *from = x + o * N * INNER + c;
			const int64_t width = c + BLOCK < INNER ? BLOCK : INNER - c;
			T best[BLOCK];
			int64_t at[BLOCK];

			for (int64_t i = 0; i < width; i++) {
				best[i] = from[i];
				at[i] = 0;
			}
			for (int64_t k = 1; k < N; k++)
#pragma omp simd
				for (int64_t i = 0; i < width; i++) {
					const T p = from[k * INNER + i], q = best[i];
					const int wins = BEFORE;

					best[i] = wins ? p : q;
					at[i] = wins ? k : at[i];
				}
			memcpy(y + o * INNER + c, at, (size_t)width * sizeof *at);
		}
}
