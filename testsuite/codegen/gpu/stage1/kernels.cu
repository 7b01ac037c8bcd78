/* mlp, stage 1 of 2: the kernels of its functions, one per op and shape. Written by pdcc 0.1, edits are
 * lost. Comments name the value as in ir/, its type and the node of the model. */
#include "gpu.h"

/* -w[label] log p[label] over axis C of x [OUTER, C, INNER]; CE: x holds scores, and their log-softmax goes to logp, by a
 * block per row. EACH: a loss per label; else their sum by one block, always in one order; MEAN: divided by the weight of
 * what counts. */
namespace device::cross_entropy_4x3_sum {
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

	for (int k = threadIdx.x; k < 4 * 1; k += blockDim.x) {
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

PD_HOST void cross_entropy_4x3_sum(float *loss,
	float *logp,
	const float *x, const int64_t *labels
	)
{
	PD_LAUNCH(device::cross_entropy_4x3_sum::rows, 4 * 1, 3 <= 32 ? 32 : 3 <= 512 ? 128 : 512, 0, logp, x);
	PD_LAUNCH(device::cross_entropy_4x3_sum::run, 1, 4 * 1 <= 128 ? 128 : 1024, 0, loss,
		logp,
		labels, (const float *)nullptr);
}

/* How many labels count, or the sum of their class weights, by one block. */
namespace device::count_labels_4 {
static __global__ void run(float *y, const int64_t *labels, const float *weights)
{
	float sum = 0;

	for (int i = threadIdx.x; i < 4; i += blockDim.x) {
		sum += 1;
	}
	sum = pd_block_sum(sum);
	if (threadIdx.x == 0)
		y[0] = sum;
	(void)labels;
	(void)weights;
}
}

PD_HOST void count_labels_4(float *y, const int64_t *labels
	)
{
	PD_LAUNCH(device::count_labels_4::run, 1, 4 <= 128 ? 128 : 1024, 0, y, labels, (const float *)nullptr);
}

/* The gradient of loss.cuda.cu. CE: dx = w (softmax - one at the label) dy; else dx = -w dy at the label. A block per row. */
namespace device::cross_entropy_grad_4x3_sum {
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

PD_HOST void cross_entropy_grad_4x3_sum(float *dx, const float *dy,
	const float *logp,
	const int64_t *labels
	)
{
	PD_LAUNCH(device::cross_entropy_grad_4x3_sum::run, 4 * 1, 3 <= 32 ? 32 : 3 <= 512 ? 128 : 512, 0, dx, dy,
		logp,
		labels, (const float *)nullptr);
}

/* One step over N elements, a thread each. g is a sum over the global batch, n[0] what it is divided by, late what hangs on the
 * step. */
namespace device::adam_15 {
static __global__ void run(float *w,
	float *restrict m, float *restrict v,
	const float *g, const float *n, const double *late
	)
{
	const int i = (int)(blockIdx.x * (int64_t)blockDim.x + threadIdx.x);

	const double lr = late[0];
	const float rate = (float)late[1], root = (float)late[2];

	(void)lr;
	if (i < 15) {
		const float scale = 1 / n[0];
		const float d = g[i] * scale;
		m[i] = (float)0.90000000000000002 * m[i] + (float)(1 - 0.90000000000000002) * d;
		v[i] = (float)0.999 * v[i] + (float)(1 - 0.999) * d * d;
		w[i] -= rate * m[i] / (sqrtf(v[i]) * root + (float)1e-08);
	}
}

/* What hangs on the step. */
static void late(double *to)
{
	const double lr = 0.01;
	const double t = (double)pd_update_index() + 1 + 0;
	const float rate = (float)(lr / (1 - pow(0.90000000000000002, t))), root = (float)(1 / sqrt(1 - pow(0.999, t)));

	to[0] = lr;
	to[1] = to[2] = to[3] = 0;
	to[1] = (double)rate;
	to[2] = (double)root;
}
}

PD_HOST void adam_15(float *w,
	float *restrict m, float *restrict v,
	const float *g, const float *n)
{
	PD_LAUNCH(device::adam_15::run, pd_blocks(15, 256), 256, 0, w,
		m, v,
		g, n, pd_late(device::adam_15::late, 4));
}

namespace device::adam_3 {
static __global__ void run(float *w,
	float *restrict m, float *restrict v,
	const float *g, const float *n, const double *late
	)
{
	const int i = (int)(blockIdx.x * (int64_t)blockDim.x + threadIdx.x);

	const double lr = late[0];
	const float rate = (float)late[1], root = (float)late[2];

	(void)lr;
	if (i < 3) {
		const float scale = 1 / n[0];
		const float d = g[i] * scale;
		m[i] = (float)0.90000000000000002 * m[i] + (float)(1 - 0.90000000000000002) * d;
		v[i] = (float)0.999 * v[i] + (float)(1 - 0.999) * d * d;
		w[i] -= rate * m[i] / (sqrtf(v[i]) * root + (float)1e-08);
	}
}

/* What hangs on the step. */
static void late(double *to)
{
	const double lr = 0.01;
	const double t = (double)pd_update_index() + 1 + 0;
	const float rate = (float)(lr / (1 - pow(0.90000000000000002, t))), root = (float)(1 / sqrt(1 - pow(0.999, t)));

	to[0] = lr;
	to[1] = to[2] = to[3] = 0;
	to[1] = (double)rate;
	to[2] = (double)root;
}
}

PD_HOST void adam_3(float *w,
	float *restrict m, float *restrict v,
	const float *g, const float *n)
{
	PD_LAUNCH(device::adam_3::run, pd_blocks(3, 256), 256, 0, w,
		m, v,
		g, n, pd_late(device::adam_3::late, 4));
}
