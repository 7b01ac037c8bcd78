/* Running statistics: the rows of all microbatches, in their order. */
static void NAME(T *restrict r, const T *restrict rows)
{
	for (int mb = 0; mb < ROWS; mb++)
		for (IX i = 0; i < N; i++)
			r[i] = (T)MOMENTUM * r[i] + (T)(1 - MOMENTUM) * rows[mb * N + i];
}
