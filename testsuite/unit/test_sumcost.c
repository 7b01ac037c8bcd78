/* Timing models of sums (Pipe-SGD section 3.1) against their formulas, counted by hand: every term alone counts, so that none can
 * be halved or left out. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "passes/cost/sumcost.h"

enum { BYTES = 1 << 22 };

static SumModel model(int n, double alpha, double beta, double gamma, double sync)
{
	const SumWay way = { alpha, beta };

	return (SumModel){ .within = way, .between = way, .gamma = gamma, .sync = sync, .n = n };
}

/* Equation 5: 2 (n - 1) alpha + 2 (n - 1)/n b beta + (n - 1)/n b gamma + S. */
static void test_ring(void **state)
{
	static const double term[][4] = { { 1e-3, 0, 0, 0 }, { 0, 1e-9, 0, 0 }, { 0, 0, 2e-10, 0 }, { 0, 0, 0, 5e-4 },
		{ 1e-3, 1e-9, 2e-10, 5e-4 } };

	(void)state;
	for (int n = 2; n <= 9; n++)
		for (size_t k = 0; k < sizeof term / sizeof *term; k++) {
			const double *t = term[k], part = (n - 1) * (double)BYTES / n;
			const SumModel m = model(n, t[0], t[1], t[2], t[3]);
			const double want = 2 * (n - 1) * t[0] + 2 * part * t[1] + part * t[2] + t[3];

			assert_true(fabs(sum_seconds(&m, SUM_RING, BYTES) - want) <= 1e-9 * want);
		}
}

/* Recursive doubling: log2 n rounds of all bytes; halving: the ring's bytes in 2 log2 n rounds. */
static void test_rounds(void **state)
{
	(void)state;
	for (int log = 1; log <= 4; log++) {
		const int n = 1 << log;
		const SumModel late = model(n, 1e-3, 0, 0, 0), thin = model(n, 0, 1e-9, 0, 0);
		const double slices = BYTES / (1 << 20), part = (n - 1) * (double)BYTES / n;

		assert_true(fabs(sum_seconds(&thin, SUM_DOUBLING, BYTES) - log * (double)BYTES * 1e-9) < 1e-9);
		assert_true(fabs(sum_seconds(&thin, SUM_HALVING, BYTES) - 2 * part * 1e-9) < 1e-9);
		assert_true(fabs(sum_seconds(&late, SUM_DOUBLING, BYTES) - slices * log * 1e-3) < 1e-9);
		assert_true(fabs(sum_seconds(&late, SUM_HALVING, BYTES) - slices * 2 * log * 1e-3) < 1e-9);
	}
}

/* What goes to everyone at once travels as it is, whatever --compress says; asked for by name, or larger, it is packed. */
static void test_packed(void **state)
{
	enum { FEW = 4096, MANY = 1 << 20 };
	const SumModel m = model(4, 1e-5, 1e-9, 0, 0);
	SumRule r = { .by = SUM_KINDS, .codec = "bf16" };
	double wire;

	(void)state;
	assert_true(sum_choice(&m, &r, FEW, &wire) == SUM_EVERYONE && wire == FEW);
	assert_true(sum_choice(&m, &r, MANY, &wire) == SUM_RING && wire == MANY / 2);
	r.by = SUM_RING;
	assert_true(sum_choice(&m, &r, FEW, &wire) == SUM_RING && wire == FEW / 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_ring), cmocka_unit_test(test_rounds),
		cmocka_unit_test(test_packed) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
