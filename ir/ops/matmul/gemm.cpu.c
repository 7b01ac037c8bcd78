/* y = op(a) op(b) + c for BATCH matrices, by the library's product of two. */
static void NAME(T *restrict y, const T *restrict a, const T *restrict b
#if BIAS
	, const T *restrict c
#endif
	)
{
#if BIAS
	for (int i = 0; i < M; i++)
		for (int j = 0; j < N; j++)
			y[i * N + j] = c[i * CROW + j * CCOL];
#endif
#if BATCH == 1
	pd_gemm(TA, TB, M, N, K, a, LDA, b, LDB, BIAS, y, N);
#else
#if PAR
#pragma omp parallel for
#endif
	for (int64_t q = 0; q < BATCH; q++)
		pd_gemm(TA, TB, M, N, K, a + AT, LDA, b + BT, LDB, BIAS, y + q * M * N, N);
#endif
}
