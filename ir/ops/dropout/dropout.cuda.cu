/* y = mask x / (1 - ratio); the mask is drawn by global sample and element: late[0] is the step's first sample, the operand's first
 * comes of_step behind it. A thread per element. */
namespace device::NAME {
static __global__ void run(T *y, uint8_t *mask, const T *x, const double *late, int64_t of_step)
{
	const int64_t sample = (int64_t)late[0] + of_step;
	const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

	if (at >= (int64_t)BATCH * EACH)
		return;
	const int64_t i = at % EACH;

	mask[at] = pd_random_unit(SEED, ID, (uint64_t)(sample + at / EACH), (uint64_t)ELEMENT) >= RATIO;
	y[at] = mask[at] ? x[at] * (T)SCALE : 0;
}

static void late(double *to)
{
	to[0] = (double)pd_sample(0);
}
}

PD_HOST void NAME(T *y, uint8_t *mask, const T *x, int64_t of_step)
{
#if EVALUATES
	if (pd_evaluating()) {
		pd_copy(y, x, (int64_t)BATCH * EACH * sizeof *y);
		return;
	}
#endif
	PD_LAUNCH(device::NAME::run, pd_blocks((int64_t)BATCH * EACH, 256), 256, 0, y, mask, x, pd_late(device::NAME::late, 1), of_step);
}
