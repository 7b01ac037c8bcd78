/* wire_casts.c: values between devices and servers as 16-bit floats (Parallax section 5.3.2: casts at their border, of mixed
 * precision). The master copy, what computes and sums are f32. A cast stands where values leave, or, where it was not
 * moved (--no-opsw), where they arrive: what is computed with them is the same. */
#include "rt.h"

enum { SOME = 512 }; /* values at a time: a buffer keeps source and result apart, so that loops are vectors */

static bool sixteen(pd_wire w) { return w.type == PD_BF16 || w.type == PD_F16; }

static void narrow(pd_dtype type, const float *restrict x, uint16_t *restrict to, int64_t n)
{
	if (type == PD_BF16)
		for (int64_t i = 0; i < n; i++)
			to[i] = pd_to_bf16(x[i]);
	else
		for (int64_t i = 0; i < n; i++)
			to[i] = pd_to_f16(x[i]);
}

static void widen(pd_dtype type, const uint16_t *restrict x, float *restrict to, int64_t n)
{
	if (type == PD_BF16)
		for (int64_t i = 0; i < n; i++)
			to[i] = pd_from_bf16(x[i]);
	else
		for (int64_t i = 0; i < n; i++)
			to[i] = pd_from_f16(x[i]);
}

size_t rt_wire_bytes(pd_wire w, int64_t n)
{
	return (size_t)n * (w.narrow && sixteen(w) ? sizeof(uint16_t) : sizeof(float));
}

const void *rt_wire_pack(pd_wire w, const float *x, void *room, int64_t n)
{
	uint16_t some[SOME];

	if (!w.narrow || !sixteen(w))
		return x;
	for (int64_t i = 0; i < n; i += SOME) {
		const int64_t m = n - i < SOME ? n - i : SOME;

		narrow(w.type, x + i, some, m);
		memcpy((uint16_t *)room + i, some, (size_t)m * sizeof *some);
	}
	return room;
}

/* Behind their middle: the i-th of n is widened to where none is that is still to come. */
void *rt_wire_place(pd_wire w, float *x, int64_t n)
{
	return w.narrow && sixteen(w) ? (void *)((uint16_t *)(void *)x + n) : (void *)x;
}

void rt_wire_unpack(pd_wire w, float *x, int64_t n)
{
	uint16_t some[SOME];

	if (!sixteen(w))
		return;
	for (int64_t i = 0; i < n; i += SOME) {
		const int64_t m = n - i < SOME ? n - i : SOME;

		if (w.narrow)
			memcpy(some, (const uint16_t *)(const void *)x + n + i, (size_t)m * sizeof *some);
		else
			narrow(w.type, x + i, some, m);
		widen(w.type, some, x + i, m);
	}
}
