/* y = g times the product of all elements of x that were reduced together with this one: first what stands before it,
 * then, from the end, what stands behind it. A thread per element of g. */
namespace device::NAME {
static __global__ void run(T *y, const T *x, const T *g)
{
	const IX o = (IX)(blockIdx.x * (int64_t)blockDim.x + threadIdx.x);

	if (o >= KEPT_COUNT)
		return;
	KEPT_INDEX
	T before = GRADIENT, behind = 1;

	for (IX r = 0; r < GONE_COUNT; r++) {
		GONE_INDEX
		TO = before;
		before *= FROM;
	}
	for (IX r = GONE_COUNT - 1; r >= 0; r--) {
		GONE_INDEX
		TO *= behind;
		behind *= FROM;
	}
}
}

PD_HOST void NAME(T *y, const T *x, const T *g)
{
	PD_LAUNCH(device::NAME::run, pd_blocks(KEPT_COUNT, 128), 128, 0, y, x, g);
}
