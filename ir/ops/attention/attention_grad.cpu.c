/* The gradients of a head, some rows of scores at a time: p again from lse + rest, d = dy v^T, then with t = dy y^T
 *     dv += p^T dy        ds = p (d - t)        dq = ds k        dk += ds^T q */
#if DROP
/* A dropped p is kept negative until dv has been added to. */
#endif
#if FILLED
/* Later keys are looked at only where a row gives them weight; no gradient reaches their products. */
#endif
#if HALF
static void NAME(TS *restrict dq_16, TS *restrict dk_16, TS *restrict dv_16, const TS *restrict dy_16,
	const TS *restrict q_16, const TS *restrict k_16, const TS *restrict v_16, const TS *restrict y_16,
	const T *restrict lse, const T *restrict rest
#else
static void NAME(T *restrict dq, T *restrict dk, T *restrict dv, const T *restrict dy, const T *restrict q,
	const T *restrict k, const T *restrict v, const T *restrict y, const T *restrict lse, const T *restrict rest
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
	const T *restrict v = pd_widen(2, KIND, v_16, VN), *restrict dy = pd_widen(3, KIND, dy_16, YN);
	const T *restrict y = pd_widen(7, KIND, y_16, YN);
	T *restrict dq = pd_room_f32(4, QN), *restrict dk = pd_room_f32(5, KN), *restrict dv = pd_room_f32(6, VN);

#endif
#if PAR
#pragma omp parallel for
#endif
	for (int64_t n = 0; n < HEADS; n++) {
		const int64_t b = n / H, h = n % H;
		const T *restrict kn = k + b * KB + h * KH, *restrict vn = v + b * VB + h * VH;
		T *restrict dkn = dk + b * KB + h * KH, *restrict dvn = dv + b * VB + h * VH;
		T p[ROWS * TK], d[ROWS * TK];
#if DROP
		const uint64_t stream = pd_random_stream(SEED, id, (uint64_t)(sample + b));
#endif

#if KT
		for (int c = 0; c < D; c++)
			memset(dkn + (int64_t)c * KR, 0, TK * sizeof *dkn);
#else
		for (int j = 0; j < TK; j++)
			memset(dkn + (int64_t)j * KR, 0, D * sizeof *dkn);
#endif
		for (int j = 0; j < TK; j++)
			memset(dvn + (int64_t)j * VR, 0, DV * sizeof *dvn);
		for (int first = 0; first < TQ; first += ROWS) {
			const int rows = ROWS < TQ - first ? ROWS : TQ - first;
			const T *restrict qn = q + b * QB + h * QH + (int64_t)first * QR;
			const T *restrict dyn = dy + b * YB + h * YH + (int64_t)first * YR;
			T *restrict dqn = dq + b * QB + h * QH + (int64_t)first * QR;
#if CAUSAL
			int keys = first + rows < TK ? first + rows : TK;
#else
			const int keys = TK;
#endif

#if FILLED
			for (int64_t i = n * TQ + first; i < n * TQ + first + rows; i++)
				keys = FILL - lse[i] - rest[i] > LEAST ? TK : keys;
#endif
			pd_gemm(0, !KT, rows, keys, D, qn, QR, kn, KR, 0, p, TK);
			pd_gemm(0, 1, rows, keys, DV, dyn, YR, vn, VR, 0, d, TK);
			for (int r = 0; r < rows; r++) {
				const int i = first + r;
#if CAUSAL
				const int len = i + 1 < TK ? i + 1 : TK;
#else
				const int len = TK;
#endif
				T *restrict row = p + (int64_t)r * TK, *restrict drow = d + (int64_t)r * TK;
				const T l = lse[n * TQ + i], m = rest[n * TQ + i];
				const T *restrict yi = y + b * YB + h * YH + i * YR, *restrict dyi = dyn + (int64_t)r * YR;
				T t = 0;

#pragma omp simd reduction(+ : t)
				for (int c = 0; c < DV; c++)
					t += dyi[c] * yi[c];
#pragma omp simd
				for (int j = 0; j < len; j++) {
					const T s = row[j];
					row[j] = EXP(SCORE - l - m);
				}
#if DROP
				for (int j = 0; j < len; j += 16) {
					const int some = len - j < 16 ? len - j : 16;
					uint16_t bits[16];

					pd_random_sixteen(bits, stream, (uint64_t)(HEAD * TQ + i), TK, (uint64_t)j);
					for (int u = 0; u < some; u++) {
						drow[j + u] = bits[u] >= DROPPED ? drow[j + u] * KEEP : 0;
						row[j + u] = bits[u] >= DROPPED ? row[j + u] : -row[j + u];
					}
				}
				for (int j = 0; j < len; j++) {
					const T ds = (row[j] < 0 ? -row[j] : row[j]) * (drow[j] - t);
					drow[j] = DSCORE;
					row[j] = row[j] < 0 ? 0 : row[j] * KEEP;
				}
#else
#pragma omp simd
				for (int j = 0; j < len; j++) {
					const T ds = row[j] * (drow[j] - t);
					drow[j] = DSCORE;
				}
#endif
				for (int j = len; j < keys; j++) {
#if FILLED && DROP
					const uint32_t bits = pd_random_four(stream, (uint64_t)(HEAD * TQ + i), TK, (uint64_t)j);
					row[j] = bits >= DROPPED ? EXP(FILL - l - m) * KEEP : 0;
#elif FILLED
					row[j] = EXP(FILL - l - m);
#else
					row[j] = 0;
#endif
					drow[j] = 0;
				}
			}
			pd_gemm(1, 0, keys, DV, rows, p, TK, dyn, YR, 1, dvn, VR);
			pd_gemm(0, KT, rows, D, keys, d, TK, kn, KR, 0, dqn, QR);
#if KT
			pd_gemm(1, 0, D, keys, rows, qn, QR, d, TK, 1, dkn, KR);
#else
			pd_gemm(1, 0, keys, D, rows, d, TK, qn, QR, 1, dkn, KR);
#endif
		}
	}
#if HALF
	pd_narrow(KIND, dq_16, dq, QN);
	pd_narrow(KIND, dk_16, dk, KN);
	pd_narrow(KIND, dv_16, dv, VN);
#endif
}
