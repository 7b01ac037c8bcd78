/* The weight of a label; 0: it does not count. */
static __device__ __forceinline__ float weight_of(int64_t label, const float *weights)
{
	(void)label;
	(void)weights;
#if IGNORE
	if (label == IGNORED)
		return 0;
#endif
#if WEIGHTS
	return weights[label];
#else
	return 1;
#endif
}

