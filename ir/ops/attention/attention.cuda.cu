/* y = dropout(softmax(scores)) v: a block per row of scores, of which TILEK lie in shared memory at a time; what is summed up
 * is scaled anew when a tile has a larger score. lse = log sum exp of the row. */
namespace device::NAME {
enum { THREADS = TK <= 64 ? 64 : 128, EACH = (DV + THREADS - 1) / THREADS };

static __global__ void run(TS *y, T *lse, const TS *q, const TS *k, const TS *v, const uint8_t *mask, const T *bias, int64_t sample)
{
	PD_DYN_SHARED(T, row);
	const int64_t i = blockIdx.x % TQ, h = blockIdx.x / TQ % H, b = blockIdx.x / TQ / H;
	const TS *qi = q + b * QB + h * QH + i * QR, *kn = k + b * KB + h * KH, *vn = v + b * VB + h * VH;
#if CAUSAL
	const int len = i + 1 < TK ? (int)i + 1 : TK;
#else
	const int len = TK;
#endif
	T top = -INFINITY, sum = 0, to[EACH] = { 0 };

	for (int first = 0; first < len; first += TILEK) {
		const int end = first + TILEK < len ? first + TILEK : len;
		T high = -INFINITY, part = 0;

		__syncthreads();
		for (int j = first + (int)threadIdx.x; j < end; j += THREADS) {
			T s = 0;

			for (int c = 0; c < D; c++)
#if KT
				s += LOAD(qi[c]) * LOAD(kn[(int64_t)c * KR + j]);
#else
				s += LOAD(qi[c]) * LOAD(kn[(int64_t)j * KR + c]);
#endif
			s = SCORE;
			row[j - first] = s;
			high = high < s ? s : high;
		}
		high = pd_block_max(high);
		high = high < top ? top : high;
		const T again = first ? EXP(top - high) : 0;

		top = high;
		for (int j = first + (int)threadIdx.x; j < end; j += THREADS) {
			const T p = EXP(row[j - first] - top);

			part += p;
#if DROP
			row[j - first] = sample < 0 ? p : pd_random_unit(SEED, ID, (uint64_t)(sample + b),
				(uint64_t)((h * TQ + i) * TK + j)) >= RATIO ? p * KEEP : 0;
#else
			row[j - first] = p;
#endif
		}
		sum = sum * again + pd_block_sum(part);
		for (int m = 0, c = (int)threadIdx.x; c < DV; m++, c += THREADS) {
			T s = 0;

			for (int j = first; j < end; j++)
				s += row[j - first] * LOAD(vn[(int64_t)j * VR + c]);
			to[m] = to[m] * again + s;
		}
	}
	if (threadIdx.x == 0)
		lse[(b * H + h) * TQ + i] = top + LOG(sum);
	for (int m = 0, c = (int)threadIdx.x; c < DV; m++, c += THREADS)
		y[b * YB + h * YH + i * YR + c] = STORE(to[m] / sum);
	(void)mask;
	(void)bias;
	(void)sample;
}
}

PD_HOST void NAME(TS *y, T *lse, const TS *q, const TS *k, const TS *v
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

	PD_LAUNCH(device::NAME::run, HEADS * TQ, device::NAME::THREADS, TILEK * sizeof(T), y, lse, q, k, v, mask, bias, sample);
}
