/* Every update, a block of elements, joins the block of y that the coordinates of the indices name. Threads share the
 * batches and some columns at a time; what shares an element joins in the order of the indices. */
#if ZERO
/* y begins as zeros. */
#endif
#if CHECK
/* Nobody has looked at the indices: an update that goes nowhere is left out. */
#endif
#if LOST
/* An update that goes nowhere makes row 0 NaN. */
#endif
static void NAME(T *restrict y, PARAMS)
{
	static const int64_t dim[Q] = { DIMS };

#if ZERO
	memset(y, 0, NUMEL * sizeof *y);
#else
	memcpy(y, a, NUMEL * sizeof *y);
#endif
#if PAR
#pragma omp parallel for collapse(2)
#endif
	for (IX o = 0; o < OUTER; o++)
	for (IX c = 0; c < INNER; c += BLOCK)
		for (IX k = o * IDS; k < (o + 1) * IDS; k++) {
#if !ONE
			const T *from = u + k * INNER;
#endif
			const IX end = c + BLOCK < INNER ? c + BLOCK : INNER;
			#include "nd_row.part.h"
#if CHECK
			if (row < 0) {
#if LOST
				for (IX i = c; i < end; i++)
					y[o * TABLE * INNER + i] = NAN;
#endif
				continue;
			}
#endif
			T *to = y + (o * TABLE + row) * INNER;
#pragma omp simd
			for (IX i = c; i < end; i++)
				JOIN
		}
}
