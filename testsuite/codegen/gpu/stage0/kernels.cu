/* mlp, stage 0 of 2: the kernels of its functions, one per op and shape. Written by pdcc 0.1, edits are
 * lost. Comments name the value as in ir/, its type and the node of the model. */
#include "gpu.h"

/* y = op(a) op(b) + c for BATCH matrices, by the library's product: of two, or of as many as lie at even distances. */
namespace device::gemm_4x5x6_bias {
static __global__ void run(float *y, const float *c)
{
	const int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

	if (e < (int64_t)4 * 5)
		y[e] = c[e / 5 * 0 + e % 5 * 1];
}
}

PD_HOST void gemm_4x5x6_bias(float *y, const float *a, const float *b
	, const float *c
	)
{
	PD_LAUNCH(device::gemm_4x5x6_bias::run, pd_blocks((int64_t)4 * 5, 256), 256, 0, y, c);
	pd_gemm(0, 0, 4, 5, 6, a, 6, b, 5, 1, y, 5);
}

/* A thread per element of a loop nest (nest.cpu.c): elementwise ops, fused chains, and ops that move elements. Loop i is
 * the innermost, so neighbours in a warp are neighbours in y. FILL: y is larger than the nest and gets VALUE where the
 * nest does not write. */
namespace device::relu_20 {
static __global__ void run(float *y, const float *a)
{
	const int e = (int)(blockIdx.x * (int64_t)blockDim.x + threadIdx.x);

	if (e >= 20)
		return;
	const int i = e;
	y[i] = a[i] < 0 ? 0 : a[i];
}
}

PD_HOST void relu_20(float *y, const float *a)
{
	PD_LAUNCH(device::relu_20::run, pd_blocks(20, 256), 256, 0, y, a);
}

namespace device::relugrad_20 {
static __global__ void run(float *y, const float *a, const float *b)
{
	const int e = (int)(blockIdx.x * (int64_t)blockDim.x + threadIdx.x);

	if (e >= 20)
		return;
	const int i = e;
	y[i] = b[i] > 0 ? a[i] : 0;
}
}

PD_HOST void relugrad_20(float *y, const float *a, const float *b)
{
	PD_LAUNCH(device::relugrad_20::run, pd_blocks(20, 256), 256, 0, y, a, b);
}

PD_HOST void gemm_6x5x4_ta(float *y, const float *a, const float *b
	)
{
	pd_gemm(1, 0, 6, 5, 4, a, 6, b, 5, 0, y, 5);
}

/* y = a with some axes reduced. WIDE: a block per element of y, whose threads share what is reduced; else a thread each.
 * Always in one order. */
namespace device::reduce_sum_4x5_axes0 {
static __global__ void run(float *y, const float *a)
{
	const int o = (int)(blockIdx.x * (int64_t)blockDim.x + threadIdx.x);
	float s = 0;

	if (o >= 5)
		return;
	const int i = o;
	for (int r = 0; r < 4; r++) {
		const int j = r;
		const float v = a[j * 5 + i];
		s = s + v;
	}
	y[i] = s;
}
}

PD_HOST void reduce_sum_4x5_axes0(float *y, const float *a)
{
	PD_LAUNCH(device::reduce_sum_4x5_axes0::run, pd_blocks(5, 128), 128, 0, y, a);
}

/* One step over N elements, a thread each. g is a sum over the global batch, n[0] what it is divided by. */
namespace device::adam_30 {
static __global__ void run(float *w,
	float *restrict m, float *restrict v,
	const float *g, const float *n, double lr
	, float rate, float root
	)
{
	const int i = (int)(blockIdx.x * (int64_t)blockDim.x + threadIdx.x);

	if (i < 30) {
		const float scale = 1 / n[0];
		const float d = g[i] * scale;
		m[i] = (float)0.90000000000000002 * m[i] + (float)(1 - 0.90000000000000002) * d;
		v[i] = (float)0.999 * v[i] + (float)(1 - 0.999) * d * d;
		w[i] -= rate * m[i] / (sqrtf(v[i]) * root + (float)1e-08);
	}
}
}

PD_HOST void adam_30(float *w,
	float *restrict m, float *restrict v,
	const float *g, const float *n)
{
	const double lr = 0.01;
	const double t = (double)pd_step_index() + 1 + 0;
	const float rate = (float)(lr / (1 - pow(0.90000000000000002, t))), root = (float)(1 / sqrt(1 - pow(0.999, t)));

	PD_LAUNCH(device::adam_30::run, pd_blocks(30, 256), 256, 0, w,
		m, v,
		g, n, lr
		, rate, root
		);
}

namespace device::adam_5 {
static __global__ void run(float *w,
	float *restrict m, float *restrict v,
	const float *g, const float *n, double lr
	, float rate, float root
	)
{
	const int i = (int)(blockIdx.x * (int64_t)blockDim.x + threadIdx.x);

	if (i < 5) {
		const float scale = 1 / n[0];
		const float d = g[i] * scale;
		m[i] = (float)0.90000000000000002 * m[i] + (float)(1 - 0.90000000000000002) * d;
		v[i] = (float)0.999 * v[i] + (float)(1 - 0.999) * d * d;
		w[i] -= rate * m[i] / (sqrtf(v[i]) * root + (float)1e-08);
	}
}
}

PD_HOST void adam_5(float *w,
	float *restrict m, float *restrict v,
	const float *g, const float *n)
{
	const double lr = 0.01;
	const double t = (double)pd_step_index() + 1 + 0;
	const float rate = (float)(lr / (1 - pow(0.90000000000000002, t))), root = (float)(1 / sqrt(1 - pow(0.999, t)));

	PD_LAUNCH(device::adam_5::run, pd_blocks(5, 256), 256, 0, w,
		m, v,
		g, n, lr
		, rate, root
		);
}
