/* The counter-based random numbers of the runtime: along every one of their four arguments the bits are even, spread over
 * all values, and unlike those of the neighbour. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "runtime/pd.h"

enum { N = 4096, BINS = 16 };

/* Number k of a sequence along argument `along`, which begins at `base`. */
static float drawn(int along, uint64_t base, uint64_t k)
{
	uint64_t a[4] = { 1 + base % 3, 18 + base % 7, base, 5 * base };

	a[along] += k;
	return pd_random_unit(a[0], a[1], a[2], a[3]);
}

static void check_sequence(int along, uint64_t base)
{
	int bin[BINS] = { 0 }, ones = 0, alike = 0;
	double chi = 0;

	for (uint64_t k = 0; k < N; k++) {
		const float x = drawn(along, base, k), y = drawn(along, base, k + 1);

		assert_true(x >= 0 && x < 1);
		bin[(int)(x * BINS)]++;
		ones += x >= 0.5f;
		alike += (x >= 0.5f) == (y >= 0.5f);
	}
	for (int i = 0; i < BINS; i++)
		chi += (bin[i] - (double)N / BINS) * (bin[i] - (double)N / BINS) * BINS / N;
	if (fabs(ones - N / 2.0) > 5 * sqrt(N) / 2)
		fail_msg("along %d from %d: %d of %d are above one half", along, (int)base, ones, N);
	if (fabs(alike - N / 2.0) > 5 * sqrt(N) / 2)
		fail_msg("along %d from %d: %d of %d neighbours agree", along, (int)base, alike, N);
	if (chi > 55) /* 15 degrees of freedom: above 55 once in a million */
		fail_msg("along %d from %d: chi-square of %d bins is %g", along, (int)base, BINS, chi);
}

static void test_sequences(void **state)
{
	(void)state;
	for (int along = 0; along < 4; along++)
		for (uint64_t base = 0; base < 200; base++)
			check_sequence(along, base);
}

/* The shares that masks of small tensors keep lie as far from one half as chance has it, no further. */
static void test_small_masks(void **state)
{
	double sum = 0;
	int far = 0;

	(void)state;
	for (uint64_t id = 0; id < 1000; id++) {
		int ones = 0;
		for (uint64_t s = 0; s < 8; s++)
			for (uint64_t e = 0; e < 32; e++)
				ones += pd_random_unit(1, id, s, e) >= 0.5f;
		const double z = (ones - 128) / 8.0;
		sum += z * z;
		far += fabs(z) > 4;
	}
	assert_true(far < 3);
	if (sum < 800 || sum > 1200)
		fail_msg("the variance of 1000 masks is %g of what chance has", sum / 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_sequences), cmocka_unit_test(test_small_masks) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
