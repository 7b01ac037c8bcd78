/* A thread per element of a loop nest (as on CPUs, nest.cpu.c): elementwise ops, fused chains, and ops that move
 * elements. Loop i is the innermost, so neighbours in a warp are neighbours in y. */
#if FILL
/* y is larger than the nest and gets a value where the nest does not write. */
#endif
#if VECTORS
/* A thread does several elements, which lie side by side in what is written and in what is read, or are one; all are
 * read before any is written. */
#endif
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
#if VECTORS
	const IX e = (IX)(blockIdx.x * (int64_t)blockDim.x + threadIdx.x) * VECTORS;

	if (e >= COUNT)
		return;
	INDEX
	READS
	PD_UNROLL
	for (int u = 0; u < VECTORS; u++) {
		VECTOR_BODY
	}
	WRITES
#else
	const IX e = (IX)(blockIdx.x * (int64_t)blockDim.x + threadIdx.x);

	if (e >= COUNT)
		return;
	INDEX
	BODY
#endif
}
}

PD_HOST void NAME(PARAMS)
{
#if FILL
	PD_LAUNCH(device::NAME::before, pd_blocks(NUMEL, 256), 256, 0, ARGS);
#endif
#if VECTORS
	PD_LAUNCH(device::NAME::run, pd_blocks(COUNT / VECTORS, 256), 256, 0, ARGS);
#else
	PD_LAUNCH(device::NAME::run, pd_blocks(COUNT, 256), 256, 0, ARGS);
#endif
}
