/* Noise, drawn by global sample and element. */
#if NORMAL
/* Two uniform numbers make a normal one (Box and Muller), in doubles: vector functions would differ in the last bits. */
#endif
static void NAME(T *y, int64_t first)
{
#if PAR
#pragma omp parallel for
#endif
	for (int64_t i = 0; i < N; i++) {
#include "random.part.h"
	}
}
