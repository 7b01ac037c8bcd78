/* Running statistics: the rows of all microbatches, in their order, for many statistics at a time. */
namespace device::NAME {
typedef pd_pack<2> pack;

static __global__ void run(const pack p)
{
	const int row = pd_pack_row(p);
	T *const restrict r = (T *)p.at[row][0];
	const T *const restrict rows = (const T *)p.at[row][1];
	const int64_t from = (int64_t)(blockIdx.x - p.first[row]) * pack::EACH, end = p.n[row];

	for (int64_t i = from + threadIdx.x; i < end && i < from + pack::EACH; i += blockDim.x)
		for (int mb = 0; mb < ROWS; mb++)
			r[i] = (T)MOMENTUM * r[i] + (T)(1 - MOMENTUM) * rows[mb * end + i];
}
}

PD_HOST void NAME(const pd_many *row, int rows)
{
	PD_LAUNCH_ROWS(device::NAME::run, device::NAME::pack, row, rows, pd_part);
}
