/* Row r: a heap of the best so far with the worst on top, in place of the results, which is then sorted. Every turn
 * puts one element in place of the top and lets it sink: first those that make it a heap, then those of x that beat the
 * top, then the top itself goes behind what is left. */
		const T *from = x + r / INNER * N * INNER + r % INNER;
		T *best = y + r / INNER * K * INNER + r % INNER;
		int64_t *where = at + r / INNER * K * INNER + r % INNER;

		for (int64_t k = 0; k < K; k++) {
			best[k * INNER] = from[k * INNER];
			where[k * INNER] = k;
		}
		for (int64_t turn = 0; turn < K / 2 + N - 1; turn++) {
			int64_t hole = 0, end = K, i = where[0];
			T p = best[0];

			if (turn < K / 2) {
				hole = K / 2 - 1 - turn;
				p = best[hole * INNER];
				i = where[hole * INNER];
			} else if (turn < K / 2 + N - K) {
				const T q = p;
				const int64_t j = i;

				i = K + turn - K / 2;
				p = from[i * INNER];
				if (!(BEFORE))
					continue;
			} else {
				end = K / 2 + N - 1 - turn;
				p = best[end * INNER];
				i = where[end * INNER];
				best[end * INNER] = best[0];
				where[end * INNER] = where[0];
			}
			for (int64_t child; (child = 2 * hole + 1) < end; hole = child) {
				T q = best[child * INNER];
				int64_t j = where[child * INNER];

				if (child + 1 < end) {
					const T other = best[(child + 1) * INNER];
					const int64_t place = where[(child + 1) * INNER];
					const int worse = WORSE;

					q = worse ? other : q;
					j = worse ? place : j;
					child += worse;
				}
				if (!(BEFORE))
					break;
				best[hole * INNER] = q;
				where[hole * INNER] = j;
			}
			best[hole * INNER] = p;
			where[hole * INNER] = i;
		}
