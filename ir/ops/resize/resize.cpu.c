/* Row j of y is the sum of the rows of x that `at` names, by weights w. */
#if BACK
/* y is the gradient that comes in, and every row of x collects what its uses got, a block of columns at a time. */
#endif
static void NAME(
#if BACK
	T *restrict x, const T *restrict y
#else
	T *restrict y, const T *restrict x
#endif
	, const int32_t *restrict at
#if WEIGHTS
	, const T *restrict w
#endif
	)
{
#if PAR
#pragma omp parallel for collapse(2)
#endif
	for (int64_t o = 0; o < OUTER; o++)
#if BACK
		for (int64_t c = 0; c < INNER; c += BLOCK) {
#if INNER % BLOCK == 0
			const int64_t n = BLOCK;
#else
			const int64_t n = INNER - c < BLOCK ? INNER - c : BLOCK;
#endif
			T *restrict from = x + o * IN * INNER + c;

			for (int64_t r = 0; r < IN; r++)
				memset(from + r * INNER, 0, sizeof *from * n);
			for (int64_t j = 0; j < OUT; j++) {
				const T *restrict to = y + (o * OUT + j) * INNER + c;

				for (int k = 0; k < K; k++) {
					const int64_t r = at[j * K + k];

#pragma omp simd
					for (int64_t i = 0; i < n; i++)
#if WEIGHTS
						from[r * INNER + i] += w[j * K + k] * to[i];
#else
						from[r * INNER + i] += to[i];
#endif
				}
			}
		}
#else
		for (int64_t j = 0; j < OUT; j++) {
			T *restrict to = y + (o * OUT + j) * INNER;

#if INNER > 1
#pragma omp simd
#endif
			for (int64_t i = 0; i < INNER; i++) {
				T s = 0;

				for (int k = 0; k < K; k++)
#if WEIGHTS
					s += w[j * K + k] * x[(o * IN + at[j * K + k]) * INNER + i];
#else
					s += x[(o * IN + at[j * K + k]) * INNER + i];
#endif
				to[i] = s;
			}
		}
#endif
}
