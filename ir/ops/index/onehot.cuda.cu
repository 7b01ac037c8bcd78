/* y: values[1] at the place along the axis that ids say, values[0] elsewhere; a thread per element. */
namespace device::NAME {
static __global__ void run(T *y, const TI *ids, const T *values)
{
	const int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

	if (e >= (int64_t)OUTER * DEPTH * INNER)
		return;
	const int64_t d = e / INNER % DEPTH;
	const TI r = ids[e / INNER / DEPTH * INNER + e % INNER];
#if FLOAT
	const int64_t at = r >= -DEPTH && r < DEPTH ? (int64_t)r + (r < 0 ? DEPTH : 0) : -1;
#elif SIGNED
	const int64_t at = r < 0 ? (int64_t)r + DEPTH : (int64_t)r;
#else
	const int64_t at = r < DEPTH ? (int64_t)r : -1;
#endif

	y[e] = values[at == d];
}
}

PD_HOST void NAME(T *y, const TI *ids, const T *values)
{
	PD_LAUNCH(device::NAME::run, pd_blocks((int64_t)OUTER * DEPTH * INNER, 256), 256, 0, y, ids, values);
}
