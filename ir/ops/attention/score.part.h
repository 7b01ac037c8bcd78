/* Which node draws, and the heads before those here, which other members of a tensor group have. */
typedef struct lot {
	uint64_t id;
	int64_t heads;
} lot;

#if !QUICK
/* The score of query i and key j, whose product is s. */
static __device__ float score_of(float s, int64_t b, int64_t h, int64_t i, int64_t j, const uint8_t *mask, const float *bias)
{
	(void)b, (void)h, (void)i, (void)j, (void)mask, (void)bias;
	return SCORE;
}

#endif
/* The microbatch's first sample by its number in the run, which late begins with for the step; -1 where nothing is dropped. */
static __device__ int64_t sample_of(const double *late, int64_t of_step)
{
	return !DROP || (EVALUATES && !late) ? -1 : (int64_t)late[0] + of_step;
}

#if DROP || !QUICK

/* Where dropout draws for a score and three others of its row, of which GROUPS are in a row (pd_random_four); what it scales the weight of
 * one of them by (0: dropped). Rows and groups further on are so many times PD_RANDOM_STEP away, cheap where that is known to the compiler. */
enum { GROUPS = (TK + 15) / 16 * 4 };
static __device__ __forceinline__ uint64_t draws(int64_t b, int64_t h, int64_t i, int64_t j, int64_t sample,
	const lot id)
{
#if DROP
	return pd_random_place(
		pd_random_stream(SEED, id.id, (uint64_t)(sample + b)), pd_random_group((uint64_t)((id.heads + h) * TQ + i), TK, (uint64_t)j));
#else
	(void)b, (void)h, (void)i, (void)j, (void)sample, (void)id;
	return 0;
#endif
}
#endif
#if !QUICK

static __device__ __forceinline__ float kept(uint64_t from, int64_t further, int piece, int64_t sample)
{
#if DROP
	const bool in = pd_random_piece(pd_mix(from + (uint64_t)further * PD_RANDOM_STEP), piece) >= DROPPED;

	return EVALUATES && sample < 0 ? 1 : in ? KEEP : 0;
#else
	(void)from, (void)further, (void)piece, (void)sample;
	return 1;
#endif
}
#endif
