/* skip, stage 0 of 1: the kernels of its functions, one per op and shape. Written by pdcc 0.1, edits are
 * lost. Comments name the value as in ir/, its type and the node of the model. */
#include "gpu.h"

/* A thread per element of a loop nest (as on CPUs, nest.cpu.c): elementwise ops, fused chains, and ops that move
 * elements. Loop i is the innermost, so neighbours in a warp are neighbours in y. */
/* A thread does several elements, which lie side by side in what is written and in what is read, or are one; all are
 * read before any is written. */
namespace device::fused_tanh_add_8_9f383262 {
static __global__ void run(float *y0, float *y1, const float *x0, const float *x1)
{
	const int e = (int)(blockIdx.x * (int64_t)blockDim.x + threadIdx.x) * 4;

	if (e >= 8)
		return;
	const int i = e;
	pd_vec<float, 4> q0;
	pd_vec<float, 4> q1;
	const pd_vec<float, 4> q2 = pd_read<4>(&x0[i]);
	const pd_vec<float, 4> q3 = pd_read<4>(&x1[i]);
	PD_UNROLL
	for (int u = 0; u < 4; u++) {
		const float v0 = q2.v[u];
		const float v1 = q3.v[u];
		const float v2 = tanhf(v0);
		const float v3 = v2 + v1;
		q0.v[u] = v2;
		q1.v[u] = v3;
	}
	pd_write(&y0[i], q0);
	pd_write(&y1[i], q1);
}
}

PD_HOST void fused_tanh_add_8_9f383262(float *y0, float *y1, const float *x0, const float *x1)
{
	PD_LAUNCH(device::fused_tanh_add_8_9f383262::run, pd_blocks(8 / 4, 256), 256, 0, y0, y1, x0, x1);
}

namespace device::mul_8 {
static __global__ void run(float *y, const float *a, const float *b)
{
	const int e = (int)(blockIdx.x * (int64_t)blockDim.x + threadIdx.x) * 4;

	if (e >= 8)
		return;
	const int i = e;
	pd_vec<float, 4> q0;
	const pd_vec<float, 4> q1 = pd_read<4>(&a[i]);
	const pd_vec<float, 4> q2 = pd_read<4>(&b[i]);
	PD_UNROLL
	for (int u = 0; u < 4; u++) {
		q0.v[u] = q1.v[u] * q2.v[u];
	}
	pd_write(&y[i], q0);
}
}

PD_HOST void mul_8(float *y, const float *a, const float *b)
{
	PD_LAUNCH(device::mul_8::run, pd_blocks(8 / 4, 256), 256, 0, y, a, b);
}

/* -w[label] log p[label] over the axis of classes. */
/* x holds scores, and their log-softmax goes to logp, by a block per row. */
/* The sum of the losses by one block, always in one order. */
namespace device::cross_entropy_2x4_sum {
static __global__ void rows(float *logp, const float *x)
{
	const int64_t at = (int64_t)(blockIdx.x) * 4;
	float top = -INFINITY, sum = 0;

	for (int c = threadIdx.x; c < 4; c += blockDim.x)
		top = fmaxf(top, x[at + (int64_t)c]);
	top = pd_block_max(top);
	for (int c = threadIdx.x; c < 4; c += blockDim.x)
		sum += expf(x[at + (int64_t)c] - top);
	top += logf(pd_block_sum(sum));
	for (int c = threadIdx.x; c < 4; c += blockDim.x)
		logp[at + (int64_t)c] = x[at + (int64_t)c] - top;
}

static __global__ void run(float *loss, const float *score, const int64_t *labels, const float *weights)
{
	float sum = 0, total = 0;

	for (int k = threadIdx.x; k < 2; k += blockDim.x) {
		const int64_t label = labels[k];
		float w = 1;

		const float one = w != 0 ? -w * score[((int64_t)(k) * 4 + label)] : 0;
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

PD_HOST void cross_entropy_2x4_sum(float *loss, float *logp, const float *x, const int64_t *labels)
{
	PD_LAUNCH(device::cross_entropy_2x4_sum::rows, 2, 32, 0, logp, x);
	PD_LAUNCH(device::cross_entropy_2x4_sum::run, 1, 128, 0, loss,
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

PD_HOST void count_labels_2(float *y, const int64_t *labels)
{
	PD_LAUNCH(device::count_labels_2::run, 1, 128, 0, y, labels, (const float *)nullptr);
}

/* The gradient of loss.cuda.cu. A block per row. */
/* dx = w (softmax - one at the label) dy. */
namespace device::cross_entropy_grad_2x4_sum {
static __global__ void run(float *dx, const float *dy, const float *logp, const int64_t *labels,
	const float *weights, int64_t first)
{
	const int row = blockIdx.x;
	const int64_t at = (int64_t)(row) * 4, label = labels[row];
	bool counts = true;
	float w;

	w = dy[0];
	if (!counts)
		w = 0;
	for (int c = threadIdx.x; c < 4; c += blockDim.x) {
		const int64_t e = at + (int64_t)c;
		const float p = w * expf(logp[e]);
		dx[e] = counts && c + first == label ? p - w : p;
	}
	(void)logp;
	(void)weights;
}
}

PD_HOST void cross_entropy_grad_2x4_sum(float *dx, const float *dy, const float *logp, const int64_t *labels)
{
	const int64_t first = 0;

	PD_LAUNCH(device::cross_entropy_grad_2x4_sum::run, 2, 32, 0, dx, dy,
		logp,
		labels, (const float *)nullptr, first);
}

namespace device::tanhgrad_8 {
static __global__ void run(float *y, const float *a, const float *b)
{
	const int e = (int)(blockIdx.x * (int64_t)blockDim.x + threadIdx.x) * 4;

	if (e >= 8)
		return;
	const int i = e;
	pd_vec<float, 4> q0;
	const pd_vec<float, 4> q1 = pd_read<4>(&a[i]);
	const pd_vec<float, 4> q2 = pd_read<4>(&b[i]);
	PD_UNROLL
	for (int u = 0; u < 4; u++) {
		q0.v[u] = q1.v[u] * (1 - q2.v[u] * q2.v[u]);
	}
	pd_write(&y[i], q0);
}
}

PD_HOST void tanhgrad_8(float *y, const float *a, const float *b)
{
	PD_LAUNCH(device::tanhgrad_8::run, pd_blocks(8 / 4, 256), 256, 0, y, a, b);
}

namespace device::fused_mul_sum_8_4bbd5c7f {
static __global__ void run(float *y, const float *x0, const float *x1, const float *x2, const float *x3)
{
	const int e = (int)(blockIdx.x * (int64_t)blockDim.x + threadIdx.x) * 4;

	if (e >= 8)
		return;
	const int i = e;
	pd_vec<float, 4> q0;
	const pd_vec<float, 4> q1 = pd_read<4>(&x0[i]);
	const pd_vec<float, 4> q2 = pd_read<4>(&x1[i]);
	const pd_vec<float, 4> q3 = pd_read<4>(&x2[i]);
	const pd_vec<float, 4> q4 = pd_read<4>(&x3[i]);
	PD_UNROLL
	for (int u = 0; u < 4; u++) {
		const float v0 = q1.v[u];
		const float v1 = q2.v[u];
		const float v2 = q3.v[u];
		const float v3 = q4.v[u];
		const float v4 = v0 * v1;
		const float v5 = v4 + v2 + v3;
		q0.v[u] = v5;
	}
	pd_write(&y[i], q0);
}
}

PD_HOST void fused_mul_sum_8_4bbd5c7f(float *y, const float *x0, const float *x1, const float *x2, const float *x3)
{
	PD_LAUNCH(device::fused_mul_sum_8_4bbd5c7f::run, pd_blocks(8 / 4, 256), 256, 0, y, x0, x1, x2, x3);
}

/* One step over all elements of many parameters, four to a thread. g is a sum over the global batch, n[0] what it is divided by,
 * late what depends on the step. A row is the parameter, its states and its gradient, and its rounded copy where it has one:
 * y[o][s][c] of w[o][c][s], a row says how many c and s there are (none: both lie alike). */
namespace device::sgd {
typedef pd_pack<2> pack; static __global__ void run(const pack p, const float *n, const double *late)
{
	const int row = pd_pack_row(p);
	float *const restrict w = (float *)p.at[row][0];
	const float *const restrict g = (const float *)p.at[row][1];
	const double lr = late[0];
	const float scale = 1 / n[0];
	const int64_t from = (int64_t)(blockIdx.x - p.first[row]) * pack::EACH, end = p.n[row];

	(void)lr;
	for (int64_t i = from + threadIdx.x; i < end && i < from + pack::EACH; i += blockDim.x) {
		const float d = g[i] * scale;
		w[i] -= (float)lr * d;
	}
}

/* What depends on the step. */
static void late(double *to)
{
	const double lr = 0.5;

	to[0] = lr;
	to[1] = to[2] = to[3] = 0;
}
}

PD_HOST void sgd(const pd_many *row, int rows, const float *n)
{
	const double *const step = pd_late(device::sgd::late, 4);

	PD_LAUNCH_ROWS(device::sgd::run, device::sgd::pack, row, rows, pd_part, n, step);
}
