/* y[o][k] = a[o][row], o = k / EACH: blocks of INNER elements; row is what Q coordinates of the indices name.
 * CHECK: nobody has looked at the indices; one that points nowhere gives MISSING and never touches other memory. */
static void NAME(T *restrict y, const T *restrict a, const TI *restrict ids)
{
	static const int64_t dim[Q] = { DIMS };

#if PAR
#pragma omp parallel for
#endif
	for (IX k = 0; k < ROWS; k++) {
		int64_t row = 0;

		for (int q = 0; q < Q; q++) {
			const int64_t r = ids[k * Q + q], at = r < 0 ? r + dim[q] : r;
#if CHECK
			row = row < 0 || at < 0 || at >= dim[q] ? -1 : row * dim[q] + at;
#else
			row = row * dim[q] + at;
#endif
		}
#if CHECK
		if (row < 0) {
			for (IX i = 0; i < INNER; i++)
				y[k * INNER + i] = MISSING;
			continue;
		}
#endif
#if INNER == 1
		y[k] = a[k / EACH * TABLE + row];
#else
		memcpy(y + k * INNER, a + (k / EACH * TABLE + row) * INNER, INNER * sizeof *y);
#endif
	}
}
