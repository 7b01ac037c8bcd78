/* dx = mask dy / (1 - ratio); dx may be dy, or of 16 bits. A thread per V elements. */
namespace device::NAME {
static __global__ void run(TY *dx, const TX *dy, const uint8_t *mask)
{
	const int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * V;

	if (i >= N)
		return;
	const pd_vec<TX, V> in = pd_read<V>(dy + i);
	const pd_vec<uint8_t, V> kept = pd_read<V>(mask + i);
	pd_vec<TY, V> out;

	PD_UNROLL
	for (int u = 0; u < V; u++)
		out.v[u] = STORE(kept.v[u] ? LOAD(in.v[u]) * (T)SCALE : 0);
	pd_write(dx + i, out);
}
}

PD_HOST void NAME(TY *dx, const TX *dy, const uint8_t *mask)
{
	PD_LAUNCH(device::NAME::run, pd_blocks(N / V, 256), 256, 0, dx, dy, mask);
}
