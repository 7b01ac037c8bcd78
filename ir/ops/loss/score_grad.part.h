#if MEAN
/* The weight of all labels. */
static __device__ __forceinline__ float weight_of_all(const TL *labels, const float *weights)
{
	float total = 0;

	for (int k = threadIdx.x; k < ROWS; k += THREADS)
		total += weight_of(labels[k], weights);
	return pd_block_sum(total);
}

#endif
#if !KEPT
/* dx = w (softmax(x) - one at the label) of a row, by the log of its sum; dx may be x. What lies behind the first `has` becomes 0, and so
 * does a row whose label does not count. */
static __device__ __forceinline__ void gradient(TY *dx, const TX *x, int has, float sum, int64_t label, float w, bool counts)
{
	for (int c = PER * (int)threadIdx.x; c < W; c += PER * THREADS) {
		const pd_vec<TX, PER> v = pd_read<PER>(x + c);
		pd_vec<TY, PER> out;

		PD_UNROLL
		for (int u = 0; u < PER; u++) {
			const float p = w * expf(LOAD(v.v[u]) - sum);

			out.v[u] = STORE(!counts || c + u >= has ? 0 : c + u == label ? p - w : p);
		}
		pd_write(dx + c, out);
	}
}
#endif

