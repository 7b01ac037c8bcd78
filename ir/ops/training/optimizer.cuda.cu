/* One step over N elements, a thread each. g is a sum over the global batch, n[0] what it is divided by. */
namespace device::NAME {
static __global__ void run(T *w,
#include "optimizer.state.part.h"
	const T *g, const T *n, double lr
#if ADAM && !ONNX
	, T rate, T root
#elif ADAM || ADAGRAD
	, T rate
#elif HEAVYBALL && DAMPENED
	, T damped
#endif
#if AVERAGE
	, T blend
#endif
	)
{
	const IX i = (IX)(blockIdx.x * (int64_t)blockDim.x + threadIdx.x);

	if (i < N) {
		const T scale = 1 / n[0];
#include "optimizer.part.h"
	}
}
}

PD_HOST void NAME(T *w,
#include "optimizer.state.part.h"
	const T *g, const T *n)
{
#include "optimizer.rate.part.h"

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
		g, n, lr
#if ADAM && !ONNX
		, rate, root
#elif ADAM || ADAGRAD
		, rate
#elif HEAVYBALL && DAMPENED
		, damped
#endif
#if AVERAGE
		, blend
#endif
		);
}
