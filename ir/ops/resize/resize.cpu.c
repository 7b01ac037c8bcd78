/* y [OUTER, OUT, INNER] from x [OUTER, IN, INNER]: row j of y is the sum of K rows of x that at names, by weights w;
 * BACK: y is the gradient that comes in, and every row of x collects what its uses got. */
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
#pragma omp parallel for
#endif
	for (int64_t o = 0; o < OUTER; o++) {
#if BACK
		memset(x + o * IN * INNER, 0, sizeof *x * IN * INNER);
#endif
		for (int64_t j = 0; j < OUT; j++) {
#if BACK
			const T *restrict to = y + (o * OUT + j) * INNER;

			for (int k = 0; k < K; k++) {
				T *restrict from = x + (o * IN + at[j * K + k]) * INNER;

#pragma omp simd
				for (int64_t i = 0; i < INNER; i++)
#if WEIGHTS
					from[i] += w[j * K + k] * to[i];
#else
					from[i] += to[i];
#endif
			}
#else
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
#endif
		}
	}
}
