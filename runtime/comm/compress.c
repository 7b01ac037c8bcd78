/* compress.c: gradients on the wire in fewer bits (Pipe-SGD section 3.2).
 *
 *     trunc16   the upper 16 bits of an f32: sign, exponent, 7 bits of mantissa; the rest is dropped
 *     bf16      the same, rounded to the nearest, ties to even; NaN stays NaN
 *     q8        a step per block and 8 bits per element: x is round(x / step), step is max|x| / 127
 *               rounded up to 17 bits of mantissa
 *
 * Decoding what was decoded and encoded again gives the same bytes (127 * step is exact), so a sum
 * that travels round a ring is the same everywhere. A block that holds a NaN or an infinity
 * decodes to NaN. Blocks begin at multiples of their length from the begin of the array. */
#include "rt.h"

enum { Q8_LEAST = 16 };

static size_t q8_blocks(const rt_codec *c, size_t n) { return (n + (size_t)c->block - 1) / (size_t)c->block; }

size_t rt_encoded(const rt_codec *c, size_t n)
{
	switch (c->kind) {
	case PD_CODEC_TRUNC16:
	case PD_CODEC_BF16: return 2 * n;
	case PD_CODEC_Q8: return n + sizeof(float) * q8_blocks(c, n);
	default: return sizeof(float) * n;
	}
}

size_t rt_codec_grain(const rt_codec *c) { return c->kind == PD_CODEC_Q8 ? (size_t)c->block : 1; }

static uint32_t bits_of(float x)
{
	uint32_t u;

	memcpy(&u, &x, sizeof u);
	return u;
}

static float float_of(uint32_t u)
{
	float x;

	memcpy(&x, &u, sizeof x);
	return x;
}

static void encode_16(const float *restrict x, uint16_t *restrict out, size_t n)
{
	for (size_t i = 0; i < n; i++)
		out[i] = (uint16_t)(bits_of(x[i]) >> 16);
}

static void encode_bf16(const float *restrict x, uint16_t *restrict out, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const uint32_t u = bits_of(x[i]), up = u + 0x7FFF + ((u >> 16) & 1);
		const bool nan = (u & 0x7FFFFFFF) > 0x7F800000;

		out[i] = (uint16_t)(nan ? (u >> 16) | 0x40 : up >> 16);
	}
}

/* The least float of at most 17 bits of mantissa that is not below m / 127. */
static float step_of(float m)
{
	const uint32_t cut = 0x7F;
	const float s = m / 127;

	return float_of((bits_of(s) + cut) & ~cut);
}

static void encode_q8(const float *restrict x, float *restrict step, int8_t *restrict q, size_t n)
{
	uint32_t top = 0; /* without their signs, floats are in the order of their bits */

	for (size_t i = 0; i < n; i++) {
		const uint32_t a = bits_of(x[i]) & 0x7FFFFFFF;

		top = a > top ? a : top;
	}
	const bool bad = top >= 0x7F800000;
	const float most = float_of(top);
	/* below 2^-110 a step of 17 bits would not be exact any more: such blocks are 0 */
	*step = bad ? NAN : most < 0x1p-110f ? 0 : step_of(most);
	const float inverse = *step > 0 ? 1 / *step : 0;
	if (bad) {
		memset(q, 0, n);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		const float v = x[i] * inverse;

		q[i] = (int8_t)(int)(v + copysignf(0.5f, v));
	}
}

/* x += scale * r. */
static void add_scaled(float *restrict x, const float *restrict r, float scale, size_t n)
{
	for (size_t i = 0; i < n; i++)
		x[i] += scale * r[i];
}

static bool is_number(float x) { return (bits_of(x) & 0x7FFFFFFF) < 0x7F800000; }

/* r = (x - decoded) / scale, where that is a number. */
static void lost_16(const float *restrict x, const uint16_t *restrict in, float *restrict r, float inverse, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const float d = (x[i] - float_of((uint32_t)in[i] << 16)) * inverse;

		r[i] = is_number(d) ? d : r[i];
	}
}

static void lost_q8(
	const float *restrict x, float step, const int8_t *restrict q, float *restrict r, float inverse, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const float d = (x[i] - step * (float)q[i]) * inverse;

		r[i] = is_number(d) ? d : r[i];
	}
}

void rt_encode_feedback(const rt_codec *c, float *x, float *residual, float scale, size_t n, void *out)
{
	const float inverse = 1 / scale;

	add_scaled(x, residual, scale, n);
	rt_encode(c, x, n, out);
	if (c->kind == PD_CODEC_TRUNC16 || c->kind == PD_CODEC_BF16)
		lost_16(x, out, residual, inverse, n);
	for (size_t at = 0, b = 0; at < n && c->kind == PD_CODEC_Q8; at += (size_t)c->block, b++)
		lost_q8(x + at, ((float *)out)[b], (int8_t *)((float *)out + q8_blocks(c, n)) + at, residual + at,
			inverse, n - at < (size_t)c->block ? n - at : (size_t)c->block);
}

void rt_encode(const rt_codec *c, const float *x, size_t n, void *out)
{
	if (c->kind == PD_CODEC_TRUNC16)
		encode_16(x, out, n);
	else if (c->kind == PD_CODEC_BF16)
		encode_bf16(x, out, n);
	else if (c->kind == PD_CODEC_Q8)
		for (size_t at = 0, b = 0; at < n; at += (size_t)c->block, b++)
			encode_q8(x + at, (float *)out + b, (int8_t *)((float *)out + q8_blocks(c, n)) + at,
				n - at < (size_t)c->block ? n - at : (size_t)c->block);
	else
		memcpy(out, x, n * sizeof *x);
}

/* y = decoded, or y += decoded. */
static void decode_16(const uint16_t *restrict in, float *restrict y, size_t n, bool add)
{
	if (add)
		for (size_t i = 0; i < n; i++)
			y[i] += float_of((uint32_t)in[i] << 16);
	else
		for (size_t i = 0; i < n; i++)
			y[i] = float_of((uint32_t)in[i] << 16);
}

static void decode_q8(float step, const int8_t *restrict q, float *restrict y, size_t n, bool add)
{
	if (add)
		for (size_t i = 0; i < n; i++)
			y[i] += step * (float)q[i];
	else
		for (size_t i = 0; i < n; i++)
			y[i] = step * (float)q[i];
}

void rt_decode(const rt_codec *c, const void *in, size_t n, float *y, bool add)
{
	if (c->kind == PD_CODEC_TRUNC16 || c->kind == PD_CODEC_BF16)
		decode_16(in, y, n, add);
	else if (c->kind == PD_CODEC_Q8)
		for (size_t at = 0, b = 0; at < n; at += (size_t)c->block, b++)
			decode_q8(((const float *)in)[b], (const int8_t *)((const float *)in + q8_blocks(c, n)) + at,
				y + at, n - at < (size_t)c->block ? n - at : (size_t)c->block, add);
	else
		for (size_t i = 0; i < n; i++)
			y[i] = (add ? y[i] : 0) + ((const float *)in)[i];
}

void rt_feedback_flush(float *x, float *residual, float scale, size_t n)
{
	add_scaled(x, residual, scale, n);
	memset(residual, 0, n * sizeof *residual);
}

bool rt_encoded_bad(const rt_codec *c, const void *in, size_t n)
{
	uint32_t bad = 0;

	if (c->kind == PD_CODEC_TRUNC16 || c->kind == PD_CODEC_BF16)
		for (size_t i = 0; i < n; i++)
			bad |= (((const uint16_t *)in)[i] & 0x7F80) == 0x7F80;
	for (size_t b = 0; c->kind == PD_CODEC_Q8 && b < q8_blocks(c, n); b++)
		bad |= !is_number(((const float *)in)[b]);
	return bad;
}

void rt_codec_check(const rt_codec *c, size_t segment)
{
	if (c->kind == PD_CODEC_Q8 && (c->block < Q8_LEAST || segment % (size_t)c->block))
		rt_fail(RT_ERROR, "R114", "blocks of %d elements do not divide a segment of %zu", c->block, segment);
}
