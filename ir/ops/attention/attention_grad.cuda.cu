/* The gradients of attention. A block per row of scores: p again from lse, d = dy v', then with t = sum of p d
 *     ds = p (d - t)        dq = ds k
 * and t goes to memory, for a block per key, which adds over the rows in their order:
 *     dv = sum of p dy      dk = sum of ds q
 * TILEK keys (TILEQ rows) lie in shared memory at a time; where that is not all, a row is computed twice, for t and for ds. */
namespace device::NAME {
enum { ROW_THREADS = TK <= 64 ? 64 : 128, KEY_THREADS = TQ <= 64 ? 64 : 128 };

static __device__ T score_of(const TS *q, const TS *k, int64_t b, int64_t h, int64_t i, int64_t j, const uint8_t *mask,
	const T *bias)
{
	const TS *qi = q + b * QB + h * QH + i * QR, *kn = k + b * KB + h * KH;
	T s = 0;

	for (int c = 0; c < D; c++)
#if KT
		s += LOAD(qi[c]) * LOAD(kn[(int64_t)c * KR + j]);
#else
		s += LOAD(qi[c]) * LOAD(kn[(int64_t)j * KR + c]);
#endif
	(void)mask;
	(void)bias;
	return SCORE;
}

/* dy of row i times v of key j. */
static __device__ T product_of(const TS *dy, const TS *v, int64_t b, int64_t h, int64_t i, int64_t j)
{
	const TS *dyi = dy + b * YB + h * YH + i * YR, *vj = v + b * VB + h * VH + j * VR;
	T d = 0;

	for (int c = 0; c < DV; c++)
		d += LOAD(dyi[c]) * LOAD(vj[c]);
	return d;
}

/* What dropout scales p of row i and key j by: 0 where it is dropped. */
static __device__ T kept(int64_t b, int64_t h, int64_t i, int64_t j, int64_t sample)
{
#if DROP
	return pd_random_unit(SEED, ID, (uint64_t)(sample + b), (uint64_t)((h * TQ + i) * TK + j)) >= RATIO ? (T)KEEP : 0;
#else
	(void)b, (void)h, (void)i, (void)j, (void)sample;
	return 1;
#endif
}

static __device__ T through(T ds, int64_t b, int64_t h, int64_t i, int64_t j, const uint8_t *mask)
{
	(void)b, (void)h, (void)i, (void)j, (void)mask;
	return DSCORE;
}

static __global__ void rows(TS *dq, T *ts, const TS *dy, const TS *q, const TS *k, const TS *v, const T *lse, const uint8_t *mask,
	const T *bias, int64_t sample)
{
	PD_DYN_SHARED(T, p);
	const int64_t i = blockIdx.x % TQ, h = blockIdx.x / TQ % H, b = blockIdx.x / TQ / H;
#if CAUSAL
	const int len = i + 1 < TK ? (int)i + 1 : TK;
#else
	const int len = TK;
#endif
	T *d = p + TILEK, t = 0, to[(D + ROW_THREADS - 1) / ROW_THREADS] = { 0 };

	for (int turn = 0; turn < 2; turn++) {
		for (int first = 0; first < len; first += TILEK) {
			const int end = first + TILEK < len ? first + TILEK : len;

			__syncthreads();
			for (int j = first + (int)threadIdx.x; j < end && (turn == 0 || TILEK < TK); j += ROW_THREADS) {
				p[j - first] = EXP(score_of(q, k, b, h, i, j, mask, bias) - lse[blockIdx.x]);
				d[j - first] = product_of(dy, v, b, h, i, j) * kept(b, h, i, j, sample);
				t += turn == 0 ? p[j - first] * d[j - first] : 0;
			}
			if (turn == 0)
				continue;
			for (int j = first + (int)threadIdx.x; j < end; j += ROW_THREADS)
				p[j - first] = through(p[j - first] * (d[j - first] - t), b, h, i, j, mask);
			__syncthreads();
			for (int m = 0, c = (int)threadIdx.x; c < D; m++, c += ROW_THREADS)
				for (int j = first; j < end; j++)
#if KT
					to[m] += p[j - first] * LOAD(k[b * KB + h * KH + (int64_t)c * KR + j]);
#else
					to[m] += p[j - first] * LOAD(k[b * KB + h * KH + (int64_t)j * KR + c]);
#endif
		}
		if (turn == 0)
			t = pd_block_sum(t);
	}
	if (threadIdx.x == 0)
		ts[blockIdx.x] = t;
	for (int m = 0, c = (int)threadIdx.x; c < D; m++, c += ROW_THREADS)
		dq[b * QB + h * QH + i * QR + c] = STORE(to[m]);
}

static __global__ void keys(TS *dk, TS *dv, const T *ts, const TS *dy, const TS *q, const TS *k, const TS *v, const T *lse,
	const uint8_t *mask, const T *bias, int64_t sample)
{
	PD_DYN_SHARED(T, p);
	const int64_t j = blockIdx.x % TK, n = blockIdx.x / TK, h = n % H, b = n / H;
	T *ds = p + TILEQ;
	T tov[(DV + KEY_THREADS - 1) / KEY_THREADS] = { 0 }, tok[(D + KEY_THREADS - 1) / KEY_THREADS] = { 0 };
#if CAUSAL
	int first = (int)j;
#else
	int first = 0;
#endif

	for (; first < TQ; first += TILEQ) {
		const int end = first + TILEQ < TQ ? first + TILEQ : TQ;

		__syncthreads();
		for (int i = first + (int)threadIdx.x; i < end; i += KEY_THREADS) {
			const T w = EXP(score_of(q, k, b, h, i, j, mask, bias) - lse[n * TQ + i]), keep = kept(b, h, i, j, sample);

			ds[i - first] = through(w * (product_of(dy, v, b, h, i, j) * keep - ts[n * TQ + i]), b, h, i, j, mask);
			p[i - first] = w * keep;
		}
		__syncthreads();
		for (int m = 0, c = (int)threadIdx.x; c < DV; m++, c += KEY_THREADS)
			for (int i = first; i < end; i++)
				tov[m] += p[i - first] * LOAD(dy[b * YB + h * YH + (int64_t)i * YR + c]);
		for (int m = 0, c = (int)threadIdx.x; c < D; m++, c += KEY_THREADS)
			for (int i = first; i < end; i++)
				tok[m] += ds[i - first] * LOAD(q[b * QB + h * QH + (int64_t)i * QR + c]);
	}
	for (int m = 0, c = (int)threadIdx.x; c < DV; m++, c += KEY_THREADS)
		dv[b * VB + h * VH + j * VR + c] = STORE(tov[m]);
	for (int m = 0, c = (int)threadIdx.x; c < D; m++, c += KEY_THREADS)
#if KT
		dk[b * KB + h * KH + (int64_t)c * KR + j] = STORE(tok[m]);
#else
		dk[b * KB + h * KH + j * KR + c] = STORE(tok[m]);
#endif
}
}

PD_HOST void NAME(TS *dq, TS *dk, TS *dv, const TS *dy, const TS *q, const TS *k, const TS *v, const T *lse
#if MASK
	, const uint8_t *mask
#endif
#if BIAS
	, const T *bias
#endif
#if DROP
	, int64_t sample
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
	const int64_t sample = 0;
#endif
	T *ts = (T *)pd_room(HEADS * TQ * sizeof(T));

	PD_LAUNCH(device::NAME::rows, HEADS * TQ, device::NAME::ROW_THREADS, 2 * TILEK * sizeof(T), dq, ts, dy, q, k, v, lse, mask, bias, sample);
	PD_LAUNCH(device::NAME::keys, HEADS * TK, device::NAME::KEY_THREADS, 2 * TILEQ * sizeof(T), dk, dv, ts, dy, q, k, v, lse, mask, bias,
		sample);
}
