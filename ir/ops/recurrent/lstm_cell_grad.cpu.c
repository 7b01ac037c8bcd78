/* The gradients of the gates and of c, from those of h and s (one may be absent); the gates are computed again. */
static void NAME(T *restrict dgates, T *restrict dc, const T *restrict gates, const T *restrict c
#if DH
	, const T *restrict dh
#endif
#if DS
	, const T *restrict ds
#endif
	)
{
#if PAR
#pragma omp parallel for
#endif
	for (int r = 0; r < ROWS; r++) {
		const T *restrict x = gates + (int64_t)r * 4 * N, *restrict from = c + (int64_t)r * N;
		T *restrict to = dgates + (int64_t)r * 4 * N, *restrict back = dc + (int64_t)r * N;

#pragma omp simd
		for (int k = 0; k < N; k++) {
#if SHIFT
			const T f = 1 / (1 + EXP(-(x[FAT + k] + FORGET)));
#else
			const T f = 1 / (1 + EXP(-x[FAT + k]));
#endif
			const T i = 1 / (1 + EXP(-x[IAT + k])), o = 1 / (1 + EXP(-x[OAT + k])), g = TANH(x[GAT + k]);
#if DH
			const T t = TANH(f * from[k] + i * g), d = dh[(int64_t)r * N + k];
			T e = d * o * (1 - t * t);
			to[OAT + k] = d * t * o * (1 - o);
#else
			T e = 0;
			to[OAT + k] = 0 * o;
#endif
#if DS
			e += ds[(int64_t)r * N + k];
#endif
			to[IAT + k] = e * g * i * (1 - i);
			to[FAT + k] = e * from[k] * f * (1 - f);
			to[GAT + k] = e * i * (1 - g * g);
			back[k] = e * f;
		}
	}
}
