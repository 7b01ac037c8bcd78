/* The gradients of the gates and of c, from those of h and s (one may be absent); the gates are computed again. A
 * thread per element. */
namespace device::NAME {
static __global__ void run(T *dgates, T *dc, const T *gates, const T *c, const T *dh, const T *ds)
{
	const int64_t r = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

	if (r >= (int64_t)ROWS * N)
		return;
	const T *x = gates + r / N * 4 * N + r % N;
	T *to = dgates + r / N * 4 * N + r % N;
#if SHIFT
	const T f = 1 / (1 + EXP(-(x[FAT] + FORGET)));
#else
	const T f = 1 / (1 + EXP(-x[FAT]));
#endif
	const T i = 1 / (1 + EXP(-x[IAT])), o = 1 / (1 + EXP(-x[OAT])), g = TANH(x[GAT]);
#if DH
	const T t = TANH(f * c[r] + i * g), d = dh[r];
	T e = d * o * (1 - t * t);

	to[OAT] = d * t * o * (1 - o);
#else
	T e = 0;

	to[OAT] = 0 * o;
#endif
#if DS
	e += ds[r];
#endif
	to[IAT] = e * g * i * (1 - i);
	to[FAT] = e * c[r] * f * (1 - f);
	to[GAT] = e * i * (1 - g * g);
	dc[r] = e * f;
	(void)dh;
	(void)ds;
}
}

PD_HOST void NAME(T *dgates, T *dc, const T *gates, const T *c
#if DH
	, const T *dh
#endif
#if DS
	, const T *ds
#endif
	)
{
#if !DH
	const T *dh = nullptr;
#endif
#if !DS
	const T *ds = nullptr;
#endif

	PD_LAUNCH(device::NAME::run, pd_blocks((int64_t)ROWS * N, 256), 256, 0, dgates, dc, gates, c, dh, ds);
}
