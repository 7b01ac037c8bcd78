/* Places in a window as places in x [OUTER, ID, IH, IW], a thread per window; one without a winner (all NaN) names an
 * element of x all the same. */
namespace device::NAME {
static __global__ void run(int64_t *y, const TI *place)
{
	const int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

	if (e >= (int64_t)OUTER * OD * OH * OW)
		return;
	const int64_t w = e % OW, h = e / OW % OH, d = e / OW / OH % OD, o = e / OW / OH / OD, k = place[e];
	int64_t p = d * SD - PD + k / (KH * KW) * LD;
	int64_t q = h * SH - PH + k / KW % KH * LH;
	int64_t r = w * SW - PW + k % KW * LW;

	p = p < 0 ? 0 : p < ID ? p : ID - 1;
	q = q < 0 ? 0 : q < IH ? q : IH - 1;
	r = r < 0 ? 0 : r < IW ? r : IW - 1;
#if COLUMNS
	y[e] = o * ID * IH * IW + (r * IH + q) * ID + p;
#else
	y[e] = ((o * ID + p) * IH + q) * IW + r;
#endif
}
}

PD_HOST void NAME(int64_t *y, const TI *place)
{
	PD_LAUNCH(device::NAME::run, pd_blocks((int64_t)OUTER * OD * OH * OW, 256), 256, 0, y, place);
}
