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
#if BY_ROW
	for (int64_t r = 0; r < BATCH * (EACH / WIDTH); r++) {
		const uint64_t stream = pd_random_stream(SEED, id, (uint64_t)(sample + r / (EACH / WIDTH)));

		for (int j = 0; j < WIDTH; j += 16) {
			const int64_t at = r * WIDTH + j;
			uint16_t bits[16];

			pd_random_sixteen(bits, stream, (uint64_t)(r % (EACH / WIDTH)), WIDTH, (uint64_t)j);
#pragma omp simd
			for (int u = 0; u < 16; u++) {
				mask[at + u] = bits[u] >= DROPPED;
				y[at + u] = bits[u] >= DROPPED ? x[at + u] * (T)SCALE : 0;
			}
		}
	}
#else
	for (int s = 0; s < BATCH; s++) {
		const uint64_t stream = pd_random_stream(SEED, id, (uint64_t)(sample + s));

		for (int i = 0; i < EACH; i++) {
			const int64_t at = (int64_t)s * EACH + i, e = ELEMENT;

			mask[at] = pd_random_four(stream, (uint64_t)(e / WIDTH), WIDTH, (uint64_t)(e % WIDTH)) >= DROPPED;
			y[at] = mask[at] ? x[at] * (T)SCALE : 0;
		}
	}
#endif
}
