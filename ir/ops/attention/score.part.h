/* The score of query i and key j, whose product is s; what dropout scales the weight by: 0 where it is dropped. */
static __device__ float score_of(float s, int64_t b, int64_t h, int64_t i, int64_t j, const uint8_t *mask, const float *bias)
{
	(void)b, (void)h, (void)i, (void)j, (void)mask, (void)bias;
	return SCORE;
}

static __device__ float kept(int64_t b, int64_t h, int64_t i, int64_t j, int64_t sample)
{
#if DROP
	return sample < 0 ? 1 : pd_random_unit(SEED, ID, (uint64_t)(sample + b), (uint64_t)((h * TQ + i) * TK + j)) >= RATIO ? KEEP : 0;
#else
	(void)b, (void)h, (void)i, (void)j, (void)sample;
	return 1;
#endif
}
