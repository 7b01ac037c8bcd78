/* Sum of the squares of N elements, in blocks that do not depend on the number of threads. */
#if PIECE
static void NAME(int at, const T *g)
#elif PART
static double NAME(const T *g, size_t count) /* at most N */
#else
static double NAME(const T *g)
#endif
{
	enum { BLOCKS = (N + BLOCK - 1) / BLOCK, LANES = 8 };
	const int64_t block = BLOCK;
	double part[BLOCKS];

#if PAR
#pragma omp parallel for
#endif
	for (int b = 0; b < BLOCKS; b++) {
#if PART
		const int64_t n = (int64_t)count, last = (b + 1) * block, end = last < n ? last : n;
#else
		const int64_t end = (b + 1) * block < N ? (b + 1) * block : N;
#endif
		double lane[LANES] = { 0 };
		int64_t i = b * block;

		for (; i + LANES <= end; i += LANES)
			for (int l = 0; l < LANES; l++)
				lane[l] += (double)g[i + l] * (double)g[i + l];
		for (; i < end; i++)
			lane[0] += (double)g[i] * (double)g[i];
		part[b] = ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
	}
#if PIECE
	for (int b = 0; b < BLOCKS; b++)
		pd_square(at + b, part[b]);
#else
	double sum = 0;

	for (int b = 0; b < BLOCKS; b++)
		sum += part[b];
	return sum;
#endif
}
