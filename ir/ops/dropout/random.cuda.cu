/* Noise, drawn by global sample and element: late[0] is the step's first sample, the operand's first comes of_step behind
 * it. A thread each. */
namespace device::NAME {
static __global__ void run(T *y, const double *late, int64_t of_step)
{
	const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
	const int64_t first = (int64_t)late[0] + of_step;

	if (i < N) {
#include "random.part.h"
	}
}

static void late(double *to)
{
	to[0] = (double)pd_sample(0);
}
}

PD_HOST void NAME(T *y, int64_t of_step)
{
	PD_LAUNCH(device::NAME::run, pd_blocks(N, 256), 256, 0, y, pd_late(device::NAME::late, 1), of_step);
}
