/* Concat and Split: on one side the tensors follow each other inside every one of OUTER rows. */
static void NAME(PARAMS)
{
#if PAR
#pragma omp parallel for
#endif
	for (IX i = 0; i < OUTER; i++) {
		BODY
	}
}
