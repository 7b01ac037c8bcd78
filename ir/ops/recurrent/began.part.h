/* hp: the h with which sequence b began this turn. */
#if LENS && REVERSE
first |= before >= lens[b];
#endif
if (!first)
	memcpy(hp, y + was, sizeof(T) * H);
else
#if HAS_H0
	memcpy(hp, h0 + (int64_t)b * H, sizeof(T) * H);
#else
	memset(hp, 0, sizeof(T) * H);
#endif
