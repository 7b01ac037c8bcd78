/* w[ids[k]] -= lr rows[k] / n in the order of k: a thread owns a column. */
namespace device::NAME {
static __global__ void run(T *w, const int32_t *ids, const T *rows, const T *n, T lr)
{
	const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
	const T rate = lr / n[0];

	if (i >= D)
		return;
	for (int64_t k = 0; k < N; k++)
		if (ids[k] >= 0)
			w[(int64_t)ids[k] * D + i] -= rate * rows[k * D + i];
}
}

PD_HOST void NAME(T *w, const int32_t *ids, const T *rows, const T *n)
{
	PD_LAUNCH(device::NAME::run, pd_blocks(D, 64), 64, 0, w, ids, rows, n, (T)(LR));
}
