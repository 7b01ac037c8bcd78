/* y = dropout(softmax(scores)) v for every head, some rows of scores at a time; lse + rest = log sum exp of each
 * row. */
#if FILLED
/* The scores of later keys are looked at only where a row's own leave them any weight. */
#endif
#if HALF
static void NAME(TS *restrict y_16, T *restrict lse, T *restrict rest, const TS *restrict q_16, const TS *restrict k_16, const TS *restrict v_16
#else
static void NAME(T *restrict y, T *restrict lse, T *restrict rest, const T *restrict q, const T *restrict k, const T *restrict v
#endif
#if MASK
	, const uint8_t *restrict mask
#endif
#if BIAS
	, const T *restrict bias
#endif
#if DROP
	, int64_t sample, uint64_t id
#endif
	)
{
#if DROP && MEMBERS
	const int64_t heads = (int64_t)pd_member() * H; /* before these, which other members have */

#endif
#if HALF
	const T *restrict q = pd_widen(0, KIND, q_16, QN), *restrict k = pd_widen(1, KIND, k_16, KN);
	const T *restrict v = pd_widen(2, KIND, v_16, VN);
	T *restrict y = pd_room_f32(3, YN);

#endif
#if PAR
#pragma omp parallel for
#endif
#if BLOCKS == 1
	for (int64_t n = 0; n < HEADS; n++) {
		const int64_t b = n / H, h = n % H;
		const int first = 0, rows = TQ;
#else
	for (int64_t n = 0; n < (int64_t)HEADS * BLOCKS; n++) {
		const int64_t b = n / BLOCKS / H, h = n / BLOCKS % H;
		const int first = (int)(n % BLOCKS) * ROWS, rows = ROWS < TQ - first ? ROWS : TQ - first;
#endif
#if CAUSAL
		int keys = first + rows < TK ? first + rows : TK;
#else
		const int keys = TK;
#endif
		T p[ROWS * TK];
#if DROP
		const uint64_t stream = pd_random_stream(SEED, id, (uint64_t)(sample + b));
#endif

		pd_gemm(0, !KT, rows, keys, D, q + b * QB + h * QH + (int64_t)first * QR, QR, k + b * KB + h * KH, KR, 0, p, TK);
		for (int r = 0; r < rows; r++) {
			const int i = first + r;
#if CAUSAL
			int len = i + 1 < TK ? i + 1 : TK;
#else
			const int len = TK;
#endif
			T *restrict row = p + (int64_t)r * TK;
			T top = -INFINITY, sum = 0;

#pragma omp simd reduction(max : top)
			for (int j = 0; j < len; j++) {
				const T s = row[j];
				row[j] = SCORE;
				top = top < row[j] ? row[j] : top;
			}
#if FILLED
			if (len < TK && FILL - top > LEAST) {
				for (int m = 0; keys < TK && m < rows; m++)
					memset(p + (int64_t)m * TK + keys, 0, (TK - keys) * sizeof *p);
				for (int j = len; j < TK; j++)
					row[j] = FILL;
				keys = len = TK;
				top = top < FILL ? FILL : top;
			}
#endif
#pragma omp simd reduction(+ : sum)
			for (int j = 0; j < len; j++) {
				row[j] = EXP(row[j] - top);
				sum += row[j];
			}
			const T more = LOG(sum), all = top + more;
			lse[(b * H + h) * TQ + i] = all;
			rest[(b * H + h) * TQ + i] = top - all + more;
			sum = 1 / sum;
#if DROP
#if EVALUATES
			if (sample < 0) {
				for (int j = 0; j < len; j++)
					row[j] *= sum;
			} else
#endif
			for (int j = 0; j < len; j += 16) {
				const int some = len - j < 16 ? len - j : 16;
				uint16_t bits[16];

				pd_random_sixteen(bits, stream, (uint64_t)(HEAD * TQ + i), TK, (uint64_t)j);
				for (int u = 0; u < some; u++)
					row[j + u] = bits[u] >= DROPPED ? row[j + u] * sum * KEEP : 0;
			}
#else
#pragma omp simd
			for (int j = 0; j < len; j++)
				row[j] *= sum;
#endif
			for (int j = len; j < keys; j++)
				row[j] = 0;
		}
		pd_gemm(0, 0, rows, DV, keys, p, TK, v + b * VB + h * VH, VR, 0, y + b * YB + h * YH + (int64_t)first * YR, YR);
	}
#if HALF
	pd_narrow(KIND, y_16, y, YN);
#endif
}
