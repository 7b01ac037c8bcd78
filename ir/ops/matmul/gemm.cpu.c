/* y = op(a) op(b) + c for several matrices, by the library's product of two. */
static void NAME(TY *restrict y, const T *restrict a, const T *restrict b
#if BIAS
	, const TC *restrict c
#endif
	)
{
#if BIAS
	for (int i = 0; i < M; i++)
		for (int j = 0; j < N; j++)
#if CONVERTS
			y[i * N + j] = AS(c[i * CROW + j * CCOL]);
#else
			y[i * N + j] = c[i * CROW + j * CCOL];
#endif
#endif
#if BATCH == 1
	PRODUCT(HOW, TB, M, N, K, a, LDA, b, LDB, BIAS, y, N);
#else
#if PAR
#pragma omp parallel for
#endif
	for (int64_t q = 0; q < BATCH; q++)
		PRODUCT(HOW, TB, M, N, K, a + AT, LDA, b + BT, LDB, BIAS, y + q * M * N, N);
#endif
}
