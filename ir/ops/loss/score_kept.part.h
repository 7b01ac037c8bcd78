#if KEPT
/* A row of scores that a block keeps in registers, KEPT vectors of 16 bytes a thread, is read from memory once. Exponentials are of base 2: one
 * instruction, and one in front of it that takes the row's maximum or sum away. */
constexpr float LOG2E = 1.44269504f;

static __device__ __forceinline__ void keep(pd_vec<uint32_t, 4> *kept, const TX *row)
{
	PD_UNROLL
	for (int k = 0; k < KEPT; k++) {
		const int c = PER * ((int)threadIdx.x + THREADS * k);

		kept[k] = c < W ? pd_read_now<4>((const uint32_t *)(const void *)(row + c)) : pd_vec<uint32_t, 4>{};
	}
}

/* Element u of vector k, of a class. */
static __device__ __forceinline__ bool of_class(int k, int u)
{
	return PER * THREADS * (k + 1) <= C || PER * ((int)threadIdx.x + THREADS * k) + u < C;
}

/* log2 of the sum of exp(x) over the row. */
static __device__ __forceinline__ float kept_sum(const pd_vec<uint32_t, 4> *kept)
{
	float top = -INFINITY, sum = 0;

	PD_UNROLL
	for (int k = 0; k < KEPT; k++) {
		const pd_vec<TX, PER> v = pd_again<TX>(kept[k]);

		PD_UNROLL
		for (int u = 0; u < PER; u++)
			top = of_class(k, u) ? fmaxf(top, LOAD(v.v[u])) : top;
	}
	top = pd_block_max(top);
	const float from = top > -INFINITY ? top * LOG2E : 0;

	PD_UNROLL
	for (int k = 0; k < KEPT; k++) {
		const pd_vec<TX, PER> v = pd_again<TX>(kept[k]);

		PD_UNROLL
		for (int u = 0; u < PER; u++)
			sum += of_class(k, u) ? pd_exp2(fmaf(LOAD(v.v[u]), LOG2E, -from)) : 0;
	}
	return from + log2f(pd_block_sum(sum));
}

/* As gradient() in score_grad.part.h; score: the label's, whose element is written again by the thread that has it. */
static __device__ __forceinline__ void kept_gradient(
	TY *dx, const pd_vec<uint32_t, 4> *kept, float sum, int64_t label, float score, float w, bool counts)
{
	PD_UNROLL
	for (int k = 0; k < KEPT; k++) {
		const int c = PER * ((int)threadIdx.x + THREADS * k);
		const pd_vec<TX, PER> v = pd_again<TX>(kept[k]);
		pd_vec<TY, PER> out = {};

		if (counts) {
			PD_UNROLL
			for (int u = 0; u < PER; u++)
				out.v[u] = STORE(of_class(k, u) ? w * pd_exp2(fmaf(LOAD(v.v[u]), LOG2E, -sum)) : 0);
		}
		if (c < W)
			pd_write(dx + c, out);
	}
	if (counts && label / PER % THREADS == threadIdx.x)
		dx[label] = STORE(w * pd_exp2(fmaf(score, LOG2E, -sum)) - w);
}

#endif
