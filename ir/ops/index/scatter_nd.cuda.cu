/* Every update, a block of elements, joins the block of y that the coordinates of the indices name. What shares an
 * element joins in the order of the indices: a column of a batch has some threads, of which each has its rows and looks
 * at all updates. */
#if ZERO
/* y begins as zeros. */
#endif
#if CHECK
/* Nobody has looked at the indices: an update that goes nowhere is left out. */
#endif
#if LOST
/* An update that goes nowhere makes row 0 NaN. */
#endif
namespace device::NAME {
static __global__ void run(T *y, PARAMS)
{
	const IX e = (IX)(blockIdx.x * (int64_t)blockDim.x + threadIdx.x);

	if (e >= OUTER * INNER * WAYS)
		return;
	const int64_t dim[Q] = { DIMS };
	const IX i = e / WAYS % INNER, o = e / WAYS / INNER;

	for (IX k = o * IDS; k < (o + 1) * IDS; k++) {
		#include "nd_row.part.h"
#if CHECK
		if (row < 0) {
#if LOST
			if (e % WAYS == 0)
				y[o * TABLE * INNER + i] = NAN;
#endif
			continue;
		}
#endif
#if WAYS > 1
		if (row % WAYS != e % WAYS)
			continue;
#endif
#if !ONE
		const T *from = u + k * INNER;
#endif
		T *to = y + (o * TABLE + row) * INNER;

		JOIN
	}
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
	PD_LAUNCH(device::NAME::run, pd_blocks((int64_t)OUTER * INNER * WAYS, 128), 128, 0, y, ARGS);
}
