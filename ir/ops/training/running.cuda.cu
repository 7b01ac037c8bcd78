/* Running statistics: the rows of all microbatches, in their order. A thread per element. */
namespace device::NAME {
static __global__ void run(T *r, const T *rows)
{
	const IX i = (IX)(blockIdx.x * (int64_t)blockDim.x + threadIdx.x);

	if (i >= N)
		return;
	for (int mb = 0; mb < ROWS; mb++)
		r[i] = (T)MOMENTUM * r[i] + (T)(1 - MOMENTUM) * rows[mb * N + i];
}
}

PD_HOST void NAME(T *r, const T *rows)
{
	PD_LAUNCH(device::NAME::run, pd_blocks(N, 256), 256, 0, r, rows);
}
