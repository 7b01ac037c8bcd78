/* y = a with some axes reduced. WIDE: a block per element of y, whose threads share what is reduced; else a thread each.
 * Always in one order. */
namespace device::NAME {
static __global__ void run(T *y, const T *a)
{
#if WIDE
#if KEPT_COUNT > 1
	const IX o = (IX)blockIdx.x;
#endif
	T s = START;

	KEPT_INDEX
	for (IX r = (IX)threadIdx.x; r < GONE_COUNT; r += (IX)blockDim.x) {
		GONE_INDEX
		const T v = FROM;
		s = JOIN;
	}
	__shared__ T part[256];
	part[threadIdx.x] = s;
	for (int half = 128; half > 0; half /= 2) {
		__syncthreads();
		if ((int)threadIdx.x < half) {
			const T v = part[threadIdx.x + half];
			s = part[threadIdx.x];
			part[threadIdx.x] = MERGE;
		}
	}
	if (threadIdx.x != 0)
		return;
	s = part[0];
	TO = FINISH;
#else
	const IX o = (IX)(blockIdx.x * (int64_t)blockDim.x + threadIdx.x);
	T s = START;

	if (o >= KEPT_COUNT)
		return;
	KEPT_INDEX
	for (IX r = 0; r < GONE_COUNT; r++) {
		GONE_INDEX
		const T v = FROM;
		s = JOIN;
	}
	TO = FINISH;
#endif
}
}

PD_HOST void NAME(T *y, const T *a)
{
#if WIDE
	PD_LAUNCH(device::NAME::run, KEPT_COUNT, 256, 0, y, a);
#else
	PD_LAUNCH(device::NAME::run, pd_blocks(KEPT_COUNT, 128), 128, 0, y, a);
#endif
}
