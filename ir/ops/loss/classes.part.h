#if CLASSES
	/* the last scores of a row may be no classes */
#if PARTS
	const int64_t left = CLASSES - (int64_t)pd_member() * C;
	const int has = left < 0 ? 0 : left < C ? (int)left : C;
#else
	const int has = CLASSES;
#endif
#endif
