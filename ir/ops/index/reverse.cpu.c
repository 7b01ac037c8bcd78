/* y is a with the first lens[b] steps of entry b in reverse order; a length below 0 or past the end counts as the
 * nearest end. */
static void NAME(T *restrict y, const T *restrict a, const TI *restrict lens)
{
#if PAR
#pragma omp parallel for collapse(2)
#endif
#if TIME_FIRST
	for (int64_t t = 0; t < TIME; t++)
		for (int64_t b = 0; b < BATCH; b++) {
			const int64_t len = lens[b] < TIME ? lens[b] : TIME, s = t < len ? len - 1 - t : t;

			memcpy(y + (t * BATCH + b) * INNER, a + (s * BATCH + b) * INNER, INNER * sizeof *y);
		}
#else
	for (int64_t b = 0; b < BATCH; b++)
		for (int64_t t = 0; t < TIME; t++) {
			const int64_t len = lens[b] < TIME ? lens[b] : TIME, s = t < len ? len - 1 - t : t;

			memcpy(y + (b * TIME + t) * INNER, a + (b * TIME + s) * INNER, INNER * sizeof *y);
		}
#endif
}
