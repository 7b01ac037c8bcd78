/* y[o][k] = a[o][ids[k]]: rows of INNER elements out of a table of DIM. Indices were checked where they were read. */
static void NAME(T *restrict y, const T *restrict a, const TI *restrict ids)
{
#if PAR
#pragma omp parallel for collapse(2)
#endif
	for (IX o = 0; o < OUTER; o++)
		for (IX k = 0; k < IDS; k++) {
#if NEG
			const IX row = (IX)(ids[k] < 0 ? ids[k] + DIM : ids[k]);
#else
			const IX row = (IX)ids[k];
#endif
#if INNER == 1
			y[o * IDS + k] = a[o * DIM + row];
#else
			memcpy(y + (o * IDS + k) * INNER, a + (o * DIM + row) * INNER, INNER * sizeof *y);
#endif
		}
}
