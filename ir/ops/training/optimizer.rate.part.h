/* What the running step's number gives, the same for all elements. */
	const double lr = LR;
#if ADAM && ONNX
	const double t = (double)pd_update_index() + T0;
	const T rate = (T)(t > 0 ? lr * sqrt(1 - pow(BETA2, t)) / (1 - pow(BETA1, t)) : lr);
#endif
#if ADAM && !ONNX
	const double t = (double)pd_update_index() + 1 + T0;
	const T rate = (T)(lr / (1 - pow(BETA1, t))), root = (T)(1 / sqrt(1 - pow(BETA2, t)));
#endif
#if ADAGRAD
	const T rate = (T)(lr / (1 + ((double)pd_update_index() + T0) * LR_DECAY));
#endif
#if HEAVYBALL && DAMPENED
	const T damped = pd_update_index() + T0 > 0 ? (T)(1 - DAMPENING) : 1;
#endif
#if AVERAGE
	const T blend = (T)((1 - EMA) / (1 - pow(EMA, (double)pd_update_index() + 1)));
#endif
