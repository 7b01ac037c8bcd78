/* y = dropout(softmax(scores)) v, lse + rest = log sum exp of the row. A block has 16 rows of scores per warp and goes
 * over the keys, some at a time, that lie in shared memory; the scores are in registers, as the product of two matrices
 * leaves them (gpu_tiles.h). What is summed up is scaled anew when a row meets a larger score. Of heads too wide for
 * that a part is there at a time, and a block makes some columns of y. The rows that see most keys begin. */
#if FILLED
/* A block looks at later keys only where one of its rows leaves them any weight; done: the library has left them
 * out, and blocks of such rows alone are to do theirs again. */
#endif
#include <gpu_tiles.h>

namespace device::NAME {
enum { ALL = HEADS > 0 ? HEADS : 1, THREADS = 32 * WARPS, MINE = 16 * TALL * WARPS, TILES = (TQ + MINE - 1) / MINE,
	PARTS = (DV + DVC - 1) / DVC, PITCH = DC + TILE::PAD, PITCHV = DVC + TILE::PAD,
	STAGE = KEYS * (PITCH + PITCHV), OWN = MINE * PITCH,
	SHARED = QUICK ? STAGE + (STAGE > OWN ? STAGE : OWN) : OWN + STAGE };

static_assert(sizeof(TS) == TILE::BYTES, "tiles are of the tensors' type");

#include "score.part.h"

#if QUICK
#include "quick.part.h"
#include "attention_quick.part.h"
#else
static __global__ void __launch_bounds__(THREADS, RESIDENT) run(TS *y, float *lse, float *rest, const TS *q,
	const TS *k, const TS *v, const uint8_t *mask, const float *bias, const double *late, int64_t of_step,
	const lot id, int done)
{
	PD_DYN_SHARED(pd_16, room);
	TS *qs = (TS *)(void *)room, *ks = qs + MINE * PITCH, *vs = ks + KEYS * PITCH;
	const int n = blockIdx.x % ALL, part = blockIdx.x / ALL % PARTS * DVC;
	const int first = (TILES - 1 - (int)(blockIdx.x / (ALL * PARTS))) * MINE;
	const int64_t b = n / H, h = n % H, sample = sample_of(late, of_step);
	const TS *qn = q + b * QB + h * QH + (int64_t)first * QR, *kn = k + b * KB + h * KH;
	const TS *vn = v + b * VB + h * VH + part;
	const int warp = threadIdx.x / 32, row = first + 16 * warp + threadIdx.x % 32 / 4;
#if CAUSAL
	int end = first + MINE < TK ? first + MINE : TK;
#else
	const int end = TK;
#endif
	float to[DVC / 8][4] = {}, top[2] = { -INFINITY, -INFINITY }, sum[2] = {};

#if FILLED
	if (done) {             /* a row's largest score is no more than log TK below lse, and what the library rounds */
		int needed = 0;

		for (int64_t i = first + (int)threadIdx.x; i < first + MINE && i < TQ; i += THREADS)
			needed |= FILL - lse[(int64_t)n * TQ + i] + logf((float)TK) + 1 > LEAST;
		if (!__syncthreads_or(needed))
			return;
	}
#else
	(void)done;
#endif
	for (int key = 0; key < end; key += KEYS) {
		float s[KEYS / 8][4] = {};

		for (int c = 0; c < D; c += DC) {
			__syncthreads();
			if (D > DC || key == 0)
				pd_tile_load<TILE, MINE, DC, VECTORS, THREADS>(qs, qn + c, QR, 1, TQ - first, D - c);
#if KT
			pd_tile_load<TILE, KEYS, DC, 0, THREADS>(ks, kn + (int64_t)c * KR + key, 1, KR, TK - key, D - c);
#else
			pd_tile_load<TILE, KEYS, DC, VECTORS, THREADS>(ks, kn + (int64_t)key * KR + c, KR, 1, TK - key, D - c);
#endif
			if (c == 0)
				pd_tile_load<TILE, KEYS, DVC, VECTORS, THREADS>(vs, vn + (int64_t)key * VR, VR, 1, TK - key, DV - part);
			pd_tiles_there();
			pd_tile_nt<TILE, KEYS / 8, DC>(s, qs + 16 * warp * PITCH, ks);
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
			float high = top[r], part_sum = 0;

			PD_UNROLL
			for (int e = 0; e < KEYS / 4; e++) {
				const int j = key + e / 2 * 8 + (int)threadIdx.x % 4 * 2 + e % 2;
				float *x = &s[e / 2][2 * r + e % 2];

				*x = j < len ? score_of(*x, b, h, i, j, mask, bias) : FILLED && j < TK ? FILL : -INFINITY;
				high = fmaxf(high, *x);
			}
			high = pd_row_max(high);
			const float base = high == -INFINITY ? 0 : high, again = TILE::exp(top[r] - base);

			top[r] = high;
			PD_UNROLL
			for (int e = 0; e < KEYS / 4; e++) {
				float *x = &s[e / 2][2 * r + e % 2];

				*x = TILE::exp(*x - base);
				part_sum += *x;
				*x *= kept(from, e / 4 * 4, e % 4, sample);
			}
			sum[r] = sum[r] * again + part_sum;
			PD_UNROLL
			for (int m = 0; m < DVC / 8; m++) {
				to[m][2 * r] *= again;
				to[m][2 * r + 1] *= again;
			}
		}
		pd_tile_nn<TILE>(to, s, vs);
#if FILLED
		if (key + KEYS >= end && end < TK && __syncthreads_or(FILL - top[0] > LEAST || FILL - top[1] > LEAST))
			end = TK;
#endif
	}
	PD_UNROLL
	for (int r = 0; r < 2; r++) {
		const int64_t i = row + 8 * r;
		const float all = pd_row_sum(sum[r]);

		if (i < TQ && part == 0 && threadIdx.x % 4 == 0) {
			const float more = all > 0 ? logf(all) : NAN, whole = top[r] + more;    /* NAN: no key at all is seen */

			lse[(int64_t)n * TQ + i] = whole;
			rest[(int64_t)n * TQ + i] = top[r] - whole + more;
		}
		PD_UNROLL
		for (int e = 0; e < DVC / 4; e++) {
			const int c = part + TILE::column(e / 2, e % 2);

			if (i < TQ && c < DV)
				y[b * YB + h * YH + i * YR + c] = TILE::store(to[e / 2][2 * r + e % 2] / all);
		}
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

PD_HOST void NAME(TS *y, T *lse, T *rest, const TS *q, const TS *k, const TS *v
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
#if !MASK
	const uint8_t *mask = nullptr;
#endif
#if !BIAS
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
#if !LIBRARY
	const int done = 0;
#endif
#if MEMBERS
	const device::NAME::lot mine = { id, (int64_t)pd_member() * H };
#else
	const device::NAME::lot mine = { id, 0 };
#endif

#if LIBRARY && !FILLED
	if (done)
		return;
#endif
	PD_LAUNCH(device::NAME::run, HEADS * device::NAME::TILES * device::NAME::PARTS, device::NAME::THREADS,
		device::NAME::SHARED * sizeof(TS), y, lse, rest, q, k, v, mask, bias, late, of_step, mine, done);
}
