/* y[o][k] = a[o][row], blocks of elements, a thread per element; row is what the coordinates of the indices name. */
#if CHECK
/* Nobody has looked at the indices; one that points nowhere gives a value of its own and never touches other memory. */
#endif
namespace device::NAME {
static __global__ void run(T *y, const T *a, const TI *ids)
{
	const int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

	if (e >= (int64_t)ROWS * INNER)
		return;
	const int64_t dim[Q] = { DIMS };
	const int64_t i = e % INNER, k = e / INNER;
	#include "nd_row.part.h"
#if CHECK
	if (row < 0) {
		y[e] = MISSING;
		return;
	}
#endif
	y[e] = a[(k / EACH * TABLE + row) * INNER + i];
}
}

PD_HOST void NAME(T *y, const T *a, const TI *ids)
{
	PD_LAUNCH(device::NAME::run, pd_blocks((int64_t)ROWS * INNER, 256), 256, 0, y, a, ids);
}
