/* How many labels count, or the sum of their class weights, by one block. */
namespace device::NAME {
static __global__ void run(T *y, const TL *labels, const TW *weights)
{
	T sum = 0;

	for (int i = threadIdx.x; i < N; i += blockDim.x) {
#if IGNORE
		if (labels[i] == IGNORED)
			continue;
#endif
#if WEIGHTS
		sum += weights[labels[i]];
#else
		sum += 1;
#endif
	}
	sum = pd_block_sum(sum);
	if (threadIdx.x == 0)
		y[0] = sum;
	(void)labels;
	(void)weights;
}
}

PD_HOST void NAME(T *y, const TL *labels
#if WEIGHTS
	, const TW *weights
#endif
	)
{
#if WEIGHTS
	PD_LAUNCH(device::NAME::run, 1, N <= 128 ? 128 : 1024, 0, y, labels, weights);
#else
	PD_LAUNCH(device::NAME::run, 1, N <= 128 ? 128 : 1024, 0, y, labels, (const TW *)nullptr);
#endif
}
