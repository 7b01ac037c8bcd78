/* dx = w (softmax(x) - one at the label) dy, of rows of C scores, W apart, by a block per row: x is read once, and dx
 * written once in the type that products read. What lies between the rows becomes 0. */
namespace device::NAME {
#if MEAN
/* The weight of all labels that count. */
static __device__ __forceinline__ float weight_of_all(const TL *labels, const float *weights)
{
	float total = 0;

	for (int k = threadIdx.x; k < ROWS; k += THREADS) {
#if IGNORE
		if (labels[k] == IGNORED)
			continue;
#endif
#if WEIGHTS
		total += weights[labels[k]];
#else
		total += 1;
#endif
	}
	(void)weights;
	return pd_block_sum(total);
}

#endif
static __global__ void __launch_bounds__(THREADS) run(TY *dx, const float *dy, const TX *x, const float *sums, const TL *labels,
                                                      const float *weights)
{
	const int64_t at = (int64_t)blockIdx.x * W, label = labels[blockIdx.x];
	const float sum = sums[blockIdx.x];
#if MEAN
	float w = dy[0] / weight_of_all(labels, weights);
#else
	float w = dy[0];
#endif
#if IGNORE
	const bool counts = label != IGNORED;
#else
	const bool counts = true;
#endif

#if WEIGHTS
	w *= counts ? weights[label] : 1;
#endif
	for (int c = PER * (int)threadIdx.x; c < W; c += PER * THREADS) {
		const pd_vec<TX, PER> v = pd_read<PER>(x + at + c);
		pd_vec<TY, PER> out;

		PD_UNROLL
		for (int u = 0; u < PER; u++) {
			const float p = w * expf(LOAD(v.v[u]) - sum);

			out.v[u] = STORE(!counts || c + u >= C ? 0 : c + u == label ? p - w : p);
		}
		pd_write(dx + at + c, out);
	}
	(void)weights;
}
}

PD_HOST void NAME(TY *dx, const float *dy, const TX *x, const float *sums, const TL *labels
#if WEIGHTS
	, const float *weights
#endif
	)
{
#if !WEIGHTS
	const float *weights = nullptr;
#endif

	PD_LAUNCH(device::NAME::run, ROWS, THREADS, 0, dx, dy, x, sums, labels, weights);
}
