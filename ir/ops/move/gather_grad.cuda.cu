/* The gradient of a gather, written whole: zeros, then y[o][ids[k]] += dy[o][k] in the order of k, so that equal indices
 * always add up in one order: a thread owns a column. */
namespace device::NAME {
static __global__ void run(T *y, const T *dy, const TI *ids)
{
	const int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

	if (e >= (int64_t)OUTER * INNER)
		return;
	const int64_t i = e % INNER, o = e / INNER;

	for (int64_t k = 0; k < IDS; k++) {
#if NEG
		const int64_t row = ids[k] < 0 ? ids[k] + DIM : ids[k];
#else
		const int64_t row = ids[k];
#endif
#if CHECK
		if (row < 0 || row >= DIM)
			continue;
#endif
#if PADDED
		if (row == PADDING)
			continue;
#endif
		y[(o * DIM + row) * INNER + i] += dy[(o * IDS + k) * INNER + i];
	}
}
}

PD_HOST void NAME(T *y, const T *dy, const TI *ids)
{
	pd_fill(y, 0, NUMEL * sizeof *y);
	PD_LAUNCH(device::NAME::run, pd_blocks((int64_t)OUTER * INNER, 64), 64, 0, y, dy, ids);
}
