/* Where the next tile goes: keys from `key` on and their values. */
static __device__ __forceinline__ void bring(TS *to, const TS *kn, const TS *vn, int key)
{
	pd_tile_bring<TILE, KEYS, DC, TK % KEYS == 0, THREADS>(to, kn + (int64_t)key * KR, KR, TK - key, D);
	pd_tile_bring<TILE, KEYS, DVC, TK % KEYS == 0, THREADS>(to + KEYS * PITCH, vn + (int64_t)key * VR, VR, TK - key, DV);
}

static __global__ void __launch_bounds__(THREADS, RESIDENT) run(TS *y, float *lse, float *rest, const TS *q,
	const TS *k, const TS *v, const uint8_t *, const float *, const double *late, int64_t of_step, const lot id, int done)
{
	PD_DYN_SHARED(pd_16, room);
	TS *const tiles = (TS *)(void *)room, *const qs = tiles + STAGE;
	const int n = blockIdx.x % ALL, first = (TILES - 1 - (int)(blockIdx.x / ALL)) * MINE;
	const int b = n / H, h = n % H, lane = threadIdx.x % 32, mine = 16 * TALL * (int)(threadIdx.x / 32);
	const int row = first + mine + lane / 4, column = lane % 4 * 2;
	const int64_t sample = sample_of(late, of_step);
	const bool drops = DROP && !(EVALUATES && sample < 0);
	const TS *kn = k + (int64_t)b * KB + (int64_t)h * KH, *vn = v + (int64_t)b * VB + (int64_t)h * VH;
	int end = CAUSAL && first + MINE < TK ? first + MINE : TK;
	uint32_t held[TALL][DC / 16][4];
	float to[TALL][DVC / 8][4] = {}, top[2 * TALL], sum[2 * TALL] = {};
#if DROP
	uint64_t from = draws(b, h, row, column, sample, id);
#endif

#if FILLED
	if (done) {             /* a row's largest score is no more than log TK below lse, and what the library rounds */
		int needed = 0;

		for (int i = first + (int)threadIdx.x; i < first + MINE && i < TQ; i += THREADS)
			needed |= FILL - lse[(int64_t)n * TQ + i] + logf((float)TK) + 1 > LEAST;
		if (!__syncthreads_or(needed))
			return;
	}
#else
	(void)done;
#endif
	PD_UNROLL
	for (int r = 0; r < 2 * TALL; r++)
		top[r] = -INFINITY;
	pd_tile_bring<TILE, MINE, DC, TQ % MINE == 0, THREADS>(
		qs, q + (int64_t)b * QB + (int64_t)h * QH + (int64_t)first * QR, QR, TQ - first, D);
	bring(tiles, kn, vn, 0);
	pd_tiles_there();
	PD_UNROLL
	for (int m = 0; m < TALL; m++)
		pd_tile_hold<TILE, DC>(held[m], qs + (mine + 16 * m) * PITCH);
	for (int key = 0; key < end; key += KEYS) {
		const TS *const ks = tiles + key / KEYS % 2 * STAGE, *const vs = ks + KEYS * PITCH;
		float s[TALL][KEYS / 8][4] = {};

		pd_tiles_there();
		if (key + KEYS < end)
			bring(tiles + (key / KEYS + 1) % 2 * STAGE, kn, vn, key + KEYS);
		pd_tiles_nt<TILE, TALL, KEYS / 8, DC>(s, held, ks);
		if ((CAUSAL && key + KEYS - 1 > first + mine) || (TK % KEYS && key + KEYS > TK)) {
			PD_UNROLL
			for (int e = 0; e < KEYS / 2 * TALL; e++) {
				const int m = e / (KEYS / 2), j = key + e % (KEYS / 2) / 4 * 8 + column + e % 2;
				const int last = CAUSAL ? row + 16 * m + e % 4 / 2 * 8 : TK - 1;
				float *x = &s[m][e % (KEYS / 2) / 4][e % 4];

				*x = j <= last && (TK % KEYS == 0 || j < TK) ? *x : FILLED && j < TK ? HIDDEN : -INFINITY;
			}
		}
		PD_UNROLL
		for (int r = 0; r < 2 * TALL; r++) {
			float high = -INFINITY;

			PD_UNROLL
			for (int e = 0; e < KEYS / 4; e++)
				high = fmaxf(high, s[r / 2][e / 2][r % 2 * 2 + e % 2]);
			high = pd_row_max(high);
			if (high > top[r] + LAZY) {     /* the largest need not be the base: what is summed up stays below 2^8 of each */
				const float again = pd_exp2((top[r] - high) * (UNIT * 1.44269504f));

				top[r] = high;
				sum[r] *= again;
				PD_UNROLL
				for (int e = 0; e < DVC / 4; e++)
					to[r / 2][e / 2][r % 2 * 2 + e % 2] *= again;
			}
		}
		PD_UNROLL
		for (int r = 0; r < 2 * TALL; r++) {
			const float base = top[r] == -INFINITY ? 0 : top[r] * (UNIT * 1.44269504f);
			float some = 0;
#if DROP
			four of = {};
#endif

			PD_UNROLL
			for (int e = 0; e < KEYS / 4; e++) {
				float *x = &s[r / 2][e / 2][r % 2 * 2 + e % 2];

				*x = weight(*x, base);
				some += *x;
#if DROP
				if (drops && e % 4 == 0)
					of = drawn(from, (int64_t)r * 8 * GROUPS + e);
				if (drops && e % 2)
					drop_two(of.w[e / 2 % 2], x[-1], x[0]);
#endif
			}
			sum[r] += some;
		}
#if DROP
		from += (uint64_t)(KEYS / 4) * PD_RANDOM_STEP;
#endif
		pd_tiles_nn<TILE>(to, s, vs);
#if FILLED
		if (key + KEYS >= end && end < TK) {
			int needed = 0;

			PD_UNROLL
			for (int r = 0; r < 2 * TALL; r++)
				needed |= FILL - top[r] * UNIT > LEAST;
			if (__syncthreads_or(needed)) {
				end = TK;
				bring(tiles + (key / KEYS + 1) % 2 * STAGE, kn, vn, key + KEYS);
			}
		}
#endif
	}
	PD_UNROLL
	for (int r = 0; r < 2 * TALL; r++) {
		const int i = row + 8 * r;
		const float all = pd_row_sum(sum[r]), scale = (drops ? KEEP : 1) / all;

		if (i < TQ && lane % 4 == 0) {
			const float more = all > 0 ? logf(all) : NAN, base = top[r] * UNIT, whole = base + more;

			lse[(int64_t)n * TQ + i] = whole;
			rest[(int64_t)n * TQ + i] = base - whole + more;
		}
		PD_UNROLL
		for (int e = 0; e < DVC / 8; e++)
			if (i < TQ && (DV == DVC || 8 * e < DV))
				pd_store_two<TILE>(y + (int64_t)b * YB + (int64_t)h * YH + (int64_t)i * YR + 8 * e + column,
					to[r / 2][e][r % 2 * 2] * scale, to[r / 2][e][r % 2 * 2 + 1] * scale);
	}
}
