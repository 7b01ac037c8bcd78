/* Rounded copies of many weights: y[o][s][c] = x[o][c][s], a row says how many c and s there are (none: both lie alike). */
namespace device::NAME {
typedef pd_pack<2> pack;

static __global__ void run(const pack p)
{
	const int row = pd_pack_row(p);
	TY *const restrict y = (TY *)p.at[row][0];
	const TX *const restrict x = (const TX *)p.at[row][1];
	const int64_t from = (int64_t)(blockIdx.x - p.first[row]) * pack::EACH, end = p.n[row];
	const unsigned c = (unsigned)p.of[row][0], s = (unsigned)p.of[row][1], each = c * s;

	if (c <= 1 || s <= 1) {
		if (end % 4 == 0) {
			for (int64_t i = from + threadIdx.x * 4; i < end && i < from + pack::EACH; i += blockDim.x * 4) {
				const pd_vec<TX, 4> in = pd_read<4>(x + i);
				pd_vec<TY, 4> out;

				PD_UNROLL
				for (int u = 0; u < 4; u++)
					out.v[u] = STORE(LOAD(in.v[u]));
				pd_write(y + i, out);
			}
			return;
		}
		for (int64_t i = from + threadIdx.x; i < end && i < from + pack::EACH; i += blockDim.x)
			y[i] = STORE(LOAD(x[i]));
		return;
	}
	for (int64_t i = from + threadIdx.x; i < end && i < from + pack::EACH; i += blockDim.x) {
		const int64_t o = i / each;
		const unsigned in = (unsigned)(i - o * each);

		y[i] = STORE(LOAD(x[o * each + in % c * s + in / c]));
	}
}
}

PD_HOST void NAME(const pd_many *row, int rows)
{
	PD_LAUNCH_ROWS(device::NAME::run, device::NAME::pack, row, rows, pd_part);
}
