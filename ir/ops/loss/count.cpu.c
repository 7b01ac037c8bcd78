/* How many labels count, or the sum of their class weights. */
static void NAME(T *restrict y, const TL *restrict labels
#if WEIGHTS
	, const TW *restrict weights
#endif
	)
{
	T sum = 0;

#if !IGNORE && !WEIGHTS
	(void)labels;
#endif
	for (int64_t i = 0; i < N; i++) {
#if IGNORE
		if (labels[i] == IGNORED)
			continue;
#endif
#if WEIGHTS
		sum += weights[labels[i]];
#else
		sum++;
#endif
	}
	y[0] = sum;
}
