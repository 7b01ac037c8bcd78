/* partition against brute force: random chains of Gemm and Relu, every grouping into stages tried. Ties between plans. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "passes/plan/plan_search.h"

enum { LAYERS = 8, DEVICES = 16 };

static unsigned seed = 1;

static int draw(int n)
{
	seed = seed * 1103515245u + 12345u;
	return (int)((seed >> 16) % (unsigned)n);
}

static Module *chain(Arena *a, Diag *d)
{
	Module *m = module_new(a, "chain");
	Graph *g = m->graph = graph_new(m, "chain");
	Builder b = { .m = m, .g = g, .phase = PHASE_FWD, .stage = -1, .d = d };
	int64_t width = 16 + draw(200);

	m->batch = 32;
	Value *x = graph_input(g, "x", type_make(DT_f32, 2, (int64_t[]){ 32, width }));
	for (int i = 0; i < LAYERS; i++) {
		const int64_t next = 16 + draw(400);
		Value *w = module_param(
			m, arena_printf(a, "w%d", i), type_make(DT_f32, 2, (int64_t[]){ width, next }), PARAM_WEIGHT);
		b.loc = (Loc){ .node = i, .name = arena_printf(a, "fc%d", i), .op = "Gemm" };
		x = mk_unary(&b, OP_Relu, mk_gemm(&b, x, w, NULL, 0, 0));
		width = next;
	}
	graph_output(g, x);
	return m;
}

/* Seconds per layer, backward included, and of what belongs to the last layer (the loss). */
static void layer_times(const Module *m, double *t)
{
	memset(t, 0, LAYERS * sizeof *t);
	for (const Node *n = m->graph->first; n; n = n->next) {
		const Node *f = n->fwd ? n->fwd : n;
		if (n->phase != PHASE_UPDATE)
			t[f->loc.node >= 0 ? f->loc.node : LAYERS - 1] += n->time;
	}
}

/* The least slowest stage over all ways to give layers from..LAYERS-1 to stages s..n-1. */
static double brute(const double *t, int from, const int *replicas, int n)
{
	double sum = 0, best = 1e30;

	if (n == 1) {
		for (int i = from; i < LAYERS; i++)
			sum += t[i];
		return sum / replicas[0];
	}
	for (int end = from + 1; end <= LAYERS - (n - 1); end++) {
		sum += t[end - 1];
		const double rest = brute(t, end, replicas + 1, n - 1), here = sum / replicas[0];
		const double worst = rest > here ? rest : here;
		best = worst < best ? worst : best;
	}
	return best;
}

static double slowest(const Plan *p)
{
	double worst = 0;

	for (int s = 0; s < p->nstage; s++) {
		const double t = (p->stage[s].fwd + p->stage[s].bwd) / p->stage[s].replicas;
		worst = t > worst ? t : worst;
	}
	return worst;
}

static void one(int n, const int *replicas)
{
	Arena *a = arena_new(), *scratch = arena_new();
	Device device[DEVICES];
	Link fast = { .scope = LINK_DEFAULT, .bandwidth = 1e18 };
	Cluster c = { .device = device, .ndevice = DEVICES, .link = &fast, .nlink = 1 };
	Training t = { .model.opt = { .kind = OPT_SGD }, .plan.replicas = "" };
	Diag d;
	PassCx cx = { .scratch = scratch, .d = &d, .cluster = &c, .train = &t };
	double time[LAYERS];

	memset(device, 0, sizeof device);
	diag_init(&d, stderr, scratch);
	for (int s = 0; s < n; s++)
		t.plan.replicas = arena_printf(a, "%s%s%d", t.plan.replicas, s ? "-" : "", replicas[s]);
	Module *m = chain(a, &d);
	assert_true(pass_train(m, &cx) && pass_autodiff(m, &cx) && pass_cleanup(m, &cx) && pass_cost(m, &cx));
	assert_true(pass_partition(m, &cx));
	layer_times(m, time);
	const double best = brute(time, 0, replicas, n), got = slowest(cx.plan);
	if (got > best * 1.0001 || got < best * 0.9999)
		fail_msg("plan %s: slowest stage %g s, the best grouping has %g s", t.plan.replicas, got, best);
	arena_free(a);
	arena_free(scratch);
}

static void test_groupings(void **state)
{
	(void)state;
	for (int round = 0; round < 40; round++) {
		const int n = 1 + draw(4);
		int replicas[4];
		for (int s = 0; s < n; s++)
			replicas[s] = 1 + draw(3);
		one(n, replicas);
	}
}

static void test_notation(void **state)
{
	Arena *a = arena_new();
	Diag d;
	int n, *r;
	FILE *nowhere = fopen("/dev/null", "w");

	(void)state;
	diag_init(&d, nowhere, a);
	assert_true(plan_parse(a, "2-1-12", &r, &n, &d));
	assert_int_equal(n, 3);
	assert_int_equal(r[2], 12);
	assert_true(plan_parse(a, NULL, &r, &n, &d) && n == 0);
	assert_true(plan_parse(a, "auto", &r, &n, &d) && n == 0);
	const char *const bad[] = { "", "0", "1-", "1-0", "-1", "1--1", "2:1", "99999", "1x" };
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		assert_false(plan_parse(a, bad[i], &r, &n, &d));
	assert_int_equal(d.errors, (int)(sizeof bad / sizeof *bad));
	fclose(nowhere);
	arena_free(a);
}

/* Plans of one score, the best first by the rule of plan_search.h (plan_search): fewest devices, fewest stages, least peak,
 * earliest cuts, most replicas in front, devices in their order. Whatever the order in which they are met. */
static void test_ties(void **state)
{
	enum { N = 7 };
	static const struct {
		int n, end[3], replicas[3], device[4];
		double peak, score;
	} plan[N] = {
		{ 1, { 7 }, { 2 }, { 0, 1 }, 9e6, 1 },                  /* fewest devices */
		{ 2, { 3, 7 }, { 2, 1 }, { 0, 1, 2 }, 4e6, 1 },         /* fewest stages of three devices, least peak */
		{ 2, { 2, 7 }, { 2, 1 }, { 0, 1, 2 }, 5e6, 1 },         /* earliest cut */
		{ 2, { 3, 7 }, { 2, 1 }, { 0, 1, 2 }, 5e6, 1 + 1e-12 }, /* most replicas in front */
		{ 2, { 3, 7 }, { 1, 2 }, { 0, 1, 2 }, 5e6, 1 },         /* order of devices */
		{ 2, { 3, 7 }, { 1, 2 }, { 1, 0, 2 }, 5e6, 1 },
		{ 3, { 1, 2, 7 }, { 1, 1, 1 }, { 0, 1, 2 }, 1e6, 1 - 1e-12 },
	};
	Arena *a = arena_new();
	Trial *t[N];

	(void)state;
	for (int i = 0; i < N; i++) {
		int devices = 0;
		for (int s = 0; s < plan[i].n; s++)
			devices += plan[i].replicas[s];
		t[i] = trial_new(a, plan[i].n, devices, "a test");
		memcpy(t[i]->end, plan[i].end, sizeof *t[i]->end * (size_t)plan[i].n);
		memcpy(t[i]->replicas, plan[i].replicas, sizeof *t[i]->replicas * (size_t)plan[i].n);
		memcpy(t[i]->device, plan[i].device, sizeof *t[i]->device * (size_t)devices);
		t[i]->peak = plan[i].peak;
		t[i]->score = plan[i].score;
	}
	for (int i = 0; i < N; i++)
		for (int k = 0; k < N; k++)
			assert_int_equal(trial_better(t[i], t[k]), i < k);
	for (int round = 0; round < 200; round++) { /* the best of the last ones, in any order */
		const int from = draw(N);
		const Trial *best = NULL;
		for (int i = N - 1; i > from; i--) {
			const int k = from + draw(i - from + 1);
			Trial *x = t[i];
			t[i] = t[k];
			t[k] = x;
		}
		for (int i = from; i < N; i++)
			best = trial_better(t[i], best) ? t[i] : best;
		for (int i = from; i < N; i++) /* back in their order */
			for (int k = i; k > from && trial_better(t[k], t[k - 1]); k--) {
				Trial *x = t[k];
				t[k] = t[k - 1];
				t[k - 1] = x;
			}
		assert_ptr_equal(best, t[from]);
	}
	arena_free(a);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_groupings), cmocka_unit_test(test_notation),
		cmocka_unit_test(test_ties) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
