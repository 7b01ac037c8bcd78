/* dx = mask dy / (1 - ratio); dx may be dy. */
static void NAME(T *dx, const T *dy, const uint8_t *mask)
{
#if PAR
#pragma omp parallel for simd
#else
#pragma omp simd
#endif
	for (int i = 0; i < N; i++)
		dx[i] = mask[i] ? dy[i] * (T)SCALE : 0;
}
