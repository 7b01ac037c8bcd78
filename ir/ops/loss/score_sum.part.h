#if !KEPT
/* The logarithm of the sum of exp(x) over the first `has` scores of a row, which a block reads once. */
static __device__ __forceinline__ float log_sum(const TX *row, int has)
{
	float top = -INFINITY, sum = 0;

	for (int c = PER * (int)threadIdx.x; c < has; c += PER * THREADS) {
		const pd_vec<TX, PER> v = pd_read<PER>(row + c);
		float most = top;

		PD_UNROLL
		for (int u = 0; u < PER; u++)
			most = c + u < has ? fmaxf(most, LOAD(v.v[u])) : most;
		const float from = most > -INFINITY ? most : 0;

		sum *= top < most ? expf(top - most) : 1;
		PD_UNROLL
		for (int u = 0; u < PER; u++)
			sum += c + u < has ? expf(LOAD(v.v[u]) - from) : 0;
		top = most;
	}
	const float most = pd_block_max(top);

	sum = pd_block_sum(top < most ? sum * expf(top - most) : sum);
	return most + logf(sum);
}
#endif

