/* Places in a window as places in x; a window without a winner (all NaN) names an element of x all
 * the same. */
static void NAME(int64_t *restrict y, const TI *restrict place)
{
#if PAR
#pragma omp parallel for
#endif
	for (int64_t o = 0; o < OUTER; o++)
		for (int64_t d = 0; d < OD; d++)
			for (int64_t h = 0; h < OH; h++)
				for (int64_t w = 0; w < OW; w++) {
					const int64_t at = ((o * OD + d) * OH + h) * OW + w, k = place[at];
					#include "indices.part.h"
				}
}
