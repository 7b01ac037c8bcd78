/* y = dropout(softmax(scores)) v for every head, a row at a time; lse + rest = log sum exp of each row. */
static void NAME(
	T *restrict y, T *restrict lse, T *restrict rest, const T *restrict q, const T *restrict k, const T *restrict v
#if MASK
	,
	const uint8_t *restrict mask
#endif
#if BIAS
	,
	const T *restrict bias
#endif
#if DROP
	,
	int64_t sample, uint64_t id
#endif
)
{
#if DROP && MEMBERS
	const int64_t heads = (int64_t)pd_member() * H; /* before these, which other members have */

#endif
	for (int64_t n = 0; n < (int64_t)HEADS * TQ; n++) {
		const int64_t b = n / TQ / H, h = n / TQ % H, i = n % TQ;
		const T *restrict from = q + b * QB + h * QH + i * QR;
		T *restrict to = y + b * YB + h * YH + i * YR;
#if CAUSAL && !FILLED
		const int len = i + 1 < TK ? (int)i + 1 : TK;
#else
		const int len = TK;
#endif
		T p[TK], top = -INFINITY, sum = 0;

		for (int j = 0; j < len; j++) {
			T s = 0;
			for (int c = 0; c < D; c++)
#if KT
				s += from[c] * k[b * KB + h * KH + (int64_t)c * KR + j];
#else
				s += from[c] * k[b * KB + h * KH + (int64_t)j * KR + c];
#endif
#if FILLED
			p[j] = j <= i ? SCORE : FILL;
#else
			p[j] = SCORE;
#endif
			top = top < p[j] ? p[j] : top;
		}
		for (int j = 0; j < len; j++) {
			p[j] = EXP(p[j] - top);
			sum += p[j];
		}
		lse[n] = top + LOG(sum);
		rest[n] = top - lse[n] + LOG(sum);
		for (int c = 0; c < DV; c++)
			to[c] = 0;
		for (int j = 0; j < len; j++) {
			p[j] /= sum;
#if DROP
#if EVALUATES
			if (sample >= 0)
#endif
				p[j] = pd_random_four(pd_random_stream(SEED, id, (uint64_t)(sample + b)),
					       (uint64_t)(HEAD * TQ + i), TK, (uint64_t)j) >= DROPPED
				               ? p[j] * KEEP
				               : 0;
#endif
			for (int c = 0; c < DV; c++)
				to[c] += p[j] * v[b * VB + h * VH + (int64_t)j * VR + c];
		}
	}
}
