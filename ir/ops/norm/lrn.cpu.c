/* Local response normalisation over channels. What is summed over the window lies in q for a block of places, with
 * zeros before the first and behind the last channel. */
#if BACK
/* That is dy x s^(-beta - 1). */
#endif
#if !BACK
/* That is the squares of x. */
#endif
static void NAME(
#if BACK
	T *restrict dx, const T *restrict dy, const T *restrict x, const T *restrict s
#else
	T *restrict y, T *restrict s, const T *restrict x
#endif
	)
{
#if PAR
#pragma omp parallel for collapse(2)
#endif
	for (int o = 0; o < OUTER; o++)
		for (int first = 0; first < INNER; first += BLOCK) {
			const int64_t base = (int64_t)o * CH * INNER + first;
			T q[(CH + WINDOW) * BLOCK];
#if WHOLE
			const int count = BLOCK;
#else
			const int count = INNER - first < BLOCK ? INNER - first : BLOCK;
#endif

			memset(q, 0, sizeof q);
#if INNER == 1
#pragma omp simd
#endif
			for (int c = 0; c < CH; c++)
#if INNER != 1
#pragma omp simd
#endif
				for (int i = 0; i < count; i++) {
					const int64_t at = base + (int64_t)c * INNER + i;
#if BACK && ROOTS
					q[(c + BEFORE) * BLOCK + i] = dy[at] * x[at] / (SQRT(s[at]) * SQRT(SQRT(s[at])) * s[at]);
#elif BACK
					q[(c + BEFORE) * BLOCK + i] = dy[at] * x[at] * POW(s[at], -(T)BETA - 1);
#else
					q[(c + BEFORE) * BLOCK + i] = x[at] * x[at];
#endif
				}
#if INNER == 1
#pragma omp simd
#endif
			for (int c = 0; c < CH; c++)
#if INNER != 1
#pragma omp simd
#endif
				for (int i = 0; i < count; i++) {
					const int64_t at = base + (int64_t)c * INNER + i;
					T v = 0;

					for (int k = 0; k < WINDOW; k++)
						v += q[(c + k) * BLOCK + i];
#if BACK
					const T w = s[at];
#else
					const T w = (T)BIAS + (T)SHARE * v;
#endif
#if ROOTS
					const T p = 1 / (SQRT(w) * SQRT(SQRT(w)));
#else
					const T p = POW(w, -(T)BETA);
#endif
#if BACK
					dx[at] = dy[at] * p - 2 * (T)BETA * (T)SHARE * x[at] * v;
#else
					s[at] = w;
					y[at] = x[at] * p;
#endif
				}
		}
}
