/* Softmax of x along one axis. y may be x. */
#if LOGS
/* y is its logarithm. */
#endif
static void NAME(T *y, const T *x)
{
#if PAR
#pragma omp parallel for
#endif
	for (int64_t o = 0; o < OUTER; o++)
		for (int64_t i = 0; i < INNER; i++) {
			const T *from = x + o * C * INNER + i;
			T *to = y + o * C * INNER + i;
			T top = -INFINITY, sum = 0;

#pragma omp simd reduction(max : top)
			for (int c = 0; c < C; c++)
				top = top < from[c * INNER] ? from[c * INNER] : top;
#if LOGS
#pragma omp simd reduction(+ : sum)
			for (int c = 0; c < C; c++)
				sum += EXP(from[c * INNER] - top);
			top += LOG(sum);
#pragma omp simd
			for (int c = 0; c < C; c++)
				to[c * INNER] = from[c * INNER] - top;
#else
#pragma omp simd reduction(+ : sum)
			for (int c = 0; c < C; c++) {
				const T e = EXP(from[c * INNER] - top);
				to[c * INNER] = e;
				sum += e;
			}
			sum = 1 / sum;
#pragma omp simd
			for (int c = 0; c < C; c++)
				to[c * INNER] *= sum;
#endif
		}
}
