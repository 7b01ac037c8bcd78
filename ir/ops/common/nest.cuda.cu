/* A thread per element of a loop nest (nest.cpu.c): elementwise ops, fused chains, and ops that move elements. Loop i is
 * the innermost, so neighbours in a warp are neighbours in y. FILL: y is larger than the nest and gets VALUE where the
 * nest does not write. */
namespace device::NAME {
#if FILL
static __global__ void before(PARAMS)
{
	const int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

	if (e < NUMEL)
		y[e] = VALUE;
}

#endif
static __global__ void run(PARAMS)
{
	const IX e = (IX)(blockIdx.x * (int64_t)blockDim.x + threadIdx.x);

	if (e >= COUNT)
		return;
	INDEX
	BODY
}
}

PD_HOST void NAME(PARAMS)
{
#if FILL
	PD_LAUNCH(device::NAME::before, pd_blocks(NUMEL, 256), 256, 0, ARGS);
#endif
	PD_LAUNCH(device::NAME::run, pd_blocks(COUNT, 256), 256, 0, ARGS);
}
