/* The optimizer's state, as parameters of its kernel. */
#if HEAVYBALL
	T *restrict v,
#endif
#if ADAM
	T *restrict m, T *restrict v,
#endif
#if RMSPROP || ADAGRAD
	T *restrict v,
#endif
#if SMOOTHED
	T *restrict b,
#endif
#if AVERAGE
	T *restrict e,
#endif
