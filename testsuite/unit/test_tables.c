/* Tables by rows: the fit of a step's time by the number of pieces gives back the curve that made the samples; pieces cover a
 * table once, end between its blocks and differ by one block at most. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "passes/comm/servers.h"
#include "passes/comm/tables.h"

/* Samples of T(p) = b / p + a (p - 1) + c with up to `noise` of each on top; the fit, and its best p. */
static int best_of(double b, double a, double c, double noise, double fit[3])
{
	static const int p[] = { 1, 2, 3, 4, 6, 8, 12, 16, 24, 32 };
	enum { N = sizeof p / sizeof *p, SERVERS = 64 };
	double t[N];
	int best = 1;

	for (int k = 0; k < N; k++)
		t[k] = (b / p[k] + a * (p[k] - 1) + c) * (1 + noise * (k % 3 - 1));
	assert_true(table_fit(p, t, N, SERVERS, fit));
	for (int k = 1; k <= SERVERS; k++)
		best = table_time(fit, SERVERS, k) < table_time(fit, SERVERS, best) ? k : best;
	return best;
}

static void test_fit(void **state)
{
	double fit[3];

	(void)state;
	assert_int_equal(best_of(8.5, 0.1, 2.0, 0, fit), 9); /* sqrt(85) is 9.22 */
	assert_true(fabs(fit[0] - 8.5) < 1e-9 && fabs(fit[1] - 0.1) < 1e-9 && fabs(fit[2] - 2) < 1e-9);
	assert_int_equal(best_of(1e-3, 1e-2, 1e-4, 0, fit), 1);
	const int near = best_of(8.5, 0.1, 2.0, 0.02, fit);
	assert_true(near >= 7 && near <= 12);
	assert_false(table_fit((const int[]){ 1, 2 }, (const double[]){ 3, 2 }, 2, 8, fit));
	assert_false(table_fit((const int[]){ 4, 4, 4 }, (const double[]){ 3, 2, 1 }, 3, 8, fit));
}

static void test_pieces(void **state)
{
	Arena *arena = arena_new();
	Module *m = module_new(arena, "tables");

	(void)state;
	for (int64_t rows = 2; rows < 3000; rows += 1 + rows / 7) {
		const Value *w = module_param(m, "w", type_make(DT_f32, 2, (int64_t[]){ rows, 3 }), PARAM_WEIGHT);
		const int64_t block = type_block_rows(&w->type);
		assert_true(table_pieces(w) <= 256 && table_pieces(w) * block >= rows &&
			    (table_pieces(w) - 1) * block < rows);
		for (int n = 1; n <= table_pieces(w); n += 1 + n / 5) {
			int64_t at = 0, row, some, least = rows, most = 0;
			for (int i = 0; i < n; i++, at += some) {
				table_piece(w, n, i, &row, &some);
				assert_true(row == at && some > 0 && row % block == 0);
				least = some < least ? some : least;
				most = some > most ? some : most;
			}
			assert_int_equal(at, rows);
			assert_true(most - least < 2 * block); /* the last block may be cut */
		}
	}
	arena_free(arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_fit), cmocka_unit_test(test_pieces) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
