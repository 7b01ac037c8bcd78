/* y[o][k] = a[o][ids[k]]: rows of a table, a thread per element. */
#if CHECK
/* An index that points nowhere gives NaN (or the least number), so that the loss shows it, and never touches other
 * memory. */
#endif
namespace device::NAME {
static __global__ void run(T *y, const T *a, const TI *ids)
{
	const int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

	if (e >= (int64_t)OUTER * IDS * INNER)
		return;
	const int64_t i = e % INNER, k = e / INNER % IDS, o = e / INNER / IDS;
#if NEG
	const int64_t row = ids[k] < 0 ? ids[k] + DIM : ids[k];
#else
	const int64_t row = ids[k];
#endif
#if CHECK
	if (row < 0 || row >= DIM) {
		y[e] = MISSING;
		return;
	}
#endif
	y[e] = a[(o * DIM + row) * INNER + i];
}
}

PD_HOST void NAME(T *y, const T *a, const TI *ids)
{
	PD_LAUNCH(device::NAME::run, pd_blocks((int64_t)OUTER * IDS * INNER, 256), 256, 0, y, a, ids);
}
