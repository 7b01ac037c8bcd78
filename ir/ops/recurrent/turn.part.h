/* The time of turn s. */
#if REVERSE
const int64_t t = STEPS - 1 - s;
#else
const int64_t t = s;
#endif
