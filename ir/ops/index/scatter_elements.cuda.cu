/* Every update joins y at its place of the axis. What shares a column of the table joins in the order of the axis: a
 * column has some threads, of which each has its rows and looks at all updates. */
#if ZERO
/* y begins as zeros. */
#endif
#if CHECK
/* Nobody has looked at the indices: an update that goes nowhere is left out. */
#endif
#if LOST
/* An update that goes nowhere makes place 0 NaN. */
#endif
namespace device::NAME {
static __global__ void run(T *y, PARAMS)
{
	const IX e = (IX)(blockIdx.x * (int64_t)blockDim.x + threadIdx.x);

	if (e >= KEPT_COUNT * WAYS)
		return;
	const IX o = e / WAYS;
	KEPT_INDEX
	for (IX r = 0; r < GONE_COUNT; r++) {
		GONE_INDEX
		const int64_t row = ROW;

#if CHECK
		if (row < 0 || row >= DIM) {
#if LOST
			if (e % WAYS == 0)
				BASE = NAN;
#endif
			continue;
		}
#endif
#if WAYS > 1
		if (row % WAYS != e % WAYS)
			continue;
#endif
		JOIN
	}
	(void)o;
#if !ZERO
	(void)a;
#endif
}
}

PD_HOST void NAME(T *y, PARAMS)
{
#if ZERO
	pd_fill(y, 0, NUMEL * sizeof *y);
#else
	pd_copy(y, a, NUMEL * sizeof *y);
#endif
	PD_LAUNCH(device::NAME::run, pd_blocks((int64_t)KEPT_COUNT * (GONE_COUNT > 0) * WAYS, 128), 128, 0, y, ARGS);
}
