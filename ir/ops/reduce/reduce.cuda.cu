/* y = a with some axes reduced, always in one order. */
#if WIDE
/* A block per element of y, whose threads share what is reduced. */
#endif
#if TALL
/* Neighbours in memory belong to neighbours of y; a block of 8 warps takes 32 of these and a share of what is reduced,
 * and a second kernel joins the shares. */
#endif
#if KEPT_COUNT > 0
namespace device::NAME {
#if TALL
static __global__ void run(T *part, const T *a)
{
	__shared__ T more[8][32];
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	const IX o = (IX)(blockIdx.x % ACROSS) * 32 + lane, share = (IX)(blockIdx.x / ACROSS);
	T s = START;

	if (o < KEPT_COUNT) {
		KEPT_INDEX
		for (IX r = share * 8 + warp; r < GONE_COUNT; r += 8 * SHARES) {
			GONE_INDEX
			const T v = FROM;
			s = JOIN;
		}
	}
	more[warp][lane] = s;
	__syncthreads();
	if (warp != 0 || o >= KEPT_COUNT)
		return;
	for (int k = 1; k < 8; k++) {
		const T v = more[k][lane];
		s = MERGE;
	}
	part[(int64_t)share * KEPT_COUNT + o] = s;
}

static __global__ void join(T *y, const T *part)
{
	const IX o = (IX)(blockIdx.x * (int64_t)blockDim.x + threadIdx.x);

	if (o >= KEPT_COUNT)
		return;
	KEPT_INDEX
	T s = part[o];
	for (int k = 1; k < SHARES; k++) {
		const T v = part[(int64_t)k * KEPT_COUNT + o];
		s = MERGE;
	}
	TO = FINISH;
}
#else
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
#endif
}
#endif

PD_HOST void NAME(T *y, const T *a)
{
#if KEPT_COUNT == 0
	(void)y;
	(void)a;
#elif TALL
	T *part = (T *)pd_room(ROOM);

	PD_LAUNCH(device::NAME::run, ACROSS * SHARES, 256, 0, part, a);
	PD_LAUNCH(device::NAME::join, pd_blocks(KEPT_COUNT, 64), 64, 0, y, (const T *)part);
#elif WIDE
	PD_LAUNCH(device::NAME::run, KEPT_COUNT, 256, 0, y, a);
#else
	PD_LAUNCH(device::NAME::run, pd_blocks(KEPT_COUNT, 128), 128, 0, y, a);
#endif
}
