/* The rows of a lookup's gradient beside where they belong; -1 where they belong nowhere. */
static void NAME(int32_t *restrict to, T *restrict rows, const T *restrict dy, const TI *restrict ids)
{
	for (int k = 0; k < N; k++) {
		const TI row = ids[k] < 0 ? ids[k] + DIM : ids[k];

		to[k] = row >= 0 && row < DIM ? (int32_t)row : -1;
#if PADDED
		if (row == PADDING)
			to[k] = -1;
#endif
	}
	memcpy(rows, dy, sizeof(T) * N * D);
}
