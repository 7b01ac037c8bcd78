/* The scales of the next step, of many tensors of 8 bits at a time, by the largest number of each of the last steps. */
namespace device::NAME {
typedef pd_pack<1> pack;

static __global__ void run(const pack p)
{
	const int row = pd_pack_row(p);
	float *const state = (float *)p.at[row][0];

	if (threadIdx.x > 0)
		return;
	float most = state[1] < INFINITY ? state[1] : 0;

	state[1] = most;
	for (int i = STATE - 1; i > 1; i--) {
		state[i] = state[i - 1];
		most = fmaxf(most, state[i]);
	}
	state[1] = 0;
	if (most > 0)
		state[0] = pd_f8_scale(most, (pd_dtype)p.of[row][0]);
}
}

PD_HOST void NAME(const pd_many *row, int rows)
{
	PD_LAUNCH_ROWS(device::NAME::run, device::NAME::pack, row, rows, pd_part);
}
