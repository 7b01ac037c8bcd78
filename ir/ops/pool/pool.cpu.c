/* Pooling over windows of images. */
#if BACK
/* x is the gradient that is made from that of y. */
#endif
#if MAX
/* `place` says which element of the window won, the first of equals. */
#endif
#if PADDED
/* The average over the window's elements, those in the padding too. */
#endif
#if HALF
/* Images of 16-bit floats are widened, and narrowed again. */
#endif
#if HALF
static void NAME(
#if BACK
	TS *restrict to, const TS *restrict from_half
#if MAX
	, const TI *restrict place
#endif
#else
	TS *restrict to,
#if MAX
	TI *restrict place,
#endif
	const TS *restrict from_half
#endif
	)
{
	const size_t large = (size_t)OUTER * ID * IH * IW * CH, small = (size_t)OUTER * OD * OH * OW * CH;
#if BACK
	T *restrict x = pd_room_f32(0, large);
	const T *restrict y = pd_widen(1, TYPE, from_half, small);
#else
	T *restrict y = pd_room_f32(0, small);
	const T *restrict x = pd_widen(1, TYPE, from_half, large);
#endif

#else
static void NAME(
#if BACK
	T *restrict x, const T *restrict y
#if MAX
	, const TI *restrict place
#endif
#else
	T *restrict y,
#if MAX
	TI *restrict place,
#endif
	const T *restrict x
#endif
	)
{
#endif
#if PAR
#pragma omp parallel for
#endif
	for (int o = 0; o < OUTER; o++) {
#if BACK
		memset(x + (int64_t)o * ID * IH * IW * CH, 0, sizeof *x * ID * IH * IW * CH);
#endif
		for (int d = 0; d < OD; d++)
			for (int h = 0; h < OH; h++)
				for (int w = 0; w < OW; w++) {
					const int64_t at = ((((int64_t)o * OD + d) * OH + h) * OW + w) * CH;
					const int d0 = d * SD - PD, h0 = h * SH - PH, w0 = w * SW - PW;
#if MAX && !BACK
					for (int c = 0; c < CH; c++) {
						y[at + c] = -INFINITY;
						place[at + c] = 0;
					}
#elif !MAX
					int count = 0;
#if PADDED
					count = (d0 + KD * LD < ID + ED + LD ? KD : (ID + ED - d0 + LD - 1) / LD) *
						(h0 + KH * LH < IH + EH + LH ? KH : (IH + EH - h0 + LH - 1) / LH) *
						(w0 + KW * LW < IW + EW + LW ? KW : (IW + EW - w0 + LW - 1) / LW);
#else
					for (int i = 0; i < KD; i++)
						for (int j = 0; j < KH; j++)
							for (int k = 0; k < KW; k++)
								count += d0 + i * LD >= 0 && d0 + i * LD < ID && h0 + j * LH >= 0 &&
									h0 + j * LH < IH && w0 + k * LW >= 0 && w0 + k * LW < IW;
#endif
					const T share = 1 / (T)(count > 0 ? count : 1);
#if !BACK
					for (int c = 0; c < CH; c++)
						y[at + c] = 0;
#endif
#endif
					for (int i = 0; i < KD; i++)
						for (int j = 0; j < KH; j++)
							for (int k = 0; k < KW; k++) {
								const int p = d0 + i * LD, q = h0 + j * LH, r = w0 + k * LW;

								if (p < 0 || p >= ID || q < 0 || q >= IH || r < 0 || r >= IW)
									continue;
								const int64_t from = ((((int64_t)o * ID + p) * IH + q) * IW + r) * CH;
#if MAX
								const TI here = (TI)((i * KH + j) * KW + k);
#endif
#pragma omp simd
								for (int c = 0; c < CH; c++) {
#if MAX && BACK
									x[from + c] += place[at + c] == here ? y[at + c] : 0;
#elif MAX
									const int more = x[from + c] > y[at + c];
									y[at + c] = more ? x[from + c] : y[at + c];
									place[at + c] = more ? here : place[at + c];
#elif BACK
									x[from + c] += y[at + c] * share;
#else
									y[at + c] += x[from + c] * share;
#endif
								}
							}
				}
	}
#if HALF && BACK
	pd_narrow(TYPE, to, x, large);
#elif HALF
	pd_narrow(TYPE, to, y, small);
#endif
}
