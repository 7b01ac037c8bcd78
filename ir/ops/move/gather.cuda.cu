/* y[o][k] = a[o][ids[k]]: rows of a table, a thread per element. */
#if CHECK
/* An index that points nowhere gives NaN (or the least number), so that the loss shows it, and never touches other
 * memory. */
#endif
#if PARTS
/* Here are DIM of the rows, from `first` on; the others have the other rows, and add theirs. */
#endif
namespace device::NAME {
static __global__ void run(T *y, const T *a, const TI *ids, int64_t first)
{
	const int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

	if (e >= (int64_t)OUTER * IDS * INNER)
		return;
	const int64_t i = e % INNER, k = e / INNER % IDS, o = e / INNER / IDS;
#if NEG
	const int64_t id = ids[k] < 0 ? ids[k] + WHOLE : ids[k], row = id - first;
#else
	const int64_t id = ids[k], row = id - first;
#endif
#if PARTS
	if (row < 0 || row >= DIM) {
#if CHECK
		y[e] = id < 0 || id >= WHOLE ? MISSING : 0;
#else
		y[e] = 0;
#endif
		return;
	}
#elif CHECK
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
#if PARTS
	const int64_t first = (int64_t)pd_member() * DIM;
#else
	const int64_t first = 0;
#endif

	PD_LAUNCH(device::NAME::run, pd_blocks((int64_t)OUTER * IDS * INNER, 256), 256, 0, y, a, ids, first);
}
