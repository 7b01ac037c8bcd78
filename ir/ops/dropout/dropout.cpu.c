/* y = mask x / (1 - ratio); the mask is drawn by global sample and element. */
static void NAME(T *restrict y, uint8_t *restrict mask, const T *restrict x, int64_t sample, uint64_t id)
{
#if PARTS
	const int64_t member = pd_member();

#endif
#if EVALUATES
	if (pd_evaluating()) {
		memcpy(y, x, N * sizeof *y);
		return;
	}
#endif
#if PAR
#pragma omp parallel for
#endif
	for (int s = 0; s < BATCH; s++)
		for (int i = 0; i < EACH; i++) {
			const int64_t at = (int64_t)s * EACH + i;

			mask[at] = pd_random_unit(SEED, id, (uint64_t)(sample + s), (uint64_t)ELEMENT) >= RATIO;
			y[at] = mask[at] ? x[at] * (T)SCALE : 0;
		}
}
