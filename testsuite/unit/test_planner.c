/* The published planners against exhaustive search under their own costs: random chains and DAGs, all settings; the
 * search for many machines against the table; block partitions; the reader of profiles on bad files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "ir/base/buf.h"
#include "passes/planner/pipedream.h"

enum { CHAINS = 6000, DAGS = 6000, LARGE = 300, LAYERS = 8, MACHINES = 6, STATES = 10 };

static unsigned seed = 1;

static int draw(int n)
{
	seed = seed * 1103515245u + 12345u;
	return (int)((seed >> 16) % (unsigned)n);
}

/* Times and bytes from small sets, so that there are ties and every term is the largest now and then. */
static Profile random_profile(Arena *a, int n, bool chain)
{
	Profile p = { .file = "random", .n = n };
	int cap = 0;

	p.layer = NEWN(a, Layer, n);
	for (int i = 0; i < n; i++)
		p.layer[i] = (Layer){ arena_printf(a, "n%d", i), "layer", draw(4) * 0.25, draw(8) * 0.5, draw(6) * 0.5,
			draw(3) ? draw(6) * 0.25 : draw(20), -1 };
	for (int i = 1; i < n; i++) {
		const int from = chain ? i - 1 : draw(i);

		PUSH(a, p.edge, p.nedge, cap) = (Edge){ from, i };
		for (int more = chain ? 0 : draw(3); more; more--) {
			const Edge e = { draw(i), i };
			bool known = false;

			for (int k = 0; k < p.nedge; k++)
				known |= p.edge[k].from == e.from && p.edge[k].to == e.to;
			if (!known)
				PUSH(a, p.edge, p.nedge, cap) = e;
		}
	}
	return p;
}

static PdOpt random_options(bool chain)
{
	PdOpt o = { .cost = (PdCost)draw(4),
		.nlevel = 1,
		.machines = { 1 + draw(MACHINES) },
		.bandwidth = { 0.5 * (1 + draw(8)) } };

	if (o.cost == PD_OLD && !chain)
		o.cost = PD_ONCE;
	if (draw(3))
		o.compression = 1 + draw(2);
	o.straight = draw(4) == 0;
	o.fewer = draw(4) == 0;
	if (!o.fewer && draw(3) == 0)
		o.memory = 4 + draw(60);
	return o;
}

/* The best over all stages that go on behind stage[0..n). */
static double exhaustive(const States *st, const PdOpt *o, PdStage *stage, int n, int used)
{
	const int start = n ? stage[n - 1].end : 0;
	double best = INFINITY;

	if (start == st->n)
		return pipedream_cost(st, o, stage, n);
	for (int end = start + 1; end <= st->n; end++) {
		if (start && !state_before(st, start - 1, end - 1))
			continue;
		for (int r = 1; r <= o->machines[0] - used; r++) {
			stage[n] = (PdStage){ start, end, r, 0 };
			best = fmin(best, exhaustive(st, o, stage, n + 1, used + r));
		}
	}
	return best;
}

static void one_case(Diag *d, bool chain, int *cases, int *plans)
{
	Arena *a = arena_new();
	Profile p = random_profile(a, 1 + draw(LAYERS), chain);
	const PdOpt o = random_options(chain);
	const Level l = { NULL, &o, o.machines[0], 1, o.bandwidth[0], NULL, NULL };
	Level wide = l;
	States st;
	PdPlan plan;
	PdStage stage[LAYERS * LAYERS * LAYERS], *list;
	int n;

	assert_true(states_build(a, &p, o.cost == PD_ONCE, 200, &st, d));
	assert_true(!chain || (st.n == p.n && st.total));
	wide.st = &st;
	if (st.n <= STATES) {
		const double want = exhaustive(&st, &o, stage, 0, 0);
		const bool some = pipedream_plan(a, &st, &o, &plan, d);

		++*cases;
		assert_int_equal(some, !isinf(want));
		assert_true(solve_wide(a, &wide, &list, &n) == want);
		if (some) {
			assert_true(plan.seconds == want);
			assert_true(pipedream_cost(&st, &o, plan.group[0].stage, plan.group[0].n) == want);
			assert_true(pipedream_cost(&st, &o, list, n) == want);
			++*plans;
		}
	}
	arena_free(a);
}

static void against_exhaustive(void **state)
{
	Arena *a = arena_new();
	FILE *quiet = fopen("/dev/null", "w");
	Diag d;
	int cases[2] = { 0, 0 }, plans[2] = { 0, 0 };

	(void)state;
	assert_non_null(quiet);
	diag_init(&d, quiet, a);
	for (int i = 0; i < CHAINS + DAGS; i++)
		one_case(&d, i < CHAINS, &cases[i < CHAINS], &plans[i < CHAINS]);
	print_message(
		"%d chains, %d of them with a plan; %d DAGs, %d with a plan\n", cases[1], plans[1], cases[0], plans[0]);
	assert_true(cases[0] + cases[1] >= 10000 && plans[1] > CHAINS / 2 && plans[0] > DAGS / 3);
	fclose(quiet);
	arena_free(a);
}

/* Too many plans to try them all: the two searches have nothing in common but the costs. */
static void table_against_wide(void **state)
{
	Arena *a = arena_new();
	Diag d;
	FILE *quiet = fopen("/dev/null", "w");

	(void)state;
	assert_non_null(quiet);
	diag_init(&d, quiet, a);
	for (int i = 0; i < LARGE; i++, arena_reset(a)) {
		Profile p = random_profile(a, 10 + draw(60), true);
		PdOpt o = random_options(true);
		States st;
		PdPlan plan;
		PdStage *list;
		int n;

		o.machines[0] = 1 + draw(100);
		o.memory *= 10;
		const Level l = { &st, &o, o.machines[0], 1, o.bandwidth[0], NULL, NULL };
		assert_true(states_build(a, &p, o.cost == PD_ONCE, 200, &st, &d));
		const double wide = solve_wide(a, &l, &list, &n);
		if (pipedream_plan(a, &st, &o, &plan, &d)) {
			assert_true(plan.seconds == wide && pipedream_cost(&st, &o, list, n) == wide);
			assert_true(pipedream_cost(&st, &o, plan.group[0].stage, plan.group[0].n) == wide);
		} else {
			assert_true(isinf(wide));
		}
	}
	fclose(quiet);
	arena_free(a);
}

/* A machine of several devices on the level below with links that cost nothing is one faster machine. */
static void levels(void **state)
{
	Arena *a = arena_new();
	Diag d;

	(void)state;
	diag_init(&d, stderr, a);
	for (int i = 0; i < 200; i++) {
		Profile p = random_profile(a, 2 + draw(LAYERS - 1), true), fast = p;
		PdOpt o = { .cost = PD_SOSP,
			.nlevel = 2,
			.machines = { 2, 2 + draw(3) },
			.bandwidth = { 1e30, 2 },
			.compression = 1 };
		States st;
		PdPlan two, one;

		assert_true(states_build(a, &p, false, 100, &st, &d) && pipedream_plan(a, &st, &o, &two, &d));
		fast.layer = arena_dup(a, p.layer, (size_t)p.n * sizeof *p.layer);
		profile_scale(&fast, 0.5, 1, 1);
		o = (PdOpt){ .cost = PD_SOSP,
			.nlevel = 1,
			.machines = { o.machines[1] },
			.bandwidth = { 2 },
			.compression = 1 };
		assert_true(states_build(a, &fast, false, 100, &st, &d) && pipedream_plan(a, &st, &o, &one, &d));
		assert_true(
			two.seconds <= one.seconds * (1 + 1e-9)); /* and the gradients' share of one stage is less */
		assert_true(two.seconds >= one.single / o.machines[0] * (1 - 1e-9));
	}
	arena_free(a);
}

/* All rows of a level at once against one at a time, to the bit: chains, with and without a limit of memory, and levels
 * whose times come from the level below. */
static void all_rows(void **state)
{
	Arena *a = arena_new();
	Diag d;

	(void)state;
	diag_init(&d, stderr, a);
	for (int i = 0; i < 300; i++, arena_reset(a)) {
		Profile p = random_profile(a, 2 + draw(30), true);
		PdOpt o = random_options(true);
		States st;

		o.cost = PD_SOSP;
		assert_true(states_build(a, &p, false, 200, &st, &d));
		const int M = 1 + draw(9), n = st.n, inner = 1 + draw(4);
		double *time = NEWN(a, double, (n + 1) * n), *below = NEWN(a, double, (n + 1) * n);
		double *best = NEWN(a, double, n *(M + 1));
		From *from = NEWN(a, From, n * (M + 1));
		Level l = { &st, &o, inner, 1, o.bandwidth[0], NULL, NULL };
		if (draw(2)) { /* memory counts on this level too: whatever it says */
			solve_chain_rows(&l, 1, below);
			l = (Level){ &st, &o, M, inner, o.bandwidth[0], below, NULL };
		}
		l.M = M;
		solve_chain_rows(&l, l.time ? inner : 1, time);
		for (int k = 0; k < n; k++) {
			solve_row(&l, k, n, best, from);
			for (int j = k; j < n; j++)
				assert_true(best[j * (M + 1) + M] == time[k * n + j]);
		}
	}
	arena_free(a);
}

/* Branching graphs on two levels beside the same made by hand: every row of the lower one, then the upper one over them. */
static void branching_levels(void **state)
{
	Arena *a = arena_new();
	Diag d;
	int graphs = 0;

	(void)state;
	diag_init(&d, stderr, a);
	for (int i = 0; i < 300; i++, arena_reset(a)) {
		Profile p = random_profile(a, 2 + draw(LAYERS - 1), false);
		PdOpt o = { .cost = PD_SOSP,
			.nlevel = 2,
			.machines = { 1 + draw(4), 1 + draw(3) },
			.bandwidth = { 0.5 * (1 + draw(8)), 0.5 * (1 + draw(8)) },
			.compression = draw(3),
			.fewer = draw(2) };
		States st;
		PdPlan plan;

		assert_true(states_build(a, &p, false, 200, &st, &d));
		const int n = st.n, most = o.machines[0] + o.machines[1];
		double *below = NEWN(a, double, (n + 1) * n), *best = NEWN(a, double, n *(most + 1));
		From *from = NEWN(a, From, n * (most + 1));
		Level l = { &st, &o, o.machines[0], 1, o.bandwidth[0], NULL, NULL };
		for (int k = 0; k <= n; k++) {
			if (k < n)
				solve_row(&l, k, n, best, from);
			for (int j = 0; j < n; j++)
				below[k * n + j] = j < k ? INFINITY : best[j * (l.M + 1) + l.M];
		}
		l = (Level){ &st, &o, o.machines[1], o.machines[0], o.bandwidth[1], below, NULL };
		solve_row(&l, 0, n, best, from);
		const double want = best[(n - 1) * (l.M + 1) + l.M];
		if (!isinf(want)) {
			assert_true(pipedream_plan(a, &st, &o, &plan, &d) && plan.seconds == want);
			graphs += !st.total;
		}
	}
	assert_true(graphs > 100);
	arena_free(a);
}

/* A layer three times: the copies stand in a row behind it, and who reads it reads the last. */
static void repeated_layer(void **state)
{
	static const char layer[] =
		" -- x -- forward_compute_time=1, backward_compute_time=2, activation_size=3, parameter_size=4\n";
	static const char edges[] = "\ta -- b\n\tb -- c\n\ta -- c\n";
	static const Edge want[] = { { 0, 1 }, { 4, 2 }, { 0, 2 }, { 1, 3 }, { 3, 4 } };
	Arena *a = arena_new();
	Profile p, deep;
	Diag d;

	(void)state;
	diag_init(&d, stderr, a);
	assert_true(profile_parse(a, "text", arena_printf(a, "a%sb%sc%s%s", layer, layer, layer, edges), &p, &d));
	assert_true(profile_repeat(a, &p, "b", 3, &deep, &d));
	assert_true(deep.n == 5 && deep.nedge == 5);
	assert_string_equal(deep.layer[3].id, "b.2");
	assert_string_equal(deep.layer[4].id, "b.3");
	for (int i = 0; i < 5; i++) {
		assert_true(deep.layer[i].parameters == 4);
		assert_memory_equal(&deep.edge[i], &want[i], sizeof *want);
	}
	assert_true(profile_repeat(a, &p, "b", 1, &deep, &d) && deep.n == 3 && deep.nedge == 3);
	arena_free(a);
}

/* A skip over two stages is paid at every cut by PAPER, once per consumer by ONCE. */
static void live_tensors(void **state)
{
	static const char text[] =
		"a -- x -- forward_compute_time=1000, backward_compute_time=0, activation_size=8, parameter_size=0\n"
		"b -- x -- forward_compute_time=1000, backward_compute_time=0, activation_size=1, parameter_size=0\n"
		"c -- x -- forward_compute_time=1000, backward_compute_time=0, activation_size=[0.5; 0.5], parameter_size=0\n"
		"\ta -- b\n\tb -- c\n    a -- c";
	Arena *a = arena_new();
	Profile p;
	States st, live;
	Diag d;

	(void)state;
	diag_init(&d, stderr, a);
	assert_true(profile_parse(a, "text", text, &p, &d));
	assert_true(states_build(a, &p, false, 100, &st, &d) && states_build(a, &p, true, 100, &live, &d));
	assert_int_equal(st.n, 3);
	assert_true(st.s[0].cut == 8 && st.s[1].cut == 9 && st.s[2].activation == 10);
	assert_true(states_input(&live, 0, 1) == 8 && states_input(&live, 1, 2) == 9 && states_input(&live, 0, 2) == 8);
	arena_free(a);
}

static double best_blocks(const double *c, int n, int parts)
{
	double best = INFINITY, sum = 0;

	for (int i = 1; i <= n - parts + 1 && parts > 1; i++) {
		sum += c[i - 1];
		best = fmin(best, fmax(sum, best_blocks(c + i, n - i, parts - 1)));
	}
	for (int i = 0; i < n && parts == 1; i++)
		sum += c[i];
	return parts == 1 ? sum : best;
}

static void blocks(void **state)
{
	Arena *a = arena_new();

	(void)state;
	for (int i = 0; i < 20000; i++) {
		double c[10];
		int size[10], other[10], n = 1 + draw(10), parts = 1 + draw(n), sum[2] = { 0, 0 };

		for (int k = 0; k < n; k++)
			c[k] = draw(30);
		const double most = blocks_published(a, c, n, parts, size),
			     least = blocks_optimal(a, c, n, parts, other);
		for (int k = 0; k < parts; k++) {
			assert_true(size[k] >= 0 && other[k] >= 1);
			sum[0] += size[k];
			sum[1] += other[k];
		}
		assert_true(sum[0] == n && sum[1] == n && least <= most && least == best_blocks(c, n, parts));
	}
	arena_free(a);
}

static void bad_profiles(void **state)
{
	static const char good[] =
		"a -- x -- forward_compute_time=1, backward_compute_time=0, activation_size=8, parameter_size=0";
	static const struct {
		const char *text;
		int code;
	} bad[] = {
		{ "", 461 },
		{ "a", 461 },
		{ "a -- x", 461 },
		{ "a -- x -- forward_compute_time=1", 461 },
		{ "a -- x -- forward_compute_time=-1, backward_compute_time=0, activation_size=8, parameter_size=0",
			461 },
		{ "a -- x -- forward_compute_time=nan, backward_compute_time=0, activation_size=8, parameter_size=0",
			461 },
		{ "a -- x -- forward_compute_time=1, backward_compute_time=inf, activation_size=8, parameter_size=0",
			461 },
		{ "a -- x -- forward_compute_time=1, backward_compute_time=0, activation_size=[8; , parameter_size=0",
			461 },
		{ "a -- x -- forward_compute_time=1, backward_compute_time=0, activation_size=[8, parameter_size=0",
			461 },
		{ "a -- x -- forward_compute_time=1, backward_compute_time=0, activation_size=8, parameter_size=0x",
			461 },
		{ "%s -- stage_id=1.5", 461 },
		{ "%s\n%s", 462 },
		{ "%s\n\ta -- b", 462 },
		{ "%s\n\ta", 461 },
		{ "%s\n\ta -- a", 463 },
	};
	Arena *a = arena_new();
	FILE *out = fopen("/dev/null", "w");

	(void)state;
	assert_non_null(out);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		Buf b = { 0 };
		Profile p;
		Diag d;

		diag_init(&d, out, a);
		for (const char *s = bad[i].text; *s; s++)
			if (strncmp(s, "%s", 2) == 0) {
				buf_puts(&b, good);
				s++;
			} else {
				buf_putc(&b, *s);
			}
		assert_false(profile_parse(a, "text", buf_str(&b), &p, &d));
		assert_int_equal(d.last_code, bad[i].code);
		buf_free(&b);
	}
	fclose(out);
	arena_free(a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(against_exhaustive),
		cmocka_unit_test(table_against_wide),
		cmocka_unit_test(levels),
		cmocka_unit_test(all_rows),
		cmocka_unit_test(branching_levels),
		cmocka_unit_test(repeated_layer),
		cmocka_unit_test(live_tensors),
		cmocka_unit_test(blocks),
		cmocka_unit_test(bad_profiles),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
