/* conv, stage 0 of 1: the kernels of its functions, one per op and shape. Written by pdcc 0.1, edits are
 * lost. Comments name the value as in ir/, its type and the node of the model. */
#include "gpu.h"

/* A thread per element of a loop nest (nest.cpu.c): elementwise ops, fused chains, and ops that move elements. Loop i is
 * the innermost, so neighbours in a warp are neighbours in y. FILL: y is larger than the nest and gets VALUE where the
 * nest does not write. */
namespace device::relu_64 {
static __global__ void run(float *y, const float *a)
{
	const int e = (int)(blockIdx.x * (int64_t)blockDim.x + threadIdx.x);

	if (e >= 64)
		return;
	const int i = e;
	y[i] = a[i] < 0 ? 0 : a[i];
}
}

PD_HOST void relu_64(float *y, const float *a)
{
	PD_LAUNCH(device::relu_64::run, pd_blocks(64, 256), 256, 0, y, a);
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

namespace device::relugrad_64 {
static __global__ void run(float *y, const float *a, const float *b)
{
	const int e = (int)(blockIdx.x * (int64_t)blockDim.x + threadIdx.x);

	if (e >= 64)
		return;
	const int i = e;
	y[i] = b[i] > 0 ? a[i] : 0;
}
}

PD_HOST void relugrad_64(float *y, const float *a, const float *b)
{
	PD_LAUNCH(device::relugrad_64::run, pd_blocks(64, 256), 256, 0, y, a, b);
}

/* Running statistics: the rows of all microbatches, in their order. A thread per element. */
namespace device::running_4x2 {
static __global__ void run(float *r, const float *rows)
{
	const int i = (int)(blockIdx.x * (int64_t)blockDim.x + threadIdx.x);

	if (i >= 2)
		return;
	for (int mb = 0; mb < 4; mb++)
		r[i] = (float)0.75 * r[i] + (float)(1 - 0.75) * rows[mb * 2 + i];
}
}

PD_HOST void running_4x2(float *r, const float *rows)
{
	PD_LAUNCH(device::running_4x2::run, pd_blocks(2, 256), 256, 0, r, rows);
}

/* One step over N elements, a thread each. g is a sum over the global batch, n[0] what it is divided by, late what hangs on the
 * step. */
namespace device::momentum_18 {
static __global__ void run(float *w,
	float *restrict v,
	const float *g, const float *n, const double *late
	)
{
	const int i = (int)(blockIdx.x * (int64_t)blockDim.x + threadIdx.x);

	const double lr = late[0];

	(void)lr;
	if (i < 18) {
		const float scale = 1 / n[0];
		const float d = g[i] * scale;
		v[i] = (float)0.90000000000000002 * v[i] + d;
		w[i] -= (float)lr * v[i];
	}
}

/* What hangs on the step. */
static void late(double *to)
{
	const double lr = 0.01;

	to[0] = lr;
	to[1] = to[2] = to[3] = 0;
}
}

PD_HOST void momentum_18(float *w,
	float *restrict v,
	const float *g, const float *n)
{
	PD_LAUNCH(device::momentum_18::run, pd_blocks(18, 256), 256, 0, w,
		v,
		g, n, pd_late(device::momentum_18::late, 4));
}

namespace device::momentum_2 {
static __global__ void run(float *w,
	float *restrict v,
	const float *g, const float *n, const double *late
	)
{
	const int i = (int)(blockIdx.x * (int64_t)blockDim.x + threadIdx.x);

	const double lr = late[0];

	(void)lr;
	if (i < 2) {
		const float scale = 1 / n[0];
		const float d = g[i] * scale;
		v[i] = (float)0.90000000000000002 * v[i] + d;
		w[i] -= (float)lr * v[i];
	}
}

/* What hangs on the step. */
static void late(double *to)
{
	const double lr = 0.01;

	to[0] = lr;
	to[1] = to[2] = to[3] = 0;
}
}

PD_HOST void momentum_2(float *w,
	float *restrict v,
	const float *g, const float *n)
{
	PD_LAUNCH(device::momentum_2::run, pd_blocks(2, 256), 256, 0, w,
		v,
		g, n, pd_late(device::momentum_2::late, 4));
}

namespace device::momentum_24 {
static __global__ void run(float *w,
	float *restrict v,
	const float *g, const float *n, const double *late
	)
{
	const int i = (int)(blockIdx.x * (int64_t)blockDim.x + threadIdx.x);

	const double lr = late[0];

	(void)lr;
	if (i < 24) {
		const float scale = 1 / n[0];
		const float d = g[i] * scale;
		v[i] = (float)0.90000000000000002 * v[i] + d;
		w[i] -= (float)lr * v[i];
	}
}

/* What hangs on the step. */
static void late(double *to)
{
	const double lr = 0.01;

	to[0] = lr;
	to[1] = to[2] = to[3] = 0;
}
}

PD_HOST void momentum_24(float *w,
	float *restrict v,
	const float *g, const float *n)
{
	PD_LAUNCH(device::momentum_24::run, pd_blocks(24, 256), 256, 0, w,
		v,
		g, n, pd_late(device::momentum_24::late, 4));
}

namespace device::momentum_3 {
static __global__ void run(float *w,
	float *restrict v,
	const float *g, const float *n, const double *late
	)
{
	const int i = (int)(blockIdx.x * (int64_t)blockDim.x + threadIdx.x);

	const double lr = late[0];

	(void)lr;
	if (i < 3) {
		const float scale = 1 / n[0];
		const float d = g[i] * scale;
		v[i] = (float)0.90000000000000002 * v[i] + d;
		w[i] -= (float)lr * v[i];
	}
}

/* What hangs on the step. */
static void late(double *to)
{
	const double lr = 0.01;

	to[0] = lr;
	to[1] = to[2] = to[3] = 0;
}
}

PD_HOST void momentum_3(float *w,
	float *restrict v,
	const float *g, const float *n)
{
	PD_LAUNCH(device::momentum_3::run, pd_blocks(3, 256), 256, 0, w,
		v,
		g, n, pd_late(device::momentum_3::late, 4));
}
