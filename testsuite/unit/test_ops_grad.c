/* Gradients of elementwise, moving and reducing ops against central differences, in f64. The gradient graph that an op
 * builds is run by constant folding, so no kernel and no other pass has a part in this. */
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "ir/ops/common/common.h"

static Arena *arena;
static Diag diag;
static Module *mod;
static Builder b;

static int set_up(void **state)
{
	(void)state;
	arena = arena_new();
	diag_init(&diag, stderr, arena);
	mod = module_new(arena, "t");
	mod->graph = graph_new(mod, "t");
	b = (Builder){ .m = mod, .g = mod->graph, .loc = NOLOC, .stage = -1, .d = &diag };
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	arena_free(arena);
	return 0;
}

/* ---- operands: graph inputs whose value depends on aux ---- */

static Value *tensor(DType t, int rank, const int64_t *dim, double (*f)(int64_t i))
{
	Tensor *x = NEW(arena, Tensor);
	const Type type = type_make(t, rank, dim);
	Value *v = graph_input(mod->graph, unique_name(mod->graph, "x"), type);

	tensor_alloc(x, &type, arena);
	for (int64_t i = 0; i < type_numel(&type); i++)
		elem_set_f(x, i, f(i));
	v->aux = x;
	return v;
}

/* Away from kinks, ties and zeros. */
static double mixed(int64_t i) { return (double)(i * 7 % 11) * 0.373 - 1.712 + 0.01 * (double)i; }
static double other(int64_t i) { return (double)(i * 5 % 7) * 0.411 - 1.105 - 0.017 * (double)i; }
static double positive(int64_t i) { return (double)(i * 5 % 13) * 0.253 + 0.517; }
static double bits(int64_t i) { return i % 3 == 1; }
static double index5(int64_t i) { return (double)(i * 3 % 5); }
static double cotangent(int64_t i) { return (double)(i * 3 % 8) * 0.31 - 0.93; }

#define DIMS(...) \
	(int)(sizeof(int64_t[]){ __VA_ARGS__ } / sizeof(int64_t)), (const int64_t[]) { __VA_ARGS__ }
#define F(f, ...) tensor(DT_f64, DIMS(__VA_ARGS__), f)
#define OF(t, f, ...) tensor(DT_##t, DIMS(__VA_ARGS__), f)

/* ---- the value of a value ---- */

static Tensor value_of(const Value *v)
{
	Tensor in[MAXIN], out[MAXIN] = { 0 };

	if (v->kind == VAL_INPUT)
		return *(const Tensor *)v->aux;
	if (v->kind == VAL_CONST)
		return const_tensor(v);
	const Node *n = v->def;
	for (int i = 0; i < n->nin; i++)
		in[i] = value_of(n->in[i]);
	if (!optab[n->op]->eval(n, in, out, arena))
		fail_msg("%s does not fold", optab[n->op]->name);
	return out[v->index];
}

/* sum over all results of result * cotangent */
static double objective(const Node *n)
{
	double sum = 0;

	for (int o = 0; o < n->nout; o++) {
		const Tensor y = value_of(n->out[o]);
		for (int64_t i = 0; i < type_numel(&y.type); i++)
			sum += elem_f(&y, i) * cotangent(i + o);
	}
	return sum;
}

/* ---- one case ---- */

static void check(Node *n)
{
	Value *dx[MAXIN] = { NULL }, *dy[MAXIN];
	int64_t seen = 0;

	assert_false(b.failed);
	for (int o = 0; o < n->nout; o++) {
		dy[o] = tensor(DT_f64, n->out[o]->type.rank, n->out[o]->type.dim, cotangent);
		for (int64_t i = 0; i < type_numel(&n->out[o]->type); i++)
			elem_set_f(dy[o]->aux, i, cotangent(i + o));
	}
	optab[n->op]->grad(&b, n, dy, dx);
	assert_false(b.failed);
	for (int k = 0; k < n->nin; k++) {
		if (n->in[k]->type.dtype != DT_f64 || n->in[k]->kind != VAL_INPUT || !dx[k])
			continue;
		assert_true(shape_eq(&dx[k]->type, &n->in[k]->type));
		const Tensor g = value_of(dx[k]);
		Tensor *x = n->in[k]->aux;
		for (int64_t i = 0; i < type_numel(&x->type); i++, seen++) {
			const double at = elem_f(x, i), h = 1e-6;
			elem_set_f(x, i, at + h);
			double d = objective(n);
			elem_set_f(x, i, at - h);
			d = (d - objective(n)) / (2 * h);
			elem_set_f(x, i, at);
			if (!(fabs(d - elem_f(&g, i)) <= 1e-7 * (1 + fabs(d))))
				fail_msg("%s: d x%d[%" PRId64 "] is %.10g, differences say %.10g", optab[n->op]->name,
					k, i, elem_f(&g, i), d);
		}
	}
	assert_true(seen > 0);
}

static Node *node(OpKind op, const void *attr, int nin, ...)
{
	Value *in[MAXIN];
	va_list ap;

	va_start(ap, nin);
	for (int i = 0; i < nin; i++)
		in[i] = va_arg(ap, Value *);
	va_end(ap);
	return build(&b, op, attr, nin, in, NULL);
}

static void *ints(OpKind op, ...)
{
	void *at = attr_new(arena, op);
	va_list ap;

	va_start(ap, op);
	for (const char *name; (name = va_arg(ap, const char *));) {
		const int n = va_arg(ap, int);
		attr_put_ints(arena, op, at, name, n, va_arg(ap, const int64_t *));
	}
	va_end(ap);
	return at;
}

static void *with(void *at, OpKind op, const char *name, int64_t v)
{
	attr_put_int(op, at, name, v);
	return at;
}

static void test_elementwise(void **state)
{
	static const OpKind any[] = { OP_Relu, OP_Sigmoid, OP_Tanh, OP_Erf, OP_Exp, OP_Neg, OP_Abs, OP_Sin, OP_Cos,
		OP_Sign, OP_Floor, OP_Ceil, OP_Round },
			    pos[] = { OP_Log, OP_Sqrt, OP_Reciprocal };
	static const OpKind two[] = { OP_Add, OP_Sub, OP_Mul, OP_Div, OP_Pow, OP_Max, OP_Min, OP_Sum };
	static const double power[] = { 2, 3, 0.5, -1, 1, 0.75 };

	(void)state;
	for (size_t i = 0; i < sizeof any / sizeof *any; i++)
		check(node(any[i], NULL, 1, F(mixed, 3, 4)));
	for (size_t i = 0; i < sizeof pos / sizeof *pos; i++)
		check(node(pos[i], NULL, 1, F(positive, 5)));
	for (size_t i = 0; i < sizeof two / sizeof *two; i++) {
		check(node(two[i], NULL, 2, F(positive, 3, 4), F(mixed, 3, 4)));
		check(node(two[i], NULL, 2, F(positive, 2, 3, 4), F(other, 4)));
		check(node(two[i], NULL, 2, F(positive, 4), F(other, 2, 3, 1)));
	}
	for (size_t i = 0; i < sizeof power / sizeof *power; i++)
		check(node(OP_Pow, NULL, 2, F(positive, 6), const_scalar(mod, DT_f64, power[i])));
	check(node(OP_Max, NULL, 2, F(mixed, 6), const_scalar(mod, DT_f64, 0.25)));
	check(node(OP_Min, NULL, 2, const_scalar(mod, DT_f64, 0.25), F(mixed, 6)));
	check(node(OP_Max, NULL, 3, F(mixed, 2, 6), F(other, 6), F(positive, 2, 1)));
	check(node(OP_Mod, with(attr_new(arena, OP_Mod), OP_Mod, "fmod", 1), 2, F(mixed, 6), F(positive, 6)));
	check(node(OP_Where, NULL, 3, OF(bool, bits, 2, 1, 3), F(mixed, 2, 4, 3), F(other, 4, 1)));
	check(node(OP_Cast, with(attr_new(arena, OP_Cast), OP_Cast, "to", 11), 1, F(mixed, 4)));
}

static void test_move(void **state)
{
	(void)state;
	check(node(OP_Identity, NULL, 1, F(mixed, 4)));
	check(node(OP_Reshape, ints(OP_Reshape, "shape", DIMS(4, -1), NULL), 1, F(mixed, 2, 6)));
	check(node(OP_Transpose, ints(OP_Transpose, "perm", DIMS(2, 0, 1), NULL), 1, F(mixed, 2, 3, 4)));
	check(node(OP_Expand, ints(OP_Expand, "shape", DIMS(2, 3, 4), NULL), 1, F(mixed, 3, 1)));
	check(node(OP_Tile, ints(OP_Tile, "repeats", DIMS(2, 1, 3), NULL), 1, F(mixed, 2, 3, 4)));
	check(node(OP_Slice,
		ints(OP_Slice, "starts", DIMS(-1, 0), "ends", DIMS(-100, 3), "axes", DIMS(1, 0), "steps", DIMS(-2, 2),
			NULL),
		1, F(mixed, 4, 5)));
	check(node(OP_SliceGrad, ints(OP_SliceGrad, "starts", DIMS(1), "ends", DIMS(3), "shape", DIMS(4, 3), NULL), 1,
		F(mixed, 2, 3)));
	check(node(
		OP_Concat, with(attr_new(arena, OP_Concat), OP_Concat, "axis", 1), 2, F(mixed, 2, 3), F(other, 2, 4)));
	check(node(OP_Split, with(ints(OP_Split, "split", DIMS(1, 3), NULL), OP_Split, "axis", 1), 1, F(mixed, 2, 4)));
	check(node(OP_Pad, ints(OP_Pad, "pads", DIMS(0, 1, 2, -1), NULL), 1, F(mixed, 3, 4)));
	for (int k = 0; k < 2; k++) {
		void *at = ints(OP_Pad, "pads", DIMS(2, 1, 0, 3), NULL);
		attr_put_str(arena, OP_Pad, at, "mode", k ? "reflect" : "edge");
		check(node(OP_Pad, at, 1, F(mixed, 3, 4)));
	}
	check(node(OP_Gather, NULL, 2, F(mixed, 5, 3), OF(i64, index5, 7)));
	check(node(OP_Gather, with(attr_new(arena, OP_Gather), OP_Gather, "axis", 1), 2, F(mixed, 2, 5, 3),
		OF(i64, index5, 2, 2)));
	check(node(OP_GatherGrad, with(attr_new(arena, OP_GatherGrad), OP_GatherGrad, "dim0", 6), 2, F(mixed, 4, 3),
		OF(i64, index5, 4)));
	check(node(OP_Trilu, with(attr_new(arena, OP_Trilu), OP_Trilu, "k", 1), 1, F(mixed, 2, 3, 4)));
	check(node(OP_Reorder, NULL, 1, F(mixed, 2, 3, 4)));
}

static void test_reduce(void **state)
{
	static const OpKind op[] = { OP_ReduceSum, OP_ReduceMean, OP_ReduceMax, OP_ReduceMin, OP_ReduceProd,
		OP_ReduceL2 };

	(void)state;
	for (size_t i = 0; i < sizeof op / sizeof *op; i++) {
		check(node(op[i], NULL, 1, F(mixed, 3, 2)));
		check(node(op[i], ints(op[i], "axes", DIMS(0, -1), NULL), 1, F(mixed, 2, 3, 2)));
		check(node(
			op[i], with(ints(op[i], "axes", DIMS(1), NULL), op[i], "keepdims", 0), 1, F(mixed, 2, 3, 2)));
		check(node(op[i], with(ints(op[i], NULL), op[i], "noop_with_empty_axes", 1), 1, F(positive, 3)));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_elementwise, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_move, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_reduce, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
