/* Places in a window as places in x, a thread per window; one without a winner (all NaN) names an
 * element of x all the same. */
namespace device::NAME {
static __global__ void run(int64_t *y, const TI *place)
{
	const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

	if (at >= (int64_t)OUTER * OD * OH * OW)
		return;
	const int64_t w = at % OW, h = at / OW % OH, d = at / OW / OH % OD, o = at / OW / OH / OD, k = place[at];
	#include "indices.part.h"
}
}

PD_HOST void NAME(int64_t *y, const TI *place)
{
	PD_LAUNCH(device::NAME::run, pd_blocks((int64_t)OUTER * OD * OH * OW, 256), 256, 0, y, place);
}
