/* What the first kernel leaves of a query for the second: the power of 2 that its weights are to be divided by, and -t by what the product
 * of dy and v counts there. Queries that there are not have weights of 0. */
struct alignas(8) row_facts { float base, t; };

/* In memory, of a head, all queries of the first kernel's blocks; then of each 32 keys a word for each query: what is not dropped (bits_at). */
enum { PAD = TILESQ * MINEQ, WORDS = (TK + 31) / 32, OFTILE = (MINE + 31) / 32 };
static_assert(MINEQ % MINE == 0 && MINE % KEYS == 0, "tiles of both kernels");

/* UNIT times what the product of dy and v counts by */
static constexpr float BACK = UNIT * (DROP ? KEEP : 1);
#if DROP

/* Sixteen bits that a thread of the first kernel makes of 16 queries, from `query` on, and 32 keys: where they lie among those of the 32 keys,
 * so that a thread of the second reads what it wants of KEYS queries at once. Bit 8 (j % 2) + 4 (j / 16) + 2 (i / 8) + j / 8 % 2 says of key j
 * and query i that it stays; in the first kernel the upper 8 are 16 further up. */
static __device__ __forceinline__ int bits_at(int query, int lane)
{
	enum { EACH = KEYS / 16 };

	return query / KEYS * (2 * KEYS) + ((lane / 8 * 4 + lane % 4) * EACH + query / 16 % EACH) * 2 + lane / 4 % 2;
}

/* The bits of pieces 0 and 1 (w[0]) or 2 and 3 (w[1]), 16 apart. */
static __device__ __forceinline__ uint32_t bits_of(uint32_t w)
{
	if (HALVES)
		return pd_least_two<LIMIT>(w);
	return (w << 16 >= DROPPED << 16 ? 0xffff : 0) | (w >= DROPPED << 16 ? 0xffff0000 : 0);
}

static __device__ __forceinline__ uint16_t together(uint32_t bits) { return (uint16_t)(bits + (bits >> 8)); }
#endif

/* t of the rows of this thread. */
static __device__ __forceinline__ void products_of(float (&t)[2 * TALL], const TS *dyn, const TS *yn, int row)
{
	PD_UNROLL
	for (int r = 0; r < 2 * TALL; r++) {
		float s = 0;

		for (int c = (int)(threadIdx.x % 4) * 8; c < DV && row + 8 * r < TQ; c += 32) {
			const pd_16 a = *(const pd_16 *)(const void *)(dyn + (int64_t)(row + 8 * r) * YR + c);
			const pd_16 x = *(const pd_16 *)(const void *)(yn + (int64_t)(row + 8 * r) * YR + c);

			PD_UNROLL
			for (int e = 0; e < 4; e++)
				s += TILE::load((uint16_t)a.w[e]) * TILE::load((uint16_t)x.w[e]) +
				     TILE::load((uint16_t)(a.w[e] >> 16)) * TILE::load((uint16_t)(x.w[e] >> 16));
		}
		t[r] = pd_row_sum(s);
	}
}

/* Keys from `key` on and their values. */
static __device__ __forceinline__ void bring_keys(TS *to, const TS *kn, const TS *vn, int key)
{
	pd_tile_bring<TILE, KEYS, DC, TK % KEYS == 0, THREADS>(to, kn + (int64_t)key * KR, KR, TK - key, D);
	pd_tile_bring<TILE, KEYS, DVC, TK % KEYS == 0, THREADS>(to + KEYS * PITCH, vn + (int64_t)key * VR, VR, TK - key, DV);
}

static __global__ void __launch_bounds__(THREADS, RESIDENTQ) rows(TS *dq, row_facts *facts, uint32_t *words, const TS *dy,
	const TS *q, const TS *k, const TS *v, const TS *y, const float *lse, const float *rest, const double *late,
	int64_t of_step, const lot id)
{
	PD_DYN_SHARED(pd_16, room);
	TS *const tiles = (TS *)(void *)room, *const qs = tiles;
	const int n = blockIdx.x % ALL, first = (TILESQ - 1 - (int)(blockIdx.x / ALL)) * MINEQ;
	const int b = n / H, h = n % H, lane = threadIdx.x % 32, mine = 16 * TALL * (int)(threadIdx.x / 32);
	const int row = first + mine + lane / 4, column = lane % 4 * 2;
	const int64_t sample = sample_of(late, of_step);
	const TS *kn = k + (int64_t)b * KB + (int64_t)h * KH, *vn = v + (int64_t)b * VB + (int64_t)h * VH;
	const TS *dyn = dy + (int64_t)b * YB + (int64_t)h * YH;
	const int end = CAUSAL && first + MINEQ < TK ? first + MINEQ : TK;
	uint32_t heldq[TALL][DC / 16][4], heldy[TALL][DVC / 16][4];
	float to[TALL][DC / 8][4] = {}, t[2 * TALL], base[2 * TALL];
#if DROP
	uint64_t from = draws(b, h, row, column, sample, id);
#endif
#if BITS
	uint16_t *bits[TALL];

	PD_UNROLL
	for (int m = 0; m < TALL; m++)
		bits[m] = (uint16_t *)(void *)words + (int64_t)n * WORDS * PAD * 2 + bits_at(first + mine + 16 * m, lane);
#endif

	(void)words, (void)sample, (void)id;
	pd_tile_bring<TILE, MINEQ, DC, TQ % MINEQ == 0, THREADS>(
		qs, q + (int64_t)b * QB + (int64_t)h * QH + (int64_t)first * QR, QR, TQ - first, D);
	pd_tile_bring<TILE, MINEQ, DVC, TQ % MINEQ == 0, THREADS>(
		qs + MINEQ * PITCH, dyn + (int64_t)first * YR, YR, TQ - first, DV);
	products_of(t, dyn, y + (int64_t)b * YB + (int64_t)h * YH, row);
	PD_UNROLL
	for (int r = 0; r < 2 * TALL; r++) {
		const int i = row + 8 * r;
		const int64_t at = (int64_t)n * TQ + (i < TQ ? i : TQ - 1);

		t[r] *= UNIT;
		base[r] = i < TQ ? (lse[at] + rest[at]) * 1.44269504f : INFINITY;
		if (lane % 4 == 0)
			facts[(int64_t)n * PAD + i] = { base[r], t[r] * (-1 / BACK) };
	}
	pd_tiles_there();
	PD_UNROLL
	for (int m = 0; m < TALL; m++) {
		pd_tile_hold<TILE, DC>(heldq[m], qs + (mine + 16 * m) * PITCH);
		pd_tile_hold<TILE, DVC>(heldy[m], qs + MINEQ * PITCH + (mine + 16 * m) * PITCHV);
	}
	__syncthreads();
	bring_keys(tiles, kn, vn, 0);
	for (int key = 0; key < end; key += KEYS) {
		const TS *const ks = tiles + key / KEYS % 2 * STAGE, *const vs = ks + KEYS * PITCH;
		float s[TALL][KEYS / 8][4] = {}, d[TALL][KEYS / 8][4] = {};

		pd_tiles_there();
		if (key + KEYS < end)
			bring_keys(tiles + (key / KEYS + 1) % 2 * STAGE, kn, vn, key + KEYS);
		pd_tiles_nt<TILE, TALL, KEYS / 8, DC>(s, heldq, ks);
		pd_tiles_nt<TILE, TALL, KEYS / 8, DVC>(d, heldy, vs);
		if ((CAUSAL && key + KEYS - 1 > first + mine) || (TK % KEYS && key + KEYS > TK)) {
			PD_UNROLL
			for (int e = 0; e < KEYS / 2 * TALL; e++) {
				const int m = e / (KEYS / 2), j = key + e % (KEYS / 2) / 4 * 8 + column + e % 2;
				const int last = CAUSAL ? row + 16 * m + e % 4 / 2 * 8 : TK - 1;
				const bool sees = j <= last && (TK % KEYS == 0 || j < TK);

				s[m][e % (KEYS / 2) / 4][e % 4] = sees ? s[m][e % (KEYS / 2) / 4][e % 4] : -INFINITY;
				d[m][e % (KEYS / 2) / 4][e % 4] = sees ? d[m][e % (KEYS / 2) / 4][e % 4] : 0;
			}
		}
#if DROP
		uint32_t stays[TALL] = {};

#endif
		PD_UNROLL
		for (int r = 0; r < 2 * TALL; r++) {
#if DROP
			four of = {};

#endif
			PD_UNROLL
			for (int e = 0; e < KEYS / 4; e++) {
				float *x = &s[r / 2][e / 2][r % 2 * 2 + e % 2], *g = &d[r / 2][e / 2][r % 2 * 2 + e % 2];

#if DROP
				if (e % 4 == 0)
					of = drawn(from, (int64_t)r * 8 * GROUPS + e);
				if (e % 2 == 0) {
					drop_two(of.w[e / 2 % 2], g[0], g[1]);
					stays[r / 2] |= bits_of(of.w[e / 2 % 2]) & 0x10001u << (e / 4 * 4 + r % 2 * 2 + e / 2 % 2);
				}
#endif
				*x = weight(*x, base[r]) * fmaf(*g, BACK, -t[r]);
			}
		}
#if BITS
		PD_UNROLL
		for (int m = 0; m < TALL; m++)
			bits[m][key / 32 * (2 * PAD)] = together(stays[m]);
#endif
#if DROP
		from += (uint64_t)(KEYS / 4) * PD_RANDOM_STEP;
#endif
		pd_tiles_nn<TILE>(to, s, ks);
	}
	PD_UNROLL
	for (int r = 0; r < 2 * TALL; r++)
		PD_UNROLL
		for (int e = 0; e < DC / 8; e++)
			if (row + 8 * r < TQ && (D == DC || 8 * e < D))
				pd_store_two<TILE>(dq + (int64_t)b * QB + (int64_t)h * QH + (int64_t)(row + 8 * r) * QR + 8 * e + column,
					to[r / 2][e][r % 2 * 2], to[r / 2][e][r % 2 * 2 + 1]);
}

#if DROP
/* The words of KEYS queries from `query` on and of the keys from `first` on, drawn again; `apart` from 32 keys to the next. */
static __device__ __forceinline__ void draw_bits(uint32_t *words, int apart, int n, int first, int query, int64_t sample, const lot id)
{
	for (int e = (int)threadIdx.x; e < OFTILE * KEYS * 2; e += THREADS) {
		const int of = e / (2 * KEYS), sixteen = e % (2 * KEYS) / 32 * 16, lane = e % 32;
		const uint64_t from = draws(n / H, n % H, query + sixteen + lane / 4, first + 32 * of + lane % 4 * 2, sample, id);
		uint32_t all = 0;

		PD_ROLLED
		for (int g = 0; g < 4; g++) {
			const four f = drawn(from, g % 2 * 8 * GROUPS + g / 2 * 4);

			all |= ((bits_of(f.w[0]) & 0x10001u) | (bits_of(f.w[1]) & 0x20002u)) << 2 * g;
		}
		if (TK % MINE == 0 || first / 32 + of < WORDS)
			((uint16_t *)(void *)(words + of * apart))[bits_at(sixteen, lane)] = together(all);
	}
}
#endif

/* Queries from `query` on, their gradients, facts, and the words of keys from `first` on. */
static __device__ __forceinline__ void bring_queries(TS *to, const TS *qn, const TS *dyn, const row_facts *facts,
	const uint32_t *words, int n, int first, int query, int64_t sample, const lot id)
{
	char *const fact = (char *)(void *)(to + STAGE);
	const int e = (int)threadIdx.x;
#if DROP
	char *const word = fact + KEYS * sizeof(row_facts);
#endif

	(void)words, (void)n, (void)first, (void)sample, (void)id;
	pd_tile_bring<TILE, KEYS, DC, TQ % KEYS == 0, THREADS>(to, qn + (int64_t)query * QR, QR, TQ - query, D);
	pd_tile_bring<TILE, KEYS, DVC, TQ % KEYS == 0, THREADS>(
		to + KEYS * PITCH, dyn + (int64_t)query * YR, YR, TQ - query, DV);
	static_assert(KEYS / 2 <= THREADS && OFTILE * KEYS / 4 <= THREADS, "a thread brings one piece");
	if (e < KEYS / 2)
		pd_bring(fact + 16 * e, facts + query + 2 * e, true);
#if DROP
	if (BITS) {
		const int of = e / (KEYS / 4);

		if (e < OFTILE * KEYS / 4 && (TK % MINE == 0 || first / 32 + of < WORDS))
			pd_bring(word + 16 * e, words + (int64_t)of * PAD + query + e % (KEYS / 4) * 4, true);
	} else {
		draw_bits((uint32_t *)(void *)word, KEYS, n, first, query, sample, id);
	}
#endif
}

static __global__ void __launch_bounds__(THREADS, RESIDENT) keys(TS *dk, TS *dv, const row_facts *facts,
	uint32_t *words, const TS *dy, const TS *q, const TS *k, const TS *v, const float *lse, const float *rest,
	const double *late, int64_t of_step, const lot id)
{
	PD_DYN_SHARED(pd_16, room);
	TS *const tiles = (TS *)(void *)room;
	const int n = blockIdx.x % ALL, first = (int)(blockIdx.x / ALL) * MINE;
	const int b = n / H, h = n % H, lane = threadIdx.x % 32, mine = 16 * (int)(threadIdx.x / 32);
	const int row = first + mine + lane / 4, column = lane % 4 * 2;
	const int64_t sample = sample_of(late, of_step);
	const TS *qn = q + (int64_t)b * QB + (int64_t)h * QH, *dyn = dy + (int64_t)b * YB + (int64_t)h * YH;
	int seen = CAUSAL ? first : 0, turn = 0;                    /* the first query that sees the keys */
	uint32_t heldk[1][DC / 16][4], heldv[1][DVC / 16][4];
	float tok[1][DC / 8][4] = {}, tov[1][DVC / 8][4] = {};

	(void)lse, (void)rest;
	facts += (int64_t)n * PAD;
	words += ((int64_t)n * WORDS + first / 32) * PAD;
	pd_tile_bring<TILE, MINE, DC, TK % MINE == 0, THREADS>(
		tiles, k + (int64_t)b * KB + (int64_t)h * KH + (int64_t)first * KR, KR, TK - first, D);
	pd_tile_bring<TILE, MINE, DVC, TK % MINE == 0, THREADS>(
		tiles + MINE * PITCH, v + (int64_t)b * VB + (int64_t)h * VH + (int64_t)first * VR, VR, TK - first, DV);
#if FILLED
	int needed = 0;

	for (int i = (int)threadIdx.x; i < seen && i < TQ; i += THREADS)
		needed |= FILL - lse[(int64_t)n * TQ + i] - rest[(int64_t)n * TQ + i] > LEAST;
	if (__syncthreads_or(needed)) {
		seen = 0;
#if BITS
		for (int query = 0; query < first; query += KEYS)       /* which the first kernel was not asked of */
			draw_bits(words + query, PAD, n, first, query, sample, id);
#endif
	}
#endif
	pd_tiles_there();
	pd_tile_hold<TILE, DC>(heldk[0], tiles + mine * PITCH);
	pd_tile_hold<TILE, DVC>(heldv[0], tiles + MINE * PITCH + mine * PITCHV);
	for (int query = seen - KEYS; query < TQ; query += KEYS, turn ^= 1) {
		const TS *const qs = tiles + turn * STAGES, *const dys = qs + KEYS * PITCH;
		const row_facts *const fact = (const row_facts *)(const void *)(qs + STAGE);
		const bool hides = CAUSAL && query < first + mine + 15;
		float s[1][KEYS / 8][4] = {}, d[1][KEYS / 8][4] = {};

		pd_tiles_there();
		if (query + KEYS < TQ)
			bring_queries(tiles + (turn ^ 1) * STAGES, qn, dyn, facts, words, n, first, query + KEYS, sample, id);
		if (query < seen)
			continue;
		pd_tiles_nt<TILE, 1, KEYS / 8, DC>(s, heldk, qs);
		pd_tiles_nt<TILE, 1, KEYS / 8, DVC>(d, heldv, dys);
		if (hides) {
			PD_UNROLL
			for (int e = 0; e < KEYS / 2; e++)
				if (query + e / 4 * 8 + column + e % 2 < row + e % 4 / 2 * 8)
					s[0][e / 4][e % 4] = FILLED ? HIDDEN : -INFINITY;
		}
#if DROP
		enum { EACH = KEYS / 16 };
		const uint32_t *const word = (const uint32_t *)(const void *)(fact + KEYS) + mine / 32 * KEYS;
		struct alignas(4 * EACH) { uint32_t w[EACH]; } in = *(decltype(in) *)(void *)(word + (lane % 4 * 4 + lane / 8) * EACH);

		PD_UNROLL
		for (int e = 0; e < EACH; e++)
			in.w[e] >>= lane / 4 % 2 * 8 + mine / 16 % 2 * 4;
#endif
		PD_UNROLL
		for (int e = 0; e < KEYS / 8; e++) {
			struct alignas(16) { row_facts f[2]; } of = *(decltype(of) *)(void *)(fact + 8 * e + column);

			PD_UNROLL
			for (int c = 0; c < 4; c++) {
				float *x = &s[0][e][c], *g = &d[0][e][c];
				const float p = weight(*x, of.f[c % 2].base);

				*x = p;
#if DROP
				*x = in.w[e / 2] & 1u << (c % 2 * 16 + e % 2 * 2 + c / 2) ? p : 0;
#endif
				*g = fmaf(*x, *g, p * of.f[c % 2].t);
			}
		}
		if (hides) {
			PD_UNROLL
			for (int e = 0; e < KEYS / 2; e++)
				if (query + e / 4 * 8 + column + e % 2 < row + e % 4 / 2 * 8)
					d[0][e / 4][e % 4] = 0;
		}
		pd_tiles_nn<TILE>(tov, s, dys);
		pd_tiles_nn<TILE>(tok, d, qs);
	}
	PD_UNROLL
	for (int r = 0; r < 2; r++) {
		const int j = row + 8 * r;

		PD_UNROLL
		for (int e = 0; e < DC / 8; e++)
			if (j < TK && (D == DC || 8 * e < D))
				pd_store_two<TILE>(dk + (int64_t)b * KB + (int64_t)h * KH + (int64_t)j * KR + 8 * e + column,
					tok[0][e][2 * r] * BACK, tok[0][e][2 * r + 1] * BACK);
		PD_UNROLL
		for (int e = 0; e < DVC / 8; e++)
			if (j < TK && (DV == DVC || 8 * e < DV))
				pd_store_two<TILE>(dv + (int64_t)b * VB + (int64_t)h * VH + (int64_t)j * VR + 8 * e + column,
					tov[0][e][2 * r] * (DROP ? KEEP : 1), tov[0][e][2 * r + 1] * (DROP ? KEEP : 1));
	}
}
