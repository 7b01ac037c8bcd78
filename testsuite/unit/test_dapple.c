/* DAPPLE's planner on cases computed by hand, and its plans against every plan there is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <math.h>
#include <cmocka.h>
#include "passes/planner/dapple_job.h"

static unsigned seed = 7;

static double draw(double from, double to)
{
	seed = seed * 1103515245u + 12345u;
	return from + (to - from) * (seed >> 16 & 1023) / 1023;
}

static void near(double got, double want)
{
	if (!(fabs(got - want) <= 1e-9 * fabs(want)))
		fail_msg("%.17g, wanted %.17g", got, want);
}

/* Two servers of `each` devices; bytes per second: 1 between, 2 for collectives, 8 inside. */
static DappleCluster two_servers(int each)
{
	return (DappleCluster){ .servers = 2, .end = { each, 2 * each }, .p2p = 1, .nccl = 2, .nvlink = 8 };
}

static void equation(void **state)
{
	const double zero[3] = { 0 };
	int q;
	(void)state;

	near(dapple_latency(1, (double[]){ 1 }, (double[]){ 2 }, zero, 4, false, &q), 12);
	near(dapple_latency(1, (double[]){ 1 }, (double[]){ 2 }, zero, 4, true, &q), 8); /* 1 + 9 - 2 */
	near(dapple_latency(2, (double[]){ 3, 1 }, (double[]){ 6, 2 }, zero, 8, false, &q), 72);
	assert_int_equal(q, 0);
	near(dapple_latency(2, (double[]){ 3, 1 }, (double[]){ 6, 2 }, zero, 8, true, &q), 60);
	/* equal stages: the last one stays the pivot, (M + S - 1)(F + B) */
	near(dapple_latency(3, (double[]){ 1, 1, 1 }, (double[]){ 1, 1, 1 }, zero, 4, false, &q), 12);
	assert_int_equal(q, 2);
	/* AllReduce behind the pivot starts when its own backward ends, in front of it after the whole way back */
	near(dapple_latency(2, (double[]){ 3, 1 }, (double[]){ 6, 2 }, (double[]){ 0, 20 }, 2, false, &q), 3 + 9 + 20);
	near(dapple_latency(2, (double[]){ 3, 1 }, (double[]){ 6, 2 }, (double[]){ 0, 20 }, 2, true, &q),
		3 + 9 + 20 - 8);
	near(dapple_latency(2, (double[]){ 1, 3 }, (double[]){ 2, 6 }, (double[]){ 5, 0 }, 2, false, &q),
		4 + 9 + 8 + 5);
}

static void placement(void **state)
{
	const DappleCluster c = { .servers = 3, .end = { 4, 8, 12 }, .p2p = 1, .nccl = 2, .nvlink = 8 };
	const DappleSet used = 0x13; /* 0, 1 of the first server, 4 of the second */
	(void)state;

	assert_int_equal(dapple_place(&c, 1, 6, DAPPLE_FRESH), 0x3f0);
	assert_int_equal(dapple_place(&c, used, 6, DAPPLE_FRESH), 0); /* one fresh server has four */
	assert_int_equal(dapple_place(&c, used, 5, DAPPLE_APPEND), 0xec);
	assert_int_equal(dapple_place(&c, used, 6, DAPPLE_APPEND), 0);
	assert_int_equal(dapple_place(&c, used, 6, DAPPLE_SCATTER), 0x36c); /* 2 5 8, 3 6 9 */
	assert_int_equal(dapple_place(&c, used, 6, DAPPLE_SPREAD), 0x1ec);  /* 2 5, 3 6, 7, then a fresh one */
	assert_int_equal(dapple_place(&c, 0, 3, DAPPLE_SPREAD), 0x111);
}

static void links(void **state)
{
	const DappleCluster c = two_servers(4);
	(void)state;

	near(dapple_allreduce(&c, 0x0f, 100), 2 * 100 * 0.75 / 8 / 2);
	near(dapple_allreduce(&c, 0x33, 100), 2 * 100 * 0.75 / 2);
	assert_true(dapple_allreduce(&c, 0x10, 100) == 0);
	near(dapple_transfer(&c, 0x03, 0x0c, 16), 2);  /* all inside */
	near(dapple_transfer(&c, 0x0f, 0x30, 16), 16); /* all senders outside */
	near(dapple_transfer(&c, 0x13, 0x0c, 18), 6);  /* one of three */
	near(dapple_transfer(&c, 0x01, 0x18, 16), 8);  /* receivers in both */
}

/* Two layers of 2 s a sample on two devices, four samples: 16 s of work, blocks of 8 s, M = 4: 3 * 2 + 16 / 4. */
static void published(void **state)
{
	Arena *a = arena_new(), *words = arena_new();
	Diag d;
	const double one[2] = { 1, 1 }, none[2] = { 0 };
	const DappleCluster c = { .servers = 2, .end = { 1, 2 }, .p2p = 1, .nccl = 2, .nvlink = 8 };
	const DappleOptions o = { .profiled = 1, .batch = 4, .least = 1 };
	(void)state;

	diag_init(&d, stderr, words);
	const DappleProfile *p = dapple_chain(a, 2, one, one, none, none);
	const DapplePublished *r = dapple_published(a, p, &c, &o, &d);
	assert_non_null(r);
	assert_int_equal(r->n, 3);
	assert_int_equal(r->candidate[0].n, 1); /* cutting is not better than not cutting: one stage on both */
	assert_int_equal(r->candidate[1].n, 2);
	for (int i = 0; i < 3; i++)
		near(r->candidate[i].latency, 10);
	/* parameters: AllReduce of 2 * 6 * 1/2 bytes at 2 bytes/s behind the first stage only */
	const double params[2] = { 6, 0 };
	p = dapple_chain(a, 2, one, one, none, params);
	r = dapple_published(a, p, &c, &o, &d);
	near(r->candidate[0].latency, 13);
	near(r->candidate[1].latency, 10);
	arena_free(a);
	arena_free(words);
}

/* Two layers of 2 s on a device each: the slowest block, and the event recursion's speedup, which has the second layer
 * in both stages, as the published program. */
static void published_scores(void **state)
{
	Arena *a = arena_new();
	const double one[2] = { 1, 1 }, none[2] = { 0 }, bytes[2] = { 5, 0 };
	const DappleCluster c = two_servers(1);
	DappleOptions o = { .profiled = 1, .batch = 8, .least = 1 };
	DappleStage stage[2] = { { .begin = 0, .end = 1, .devices = 1 }, { .begin = 1, .end = 2, .devices = 2 } };
	const DapplePlan plan = { .n = 2, .copies = 1, .stage = stage };
	const DappleProfile *p = dapple_chain(a, 2, one, one, none, none);
	(void)state;

	near(dapple_block(p, &c, &o, &plan, 2), 16);
	near(dapple_recursion(p, &c, &o, &plan),
		32 / 30.0); /* from the third forward on one of 2 s and a backward in turn: the last ends at 26 */
	p = dapple_chain(a, 2, one, one, bytes, none);
	near(dapple_block(p, &c, &o, &plan, 2), 80); /* there and back */
	near(dapple_block(p, &c, &o, &plan, 1), 40);
	o.least = 8; /* one microbatch: everything in turn */
	near(dapple_recursion(p, &c, &o, &plan), 32 / (48 + 80.0));
	arena_free(a);
}

/* Each once: of 4, 3, 2 and 1 devices with a sample at least the most that divide the batch. */
static void counts(void **state)
{
	const DappleCluster c = two_servers(2);
	DappleOptions o = { .profiled = 1, .batch = 8, .least = 1 };
	int m[DAPPLE_DEVICES + 1] = { 0 };
	(void)state;

	assert_int_equal(job_counts(&c, &o, m), 3);
	assert_true(m[0] == 2 && m[1] == 4 && m[2] == 8);
	o.least = 4;
	assert_int_equal(job_counts(&c, &o, m), 2);
	assert_true(m[0] == 1 && m[1] == 2);
	o.least = 9; /* one all the same */
	assert_true(job_counts(&c, &o, m) == 1 && m[0] == 1);
	o.microbatches = 5;
	assert_true(job_counts(&c, &o, m) == 1 && m[0] == 5);
}

static void depths(void **state)
{
	Arena *a = arena_new(), *words = arena_new();
	Diag d;
	const double one[3] = { 1, 1, 1 }, bytes[3] = { 10, 10, 10 }, params[3] = { 100, 100, 100 };
	DappleCluster c = { .servers = 1, .end = { 3 }, .p2p = 1, .nccl = 1, .nvlink = 1e9 };
	DappleOptions o = { .profiled = 1, .batch = 8, .least = 1 };
	(void)state;

	diag_init(&d, stderr, words);
	const DappleProfile *p = dapple_chain(a, 3, one, one, bytes, params);
	DappleStage stage[3] = { { .begin = 0, .end = 1, .devices = 1 }, { .begin = 1, .end = 2, .devices = 2 },
		{ .begin = 2, .end = 3, .devices = 4 } };
	DapplePlan plan = { .n = 3, .stage = stage, .microbatches = 8 };
	const struct {
		char policy;
		double memory;
		int k[3];
	} want[] = { { 'A', 0, { 3, 2, 1 } }, { 'B', 0, { 5, 3, 1 } }, { 'B', 130, { 3, 3, 1 } },
		{ 'A', 115, { 1, 1, 1 } } };
	for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
		o.warmup = want[i].policy;
		c.memory = want[i].memory;
		assert_true(dapple_evaluate(p, &c, &o, &plan));
		for (int s = 0; s < 3; s++) {
			assert_int_equal(stage[s].depth, want[i].k[s]);
			near(stage[s].memory, 100 + 10 * want[i].k[s]);
		}
	}
	DappleStage whole = { .begin = 0, .end = 3, .devices = 1 };
	DapplePlan single = { .n = 1, .stage = &whole, .microbatches = 8 };
	c.memory = 0;
	assert_true(dapple_evaluate(p, &c, &o, &single));
	near(single.speedup, 1);
	near(plan.speedup, single.latency / plan.latency);
	c.memory = 109;
	assert_false(dapple_evaluate(p, &c, &o, &plan));
	d.out = tmpfile();
	assert_null(dapple_plan(a, p, &c, &o, NULL, &d));
	assert_int_equal(d.last_code, 442);
	fclose(d.out);
	c.memory = 110; /* only three stages of one layer have room */
	DapplePlan *best = dapple_plan(a, p, &c, &o, NULL, &d);
	assert_non_null(best);
	assert_int_equal(best->n, 3);
	assert_string_equal(dapple_str(a, best), "1:1:1");
	arena_free(a);
	arena_free(words);
}

/* Plans say what dapple_evaluate says of them, none beats every plan, each has all devices once and fits. Of every other chain the
 * sums are slow, and its plans have many stages. */
static void random_chains(void **state)
{
	Arena *a = arena_new(), *words = arena_new();
	Diag d;
	int hits = 0, cases = 0;
	(void)state;

	diag_init(&d, stderr, words);
	for (int i = 0; i < 60; i++) {
		const int n = 2 + (int)draw(0, 3.9);
		double v[4][8];
		DappleCluster c = two_servers(2);
		DappleOptions o = { .profiled = 1, .batch = 8, .least = 1, .literal = i % 3 == 0 };
		for (int k = 0; k < 4 * n; k++)
			v[k / n][k % n] = draw(0.1, k / n < 2 ? 4 : 2) * (k / n == 3 && i % 2 ? 30 : 1);
		const DappleProfile *p = dapple_chain(a, n, v[0], v[1], v[2], v[3]);
		long explored = 0;
		const DapplePlan *plan = dapple_plan(a, p, &c, &o, &explored, &d),
				 *best = dapple_exhaustive(a, p, &c, &o, false, &d);
		/* by microbatches (1, 2, 4), ends of a stage, sets of devices of a prefix with its stage: fewer where bounds leave some out */
		assert_in_range(explored, o.literal ? n : 0, 3 * n * (n + 1) / 2 * 81);
		assert_non_null(plan);
		assert_non_null(best);
		assert_true(plan->latency >= best->latency * (1 - 1e-12));
		DapplePlan again = *plan;
		DappleSet all = 0;
		assert_true(dapple_evaluate(p, &c, &o, &again));
		near(again.latency, plan->latency);
		for (int s = 0; s < plan->n; s++) {
			assert_true(!(all & plan->stage[s].devices));
			all |= plan->stage[s].devices;
			assert_int_equal(plan->stage[s].begin, s ? plan->stage[s - 1].end : 0);
		}
		assert_int_equal(all, 15);
		hits += plan->latency <= best->latency * (1 + 1e-9);
		cases++;
	}
	if (hits < cases * 9 / 10)
		fail_msg("the best plan in %d of %d cases only", hits, cases);
	arena_free(a);
	arena_free(words);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(equation),
		cmocka_unit_test(placement),
		cmocka_unit_test(links),
		cmocka_unit_test(published),
		cmocka_unit_test(published_scores),
		cmocka_unit_test(counts),
		cmocka_unit_test(depths),
		cmocka_unit_test(random_chains),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
