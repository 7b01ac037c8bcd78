/* The time of turn s, and that of the turn before it. */
#if REVERSE
const int64_t t = STEPS - 1 - s, before = t + 1;
#else
const int64_t t = s, before = t - 1;
#endif
