/* With h = (x - mean) inv and d = dy scale, per row: dx = inv (d - mean(d) - h mean(d h)); over the rows:
 * dscale = sum of dy h, dbias = sum of dy. */
static void NAME(T *restrict dx, T *restrict dscale, T *restrict dbias, const T *restrict dy, const T *restrict x,
	const T *restrict scale, const T *restrict mean, const T *restrict inv)
{
#if PAR
#pragma omp parallel for
#endif
	for (int r = 0; r < ROWS; r++) {
		const T *restrict from = x + (int64_t)r * N, *restrict d = dy + (int64_t)r * N;
		T *restrict to = dx + (int64_t)r * N;
		const T m = mean[r], v = inv[r];
		T s = 0, p = 0;

#pragma omp simd reduction(+ : s, p)
		for (int i = 0; i < N; i++) {
			s += d[i] * scale[i];
			p += d[i] * scale[i] * ((from[i] - m) * v);
		}
		s /= N;
		p /= N;
#pragma omp simd
		for (int i = 0; i < N; i++)
			to[i] = v * (d[i] * scale[i] - s - (from[i] - m) * v * p);
	}
	memset(dscale, 0, N * sizeof *dscale);
	memset(dbias, 0, N * sizeof *dbias);
	for (int r = 0; r < ROWS; r++) {
		const T *restrict from = x + (int64_t)r * N, *restrict d = dy + (int64_t)r * N;
		const T m = mean[r], v = inv[r];

#pragma omp simd
		for (int i = 0; i < N; i++) {
			dscale[i] += d[i] * ((from[i] - m) * v);
			dbias[i] += d[i];
		}
	}
}
