/* 16-bit floats of emitted programs (runtime/pd.h) against those of the compiler's constants (ir/ops/common/tensor.c), which
 * are computed in another way: every value there is, values on and beside the middle between two, large and small ones. Those of 8 bits
 * against what their bits stand for. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include "ir/ops/common/common.h"
#include "runtime/pd.h"

static uint16_t compiler(DType t, float x)
{
	uint16_t h = 0;
	Tensor one = { .type = type_scalar(t), .data = &h };

	elem_set_f(&one, 0, (double)x);
	return h;
}

static uint16_t program(DType t, float x) { return t == DT_bf16 ? pd_to_bf16(x) : pd_to_f16(x); }

static float back(DType t, uint16_t h) { return t == DT_bf16 ? pd_from_bf16(h) : pd_from_f16(h); }

static void check(DType t, float x)
{
	const uint16_t want = compiler(t, x), got = program(t, x);

	if (x != x) {
		assert_true(back(t, got) != back(t, got));
		return;
	}
	if (want != got)
		fail_msg("%a as %s: %04x, the compiler has %04x", (double)x, dtype_name(t), got, want);
}

static void values(void **state)
{
	static const DType type[] = { DT_bf16, DT_f16 };

	(void)state;
	for (int k = 0; k < 2; k++)
		for (uint32_t h = 0; h < 65536; h++) {
			uint16_t bits = (uint16_t)h;
			const Tensor one = { .type = type_scalar(type[k]), .data = &bits };
			const float x = back(type[k], bits);

			if (x != x) {
				assert_true(elem_f(&one, 0) != elem_f(&one, 0));
				continue;
			}
			assert_true((double)x == elem_f(&one, 0));
			assert_int_equal(program(type[k], x), bits);
		}
}

static void rounding(void **state)
{
	(void)state;
	for (uint32_t h = 0; h < 65536; h += 1) {
		const uint32_t middle[] = { h << 16 | 0x8000, h << 16 | 0x7fff, h << 16 | 0x8001, h << 16 | 0x1000,
			h << 16 | 0x2fff, h << 16 | 0x3000, h << 16 | 0x3001, h * 0x9E3779B1u };

		for (size_t i = 0; i < sizeof middle / sizeof *middle; i++) {
			check(DT_bf16, pd_float_of(middle[i]));
			check(DT_f16, pd_float_of(middle[i]));
		}
	}
	for (uint32_t m = 0; m < 4096; m++) /* f16 below 2^-14: steps of 2^-24, and halves of them */
		for (int d = -1; d <= 1; d++)
			check(DT_f16, pd_float_of(pd_bits_of((float)m * 0x1p-25f) + (uint32_t)(m ? d : 0)));
}

/* What 8 bits stand for. */
static float eight(uint8_t bits, int fraction, int bias)
{
	const int exponent = (bits & 0x7f) >> fraction, part = bits & ((1 << fraction) - 1);
	const float x =
		ldexpf((float)(exponent ? part | 1 << fraction : part), (exponent ? exponent : 1) - bias - fraction);

	return bits & 0x80 ? -x : x;
}

/* Every value, what lies on and beside the middle between two, the largest for all that is larger; of a NaN one. */
static void eight_bits(void **state)
{
	static const struct {
		int fraction, bias;
		uint8_t most;
		uint8_t (*to)(float x);
	} kind[] = { { 3, 7, 0x7e, pd_to_f8e4m3 }, { 2, 15, 0x7b, pd_to_f8e5m2 } };

	(void)state;
	for (int k = 0; k < 2; k++) {
		const int f = kind[k].fraction, b = kind[k].bias;
		const uint8_t most = kind[k].most;
		for (int h = 0; h < most; h++) {
			const float x = eight((uint8_t)h, f, b), y = eight((uint8_t)(h + 1), f, b),
				    middle = (x + y) / 2;
			assert_int_equal(kind[k].to(x), h);
			assert_int_equal(kind[k].to(-y), 0x80 | (h + 1));
			assert_int_equal(kind[k].to(middle), h % 2 ? h + 1 : h);
			assert_int_equal(kind[k].to(nextafterf(middle, 0)), h);
			assert_int_equal(kind[k].to(nextafterf(middle, INFINITY)), h + 1);
		}
		const float largest = eight(most, f, b);
		const float more[] = { nextafterf(largest, INFINITY), 1.07f * largest, 2 * largest, 0x1p127f,
			INFINITY };
		for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
			assert_int_equal(kind[k].to(more[i]), most);
			assert_int_equal(kind[k].to(-more[i]), 0x80 | most);
		}
		assert_int_equal(kind[k].to(NAN) & 0x7f, 0x7f);
		assert_int_equal(kind[k].to(0x1p-149f), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(values), cmocka_unit_test(rounding),
		cmocka_unit_test(eight_bits) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
