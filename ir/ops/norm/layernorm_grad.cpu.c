/* With h = (x - mean) inv and d = dy scale, per row: dx = inv (d - mean(d) - h mean(d h)); over the rows: dscale = sum
 * of dy h, dbias = sum of dy. */
#if !MEAN
/* The forward took no mean away, so mean(d) is not there. */
#endif
static void NAME(T *restrict dx,
#if SCALE
	T *restrict dscale,
#endif
#if BIAS
	T *restrict dbias,
#endif
	const T *restrict dy, const T *restrict x,
#if MEAN
	const T *restrict mean,
#endif
	const T *restrict inv
#if SCALE
	, const T *restrict scale
#endif
	)
{
#if PAR
#pragma omp parallel for
#endif
	for (int r = 0; r < ROWS; r++) {
		const T *restrict from = x + (int64_t)r * N, *restrict d = dy + (int64_t)r * N;
		T *restrict to = dx + (int64_t)r * N;
#if MEAN
		const T m = mean[r], v = inv[r];
#else
		const T m = 0, v = inv[r];
#endif
		T s = 0, p = 0;

#pragma omp simd reduction(+ : s, p)
		for (int i = 0; i < N; i++) {
#if SCALE
			const T g = d[i] * scale[i];
#else
			const T g = d[i];
#endif
			s += g;
			p += g * ((from[i] - m) * v);
		}
#if MEAN
		s /= N;
#else
		s = 0;
#endif
		p /= N;
#pragma omp simd
		for (int i = 0; i < N; i++)
#if SCALE
			to[i] = v * (d[i] * scale[i] - s - (from[i] - m) * v * p);
#else
			to[i] = v * (d[i] - s - (from[i] - m) * v * p);
#endif
	}
#if SCALE
	memset(dscale, 0, N * sizeof *dscale);
#if BIAS
	memset(dbias, 0, N * sizeof *dbias);
#endif
	for (int r = 0; r < ROWS; r++) {
		const T *restrict from = x + (int64_t)r * N, *restrict d = dy + (int64_t)r * N;
#if MEAN
		const T m = mean[r], v = inv[r];
#else
		const T m = 0, v = inv[r];
#endif

#pragma omp simd
		for (int i = 0; i < N; i++) {
			dscale[i] += d[i] * ((from[i] - m) * v);
#if BIAS
			dbias[i] += d[i];
#endif
		}
	}
#endif
}
