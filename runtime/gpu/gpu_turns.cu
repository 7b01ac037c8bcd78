/* gpu_turns.cu: what recurrent layers need round the calls of cuDNN (gpu_recurrent.c), which knows sequences of one length and
 * of one direction: they are turned round and cut off at their ends, weights copied between ONNX's order of gates and its own. */
#include "gpu.h"

namespace device
{

enum { PIECES = 12 };
struct pieces {
	const float *from[PIECES];
	float *to[PIECES];
	int64_t n[PIECES];
	int count;
};

/* Blocks take the pieces in turn. */
static __global__ void copy_pieces(pieces p)
{
	const int k = blockIdx.x % p.count;
	const float *from = p.from[k];
	const int64_t step = (int64_t)(gridDim.x / p.count) * blockDim.x;

	for (int64_t i = (int64_t)(blockIdx.x / p.count) * blockDim.x + threadIdx.x; i < p.n[k]; i += step)
		p.to[k][i] = from ? from[i] : 0;
}

static __global__ void turn(float *to, const float *from, int steps, int batch, int k, const int32_t *lens, int reverse)
{
	const int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, row = (int64_t)batch * k;

	if (e >= steps * row)
		return;
	const int t = (int)(e / row), b = (int)(e % row / k), n = lens ? lens[b] : steps;

	to[e] = t < n ? from[(reverse ? n - 1 - t : t) * row + e % row] : 0;
}

static __global__ void last(float *h, const float *y, const float *h0, int batch, int k, const int32_t *lens)
{
	const int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, row = (int64_t)batch * k;

	if (e < row)
		h[e] = lens[e / k] > 0 ? y[(lens[e / k] - 1) * row + e] : h0 ? h0[e] : 0;
}

static __global__ void last_back(float *dy, const float *dh, int batch, int k, const int32_t *lens)
{
	const int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, row = (int64_t)batch * k;

	if (e < row && lens[e / k] > 0)
		dy[(lens[e / k] - 1) * row + e] += dh[e];
}

static __global__ void empty_back(float *dh0, const float *dh, int batch, int k, const int32_t *lens)
{
	const int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

	if (e < (int64_t)batch * k && lens[e / k] <= 0)
		dh0[e] += dh[e];
}

} // namespace device

PD_HOST void rt_copy_pieces(int count, float *const *to, const float *const *from, const int64_t *n)
{
	enum { MOST = 256 }; /* blocks for a piece */
	device::pieces p = {};
	int64_t most = 0;

	p.count = count;
	for (int i = 0; i < count; i++) {
		p.from[i] = from[i];
		p.to[i] = to[i];
		p.n[i] = n[i];
		most = most < n[i] ? n[i] : most;
	}
	const unsigned blocks = pd_blocks(most, 256);
	PD_LAUNCH(device::copy_pieces, (blocks < MOST ? blocks : (unsigned)MOST) * (unsigned)count, 256, 0, p);
}

PD_HOST void rt_turn(float *to, const float *from, int steps, int batch, int k, const int32_t *lens, int reverse)
{
	PD_LAUNCH(device::turn, pd_blocks((int64_t)steps * batch * k, 256), 256, 0, to, from, steps, batch, k, lens,
		reverse);
}

PD_HOST void rt_last(float *h, const float *y, const float *h0, int batch, int k, const int32_t *lens)
{
	PD_LAUNCH(device::last, pd_blocks((int64_t)batch * k, 256), 256, 0, h, y, h0, batch, k, lens);
}

PD_HOST void rt_last_back(float *dy, const float *dh, int batch, int k, const int32_t *lens)
{
	PD_LAUNCH(device::last_back, pd_blocks((int64_t)batch * k, 256), 256, 0, dy, dh, batch, k, lens);
}

PD_HOST void rt_empty_back(float *dh0, const float *dh, int batch, int k, const int32_t *lens)
{
	PD_LAUNCH(device::empty_back, pd_blocks((int64_t)batch * k, 256), 256, 0, dh0, dh, batch, k, lens);
}
