/* The K best of every row along an axis, in order, and where they stood, by a heap: a thread per row. */
namespace device::NAME {
#if K > 0 && ROWS > 0
static __global__ void run(T *y, int64_t *at, const T *x)
{
	const int64_t r = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

	if (r < ROWS) {
#include "topk.part.h"
	}
}
#endif
}

PD_HOST void NAME(T *y, int64_t *at, const T *x)
{
#if K > 0 && ROWS > 0
	PD_LAUNCH(device::NAME::run, pd_blocks(ROWS, 64), 64, 0, y, at, x);
#else
	(void)y, (void)at, (void)x;
#endif
}
