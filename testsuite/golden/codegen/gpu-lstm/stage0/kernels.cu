/* lstm, stage 0 of 1: the kernels of its functions, one per op and shape. Written by pdcc 0.1, edits are
 * lost. Comments name the value as in ir/, its type and the node of the model. */
#include "gpu.h"

/* A thread per element of a loop nest (as on CPUs, nest.cpu.c): elementwise ops, fused chains, and ops that move
 * elements. Loop i is the innermost, so neighbours in a warp are neighbours in y. */
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

/* A thread does several elements, which lie side by side in what is written and in what is read, or are one; all are
 * read before any is written. */
namespace device::add_8 {
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
		q0.v[u] = q1.v[u] + q2.v[u];
	}
	pd_write(&y[i], q0);
}
}

PD_HOST void add_8(float *y, const float *a, const float *b)
{
	PD_LAUNCH(device::add_8::run, pd_blocks(8 / 4, 256), 256, 0, y, a, b);
}

/* -w[label] log softmax(x)[label] of rows of C scores, W apart, and their gradient, w (softmax(x) - one at the label) dy,
 * by a block per row; the gradient may take the scores' place. The rows' losses are added up by one block, always in one
 * order. */
/* A row is read from memory once, and again from the caches that it just went through. */
namespace device::loss_and_grad_2x3 {
/* The logarithm of the sum of exp(x) over the first `has` scores of a row, which a block reads once. */
static __device__ __forceinline__ float log_sum(const float *row, int has)
{
	float top = -INFINITY, sum = 0;

	for (int c = (int)threadIdx.x; c < has; c += 32) {
		const pd_vec<float, 1> v = pd_read<1>(row + c);
		float most = top;
		most = c < has ? fmaxf(most, (v.v[0])) : most;
		const float from = most > -INFINITY ? most : 0;

		sum *= top < most ? expf(top - most) : 1;
		sum += c < has ? expf((v.v[0]) - from) : 0;
		top = most;
	}
	const float most = pd_block_max(top);

	sum = pd_block_sum(top < most ? sum * expf(top - most) : sum);
	return most + logf(sum);
}

static __device__ __forceinline__ float weight_of(int64_t label, const float *weights)
{
	(void)label;
	(void)weights;
	return 1;
}

/* dx = w (softmax(x) - one at the label) of a row, by the log of its sum; dx may be x. What lies behind the first `has` becomes 0, and so
 * does a row whose label does not count. */
static __device__ __forceinline__ void gradient(float *dx, const float *x, int has, float sum, int64_t label, float w, bool counts)
{
	for (int c = (int)threadIdx.x; c < 3; c += 32) {
		const pd_vec<float, 1> v = pd_read<1>(x + c);
		pd_vec<float, 1> out;
		const float p = w * expf((v.v[0]) - sum);

		out.v[0] = (!counts || c >= has ? 0 : c == label ? p - w : p);
		pd_write(dx + c, out);
	}
}

static __global__ void __launch_bounds__(32) rows(float *dx, float *losses, const float *x, const float *dy,
	const int64_t *labels, const float *weights)
{
	const int64_t at = (int64_t)blockIdx.x * 3, label = labels[blockIdx.x];
	const float own = weight_of(label, weights), score = own != 0 ? (x[at + label]) : 0;
	const float sum = log_sum(x + at, 3);
	const float w = own * dy[0];

	if (threadIdx.x == 0)
		losses[blockIdx.x] = own != 0 ? own * (sum - score) : 0;
	gradient(dx + at, x + at, 3, sum, label, w, own != 0);
}

static __global__ void add(float *loss, const float *losses, const int64_t *labels, const float *weights)
{
	float sum = 0;

	for (int k = threadIdx.x; k < 2; k += blockDim.x)
		sum += losses[k];
	sum = pd_block_sum(sum);
	if (threadIdx.x == 0)
		loss[0] = sum;
	(void)labels;
	(void)weights;
}
}

PD_HOST void loss_and_grad_2x3(float *dx, float *loss, const float *x, const float *dy, const int64_t *labels)
{
	float *losses = (float *)pd_room(8);
	const float *weights = nullptr;

	PD_LAUNCH(device::loss_and_grad_2x3::rows, 2, 32, 0, dx, losses, x, dy, labels, weights);
	PD_LAUNCH(device::loss_and_grad_2x3::add, 1, 32, 0, loss, (const float *)losses, labels, weights);
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

/* y is larger than the nest and gets a value where the nest does not write. */
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
	const int e = (int)(blockIdx.x * (int64_t)blockDim.x + threadIdx.x) * 4;

	if (e >= 16)
		return;
	const int i = e;
	pd_vec<float, 4> q0;
	const pd_vec<float, 4> q1 = pd_read<4>(&a[i]);
	const pd_vec<float, 4> q2 = pd_read<4>(&b[i]);
	PD_UNROLL
	for (int u = 0; u < 4; u++) {
		q0.v[u] = q1.v[u] + q2.v[u];
	}
	pd_write(&y[i], q0);
}
}

PD_HOST void add_16(float *y, const float *a, const float *b)
{
	PD_LAUNCH(device::add_16::run, pd_blocks(16 / 4, 256), 256, 0, y, a, b);
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
