/* One step over N elements. g is a sum over the global batch, n[0] what it is divided by. */
static void NAME(T *restrict w,
#if HEAVYBALL
	T *restrict v,
#endif
#if ADAM
	T *restrict m, T *restrict v,
#endif
	const T *restrict g, const T *restrict n)
{
	const T scale = 1 / n[0];
#if ADAM
	const double t = (double)pd_step_index() + 1;
	const T rate = (T)(LR / (1 - pow(BETA1, t))), root = (T)(1 / sqrt(1 - pow(BETA2, t)));
#endif
#if PAR
#pragma omp parallel for simd
#else
#pragma omp simd
#endif
	for (IX i = 0; i < N; i++) {
#if COUPLED
		const T d = g[i] * scale + (T)DECAY * w[i];
#else
		const T d = g[i] * scale;
#endif
#if DECOUPLED
		w[i] -= (T)(LR * DECAY) * w[i];
#endif
#if ADAM
		m[i] = (T)BETA1 * m[i] + (T)(1 - BETA1) * d;
		v[i] = (T)BETA2 * v[i] + (T)(1 - BETA2) * d * d;
		w[i] -= rate * m[i] / (SQRT(v[i]) * root + (T)EPS);
#endif
#if HEAVYBALL
		v[i] = (T)MOMENTUM * v[i] + d;
		w[i] -= (T)LR * v[i];
#endif
#if !ADAM && !HEAVYBALL
		w[i] -= (T)LR * d;
#endif
	}
}
