/* The gradients of attention. A block per row of scores: p again from lse, d = dy v', then with t = sum of p d
 *     ds = p (d - t)        dq = ds k
 * and t goes to memory, for a block per key, which adds over the rows in their order:
 *     dv = sum of p dy      dk = sum of ds q */
namespace device::NAME {
static __device__ T score_of(const T *q, const T *k, int64_t b, int64_t h, int64_t i, int64_t j, const uint8_t *mask,
	const T *bias)
{
	const T *qi = q + b * QB + h * QH + i * QR, *kn = k + b * KB + h * KH;
	T s = 0;

	for (int c = 0; c < D; c++)
#if KT
		s += qi[c] * kn[(int64_t)c * KR + j];
#else
		s += qi[c] * kn[(int64_t)j * KR + c];
#endif
	(void)mask;
	(void)bias;
	return SCORE;
}

/* dy of row i times v of key j, and whether dropout kept p there: then times what it is scaled by. */
static __device__ T product_of(const T *dy, const T *v, int64_t b, int64_t h, int64_t i, int64_t j)
{
	const T *dyi = dy + b * YB + h * YH + i * YR, *vj = v + b * VB + h * VH + j * VR;
	T d = 0;

	for (int c = 0; c < DV; c++)
		d += dyi[c] * vj[c];
	return d;
}

static __device__ T kept(int64_t b, int64_t h, int64_t i, int64_t j, int64_t sample)
{
#if DROP
	return pd_random_unit(SEED, ID, (uint64_t)(sample + b), (uint64_t)((h * TQ + i) * TK + j)) >= RATIO ? (T)KEEP : 0;
#else
	return 1;
#endif
}

static __device__ T through(T ds, int64_t b, int64_t h, int64_t i, int64_t j, const uint8_t *mask)
{
	(void)mask;
	return DSCORE;
}

static __global__ void rows(T *dq, T *ts, const T *dy, const T *q, const T *k, const T *v, const T *lse, const uint8_t *mask,
	const T *bias, int64_t sample)
{
	PD_DYN_SHARED(T, row);
	const int64_t i = blockIdx.x % TQ, h = blockIdx.x / TQ % H, b = blockIdx.x / TQ / H;
#if CAUSAL
	const int len = i + 1 < TK ? (int)i + 1 : TK;
#else
	const int len = TK;
#endif
	T *d = row + TK, t = 0;

	for (int j = threadIdx.x; j < len; j += blockDim.x) {
		row[j] = EXP(score_of(q, k, b, h, i, j, mask, bias) - lse[blockIdx.x]);
		d[j] = product_of(dy, v, b, h, i, j) * kept(b, h, i, j, sample);
		t += row[j] * d[j];
	}
	t = pd_block_sum(t);
	if (threadIdx.x == 0)
		ts[blockIdx.x] = t;
	for (int j = threadIdx.x; j < len; j += blockDim.x)
		row[j] = through(row[j] * (d[j] - t), b, h, i, j, mask);
	__syncthreads();
	for (int c = threadIdx.x; c < D; c += blockDim.x) {
		T s = 0;

		for (int j = 0; j < len; j++)
#if KT
			s += row[j] * k[b * KB + h * KH + (int64_t)c * KR + j];
#else
			s += row[j] * k[b * KB + h * KH + (int64_t)j * KR + c];
#endif
		dq[b * QB + h * QH + i * QR + c] = s;
	}
}

static __global__ void keys(T *dk, T *dv, const T *ts, const T *dy, const T *q, const T *k, const T *v, const T *lse,
	const uint8_t *mask, const T *bias, int64_t sample)
{
	PD_DYN_SHARED(T, p);
	const int64_t j = blockIdx.x % TK, n = blockIdx.x / TK, h = n % H, b = n / H;
	T *ds = p + TQ;
#if CAUSAL
	const int first = (int)j;
#else
	const int first = 0;
#endif

	for (int i = first + (int)threadIdx.x; i < TQ; i += blockDim.x) {
		const T w = EXP(score_of(q, k, b, h, i, j, mask, bias) - lse[n * TQ + i]), keep = kept(b, h, i, j, sample);

		ds[i] = through(w * (product_of(dy, v, b, h, i, j) * keep - ts[n * TQ + i]), b, h, i, j, mask);
		p[i] = w * keep;
	}
	__syncthreads();
	for (int c = threadIdx.x; c < DV; c += blockDim.x) {
		T s = 0;

		for (int i = first; i < TQ; i++)
			s += p[i] * dy[b * YB + h * YH + (int64_t)i * YR + c];
		dv[b * VB + h * VH + j * VR + c] = s;
	}
	for (int c = threadIdx.x; c < D; c += blockDim.x) {
		T s = 0;

		for (int i = first; i < TQ; i++)
			s += ds[i] * q[b * QB + h * QH + (int64_t)i * QR + c];
#if KT
		dk[b * KB + h * KH + (int64_t)c * KR + j] = s;
#else
		dk[b * KB + h * KH + j * KR + c] = s;
#endif
	}
}
}

PD_HOST void NAME(T *dq, T *dk, T *dv, const T *dy, const T *q, const T *k, const T *v, const T *lse
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

	PD_LAUNCH(device::NAME::rows, HEADS * TQ, TK <= 64 ? 64 : 128, 2 * TK * sizeof(T), dq, ts, dy, q, k, v, lse, mask, bias, sample);
	PD_LAUNCH(device::NAME::keys, HEADS * TK, TQ <= 64 ? 64 : 128, 2 * TQ * sizeof(T), dk, dv, ts, dy, q, k, v, lse, mask, bias,
		sample);
}
