/* Convolution in plain loops, plain layout. */
#if WHAT == 0
/* y from x, w, b. */
#endif
#if WHAT == 1
/* dx from dy, w. */
#endif
#if WHAT == 2
/* dw, db from x, dy. */
#endif
static void NAME(
#if WHAT == 0
	T *restrict y, const T *restrict x, const T *restrict w
#if BIAS
	,
	const T *restrict b
#endif
#elif WHAT == 1
	T *restrict x, const T *restrict y, const T *restrict w
#else
	T *restrict w,
#if BIAS
	T *restrict b,
#endif
	const T *restrict x, const T *restrict y
#endif
)
{
#if WHAT == 1
	memset(x, 0, sizeof *x * BATCH * GROUPS * CG * ID * IH * IW);
#elif WHAT == 2
	memset(w, 0, sizeof *w * GROUPS * OG * CG * KD * KH * KW);
#if BIAS
	memset(b, 0, sizeof *b * GROUPS * OG);
#endif
#endif
	for (int64_t n = 0; n < BATCH; n++)
		for (int64_t o = 0; o < GROUPS * OG; o++)
			for (int64_t d = 0; d < OD; d++)
				for (int64_t h = 0; h < OH; h++)
					for (int64_t l = 0; l < OW; l++) {
						const int64_t at = (((n * GROUPS * OG + o) * OD + d) * OH + h) * OW + l;
#if WHAT == 0
#if BIAS
						T s = b[o];
#else
						T s = 0;
#endif
#endif
#if WHAT == 2 && BIAS
						b[o] += y[at];
#endif
						for (int64_t c = 0; c < CG; c++)
							for (int64_t i = 0; i < KD; i++)
								for (int64_t j = 0; j < KH; j++)
									for (int64_t k = 0; k < KW; k++) {
										const int64_t p = d * SD - PD + i * LD,
											      q = h * SH - PH + j * LH;
										const int64_t r = l * SW - PW + k * LW;
										const int64_t from =
											(((n * GROUPS * CG +
												  o / OG * CG + c) *
													 ID +
												 p) * IH +
												q) *
												IW +
											r;
										const int64_t f =
											(((o * CG + c) * KD + i) * KH +
												j) *
												KW +
											k;

										if (p < 0 || p >= ID || q < 0 ||
											q >= IH || r < 0 || r >= IW)
											continue;
#if WHAT == 0
										s += x[from] * w[f];
#elif WHAT == 1
										x[from] += y[at] * w[f];
#else
										w[f] += x[from] * y[at];
#endif
									}
#if WHAT == 0
						y[at] = s;
#endif
					}
}
