/* Concat and Split: on one side the tensors follow each other inside every row. */
static void NAME(PARAMS)
{
#if PAR
#pragma omp parallel for
#endif
#if ROWS != 1
	for (IX i = 0; i < ROWS; i++) {
		BODY
	}
#else
	BODY
#endif
}
