/* One step over N elements, a thread each. g is a sum over the global batch, n[0] what it is divided by. */
namespace device::NAME {
static __global__ void run(T *w,
#if HEAVYBALL
	T *v,
#endif
#if ADAM
	T *m, T *v,
#endif
#if RMSPROP || ADAGRAD
	T *v,
#endif
#if SMOOTHED
	T *b,
#endif
	const T *g, const T *n, double lr
#if ADAM && !ONNX
	, T rate, T root
#elif ADAM || ADAGRAD
	, T rate
#elif HEAVYBALL && DAMPENED
	, T damped
#endif
	)
{
	const IX i = (IX)(blockIdx.x * (int64_t)blockDim.x + threadIdx.x);

	if (i >= N)
		return;
	const T scale = 1 / n[0];
#if COUPLED
	const T d = g[i] * scale + (T)DECAY * w[i];
#else
	const T d = g[i] * scale;
#endif
#if DECOUPLED
	w[i] -= (T)(lr * DECAY) * w[i];
#endif
#if ADAM
	m[i] = (T)BETA1 * m[i] + (T)(1 - BETA1) * d;
	v[i] = (T)BETA2 * v[i] + (T)(1 - BETA2) * d * d;
#if ONNX
	w[i] -= rate * m[i] / (SQRT(v[i]) + (T)EPS);
#else
	w[i] -= rate * m[i] / (SQRT(v[i]) * root + (T)EPS);
#endif
#if AFTER
	w[i] *= (T)(1 - DECAY_POST);
#endif
#endif
#if HEAVYBALL
#if DAMPENED
	v[i] = (T)MOMENTUM * v[i] + damped * d;
#else
	v[i] = (T)MOMENTUM * v[i] + d;
#endif
#if NESTEROV
	w[i] -= (T)lr * (d + (T)MOMENTUM * v[i]);
#else
	w[i] -= (T)lr * v[i];
#endif
#endif
#if RMSPROP
	v[i] = (T)ALPHA * v[i] + (T)(1 - ALPHA) * d * d;
#if SMOOTHED
	b[i] = (T)MOMENTUM * b[i] + d / (SQRT(v[i]) + (T)EPS);
	w[i] -= (T)lr * b[i];
#else
	w[i] -= (T)lr * d / (SQRT(v[i]) + (T)EPS);
#endif
#endif
#if ADAGRAD
	v[i] += d * d;
	w[i] -= rate * d / (SQRT(v[i]) + (T)EPS);
#endif
#if !ADAM && !HEAVYBALL && !RMSPROP && !ADAGRAD
	w[i] -= (T)lr * d;
#endif
}
}

PD_HOST void NAME(T *w,
#if HEAVYBALL
	T *v,
#endif
#if ADAM
	T *m, T *v,
#endif
#if RMSPROP || ADAGRAD
	T *v,
#endif
#if SMOOTHED
	T *b,
#endif
	const T *g, const T *n)
{
	const double lr = LR;
#if ADAM && ONNX
	const double t = (double)pd_step_index() + T0;
	const T rate = (T)(t > 0 ? lr * sqrt(1 - pow(BETA2, t)) / (1 - pow(BETA1, t)) : lr);
#endif
#if ADAM && !ONNX
	const double t = (double)pd_step_index() + 1 + T0;
	const T rate = (T)(lr / (1 - pow(BETA1, t))), root = (T)(1 / sqrt(1 - pow(BETA2, t)));
#endif
#if ADAGRAD
	const T rate = (T)(lr / (1 + ((double)pd_step_index() + T0) * LR_DECAY));
#endif
#if HEAVYBALL && DAMPENED
	const T damped = pd_step_index() + T0 > 0 ? (T)(1 - DAMPENING) : 1;
#endif

	PD_LAUNCH(device::NAME::run, pd_blocks(N, 256), 256, 0, w,
#if HEAVYBALL
		v,
#endif
#if ADAM
		m, v,
#endif
#if RMSPROP || ADAGRAD
		v,
#endif
#if SMOOTHED
		b,
#endif
		g, n, lr
#if ADAM && !ONNX
		, rate, root
#elif ADAM || ADAGRAD
		, rate
#elif HEAVYBALL && DAMPENED
		, damped
#endif
		);
}
