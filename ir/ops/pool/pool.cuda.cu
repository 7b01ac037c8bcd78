/* Pooling over windows of images, a thread per few channels of what is made. */
#if BACK
/* x is the gradient that is made from that of y: each of its elements looks up the windows that it lies in, in their
 * order. */
#endif
#if MAX
/* `place` says which element of the window won, the first of equals. */
#endif
#if PADDED
/* The average over the window's elements, those in the padding too. */
#endif
namespace device::NAME {
template<class E> struct alignas(V * sizeof(E)) channels { E of[V]; };

#if !MAX
static __device__ int count_of(int d0, int h0, int w0)
{
	int count = 0;

#if PADDED
	count = (d0 + KD * LD < ID + ED + LD ? KD : (ID + ED - d0 + LD - 1) / LD) *
		(h0 + KH * LH < IH + EH + LH ? KH : (IH + EH - h0 + LH - 1) / LH) *
		(w0 + KW * LW < IW + EW + LW ? KW : (IW + EW - w0 + LW - 1) / LW);
#else
	for (int i = 0; i < KD; i++)
		for (int j = 0; j < KH; j++)
			for (int k = 0; k < KW; k++)
				count += d0 + i * LD >= 0 && d0 + i * LD < ID && h0 + j * LH >= 0 && h0 + j * LH < IH &&
					w0 + k * LW >= 0 && w0 + k * LW < IW;
#endif
	return count > 0 ? count : 1;
}

#endif
#if BACK
static __global__ void run(TS *x, const TS *y, const TI *place)
{
	const int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

	if (e >= (int64_t)OUTER * ID * IH * IW * (CH / V))
		return;
	const int64_t at = e * V, column = e / (CH / V), o = column / IW / IH / ID;
	const int c = (int)(e % (CH / V)) * V;
	const int r = (int)(column % IW), q = (int)(column / IW % IH), p = (int)(column / IW / IH % ID);
	T sum[V] = { 0 };

	for (int i = KD - 1; i >= 0; i--)
		for (int j = KH - 1; j >= 0; j--)
			for (int k = KW - 1; k >= 0; k--) {
				const int d = p + PD - i * LD, h = q + PH - j * LH, w = r + PW - k * LW;

				if (d < 0 || d % SD || d / SD >= OD || h < 0 || h % SH || h / SH >= OH || w < 0 || w % SW || w / SW >= OW)
					continue;
				const int64_t from = (((o * OD + d / SD) * OH + h / SH) * OW + w / SW) * CH + c;
				const channels<TS> dy = *(const channels<TS> *)(y + from);
#if MAX
				const channels<TI> won = *(const channels<TI> *)(place + from);

				for (int v = 0; v < V; v++)
					sum[v] += won.of[v] == (TI)((i * KH + j) * KW + k) ? LOAD(dy.of[v]) : 0;
#else
				const T count = (T)count_of(d - PD, h - PH, w - PW);

				for (int v = 0; v < V; v++)
					sum[v] += LOAD(dy.of[v]) / count;
#endif
			}
	channels<TS> dx;

	for (int v = 0; v < V; v++)
		dx.of[v] = STORE(sum[v]);
	*(channels<TS> *)(x + at) = dx;
	(void)place;
}
#else
static __global__ void run(TS *y, TI *place, const TS *x)
{
	const int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

	if (e >= (int64_t)OUTER * OD * OH * OW * (CH / V))
		return;
	const int64_t at = e * V, column = e / (CH / V), o = column / OW / OH / OD;
	const int c = (int)(e % (CH / V)) * V;
	const int w = (int)(column % OW), h = (int)(column / OW % OH), d = (int)(column / OW / OH % OD);
	const int d0 = d * SD - PD, h0 = h * SH - PH, w0 = w * SW - PW;
	T got[V];
#if MAX
	channels<TI> where;

	for (int v = 0; v < V; v++) {
		got[v] = -INFINITY;
		where.of[v] = 0;
	}
#else
	const T share = 1 / (T)count_of(d0, h0, w0);

	for (int v = 0; v < V; v++)
		got[v] = 0;
#endif

	for (int i = 0; i < KD; i++)
		for (int j = 0; j < KH; j++)
			for (int k = 0; k < KW; k++) {
				const int p = d0 + i * LD, q = h0 + j * LH, r = w0 + k * LW;

				if (p < 0 || p >= ID || q < 0 || q >= IH || r < 0 || r >= IW)
					continue;
				const channels<TS> in = *(const channels<TS> *)(x + (((o * ID + p) * IH + q) * IW + r) * CH + c);

				for (int v = 0; v < V; v++) {
#if MAX
					if (LOAD(in.of[v]) > got[v]) {
						got[v] = LOAD(in.of[v]);
						where.of[v] = (TI)((i * KH + j) * KW + k);
					}
#else
					got[v] += LOAD(in.of[v]) * share;
#endif
				}
			}
	channels<TS> out;

	for (int v = 0; v < V; v++)
		out.of[v] = STORE(got[v]);
	*(channels<TS> *)(y + at) = out;
#if MAX
	*(channels<TI> *)(place + at) = where;
#else
	(void)place;
#endif
}
#endif
}

PD_HOST void NAME(
#if BACK
	TS *x, const TS *y
#if MAX
	, const TI *place
#endif
#else
	TS *y,
#if MAX
	TI *place,
#endif
	const TS *x
#endif
	)
{
#if BACK && MAX
	PD_LAUNCH(device::NAME::run, pd_blocks((int64_t)OUTER * ID * IH * IW * (CH / V), 256), 256, 0, x, y, place);
#elif BACK
	PD_LAUNCH(device::NAME::run, pd_blocks((int64_t)OUTER * ID * IH * IW * (CH / V), 256), 256, 0, x, y, (const TI *)nullptr);
#elif MAX
	PD_LAUNCH(device::NAME::run, pd_blocks((int64_t)OUTER * OD * OH * OW * (CH / V), 256), 256, 0, y, place, x);
#else
	PD_LAUNCH(device::NAME::run, pd_blocks((int64_t)OUTER * OD * OH * OW * (CH / V), 256), 256, 0, y, (TI *)nullptr, x);
#endif
}
