/* y: values[1] at the place along the axis that ids say, values[0] elsewhere. */
static void NAME(T *restrict y, const TI *restrict ids, const T *restrict values)
{
#if DEPTH > 0
#if PAR
#pragma omp parallel for collapse(2)
#endif
	for (int64_t o = 0; o < OUTER; o++)
		for (int64_t d = 0; d < DEPTH; d++)
			for (int64_t i = 0; i < INNER; i++) {
				const TI r = ids[o * INNER + i];
#if FLOAT
				const int64_t at = r >= -DEPTH && r < DEPTH ? (int64_t)r + (r < 0 ? DEPTH : 0) : -1;
#elif SIGNED
				const int64_t at = r < 0 ? (int64_t)r + DEPTH : (int64_t)r;
#else
				const int64_t at = r < DEPTH ? (int64_t)r : -1;
#endif
				y[(o * DEPTH + d) * INNER + i] = values[at == d];
			}
#else
	(void)y, (void)ids, (void)values;
#endif
}
