/* partition on graphs with branches: random DAGs of Gemm, Add and Relu with two inputs, against every plan there is: every
 * chain of down-sets of the segments, every number of replicas. Orders of nodes (passes/plan/order.c) keep operands in front. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "passes/plan/plan_search.h"
#include "passes/plan/stages.h"
#include "passes/plan/cuts.h"

enum { LAYERS = 7, MOST = 9, CASES = 300 };

static unsigned seed = 7;

static int draw(int n)
{
	seed = seed * 1103515245u + 12345u;
	return (int)((seed >> 16) % (unsigned)n);
}

/* Layer i reads one or two of what is there; what nobody read goes to the sum at the end. */
static Module *branched(Arena *a, Diag *d)
{
	static const int64_t wide[] = { 64, 512 };
	Module *m = module_new(a, "dag");
	Graph *g = m->graph = graph_new(m, "dag");
	Builder b = { .m = m, .g = g, .phase = PHASE_FWD, .stage = -1, .d = d };
	Value *v[LAYERS + 2], *sum = NULL;
	int64_t width[LAYERS + 2];
	bool used[LAYERS + 2] = { false };

	m->batch = 32;
	for (int i = 0; i < LAYERS + 2; i++) {
		if (i < 2) {
			width[i] = 64;
			v[i] = graph_input(g, i ? "y" : "x", type_make(DT_f32, 2, (int64_t[]){ 32, 64 }));
			continue;
		}
		const int x = draw(3) ? (draw(2) ? i - 1 : i - 2) : draw(i), y = draw(i);
		Value *from = v[x];
		b.loc = (Loc){ .node = i, .name = arena_printf(a, "fc%d", i), .op = "Gemm" };
		if (x != y && width[x] == width[y] && x > 1 && y > 1 && (used[y] = true))
			from = mk_binary(&b, OP_Add, v[x], v[y]);
		used[x] = true;
		width[i] = wide[draw(2)];
		Value *w = module_param(m, arena_printf(a, "w%d", i),
			type_make(DT_f32, 2, (int64_t[]){ width[x], width[i] }), PARAM_WEIGHT);
		v[i] = mk_unary(&b, OP_Relu, mk_gemm(&b, from, w, NULL, 0, 0));
	}
	for (int i = 0; i < LAYERS + 2; i++) {
		if (used[i] || i < 2)
			continue;
		b.loc = (Loc){ .node = 99 + i, .name = arena_printf(a, "out%d", i), .op = "Gemm" };
		Value *w = module_param(
			m, arena_printf(a, "o%d", i), type_make(DT_f32, 2, (int64_t[]){ width[i], 16 }), PARAM_WEIGHT);
		Value *end = mk_gemm(&b, v[i], w, NULL, 0, 0);
		sum = sum ? mk_binary(&b, OP_Add, sum, end) : end;
	}
	graph_output(g, sum);
	return m;
}

/* ---- every plan ---- */

typedef struct Every {
	Segments *g;
	int n, full, before[MOST], part[MOST];
	double best;
} Every;

/* Replicas for the stages from s on. */
static void every_replicas(Every *e, PlanModel *p, Trial *t, int s, int left)
{
	if (s < t->n) {
		for (int r = 1; r <= left - (t->n - 1 - s); r++) {
			t->replicas[s] = r;
			every_replicas(e, p, t, s + 1, left - r);
		}
		return;
	}
	t->micro = trial_micro(p, t->n, t->replicas);
	t->ndevice = p->c->ndevice - left;
	for (int r = 0; r < t->ndevice; r++)
		t->device[r] = r;
	trial_judge(p, t);
	if (t->bound / (double)t->micro > e->best)
		return;
	trial_play(p, t);
	assert_true(t->bound <= t->step * (1 + 1e-9));
	e->best = fmin(e->best, t->score);
}

/* Plans whose stages are these sets of segments: the model of an order that has one set behind another. */
static void every_model(Every *e)
{
	const Segments *f = e->g;
	Arena *a = arena_new(), *was = f->cx->scratch;
	Segments g = *f;
	Trial *t = trial_new(a, e->n, f->cx->cluster->ndevice, "every");
	Node **all;
	int nseg = 0;

	f->cx->scratch = a;
	main_nodes(f->m, a, &all);
	g.node = NEWN(a, Node *, f->nnode);
	g.seg = NEWN(a, Seg, f->n);
	g.nnode = 0;
	for (int s = 0; s < e->n; s++) {
		for (int i = 0; i < f->n; i++) {
			if (!(e->part[s] >> i & 1))
				continue;
			Seg *x = &g.seg[nseg++];
			*x = f->seg[i];
			x->first = g.nnode;
			for (int k = f->seg[i].first; k < f->seg[i].end; k++)
				g.node[g.nnode++] = f->node[k];
			x->end = g.nnode;
		}
		t->end[s] = nseg - 1;
	}
	every_replicas(e, plan_model(a, &g), t, 0, f->cx->cluster->ndevice);
	f->cx->scratch = was;
	arena_free(a);
}

static void every(Every *e, int from)
{
	for (int to = from + 1; to <= e->full; to++) {
		bool closed = (to & from) == from && (to == e->full || e->n + 1 < e->g->cx->cluster->ndevice);
		for (int i = 0; i < e->g->n && closed; i++)
			closed = !(to >> i & 1) || (to & e->before[i]) == e->before[i];
		if (!closed)
			continue;
		e->part[e->n++] = to & ~from;
		if (to == e->full)
			every_model(e);
		else
			every(e, to);
		e->n--;
	}
}

/* The least seconds per microbatch of all plans over the segments of the file's order, where that is less than `known`. */
static double exhaustive(Segments *g, const PlanModel *p, double known)
{
	Every e = { .g = g, .full = (1 << g->n) - 1, .best = known };

	for (int i = 0; i < p->ntensor; i++)
		for (int k = 0; k < p->tensor[i].nto && p->tensor[i].kind != PLAN_BACKWARD; k++)
			e.before[p->tensor[i].to[k]] |= 1 << p->tensor[i].from;
	every(&e, 0);
	return e.best;
}

/* ---- one graph ---- */

static void check_orders(Module *m, PassCx *cx)
{
	Node **node;
	const int n = main_nodes(m, cx->scratch, &node);

	for (Order o = ORDER_FILE; o < ORDERS; o++) {
		Node **own = arena_dup(cx->scratch, node, sizeof *node * (size_t)n);
		order_nodes(cx->scratch, own, n, o);
		for (int i = 0; i < n; i++) {
			assert_int_equal(own[i]->stage, -1);
			own[i]->stage = i;
		}
		for (int i = 0; i < n; i++) {
			assert_ptr_equal(own[node[i]->stage], node[i]); /* every node, once */
			for (int k = 0; k < node[i]->nin; k++) {
				const Node *from = node[i]->in[k]->def;
				assert_true(!from || !from->mark || from->phase != PHASE_FWD ||
					    from->stage < node[i]->stage);
			}
		}
		for (int i = 0; i < n; i++)
			node[i]->stage = -1;
	}
	for (int i = 0; i < n; i++)
		node[i]->mark = 0;
}

/* What share of the time of the plan that is found the best of all plans takes; *file: of the best plan in the file's order. 0: the
 * graph is too large to try all. */
static double one(int devices, double *file, int *order)
{
	Arena *a = arena_new(), *scratch = arena_new();
	Device *device = NEWN(a, Device, devices);
	Link link = { .scope = LINK_DEFAULT, .bandwidth = pow(10, 7 + draw(150) / 100.0), .latency = 1e-6 };
	Cluster c = { .device = device, .ndevice = devices, .link = &link, .nlink = 1 };
	Training t = { .model.opt = { .kind = OPT_SGD }, .loop.global = 32 * 4 };
	Diag d;
	PassCx cx = { .scratch = scratch, .d = &d, .cluster = &c, .train = &t };
	Segments g = { .cx = &cx };
	double share = 0;

	for (int i = 0; i < devices; i++)
		device[i] = (Device){ .flops = 40e9, .mem_bandwidth = 12e9 };
	diag_init(&d, stderr, scratch);
	Module *m = g.m = branched(a, &d);
	assert_true(pass_train(m, &cx) && pass_autodiff(m, &cx) && pass_cleanup(m, &cx) && pass_cost(m, &cx));
	check_orders(m, &cx);
	segments_find(&g, 0);
	if (g.n <= MOST) {
		PlanModel *p = plan_model(scratch, &g);
		assert_true(pass_partition(m, &cx));
		const double micro = (double)cx.plan->microbatches, got = cx.plan->step_time / micro;
		const double best = exhaustive(&g, p, got);
		share = best / got;
		*file = best / (cx.plan->file_order / micro);
		*order = cx.plan->order;
		assert_true(cx.plan->step_time <= cx.plan->file_order * (1 + 1e-9));
	}
	arena_free(a);
	arena_free(scratch);
	return share;
}

/* Never slower than in the file's order; the best of all plans, within a hundredth, in nine cases of ten. */
static void test_branches(void **state)
{
	int n = 0, hits = 0, file_hits = 0, others = 0, order;
	double worst = 1, file;

	(void)state;
	for (int i = 0; i < CASES; i++) {
		const double share = one(2 + i % 3, &file, &order);
		if (share <= 0)
			continue;
		n++;
		hits += share > 0.99;
		file_hits += file > 0.99;
		others += order > 0;
		worst = fmin(worst, share);
	}
	print_message(
		"%d graphs: the best of all plans in %d, in the file's order in %d; another order %d times; the worst plan takes "
		"%.3f times as long as the best\n",
		n, hits, file_hits, others, 1 / worst);
	assert_true(n > CASES / 5 && others > 0 && hits > file_hits && hits * 10 >= n * 9);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_branches) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
