/* The gradients of every head, a row of scores at a time: p again from lse + rest, d = dy v^T, then with t = dy y^T
 *     dv += p^T dy        ds = p (d - t)        dq = ds k        dk += ds^T q */
static void NAME(T *restrict dq, T *restrict dk, T *restrict dv, const T *restrict dy, const T *restrict q,
	const T *restrict k, const T *restrict v, const T *restrict y, const T *restrict lse, const T *restrict rest
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
	memset(dk, 0, (size_t)HEADS * TK * D * sizeof *dk);
	memset(dv, 0, (size_t)HEADS * TK * DV * sizeof *dv);
	for (int64_t n = 0; n < (int64_t)HEADS * TQ; n++) {
		const int64_t b = n / TQ / H, h = n / TQ % H, i = n % TQ;
		const T *restrict qn = q + b * QB + h * QH + i * QR, *restrict dyn = dy + b * YB + h * YH + i * YR;
		const T *restrict yn = y + b * YB + h * YH + i * YR;
		T *restrict dqn = dq + b * QB + h * QH + i * QR;
#if CAUSAL && !FILLED
		const int len = i + 1 < TK ? (int)i + 1 : TK;
#else
		const int len = TK;
#endif
		T p[TK], d[TK], t = 0;

		for (int c = 0; c < D; c++)
			dqn[c] = 0;
		for (int c = 0; c < DV; c++)
			t += dyn[c] * yn[c];
		for (int j = 0; j < len; j++) {
			T s = 0, keep = 1;
#if DROP
			keep = pd_random_four(pd_random_stream(SEED, id, (uint64_t)(sample + b)),
				       (uint64_t)(HEAD * TQ + i), TK, (uint64_t)j) >= DROPPED
			               ? KEEP
			               : 0;
#endif
			for (int c = 0; c < D; c++)
#if KT
				s += qn[c] * k[b * KB + h * KH + (int64_t)c * KR + j];
#else
				s += qn[c] * k[b * KB + h * KH + (int64_t)j * KR + c];
#endif
#if FILLED
			p[j] = EXP((j <= i ? SCORE : FILL) - lse[n] - rest[n]);
#else
			p[j] = EXP(SCORE - lse[n] - rest[n]);
#endif
			d[j] = 0;
			for (int c = 0; c < DV; c++) {
				d[j] += dyn[c] * v[b * VB + h * VH + (int64_t)j * VR + c] * keep;
				dv[b * VB + h * VH + (int64_t)j * VR + c] += p[j] * keep * dyn[c];
			}
		}
		for (int j = 0; j < len; j++) {
			T ds = p[j] * (d[j] - t);
#if FILLED
			ds = j <= i ? DSCORE : 0;
#else
			ds = DSCORE;
#endif
			for (int c = 0; c < D; c++) {
#if KT
				const int64_t at = b * KB + h * KH + (int64_t)c * KR + j;
#else
				const int64_t at = b * KB + h * KH + (int64_t)j * KR + c;
#endif
				dqn[c] += ds * k[at];
				dk[at] += ds * qn[c];
			}
		}
	}
}
