/* y = op(a) op(b) + c for several matrices, by the library's product: of two, or of as many as lie at even
 * distances. */
#if BIAS
namespace device::NAME {
static __global__ void run(TY *y, const TC *c)
{
	const int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

	if (e < (int64_t)M * N)
#if CONVERTS
		y[e] = AS(c[e / N * CROW + e % N * CCOL]);
#else
		y[e] = c[e / N * CROW + e % N * CCOL];
#endif
}
}

#endif
PD_HOST void NAME(TY *y, const T *a, const T *b
#if BIAS
	, const TC *c
#endif
	)
{
#if BIAS
	PD_LAUNCH(device::NAME::run, pd_blocks((int64_t)M * N, 256), 256, 0, y, c);
#endif
#if BATCH == 1
	PRODUCT(HOW, TB, M, N, K, a, LDA, b, LDB, BIAS, y, N);
#elif STEPS
	pd_gemm_batch(KINDS, TA, TB, M, N, K, a, LDA, ASTEP, b, LDB, BSTEP, y, BATCH);
#else
	for (int64_t q = 0; q < BATCH; q++)
		PRODUCT(HOW, TB, M, N, K, a + AT, LDA, b + BT, LDB, BIAS, y + q * M * N, N);
#endif
}
