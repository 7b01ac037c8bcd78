/* y[o][k] = a[o][row], blocks of elements; row is what the coordinates of the indices name. */
#if CHECK
/* Nobody has looked at the indices; one that points nowhere gives a value of its own and never touches other memory. */
#endif
static void NAME(T *restrict y, const T *restrict a, const TI *restrict ids)
{
	static const int64_t dim[Q] = { DIMS };

#if PAR
#pragma omp parallel for
#endif
	for (IX k = 0; k < ROWS; k++) {
		#include "nd_row.part.h"
#if CHECK
		if (row < 0) {
			for (IX i = 0; i < INNER; i++)
				y[k * INNER + i] = MISSING;
			continue;
		}
#endif
#if INNER == 1
		y[k] = a[k / EACH * TABLE + row];
#else
		memcpy(y + k * INNER, a + (k / EACH * TABLE + row) * INNER, INNER * sizeof *y);
#endif
	}
}
