/* Rows are brought to a mean square of 1, then scaled and shifted. */
#if MEAN
/* Their mean is taken away before. */
#endif
static void NAME(T *restrict y,
#if MEAN
	T *restrict mean,
#endif
	T *restrict inv, const T *restrict x
#if SCALE
	, const T *restrict scale
#endif
#if BIAS
	, const T *restrict bias
#endif
	)
{
#if PAR
#pragma omp parallel for
#endif
	for (int r = 0; r < ROWS; r++) {
		const T *restrict from = x + (int64_t)r * N;
		T *restrict to = y + (int64_t)r * N;
		T v = 0;
#if MEAN
		T m = 0;

#pragma omp simd reduction(+ : m)
		for (int i = 0; i < N; i++)
			m += from[i];
		m /= N;
#else
		const T m = 0;

#endif
#pragma omp simd reduction(+ : v)
		for (int i = 0; i < N; i++)
			v += (from[i] - m) * (from[i] - m);
		v = 1 / SQRT(v / N + (T)EPSILON);
#pragma omp simd
		for (int i = 0; i < N; i++)
#if BIAS
			to[i] = (from[i] - m) * v * scale[i] + bias[i];
#elif SCALE
			to[i] = (from[i] - m) * v * scale[i];
#else
			to[i] = (from[i] - m) * v;
#endif
#if MEAN
		mean[r] = m;
#endif
		inv[r] = v;
	}
}
