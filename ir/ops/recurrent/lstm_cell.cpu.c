/* s = sigmoid(f) c + sigmoid(i) tanh(g), h = sigmoid(o) tanh(s) for all rows of gates. */
static void NAME(T *restrict h, T *restrict s, const T *restrict gates, const T *restrict c)
{
#if PAR
#pragma omp parallel for
#endif
	for (int r = 0; r < ROWS; r++) {
		const T *restrict x = gates + (int64_t)r * 4 * N, *restrict from = c + (int64_t)r * N;
		T *restrict to = h + (int64_t)r * N, *restrict state = s + (int64_t)r * N;

#pragma omp simd
		for (int k = 0; k < N; k++) {
#if SHIFT
			const T f = 1 / (1 + EXP(-(x[FAT + k] + FORGET)));
#else
			const T f = 1 / (1 + EXP(-x[FAT + k]));
#endif
			const T i = 1 / (1 + EXP(-x[IAT + k])), o = 1 / (1 + EXP(-x[OAT + k]));
			const T sum = f * from[k] + i * TANH(x[GAT + k]);
			state[k] = sum;
			to[k] = o * TANH(sum);
		}
	}
}
