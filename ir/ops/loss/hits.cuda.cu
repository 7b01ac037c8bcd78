/* How many labels have the greatest score, the first of equals, and how many count, of x, by one block. */
namespace device::NAME {
static __global__ void run(T *y, const T *x, const TL *labels)
{
	T hits = 0, all = 0;

	for (int k = threadIdx.x; k < OUTER * INNER; k += blockDim.x) {
		const T *from = x + (int64_t)(k / INNER) * C * INNER + k % INNER;
		int best = 0;

#if IGNORE
		if (labels[k] == IGNORED)
			continue;
#endif
		for (int c = 1; c < C; c++)
			best = from[c * INNER] > from[best * INNER] ? c : best;
		hits += best == labels[k] ? 1 : 0;
		all += 1;
	}
	hits = pd_block_sum(hits);
	all = pd_block_sum(all);
	if (threadIdx.x == 0) {
		y[0] = hits;
		y[1] = all;
	}
}
}

PD_HOST void NAME(T *y, const T *x, const TL *labels)
{
	PD_LAUNCH(device::NAME::run, 1, OUTER * INNER <= 128 ? 128 : 1024, 0, y, x, labels);
}
