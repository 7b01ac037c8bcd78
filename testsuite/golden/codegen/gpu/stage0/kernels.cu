/* mlp, stage 0 of 2: the kernels of its functions, one per op and shape. Written by pdcc 0.1, edits are
 * lost. Comments name the value as in ir/, its type and the node of the model. */
#include "gpu.h"

/* A thread per element of a loop nest (as on CPUs, nest.cpu.c): elementwise ops, fused chains, and ops that move
 * elements. Loop i is the innermost, so neighbours in a warp are neighbours in y. */
/* A thread does several elements, which lie side by side in what is written and in what is read, or are one; all are
 * read before any is written. */
namespace device::relugrad_20 {
static __global__ void run(float *y, const float *a, const float *b)
{
	const int e = (int)(blockIdx.x * (int64_t)blockDim.x + threadIdx.x) * 4;

	if (e >= 20)
		return;
	const int i = e;
	pd_vec<float, 4> q0;
	const pd_vec<float, 4> q1 = pd_read<4>(&a[i]);
	const pd_vec<float, 4> q2 = pd_read<4>(&b[i]);
	PD_UNROLL
	for (int u = 0; u < 4; u++) {
		q0.v[u] = q2.v[u] > 0 ? q1.v[u] : 0;
	}
	pd_write(&y[i], q0);
}
}

PD_HOST void relugrad_20(float *y, const float *a, const float *b)
{
	PD_LAUNCH(device::relugrad_20::run, pd_blocks(20 / 4, 256), 256, 0, y, a, b);
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
