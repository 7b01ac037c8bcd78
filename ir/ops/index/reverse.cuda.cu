/* y is a with the first lens[b] steps of entry b in reverse order, a thread per element; a length below 0 or past the
 * end counts as the nearest end. */
namespace device::NAME {
static __global__ void run(T *y, const T *a, const TI *lens)
{
	const int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

	if (e >= (int64_t)TIME * BATCH * INNER)
		return;
#if TIME_FIRST
	const int64_t b = e / INNER % BATCH, t = e / INNER / BATCH, step = (int64_t)BATCH * INNER;
#else
	const int64_t b = e / INNER / TIME, t = e / INNER % TIME, step = INNER;
#endif
	const int64_t len = lens[b] < TIME ? lens[b] : TIME, s = t < len ? len - 1 - t : t;

	y[e] = a[e + (s - t) * step];
}
}

PD_HOST void NAME(T *y, const T *a, const TI *lens)
{
	PD_LAUNCH(device::NAME::run, pd_blocks((int64_t)TIME * BATCH * INNER, 256), 256, 0, y, a, lens);
}
