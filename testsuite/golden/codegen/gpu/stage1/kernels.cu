/* mlp, stage 1 of 2: the kernels of its functions, one per op and shape. Written by pdcc 0.1, edits are
 * lost. Comments name the value as in ir/, its type and the node of the model. */
#include "gpu.h"

/* -w[label] log softmax(x)[label] of rows of C scores, W apart, and their gradient, w (softmax(x) - one at the label) dy,
 * by a block per row; the gradient may take the scores' place. The rows' losses are added up by one block, always in one
 * order. */
/* A row is read from memory once, and again from the caches that it just went through. */
namespace device::loss_and_grad_4x3 {
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

	for (int k = threadIdx.x; k < 4; k += blockDim.x)
		sum += losses[k];
	sum = pd_block_sum(sum);
	if (threadIdx.x == 0)
		loss[0] = sum;
	(void)labels;
	(void)weights;
}
}

PD_HOST void loss_and_grad_4x3(float *dx, float *loss, const float *x, const float *dy, const int64_t *labels)
{
	float *losses = (float *)pd_room(16);
	const float *weights = nullptr;

	PD_LAUNCH(device::loss_and_grad_4x3::rows, 4, 32, 0, dx, losses, x, dy, labels, weights);
	PD_LAUNCH(device::loss_and_grad_4x3::add, 1, 32, 0, loss, (const float *)losses, labels, weights);
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

PD_HOST void count_labels_4(float *y, const int64_t *labels)
{
	PD_LAUNCH(device::count_labels_4::run, 1, 128, 0, y, labels, (const float *)nullptr);
}

/* One step over all elements of many parameters, four to a thread. g is a sum over the global batch, n[0] what it is divided by,
 * late what depends on the step. A row is the parameter, its states and its gradient, and its rounded copy where it has one:
 * y[o][s][c] of w[o][c][s], a row says how many c and s there are (none: both lie alike). */
namespace device::adam {
typedef pd_pack<2 + 2> pack; static __global__ void run(const pack p, const float *n, const double *late)
{
	const int row = pd_pack_row(p);
	float *const restrict w = (float *)p.at[row][0];
	float *const restrict m = (float *)p.at[row][1], *const restrict v = (float *)p.at[row][2];
	const float *const restrict g = (const float *)p.at[row][2 + 1];
	const double lr = late[0];
	const float rate = (float)late[1], root = (float)late[2];
	const float scale = 1 / n[0];
	const int64_t from = (int64_t)(blockIdx.x - p.first[row]) * pack::EACH, end = p.n[row];

	(void)lr;
	for (int64_t i = from + threadIdx.x; i < end && i < from + pack::EACH; i += blockDim.x) {
		const float d = g[i] * scale;
		m[i] = (float)0.90000000000000002 * m[i] + (float)(1 - 0.90000000000000002) * d;
		v[i] = (float)0.999 * v[i] + (float)(1 - 0.999) * d * d;
		w[i] -= rate * m[i] / (sqrtf(v[i]) * root + (float)1e-08);
	}
}

/* What depends on the step. */
static void late(double *to)
{
	const double lr = 0.01;
	const double t = (double)pd_update_index() + 1;
	const float rate = (float)(lr / (1 - pow(0.90000000000000002, t))), root = (float)(1 / sqrt(1 - pow(0.999, t)));

	to[0] = lr;
	to[1] = to[2] = to[3] = 0;
	to[1] = (double)rate;
	to[2] = (double)root;
}
}

PD_HOST void adam(const pd_many *row, int rows, const float *n)
{
	const double *const step = pd_late(device::adam::late, 4);

	PD_LAUNCH_ROWS(device::adam::run, device::adam::pack, row, rows, pd_part, n, step);
}
