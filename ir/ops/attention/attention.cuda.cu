/* y = dropout(softmax(scores)) v: a block per row of scores, which it holds in shared memory; lse = log sum exp of the row. */
namespace device::NAME {
static __global__ void run(T *y, T *lse, const T *q, const T *k, const T *v, const uint8_t *mask, const T *bias, int64_t sample)
{
	PD_DYN_SHARED(T, row);
	const int64_t i = blockIdx.x % TQ, h = blockIdx.x / TQ % H, b = blockIdx.x / TQ / H;
	const T *qi = q + b * QB + h * QH + i * QR, *kn = k + b * KB + h * KH, *vn = v + b * VB + h * VH;
#if CAUSAL
	const int len = i + 1 < TK ? (int)i + 1 : TK;
#else
	const int len = TK;
#endif
	T top = -INFINITY, sum = 0;

	for (int j = threadIdx.x; j < len; j += blockDim.x) {
		T s = 0;

		for (int c = 0; c < D; c++)
#if KT
			s += qi[c] * kn[(int64_t)c * KR + j];
#else
			s += qi[c] * kn[(int64_t)j * KR + c];
#endif
		row[j] = SCORE;
		top = top < row[j] ? row[j] : top;
	}
	top = pd_block_max(top);
	for (int j = threadIdx.x; j < len; j += blockDim.x) {
		row[j] = EXP(row[j] - top);
		sum += row[j];
	}
	sum = pd_block_sum(sum);
	if (threadIdx.x == 0)
		lse[(b * H + h) * TQ + i] = top + LOG(sum);
	for (int j = threadIdx.x; j < len; j += blockDim.x)
#if DROP
		row[j] = sample < 0 ? row[j] / sum : pd_random_unit(SEED, ID, (uint64_t)(sample + b), (uint64_t)((h * TQ + i) * TK + j)) >= RATIO ?
			row[j] / sum * KEEP : 0;
#else
		row[j] /= sum;
#endif
	__syncthreads();
	for (int c = threadIdx.x; c < DV; c += blockDim.x) {
		T s = 0;

		for (int j = 0; j < len; j++)
			s += row[j] * vn[(int64_t)j * VR + c];
		y[b * YB + h * YH + i * YR + c] = s;
	}
	(void)mask;
	(void)bias;
	(void)sample;
}
}

PD_HOST void NAME(T *y, T *lse, const T *q, const T *k, const T *v
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

	PD_LAUNCH(device::NAME::run, HEADS * TQ, TK <= 64 ? 64 : 128, TK * sizeof(T), y, lse, q, k, v, mask, bias, sample);
}
