/* One step over all elements of many parameters, four to a thread. g is a sum over the global batch, n[0] what it is divided by,
 * late what depends on the step. A row is the parameter, its states and its gradient, and its rounded copy where it has one:
 * y[o][s][c] of w[o][c][s], a row says how many c and s there are (none: both lie alike). */
namespace device::NAME {
typedef pd_pack<STATES + 2 + COPIED> pack;

static __global__ void run(const pack p, const T *n, const double *late)
{
	const int row = pd_pack_row(p);
	T *const restrict w = (T *)p.at[row][0];
#if HEAVYBALL || RMSPROP || ADAGRAD
	T *const restrict v = (T *)p.at[row][1];
#endif
#if ADAM
	T *const restrict m = (T *)p.at[row][1], *const restrict v = (T *)p.at[row][2];
#endif
#if SMOOTHED
	T *const restrict b = (T *)p.at[row][2];
#endif
#if AVERAGE
	T *const restrict e = (T *)p.at[row][STATES];
#endif
	const T *const restrict g = (const T *)p.at[row][STATES + 1];
#if COPIED
	TS *const restrict y = (TS *)p.at[row][STATES + 2];
	const unsigned c = (unsigned)p.of[row][0], s = (unsigned)p.of[row][1], each = c * s;
#endif
	const double lr = late[0];
#if ADAM && !ONNX
	const T rate = (T)late[1], root = (T)late[2];
#elif ADAM || ADAGRAD
	const T rate = (T)late[1];
#elif HEAVYBALL && DAMPENED
	const T damped = (T)late[1];
#endif
#if AVERAGE
	const T blend = (T)late[3];
#endif
	const T scale = 1 / n[0];
	const int64_t from = (int64_t)(blockIdx.x - p.first[row]) * pack::EACH, end = p.n[row];

	(void)lr;
	for (int64_t i = from + threadIdx.x; i < end && i < from + pack::EACH; i += blockDim.x) {
#include "optimizer.part.h"
#if COPIED
		const unsigned in = each ? (unsigned)(i % each) : 0;

		y[each ? i - in + in % s * c + in / s : i] = STORE(w[i]);
#endif
	}
}

/* What depends on the step. */
static void late(double *to)
{
#include "optimizer.rate.part.h"

	to[0] = lr;
	to[1] = to[2] = to[3] = 0;
#if ADAM && !ONNX
	to[1] = (double)rate;
	to[2] = (double)root;
#elif ADAM || ADAGRAD
	to[1] = (double)rate;
#elif HEAVYBALL && DAMPENED
	to[1] = (double)damped;
#endif
#if AVERAGE
	to[3] = (double)blend;
#endif
}
}

PD_HOST void NAME(const pd_many *row, int rows, const T *n)
{
	const double *const step = pd_late(device::NAME::late, 4);

	PD_LAUNCH_ROWS(device::NAME::run, device::NAME::pack, row, rows, pd_part, n, step);
}
