/* Of the C scores here, how many are of classes: all, or the CLASSES there are end among those of a member. */
static __device__ __forceinline__ int classes_of(int64_t member)
{
#if CLASSES
	const int64_t left = CLASSES - member * C;

	return left < 0 ? 0 : left < C ? (int)left : C;
#else
	(void)member;
	return C;
#endif
}
