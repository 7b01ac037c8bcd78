/* s = sigmoid(f) c + sigmoid(i) tanh(g), h = sigmoid(o) tanh(s) for all rows of gates, a thread per element. */
namespace device::NAME {
static __global__ void run(T *h, T *s, const T *gates, const T *c)
{
	const int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

	if (e >= (int64_t)ROWS * N)
		return;
	const T *x = gates + e / N * 4 * N + e % N;
#if SHIFT
	const T f = 1 / (1 + EXP(-(x[FAT] + FORGET)));
#else
	const T f = 1 / (1 + EXP(-x[FAT]));
#endif
	const T i = 1 / (1 + EXP(-x[IAT])), o = 1 / (1 + EXP(-x[OAT]));
	const T sum = f * c[e] + i * TANH(x[GAT]);

	s[e] = sum;
	h[e] = o * TANH(sum);
}
}

PD_HOST void NAME(T *h, T *s, const T *gates, const T *c)
{
	PD_LAUNCH(device::NAME::run, pd_blocks((int64_t)ROWS * N, 256), 256, 0, h, s, gates, c);
}
