/* A loop nest over every element: elementwise ops, fused chains, and ops that move elements. The innermost loop is the
 * one along which y lies in memory. y may be the same memory as an operand that is read at the same index, so nothing
 * is restrict; omp simd says that turns are independent. */
#if TILE
/* Loop j is the one along which a lies in memory, so both go in blocks that stay in the first cache. */
#endif
#if FILL
/* y is larger than the nest and gets a value where the nest does not write. */
#endif
static void NAME(PARAMS)
{
#if FILL
	for (IX i = 0; i < NUMEL; i++)
		y[i] = VALUE;
#endif
#if PAR
#pragma omp PARALLEL
#endif
#if RANK >= 8
	for (IX q = 0; q < D7; q++)
#endif
#if RANK >= 7
	for (IX p = 0; p < D6; p++)
#endif
#if RANK >= 6
	for (IX n = 0; n < D5; n++)
#endif
#if RANK >= 5
	for (IX m = 0; m < D4; m++)
#endif
#if RANK >= 4
	for (IX l = 0; l < D3; l++)
#endif
#if RANK >= 3
	for (IX k = 0; k < D2; k++)
#endif
#if TILE
	for (IX jt = 0; jt < D1; jt += 16)
	for (IX it = 0; it < D0; it += 64)
	for (IX j = jt; j < (jt + 16 < D1 ? jt + 16 : D1); j++)
#pragma omp simd
	for (IX i = it; i < (it + 64 < D0 ? it + 64 : D0); i++) {
#else
#if RANK >= 2
	for (IX j = 0; j < D1; j++)
#endif
#if D0 >= 8 && (RANK >= 2 || !PAR)
#pragma omp simd
#endif
#if RANK >= 1
	for (IX i = 0; i < D0; i++) {
#else
	{
#endif
#endif
		BODY
	}
}
