/* y = op(a) op(b) + c for several matrices, in plain loops. */
static void NAME(T *restrict y, const T *restrict a, const T *restrict b
#if BIAS
	,
	const T *restrict c
#endif
)
{
	for (int64_t q = 0; q < BATCH; q++)
		for (int64_t i = 0; i < M; i++)
			for (int64_t j = 0; j < N; j++) {
				const T *restrict p = a + AT, *restrict r = b + BT;
				T s = 0;

				for (int64_t k = 0; k < K; k++)
#if TA && TB
					s += p[k * LDA + i] * r[j * LDB + k];
#elif TA
					s += p[k * LDA + i] * r[k * LDB + j];
#elif TB
					s += p[i * LDA + k] * r[j * LDB + k];
#else
					s += p[i * LDA + k] * r[k * LDB + j];
#endif
#if BIAS
				y[(q * M + i) * N + j] = s + c[i * CROW + j * CCOL];
#else
				y[(q * M + i) * N + j] = s;
#endif
			}
}
