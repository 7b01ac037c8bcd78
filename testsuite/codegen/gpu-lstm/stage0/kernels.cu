/* lstm, stage 0 of 1: the kernels of its functions, one per op and shape. Written by pdcc 0.1, edits are
 * lost. Comments name the value as in ir/, its type and the node of the model. */
#include "gpu.h"

/* A thread per element of a loop nest (nest.cpu.c): elementwise ops, fused chains, and ops that move elements. Loop i is
 * the innermost, so neighbours in a warp are neighbours in y. FILL: y is larger than the nest and gets VALUE where the
 * nest does not write. */
namespace device::transpose_2x4x3_to_1_0_2 {
static __global__ void run(float *y, const float *a)
{
	const int e = (int)(blockIdx.x * (int64_t)blockDim.x + threadIdx.x);

	if (e >= 24)
		return;
	const int i = e % 3;
	const int j = e / 3 % 2;
	const int k = e / 6;
	y[k * 6 + j * 3 + i] = a[k * 3 + j * 12 + i];
}
}

PD_HOST void transpose_2x4x3_to_1_0_2(float *y, const float *a)
{
	PD_LAUNCH(device::transpose_2x4x3_to_1_0_2::run, pd_blocks(24, 256), 256, 0, y, a);
}

namespace device::slice_16_to_8_at_0 {
static __global__ void run(float *y, const float *a)
{
	const int e = (int)(blockIdx.x * (int64_t)blockDim.x + threadIdx.x);

	if (e >= 8)
		return;
	const int i = e;
	y[i] = a[i];
}
}

PD_HOST void slice_16_to_8_at_0(float *y, const float *a)
{
	PD_LAUNCH(device::slice_16_to_8_at_0::run, pd_blocks(8, 256), 256, 0, y, a);
}

namespace device::slice_16_to_8_at_8 {
static __global__ void run(float *y, const float *a)
{
	const int e = (int)(blockIdx.x * (int64_t)blockDim.x + threadIdx.x);

	if (e >= 8)
		return;
	const int i = e;
	y[i] = a[8 + i];
}
}

PD_HOST void slice_16_to_8_at_8(float *y, const float *a)
{
	PD_LAUNCH(device::slice_16_to_8_at_8::run, pd_blocks(8, 256), 256, 0, y, a);
}

namespace device::add_8 {
static __global__ void run(float *y, const float *a, const float *b)
{
	const int e = (int)(blockIdx.x * (int64_t)blockDim.x + threadIdx.x);

	if (e >= 8)
		return;
	const int i = e;
	y[i] = a[i] + b[i];
}
}

PD_HOST void add_8(float *y, const float *a, const float *b)
{
	PD_LAUNCH(device::add_8::run, pd_blocks(8, 256), 256, 0, y, a, b);
}

/* -w[label] log p[label] over axis C of x [OUTER, C, INNER]; CE: x holds scores, and their log-softmax goes to logp, by a
 * block per row. EACH: a loss per label; else their sum by one block, always in one order; MEAN: divided by the weight of
 * what counts. */
namespace device::cross_entropy_2x3_sum {
static __global__ void rows(float *logp, const float *x)
{
	const int64_t at = (int64_t)(blockIdx.x / 1) * 3 * 1 + blockIdx.x % 1;
	float top = -INFINITY, sum = 0;

	for (int c = threadIdx.x; c < 3; c += blockDim.x)
		top = fmaxf(top, x[at + (int64_t)c * 1]);
	top = pd_block_max(top);
	for (int c = threadIdx.x; c < 3; c += blockDim.x)
		sum += expf(x[at + (int64_t)c * 1] - top);
	top += logf(pd_block_sum(sum));
	for (int c = threadIdx.x; c < 3; c += blockDim.x)
		logp[at + (int64_t)c * 1] = x[at + (int64_t)c * 1] - top;
}

static __global__ void run(float *loss, const float *score, const int64_t *labels, const float *weights)
{
	float sum = 0, total = 0;

	for (int k = threadIdx.x; k < 2 * 1; k += blockDim.x) {
		const int64_t label = labels[k];
		float w = 1;

		const float one = w != 0 ? -w * score[((int64_t)(k / 1) * 3 + label) * 1 + k % 1] : 0;
		sum += one;
		total += w;
	}
	sum = pd_block_sum(sum);
	total = pd_block_sum(total);
	if (threadIdx.x == 0)
		loss[0] = sum;
	(void)weights;
	(void)total;
}
}

PD_HOST void cross_entropy_2x3_sum(float *loss,
	float *logp,
	const float *x, const int64_t *labels
	)
{
	PD_LAUNCH(device::cross_entropy_2x3_sum::rows, 2 * 1, 3 <= 32 ? 32 : 3 <= 512 ? 128 : 512, 0, logp, x);
	PD_LAUNCH(device::cross_entropy_2x3_sum::run, 1, 2 * 1 <= 128 ? 128 : 1024, 0, loss,
		logp,
		labels, (const float *)nullptr);
}

/* How many labels count, or the sum of their class weights, by one block. */
namespace device::count_labels_2 {
static __global__ void run(float *y, const int64_t *labels, const float *weights)
{
	float sum = 0;

	for (int i = threadIdx.x; i < 2; i += blockDim.x) {
		sum += 1;
	}
	sum = pd_block_sum(sum);
	if (threadIdx.x == 0)
		y[0] = sum;
	(void)labels;
	(void)weights;
}
}

PD_HOST void count_labels_2(float *y, const int64_t *labels
	)
{
	PD_LAUNCH(device::count_labels_2::run, 1, 2 <= 128 ? 128 : 1024, 0, y, labels, (const float *)nullptr);
}

/* The gradient of loss.cuda.cu. CE: dx = w (softmax - one at the label) dy; else dx = -w dy at the label. A block per row. */
namespace device::cross_entropy_grad_2x3_sum {
static __global__ void run(float *dx, const float *dy, const float *logp, const int64_t *labels, const float *weights)
{
	const int row = blockIdx.x;
	const int64_t at = (int64_t)(row / 1) * 3 * 1 + row % 1, label = labels[row];
	bool counts = true;
	float w;

	w = dy[0];
	if (!counts)
		w = 0;
	for (int c = threadIdx.x; c < 3; c += blockDim.x) {
		const int64_t e = at + (int64_t)c * 1;
		const float p = w * expf(logp[e]);
		dx[e] = counts && c == label ? p - w : p;
	}
	(void)logp;
	(void)weights;
}
}

PD_HOST void cross_entropy_grad_2x3_sum(float *dx, const float *dy,
	const float *logp,
	const int64_t *labels
	)
{
	PD_LAUNCH(device::cross_entropy_grad_2x3_sum::run, 2 * 1, 3 <= 32 ? 32 : 3 <= 512 ? 128 : 512, 0, dx, dy,
		logp,
		labels, (const float *)nullptr);
}

namespace device::slice_grad_8_to_16_at_8 {
static __global__ void before(float *y, const float *a)
{
	const int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

	if (e < 16)
		y[e] = 0;
}

static __global__ void run(float *y, const float *a)
{
	const int e = (int)(blockIdx.x * (int64_t)blockDim.x + threadIdx.x);

	if (e >= 8)
		return;
	const int i = e;
	y[8 + i] = a[i];
}
}

PD_HOST void slice_grad_8_to_16_at_8(float *y, const float *a)
{
	PD_LAUNCH(device::slice_grad_8_to_16_at_8::before, pd_blocks(16, 256), 256, 0, y, a);
	PD_LAUNCH(device::slice_grad_8_to_16_at_8::run, pd_blocks(8, 256), 256, 0, y, a);
}

namespace device::slice_grad_8_to_16_at_0 {
static __global__ void before(float *y, const float *a)
{
	const int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

	if (e < 16)
		y[e] = 0;
}

static __global__ void run(float *y, const float *a)
{
	const int e = (int)(blockIdx.x * (int64_t)blockDim.x + threadIdx.x);

	if (e >= 8)
		return;
	const int i = e;
	y[i] = a[i];
}
}

PD_HOST void slice_grad_8_to_16_at_0(float *y, const float *a)
{
	PD_LAUNCH(device::slice_grad_8_to_16_at_0::before, pd_blocks(16, 256), 256, 0, y, a);
	PD_LAUNCH(device::slice_grad_8_to_16_at_0::run, pd_blocks(8, 256), 256, 0, y, a);
}

namespace device::add_16 {
static __global__ void run(float *y, const float *a, const float *b)
{
	const int e = (int)(blockIdx.x * (int64_t)blockDim.x + threadIdx.x);

	if (e >= 16)
		return;
	const int i = e;
	y[i] = a[i] + b[i];
}
}

PD_HOST void add_16(float *y, const float *a, const float *b)
{
	PD_LAUNCH(device::add_16::run, pd_blocks(16, 256), 256, 0, y, a, b);
}

/* One step over N elements, a thread each. g is a sum over the global batch, n[0] what it is divided by, late what hangs on the
 * step. */
namespace device::sgd_24 {
static __global__ void run(float *w,
	const float *g, const float *n, const double *late
	)
{
	const int i = (int)(blockIdx.x * (int64_t)blockDim.x + threadIdx.x);

	const double lr = late[0];

	(void)lr;
	if (i < 24) {
		const float scale = 1 / n[0];
		const float d = g[i] * scale;
		w[i] -= (float)lr * d;
	}
}

/* What hangs on the step. */
static void late(double *to)
{
	const double lr = 0.5;

	to[0] = lr;
	to[1] = to[2] = to[3] = 0;
}
}

PD_HOST void sgd_24(float *w,
	const float *g, const float *n)
{
	PD_LAUNCH(device::sgd_24::run, pd_blocks(24, 256), 256, 0, w,
		g, n, pd_late(device::sgd_24::late, 4));
}

namespace device::sgd_16 {
static __global__ void run(float *w,
	const float *g, const float *n, const double *late
	)
{
	const int i = (int)(blockIdx.x * (int64_t)blockDim.x + threadIdx.x);

	const double lr = late[0];

	(void)lr;
	if (i < 16) {
		const float scale = 1 / n[0];
		const float d = g[i] * scale;
		w[i] -= (float)lr * d;
	}
}

/* What hangs on the step. */
static void late(double *to)
{
	const double lr = 0.5;

	to[0] = lr;
	to[1] = to[2] = to[3] = 0;
}
}

PD_HOST void sgd_16(float *w,
	const float *g, const float *n)
{
	PD_LAUNCH(device::sgd_16::run, pd_blocks(16, 256), 256, 0, w,
		g, n, pd_late(device::sgd_16::late, 4));
}

namespace device::sgd_6 {
static __global__ void run(float *w,
	const float *g, const float *n, const double *late
	)
{
	const int i = (int)(blockIdx.x * (int64_t)blockDim.x + threadIdx.x);

	const double lr = late[0];

	(void)lr;
	if (i < 6) {
		const float scale = 1 / n[0];
		const float d = g[i] * scale;
		w[i] -= (float)lr * d;
	}
}

/* What hangs on the step. */
static void late(double *to)
{
	const double lr = 0.5;

	to[0] = lr;
	to[1] = to[2] = to[3] = 0;
}
}

PD_HOST void sgd_6(float *w,
	const float *g, const float *n)
{
	PD_LAUNCH(device::sgd_6::run, pd_blocks(6, 256), 256, 0, w,
		g, n, pd_late(device::sgd_6::late, 4));
}
