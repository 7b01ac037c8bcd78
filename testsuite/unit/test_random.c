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

/* The 16 bits that one draw gives to each of four elements of a row are even, and unlike those of elements near by: of the same draw, the
 * next one and the next row; each has bits of its own. */
static void test_fours(void **state)
{
	enum { WIDTH = 100, ROWS = 64, ALL = WIDTH * ROWS, BITS = 16 };
	static const int near[][2] = { { 0, 1 }, { 0, 2 }, { 0, 4 }, { 0, 8 }, { 0, 9 }, { 0, 16 }, { 1, 0 },
		{ 1, 1 } };
	static uint32_t v[ROWS][WIDTH];
	uint16_t together[16];

	(void)state;
	for (uint64_t width = 1; width < 80; width++) /* no draw is of two rows */
		for (uint64_t j = 0; j < width; j++)
			assert_true(pd_random_group(4, width, j) < pd_random_group(5, width, 0));
	for (uint64_t id = 0; id < 20; id++) {
		int ones[BITS] = { 0 };

		for (uint64_t i = 0; i < ROWS; i++)
			for (uint64_t j = 0; j < WIDTH; j++) {
				v[i][j] = pd_random_four(pd_random_stream(1, id, 7), i, WIDTH, j);
				assert_true(v[i][j] < 1 << BITS);
				if (j % 16 == 0)
					pd_random_sixteen(together, pd_random_stream(1, id, 7), i, WIDTH, j);
				assert_int_equal(v[i][j], together[j % 16]);
				for (int b = 0; b < BITS; b++)
					ones[b] += v[i][j] >> b & 1;
			}
		for (int b = 0; b < BITS; b++)
			if (fabs(ones[b] - ALL / 2.0) > 5 * sqrt(ALL) / 2)
				fail_msg("bit %d is set in %d of %d", b, ones[b], ALL);
		for (size_t k = 0; k < 2 * sizeof near / sizeof *near; k++) { /* then with both bytes in turn */
			const int *to = near[k / 2], turn = k % 2 * 8;
			int alike[BITS] = { 0 }, same = 0, n = 0;

			for (int i = 0; i + to[0] < ROWS; i++)
				for (int j = 0; j + to[1] < WIDTH; j++, n++) {
					const uint32_t x = v[i + to[0]][j + to[1]],
						       other = (x >> turn | x << (BITS - turn)) & 0xffff;

					same += v[i][j] == other;
					for (int b = 0; b < BITS; b++)
						alike[b] += !((v[i][j] ^ other) >> b & 1);
				}
			for (int b = 0; b < BITS; b++)
				if (fabs(alike[b] - n / 2.0) > 5 * sqrt(n) / 2)
					fail_msg("%d rows and %d on, turned by %d: bit %d agrees in %d of %d", to[0],
						to[1], turn, b, alike[b], n);
			assert_true(same < 5); /* of 6,400, where chance has 0.1 */
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_sequences), cmocka_unit_test(test_small_masks),
		cmocka_unit_test(test_fours) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
