/* dx from dy and the result y; dx may be dy. */
static void NAME(T *dx, const T *dy, const T *y)
{
#if PAR
#pragma omp parallel for
#endif
	for (int64_t o = 0; o < OUTER; o++)
		for (int64_t i = 0; i < INNER; i++) {
			const T *d = dy + o * C * INNER + i, *r = y + o * C * INNER + i;
			T *to = dx + o * C * INNER + i;
			T sum = 0;

#pragma omp simd reduction(+ : sum)
			for (int c = 0; c < C; c++)
#if LOGS
				sum += d[c * INNER];
#else
				sum += d[c * INNER] * r[c * INNER];
#endif
#pragma omp simd
			for (int c = 0; c < C; c++)
#if LOGS
				to[c * INNER] = d[c * INNER] - EXP(r[c * INNER]) * sum;
#else
				to[c * INNER] = r[c * INNER] * (d[c * INNER] - sum);
#endif
		}
}
