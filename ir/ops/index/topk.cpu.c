/* The K best of every row along an axis, in order, and where they stood, by a heap. */
static void NAME(T *restrict y, int64_t *restrict at, const T *restrict x)
{
#if K > 0 && ROWS > 0
#if PAR
#pragma omp parallel for
#endif
	for (int64_t r = 0; r < ROWS; r++) {
#include "topk.part.h"
	}
#else
	(void)y, (void)at, (void)x;
#endif
}
