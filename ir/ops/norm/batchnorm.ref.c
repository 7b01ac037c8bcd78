/* Batch normalisation of x in plain loops, plain layout. */
#if BACK
static void NAME(T *restrict dx, T *restrict dscale, T *restrict dbias, const T *restrict dy, const T *restrict x,
	const T *restrict scale, const T *restrict mean, const T *restrict var)
{
	for (int64_t c = 0; c < C; c++) {
		const T inv = 1 / SQRT(var[c] + (T)EPSILON), count = (T)(BATCH * INNER);
		T s = 0, p = 0;

		for (int64_t n = 0; n < BATCH; n++)
			for (int64_t i = 0; i < INNER; i++) {
				const int64_t at = (n * C + c) * INNER + i;
				s += dy[at];
				p += dy[at] * (x[at] - mean[c]) * inv;
			}
		dscale[c] = p;
		dbias[c] = s;
		for (int64_t n = 0; n < BATCH; n++)
			for (int64_t i = 0; i < INNER; i++) {
				const int64_t at = (n * C + c) * INNER + i;
				dx[at] = scale[c] * inv * (dy[at] - s / count - (x[at] - mean[c]) * inv * p / count);
			}
	}
}
#else
static void NAME(T *restrict y, T *restrict mean, T *restrict var, const T *restrict x, const T *restrict scale,
	const T *restrict bias
#if RUNNING
	,
	const T *restrict running_mean, const T *restrict running_var
#endif
)
{
	for (int64_t c = 0; c < C; c++) {
		const T count = (T)(BATCH * INNER);
		T m = 0, v = 0;

		for (int64_t n = 0; n < BATCH; n++)
			for (int64_t i = 0; i < INNER; i++)
				m += x[(n * C + c) * INNER + i];
		m /= count;
		for (int64_t n = 0; n < BATCH; n++)
			for (int64_t i = 0; i < INNER; i++) {
				const T d = x[(n * C + c) * INNER + i] - m;
				v += d * d;
			}
		v /= count;
#if RUNNING
		m = pd_evaluating() ? running_mean[c] : m;
		v = pd_evaluating() ? running_var[c] : v;
#endif
		mean[c] = m;
		var[c] = v;
		const T inv = scale[c] / SQRT(v + (T)EPSILON);
		for (int64_t n = 0; n < BATCH; n++)
			for (int64_t i = 0; i < INNER; i++) {
				const int64_t at = (n * C + c) * INNER + i;
				y[at] = (x[at] - m) * inv + bias[c];
			}
	}
}
#endif
