		const uint64_t stream = pd_random_stream(SEED, ID, (uint64_t)(first + i / INNER % BATCH));
		const uint64_t e = (uint64_t)(i / (INNER * BATCH) * INNER + i % INNER);
#if NORMAL
		const double u = ((double)pd_random_of(stream, 2 * e) + 1) * 0x1p-32;
		const double v = (double)pd_random_of(stream, 2 * e + 1) * 0x1p-32;

		y[i] = (T)(AT + BY * sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
#else
		y[i] = (T)(AT + BY * (double)(pd_random_of(stream, e) >> 8) * 0x1p-24);
#endif
