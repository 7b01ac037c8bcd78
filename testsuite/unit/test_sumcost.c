/* Timing models of sums (Pipe-SGD section 3.1) against their formulas, counted by hand: every term alone counts, so that none can
 * be halved or left out. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "passes/cost/sumcost.h"

enum { BYTES = 1 << 22, SEGMENT = 128 << 10 };

static SumModel model(int n, double alpha, double beta, double gamma, double sync)
{
	const SumWay way = { alpha, beta };

	return (SumModel){ .within = way, .between = way, .gamma = gamma, .sync = sync, .n = n };
}

/* Equation 5, of chunks that are one segment: 2 (n - 1) alpha + 2 (n - 1)/n b beta + (n - 1)/n b gamma + S. */
static void test_ring(void **state)
{
	static const double term[][4] = { { 1e-3, 0, 0, 0 }, { 0, 1e-9, 0, 0 }, { 0, 0, 2e-10, 0 }, { 0, 0, 0, 5e-4 },
		{ 1e-3, 1e-9, 2e-10, 5e-4 } };

	(void)state;
	for (int n = 2; n <= 9; n++)
		for (size_t k = 0; k < sizeof term / sizeof *term; k++) {
			const double *t = term[k], part = (n - 1) * (double)SEGMENT;
			const SumModel m = model(n, t[0], t[1], t[2], t[3]);
			const double want = 2 * (n - 1) * t[0] + 2 * part * t[1] + part * t[2] + t[3];

			assert_true(fabs(sum_seconds(&m, SUM_RING, n * SEGMENT) - want) <= 1e-9 * want);
		}
}

/* When the last of `pieces` segments of the last round is there: each goes on once it has come, behind what its link carries. */
static double played(int n, int pieces, double alpha, double beta)
{
	double there[16] = { 0 }, free = 0;

	for (int round = 0; round < 2 * (n - 1); round++)
		for (int i = 0; i < pieces; i++) {
			free = fmax(free, there[i]) + SEGMENT * beta;
			there[i] = free + alpha;
		}
	return there[pieces - 1];
}

/* Chunks of several segments, on links of short and of long delay. */
static void test_segments(void **state)
{
	static const double delay[] = { 0, 0.3, 1, 2.5, 20 };

	(void)state;
	for (int n = 2; n <= 5; n++)
		for (int pieces = 1; pieces <= 9; pieces++)
			for (size_t k = 0; k < sizeof delay / sizeof *delay; k++) {
				const double beta = 1e-9, alpha = delay[k] * SEGMENT * beta;
				const SumModel m = model(n, alpha, beta, 0, 0);
				const double want = played(n, pieces, alpha, beta);

				assert_true(fabs(sum_seconds(&m, SUM_RING, n * pieces * (double)SEGMENT) - want) <=
					    1e-9 * want);
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
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_ring), cmocka_unit_test(test_segments),
		cmocka_unit_test(test_rounds), cmocka_unit_test(test_packed) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
