/* One step over `count` elements. g is a sum over the global batch, n[0] what it is divided by. */
static void NAME(T *restrict w,
#include "optimizer.state.part.h"
	const T *restrict g, const T *restrict n, IX count)
{
	const T scale = 1 / n[0];
#include "optimizer.rate.part.h"
#if PAR
#pragma omp parallel for simd
#else
#pragma omp simd
#endif
	for (IX i = 0; i < count; i++) {
#include "optimizer.part.h"
	}
}
