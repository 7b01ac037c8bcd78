/* x [ROWS, COLUMNS] in 8 bits: y as it lies, across with rows and columns exchanged; either may be NULL. A block has a square, of
 * which a thread reads 16 numbers of a row and writes 16 of a column. */
namespace device::NAME {
enum { EDGE = 64, EACH = 16, BESIDE = EDGE / EACH, WIDE = (COLUMNS + EDGE - 1) / EDGE, BLOCKS = (ROWS + EDGE - 1) / EDGE * WIDE };
typedef pd_vec<uint8_t, EACH> line;

static __device__ __forceinline__ void read(float (&v)[EACH], const TX *x)
{
	enum { AT_ONCE = 16 / sizeof(TX) };

	PD_UNROLL
	for (int i = 0; i < EACH; i += AT_ONCE) {
		const pd_vec<TX, AT_ONCE> in = pd_read<AT_ONCE>(x + i);

		PD_UNROLL
		for (int k = 0; k < AT_ONCE; k++)
			v[i + k] = LOAD(in.v[k]);
	}
}

static __device__ __forceinline__ float largest(const float (&v)[EACH])
{
	float most = 0;

	PD_UNROLL
	for (int i = 0; i < EACH; i++)
		most = fmaxf(most, fabsf(v[i]));
	return most;
}

/* Of numbers that are none or more, bits are ordered as they are. */
static __device__ void remember(float *state, float most)
{
	most = pd_block_max(most);
	if (threadIdx.x == 0)
		atomicMax((unsigned *)(void *)&state[1], pd_bits_of(most));
}

/* Before anything was seen: the largest first, then the scale. */
static __global__ void look(const TX *restrict x, float *state)
{
	const int64_t at = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * EACH;
	float v[EACH] = { 0 };

	if (state[0] > 0)
		return;
	if (at < (int64_t)ROWS * COLUMNS)
		read(v, x + at);
	remember(state, largest(v));
}

static __global__ void begin(float *state)
{
	if (!(state[0] > 0))
		state[0] = state[1] > 0 && state[1] < INFINITY ? pd_f8_scale(state[1], FORMAT) : 1;
}

static __global__ void run(uint8_t *y, uint8_t *across, const TX *restrict x, float *state, int remembered)
{
	__shared__ line square[EDGE][BESIDE + 1];
	const int top = (int)blockIdx.x / WIDE * EDGE, left = (int)blockIdx.x % WIDE * EDGE;
	const int row = (int)threadIdx.x / BESIDE, beside = (int)threadIdx.x % BESIDE, column = beside * EACH;
	const float inverse = 1 / state[0];
	float v[EACH] = { 0 };
	line q;

	if (top + row < ROWS && left + column < COLUMNS) {
		const int64_t at = (int64_t)(top + row) * COLUMNS + left + column;

		read(v, x + at);
		PD_UNROLL
		for (int i = 0; i < EACH; i++)
			q.v[i] = STORE(v[i] * inverse);
		if (y)
			pd_write(y + at, q);
		square[row][beside] = q;
	}
	if (across) {
		const int c = (int)threadIdx.x % EDGE, r = (int)threadIdx.x / EDGE * EACH;

		__syncthreads();
		if (left + c < COLUMNS && top + r < ROWS) {
			PD_UNROLL
			for (int i = 0; i < EACH; i++)
				q.v[i] = square[r + i][c / EACH].v[c % EACH];
			pd_write(across + (int64_t)(left + c) * ROWS + top + r, q);
		}
	}
	if (remembered)
		remember(state, largest(v));
}
}

PD_HOST void NAME(uint8_t *y, uint8_t *across, const TX *x, float *state)
{
	if (pd_first_step()) {
		PD_LAUNCH(device::NAME::look, pd_blocks((int64_t)ROWS * COLUMNS, 256 * device::NAME::EACH), 256, 0, x, state);
		PD_LAUNCH(device::NAME::begin, 1, 1, 0, state);
	}
	PD_LAUNCH(device::NAME::run, device::NAME::BLOCKS, 256, 0, y, across, x, state, !pd_evaluating());
}
