/* The gradients of attention, as the forward has tiles (attention.cuda.cu): p again from lse + rest, d = dy v', then
 * with t = dy y of a row
 *     ds = p (d - t)        dq = ds k        (rows: a block has queries and goes over the keys)
 *     dv = p' dy            dk = ds' q       (keys: a block has keys and goes over the queries)
 * Each sum is one block's, in the order of the keys or queries. t goes to memory from the first kernel to the second. */
#if FILLED
/* No gradient reaches the products of later keys, and the second kernel looks at queries before its keys only
 * where one of them leaves them any weight. done: the library has left them out, and heads with such a row, blocks of keys
 * with such a query are to do theirs again. */
#endif
#include <gpu_tiles.h>

namespace device::NAME {
enum { ALL = HEADS > 0 ? HEADS : 1, THREADS = 32 * WARPS, MINE = 16 * WARPS, MINEQ = TALL * MINE, TILESQ = (TQ + MINEQ - 1) / MINEQ,
	TILESK = (TK + MINE - 1) / MINE, PARTSQ = (D + DC - 1) / DC, PARTSV = (DV + DVC - 1) / DVC,
	PARTS = PARTSQ > PARTSV ? PARTSQ : PARTSV, PITCH = DC + TILE::PAD, PITCHV = DVC + TILE::PAD,
	STAGE = KEYS * (PITCH + PITCHV), OWN = MINE * (PITCH + PITCHV), OWNQ = MINEQ * (PITCH + PITCHV),
	STAGES = STAGE + KEYS * (4 + (MINE + 31) / 32 * 2), FACTS = KEYS * 16 / (int)sizeof(TS),
	SHAREDQ = !QUICK ? OWNQ + STAGE : 2 * STAGE > OWNQ ? 2 * STAGE : OWNQ,
	SHARED = !QUICK ? OWN + STAGE + FACTS : 2 * STAGES > OWN ? 2 * STAGES : OWN };

static_assert(sizeof(TS) == TILE::BYTES, "tiles are of the tensors' type");

#include "score.part.h"

#if QUICK
#include "quick.part.h"
#include "attention_grad_quick.part.h"
#else
/* What of the gradient ds of a score reaches the product. */
static __device__ float through(float ds, int64_t b, int64_t h, int64_t i, int64_t j, const uint8_t *mask)
{
	(void)b, (void)h, (void)i, (void)j, (void)mask;
	return DSCORE;
}

/* to[N][DC] = keys from `key` on, columns from c on. */
template<int N> static __device__ void load_keys(TS *to, const TS *kn, int key, int c)
{
#if KT
	pd_tile_load<TILE, N, DC, 0, THREADS>(to, kn + (int64_t)c * KR + key, 1, KR, TK - key, D - c);
#else
	pd_tile_load<TILE, N, DC, VECTORS, THREADS>(to, kn + (int64_t)key * KR + c, KR, 1, TK - key, D - c);
#endif
}

/* dys[MINE][DVC] = queries from `first` on, where they are not there yet, vs[KEYS][DVC] = keys from `key` on, columns
 * from c on. */
static __device__ void load_values(TS *dys, TS *vs, const TS *dyn, const TS *vn, int first, int key, int c, bool anew)
{
	if (anew)
		pd_tile_load<TILE, MINE, DVC, VECTORS, THREADS>(dys, dyn + c, YR, 1, TQ - first, DV - c);
	pd_tile_load<TILE, KEYS, DVC, VECTORS, THREADS>(vs, vn + (int64_t)key * VR + c, VR, 1, TK - key, DV - c);
}

/* t of the two rows of this thread, of which `row` is the first. */
static __device__ void products_of(float *t, const TS *dy, const TS *y, int row)
{
	const int lane = threadIdx.x % 32, first = row - lane / 4;

	for (int r = 0; r < 16; r++) {
		const int64_t at = first + r;
		float s = 0;

		for (int c = lane; c < DV && at < TQ; c += 32)
			s += TILE::load(dy[at * YR + c]) * TILE::load(y[at * YR + c]);
		s = pd_warp_sum(s);
		t[0] = r == lane / 4 ? s : t[0];
		t[1] = r == lane / 4 + 8 ? s : t[1];
	}
}

#if FILLED
/* Whether one of the first queries of a head leaves later keys any weight. */
static __device__ bool needed(const float *lse, const float *rest, int n, int64_t end)
{
	int any = 0;

	for (int64_t i = (int)threadIdx.x; i < end && i < TQ; i += THREADS)
		any |= FILL - lse[(int64_t)n * TQ + i] - rest[(int64_t)n * TQ + i] > LEAST;
	return __syncthreads_or(any);
}
#endif

static __global__ void __launch_bounds__(THREADS, RESIDENT) rows(TS *dq, float *ts, const TS *dy, const TS *q,
	const TS *k, const TS *v, const TS *y, const float *lse, const float *rest, const uint8_t *mask, const float *bias,
	const double *late, int64_t of_step, const lot id, int done)
{
	PD_DYN_SHARED(pd_16, room);
	TS *qs = (TS *)(void *)room, *dys = qs + MINE * PITCH, *ks = dys + MINE * PITCHV, *vs = ks + KEYS * PITCH;
	const int n = blockIdx.x % ALL, part = blockIdx.x / ALL % PARTSQ * DC;
	const int first = (TILESQ - 1 - (int)(blockIdx.x / (ALL * PARTSQ))) * MINE;
	const int64_t b = n / H, h = n % H, sample = sample_of(late, of_step);
	const TS *qn = q + b * QB + h * QH + (int64_t)first * QR, *dyn = dy + b * YB + h * YH + (int64_t)first * YR;
	const TS *kn = k + b * KB + h * KH, *vn = v + b * VB + h * VH;
	const int warp = threadIdx.x / 32, row = first + 16 * warp + threadIdx.x % 32 / 4;
#if CAUSAL
	const int end = first + MINE < TK ? first + MINE : TK;
#else
	const int end = TK;
#endif
	float to[DC / 8][4] = {}, t[2] = {}, l[2], m[2];

#if FILLED
	if (done && !needed(lse, rest, n, TQ))
		return;
#else
	(void)done;
#endif
	products_of(t, dy + b * YB + h * YH, y + b * YB + h * YH, row);
	for (int r = 0; r < 2; r++) {
		const int64_t at = (int64_t)n * TQ + (row + 8 * r < TQ ? row + 8 * r : TQ - 1);

		l[r] = lse[at];
		m[r] = rest[at];
		if (part == 0 && threadIdx.x % 4 == 0 && row + 8 * r < TQ)
			ts[at] = t[r];
	}
	for (int key = 0; key < end; key += KEYS) {
		float s[KEYS / 8][4] = {}, d[KEYS / 8][4] = {};

		for (int c = 0; c < D; c += DC) {
			__syncthreads();
			if (D > DC || key == 0)
				pd_tile_load<TILE, MINE, DC, VECTORS, THREADS>(qs, qn + c, QR, 1, TQ - first, D - c);
			load_keys<KEYS>(ks, kn, key, c);
			if (DV <= DVC && c == 0)
				load_values(dys, vs, dyn, vn, first, key, 0, key == 0);
			pd_tiles_there();
			pd_tile_nt<TILE, KEYS / 8, DC>(s, qs + 16 * warp * PITCH, ks);
		}
		for (int c = 0; c < DV; c += DVC) {
			if (DV > DVC || D > DC)
				__syncthreads();
			if (DV > DVC)
				load_values(dys, vs, dyn, vn, first, key, c, true);
			if (D > DC && c == 0)
				load_keys<KEYS>(ks, kn, key, part);
			if (DV > DVC || D > DC)
				pd_tiles_there();
			pd_tile_nt<TILE, KEYS / 8, DVC>(d, dys + 16 * warp * PITCHV, vs);
		}
		PD_UNROLL
		for (int r = 0; r < 2; r++) {
			const int64_t i = row + 8 * r < TQ ? row + 8 * r : TQ - 1;
#if CAUSAL
			const int len = i + 1 < TK ? (int)i + 1 : TK;
#else
			const int len = TK;
#endif
			const uint64_t from = draws(b, h, i, key + threadIdx.x % 4 * 2, sample, id);

			PD_UNROLL
			for (int e = 0; e < KEYS / 4; e++) {
				const int at = key + e / 2 * 8 + (int)threadIdx.x % 4 * 2 + e % 2;
				const int j = TK % KEYS == 0 || at < TK ? at : TK - 1;
				const float keep = kept(from, e / 4 * 4, e % 4, sample);
				float *x = &s[e / 2][2 * r + e % 2];
				const float p = TILE::exp(score_of(*x, b, h, i, j, mask, bias) - l[r] - m[r]);

				*x = at < len ? through(p * (d[e / 2][2 * r + e % 2] * keep - t[r]), b, h, i, j, mask) : 0;
			}
		}
		pd_tile_nn<TILE>(to, s, ks);
	}
	PD_UNROLL
	for (int e = 0; e < DC / 2; e++) {
		const int c = part + TILE::column(e / 4, e % 4), i = row + 8 * (e % 4 / 2);

		if (i < TQ && c < D)
			dq[b * QB + h * QH + (int64_t)i * QR + c] = TILE::store(to[e / 4][e % 4]);
	}
}

/* What is known of a query. */
struct alignas(16) row_facts { float lse, rest, t; };

static __device__ void load_facts(row_facts *to, const float *lse, const float *rest, const float *ts, int n, int query)
{
	for (int e = threadIdx.x; e < KEYS; e += THREADS) {
		const int64_t at = (int64_t)n * TQ + (query + e < TQ ? query + e : TQ - 1);

		to[e] = { lse[at], rest[at], ts[at] };
	}
}

/* vs[MINE][DVC] = keys from `first` on, where they are not there yet, dys[KEYS][DVC] = queries from `query` on, columns
 * from c on. */
static __device__ void load_gradients(TS *vs, TS *dys, const TS *vn, const TS *dyn, int first, int query, int c,
	bool anew)
{
	if (anew)
		pd_tile_load<TILE, MINE, DVC, VECTORS, THREADS>(vs, vn + c, VR, 1, TK - first, DV - c);
	pd_tile_load<TILE, KEYS, DVC, VECTORS, THREADS>(dys, dyn + (int64_t)query * YR + c, YR, 1, TQ - query, DV - c);
}

static __global__ void __launch_bounds__(THREADS, RESIDENT > 1 ? RESIDENT / 2 : 1) keys(TS *dk, TS *dv, const float *ts,
	const TS *dy, const TS *q, const TS *k, const TS *v, const float *lse, const float *rest, const uint8_t *mask,
	const float *bias, const double *late, int64_t of_step, const lot id, int done)
{
	PD_DYN_SHARED(pd_16, room);
	TS *ks = (TS *)(void *)room, *vs = ks + MINE * PITCH, *qs = vs + MINE * PITCHV, *dys = qs + KEYS * PITCH;
	row_facts *facts = (row_facts *)(void *)(dys + KEYS * PITCHV);
	const int n = blockIdx.x % ALL, part = blockIdx.x / ALL % PARTS;
	const int first = (int)(blockIdx.x / (ALL * PARTS)) * MINE;
	const int64_t b = n / H, h = n % H, sample = sample_of(late, of_step);
	const TS *qn = q + b * QB + h * QH, *dyn = dy + b * YB + h * YH;
	const TS *kn = k + b * KB + h * KH, *vn = v + b * VB + h * VH + (int64_t)first * VR;
	const int warp = threadIdx.x / 32, row = first + 16 * warp + threadIdx.x % 32 / 4;
	int seen = CAUSAL ? first / KEYS * KEYS : 0;                /* the first query that sees the keys */
	float tok[DC / 8][4] = {}, tov[DVC / 8][4] = {};

#if FILLED
	if (done && !needed(lse, rest, n, first + MINE))
		return;
	if (needed(lse, rest, n, seen))
		seen = 0;
#else
	(void)done;
#endif
	for (int query = seen; query < TQ; query += KEYS) {
		float s[KEYS / 8][4] = {}, d[KEYS / 8][4] = {};

		for (int c = 0; c < D; c += DC) {
			__syncthreads();
			if (D > DC || query == seen)
				load_keys<MINE>(ks, kn, first, c);
			pd_tile_load<TILE, KEYS, DC, VECTORS, THREADS>(qs, qn + (int64_t)query * QR + c, QR, 1, TQ - query, D - c);
			if (c == 0)
				load_facts(facts, lse, rest, ts, n, query);
			if (DV <= DVC && c == 0)
				load_gradients(vs, dys, vn, dyn, first, query, 0, query == seen);
			pd_tiles_there();
			pd_tile_nt<TILE, KEYS / 8, DC>(s, ks + 16 * warp * PITCH, qs);
		}
		for (int c = 0; c < DV; c += DVC) {
			if (DV > DVC) {
				__syncthreads();
				load_gradients(vs, dys, vn, dyn, first, query, c, true);
				pd_tiles_there();
			}
			pd_tile_nt<TILE, KEYS / 8, DVC>(d, vs + 16 * warp * PITCHV, dys);
		}
		if (PARTS > 1) {
			__syncthreads();
			if (D > DC)
				pd_tile_load<TILE, KEYS, DC, VECTORS, THREADS>(qs, qn + (int64_t)query * QR + part * DC, QR, 1,
					TQ - query, D - part * DC);
			if (DV > DVC)
				pd_tile_load<TILE, KEYS, DVC, VECTORS, THREADS>(dys, dyn + (int64_t)query * YR + part * DVC, YR, 1,
					TQ - query, DV - part * DVC);
			pd_tiles_there();
		}
		const int draw = query + (int)threadIdx.x % 4 * 2;
		const uint64_t from = draws(b, h, draw, row, sample, id);       /* of row + 8 too */

		PD_UNROLL
		for (int e = 0; e < KEYS / 4; e++) {
			const int at = query + e / 2 * 8 + (int)threadIdx.x % 4 * 2 + e % 2;
			const int64_t i = TQ % KEYS == 0 || at < TQ ? at : TQ - 1;
			const row_facts f = facts[at - query];

			PD_UNROLL
			for (int r = 0; r < 2; r++) {
				const int64_t j = TK % MINE == 0 || row + 8 * r < TK ? row + 8 * r : TK - 1;
				const bool there = TQ % KEYS == 0 || at < TQ, sees = !CAUSAL || j <= i;
				const float keep = kept(from, (int64_t)(e / 2 * 8 + e % 2) * GROUPS, 2 * r + row % 2, sample);
				float *x = &s[e / 2][2 * r + e % 2], *y = &d[e / 2][2 * r + e % 2];
				const float score = FILLED && !sees ? FILL : score_of(*x, b, h, i, j, mask, bias);
				const float p = TILE::exp(score - f.lse - f.rest);

				*y = there && sees ? through(p * (*y * keep - f.t), b, h, i, j, mask) : 0;
				*x = there && (FILLED || sees) ? p * keep : 0;
			}
		}
		pd_tile_nn<TILE>(tov, s, dys);
		pd_tile_nn<TILE>(tok, d, qs);
	}
	PD_UNROLL
	for (int e = 0; e < DC / 2; e++) {
		const int c = part * DC + TILE::column(e / 4, e % 4), j = row + 8 * (e % 4 / 2);

		if (j < TK && c < D)
			dk[b * KB + h * KH + (KT ? (int64_t)c * KR + j : (int64_t)j * KR + c)] = TILE::store(tok[e / 4][e % 4]);
	}
	PD_UNROLL
	for (int e = 0; e < DVC / 2; e++) {
		const int c = part * DVC + TILE::column(e / 4, e % 4), j = row + 8 * (e % 4 / 2);

		if (j < TK && c < DV)
			dv[b * VB + h * VH + (int64_t)j * VR + c] = TILE::store(tov[e / 4][e % 4]);
	}
}
#endif
#if DROP

static void late(double *to)
{
	to[0] = (double)pd_sample(0);
}
#endif
}

PD_HOST void NAME(TS *dq, TS *dk, TS *dv, const TS *dy, const TS *q, const TS *k, const TS *v, const TS *y,
	const T *lse, const T *rest
#if MASK
	, const uint8_t *mask
#endif
#if BIAS
	, const T *bias
#endif
#if DROP
	, int64_t of_step, uint64_t id
#endif
#if LIBRARY
	, int done
#endif
	)
{
#if !MASK && !QUICK
	const uint8_t *mask = nullptr;
#endif
#if !BIAS && !QUICK
	const T *bias = nullptr;
#endif
#if !DROP
	const double *late = nullptr;
	const int64_t of_step = 0;
	const uint64_t id = 0;
#elif EVALUATES
	const double *late = pd_evaluating() ? nullptr : pd_late(device::NAME::late, 1);
#else
	const double *late = pd_late(device::NAME::late, 1);
#endif
#if !LIBRARY && !QUICK
	const int done = 0;
#endif

#if LIBRARY && !FILLED
	if (done)
		return;
#endif
#if MEMBERS
	const device::NAME::lot mine = { id, (int64_t)pd_member() * H };
#else
	const device::NAME::lot mine = { id, 0 };
#endif
#if QUICK
	device::NAME::row_facts *facts = (device::NAME::row_facts *)pd_room(ROOM);
	uint32_t *words = (uint32_t *)(void *)(facts + HEADS * device::NAME::PAD);

	PD_LAUNCH(device::NAME::rows, HEADS * device::NAME::TILESQ, device::NAME::THREADS,
		device::NAME::SHAREDQ * sizeof(TS), dq, facts, words, dy, q, k, v, y, lse, rest, late, of_step, mine);
	PD_LAUNCH(device::NAME::keys, HEADS * device::NAME::TILESK, device::NAME::THREADS, device::NAME::SHARED * sizeof(TS),
		dk, dv, facts, words, dy, q, k, v, lse, rest, late, of_step, mine);
#else
	float *ts = (float *)pd_room(ROOM);

	PD_LAUNCH(device::NAME::rows, HEADS * device::NAME::TILESQ * device::NAME::PARTSQ, device::NAME::THREADS,
		device::NAME::SHAREDQ * sizeof(TS), dq, ts, dy, q, k, v, y, lse, rest, mask, bias, late, of_step, mine, done);
	PD_LAUNCH(device::NAME::keys, HEADS * device::NAME::TILESK * device::NAME::PARTS, device::NAME::THREADS,
		device::NAME::SHARED * sizeof(TS), dk, dv, ts, dy, q, k, v, lse, rest, mask, bias, late, of_step, mine, done);
#endif
}
