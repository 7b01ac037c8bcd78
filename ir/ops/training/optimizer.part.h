/* One step of element i. */
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
#if AVERAGE
		e[i] += blend * (w[i] - e[i]);
#endif
