/* w[ids[k]] -= lr (rows[k] / n) in the order of k. Threads share the columns, never a row. */
static void NAME(T *restrict w, const int32_t *restrict ids, const T *restrict rows, const T *restrict n)
{
	const T scale = 1 / n[0], rate = (T)(LR);       /* as SGD's, to the bit */

#if PAR
#pragma omp parallel for
	for (int c = 0; c < D; c += 64)
#endif
	for (int64_t k = 0; k < N; k++) {
		if (ids[k] < 0)
			continue;
#if PAR
#pragma omp simd
		for (int i = c; i < (c + 64 < D ? c + 64 : D); i++)
#else
#pragma omp simd
		for (int i = 0; i < D; i++)
#endif
			w[(int64_t)ids[k] * D + i] -= rate * (rows[k * D + i] * scale);
	}
}
