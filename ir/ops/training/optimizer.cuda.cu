/* One step over all elements, a thread each. g is a sum over the global batch, n[0] what it is divided by, late what
 * depends on the step. */
namespace device::NAME {
static __global__ void run(T *w,
#include "optimizer.state.part.h"
	const T *g, const T *n, const double *late
	)
{
	const IX i = (IX)(blockIdx.x * (int64_t)blockDim.x + threadIdx.x);

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

	(void)lr;
	if (i < N) {
		const T scale = 1 / n[0];
#include "optimizer.part.h"
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

PD_HOST void NAME(T *w,
#include "optimizer.state.part.h"
	const T *g, const T *n)
{
	PD_LAUNCH(device::NAME::run, pd_blocks(N, 256), 256, 0, w,
#if HEAVYBALL
		v,
#endif
#if ADAM
		m, v,
#endif
#if RMSPROP || ADAGRAD
		v,
#endif
#if SMOOTHED
		b,
#endif
#if AVERAGE
		e,
#endif
		g, n, pd_late(device::NAME::late, 4));
}
