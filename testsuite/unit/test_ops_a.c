/* Elementwise, moving, shape and reducing ops: shape rules and their messages, and every kernel against constant
 * folding. Each case folds its node at compile time, then the kernel of the same node is compiled as it stands (its
 * holes as macros: cpp is the oracle of the template engine) and run on the same operands by one program.
 * Arguments: the folder of the source tree (.), the compiler and its OpenMP flag. */
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "ir/base/buf.h"
#include "ir/ops/common/common.h"

static const char *compiler = "cc -fopenmp", *tree = ".";
static Arena *arena;
static Diag diag;
static char *said; /* what diag printed */
static size_t nsaid;
static Module *mod;
static Builder build_at;
static Buf code, body; /* the program: kernels, main */
static int ncase;

static int set_up(void **state)
{
	(void)state;
	arena = arena_new();
	diag_init(&diag, open_memstream(&said, &nsaid), arena);
	mod = module_new(arena, "t");
	mod->graph = graph_new(mod, "t");
	build_at = (Builder){ .m = mod, .g = mod->graph, .loc = NOLOC, .stage = -1, .d = &diag };
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	fclose(diag.out);
	free(said);
	arena_free(arena);
	return 0;
}

/* ---- operands ---- */

static Value *filled(DType t, int rank, const int64_t *dim, double (*f)(int64_t i))
{
	const Type type = type_make(t, rank, dim);
	Tensor x;

	tensor_alloc(&x, &type, arena);
	for (int64_t i = 0; i < type_numel(&type); i++)
		elem_set_f(&x, i, f(i));
	return module_const(mod, NULL, type, x.data);
}

static double mixed(int64_t i) { return (double)(i * 7 % 11) * 0.375 - 1.5; }
static double positive(int64_t i) { return (double)(i * 5 % 13) * 0.25 + 0.5; }
static double whole(int64_t i) { return (double)(i * 7 % 9) - 4.0; }
static double nonzero(int64_t i) { return i % 2 ? -(double)(i % 5) - 1 : (double)(i % 5) + 1; }
static double bits(int64_t i) { return i % 3 == 1; }
static double index5(int64_t i) { return (double)(i * 3 % 5); }

#define DIMS(...) \
	(int)(sizeof(int64_t[]){ __VA_ARGS__ } / sizeof(int64_t)), (const int64_t[]) { __VA_ARGS__ }
#define F32(f, ...) filled(DT_f32, DIMS(__VA_ARGS__), f)
#define OF(t, f, ...) filled(DT_##t, DIMS(__VA_ARGS__), f)
static Value *scalar(double x) { return const_scalar(mod, DT_f32, x); }

/* ---- one case: node -> expected result by eval, kernel into the program ---- */

/* Elements in the order in which they lie in memory in t's layout. */
static void print_data(Buf *b, const char *name, const Tensor *x, const Type *t)
{
	const int64_t n = type_numel(t);
	int64_t stride[MAXRANK], *order = NEWN(arena, int64_t, n);

	type_strides(t, stride);
	for (int64_t i = 0; i < n; i++) {
		int64_t at = 0, rest = i;
		for (int k = t->rank - 1; k >= 0; rest /= t->dim[k--])
			at += rest % t->dim[k] * stride[k];
		order[at] = i;
	}
	buf_printf(b, "static %s %s[] = { ", dtype_c(t->dtype), name);
	for (int64_t i = 0; i < n; i++)
		if (dtype_float(t->dtype))
			buf_printf(b, "%s, ", c_literal(arena, t->dtype, elem_f(x, order[i]), 0));
		else
			buf_printf(b, "%" PRId64 ", ", elem_i(x, order[i]));
	buf_printf(b, "};\n");
}

static void print_call(Buf *b, const char *p, const char *kernel, int k)
{
	for (; *p; p++) {
		if (*p != '$')
			buf_putc(b, *p);
		else if (*++p == 'k')
			buf_puts(b, kernel);
		else if (*p == '=')
			buf_printf(b, "y%d_%c", k, p[1] >= '0' && p[1] <= '9' ? *++p : '0');
		else
			buf_printf(b, "x%d_%c", k, *p);
	}
}

static void print_kernel(const Node *n, int k)
{
	const OpDef *o = optab[n->op];
	Holes h = { .arena = arena };
	const char *call = o->cpu.call, *family = "common";
	static const char *const where[][2] = {
		{ "blocks.cpu.c", "move" },
		{ "gather.cpu.c", "move" },
		{ "gather_grad.cpu.c", "move" },
		{ "reduce.cpu.c", "reduce" },
	};

	o->holes(n, &h);
	for (size_t i = 0; i < sizeof where / sizeof *where; i++)
		if (!strcmp(where[i][0], o->cpu.file))
			family = where[i][1];
	buf_printf(&code, "#define NAME %s_%d\n", h.name, k);
	for (int i = 0; i < h.n; i++) {
		if (!strcmp(h.h[i].name, "CALL")) {
			call = h.h[i].s;
			continue;
		}
		buf_printf(&code, "#define %s ", h.h[i].name);
		if (h.h[i].is_int)
			buf_printf(&code, "%" PRId64, h.h[i].i);
		else
			for (const char *s = h.h[i].s; *s; s++)
				buf_putc(&code, *s == '\n' ? ' ' : *s);
		buf_putc(&code, '\n');
	}
	buf_printf(&code, "#include \"%s/ir/ops/%s/%s\"\n#undef NAME\n", tree, family, o->cpu.file);
	for (int i = 0; i < h.n; i++)
		buf_printf(&code, "#undef %s\n", h.h[i].name);
	buf_printf(&body, "\t");
	print_call(&body, call, arena_printf(arena, "%s_%d", h.name, k), k);
	buf_printf(&body, "\n");
	for (int i = 0; i < n->nout; i++)
		buf_printf(&body, "\tbad += DIFFERS(y%d_%d, want%d_%d, \"%s\");\n", k, i, k, i, h.name);
}

static void run_case(Node *n)
{
	Tensor in[MAXIN], out[MAXIN] = { 0 };
	Layout layout[MAXIN];
	const int k = ncase++;

	fflush(diag.out);
	if (build_at.failed)
		fail_msg("refused: %s", said);
	for (int i = 0; i < n->nin; i++) {
		in[i] = const_tensor(n->in[i]);
		print_data(&code, arena_printf(arena, "x%d_%d", k, i), &in[i], &n->in[i]->type);
		layout[i] = n->in[i]->type.layout; /* folding knows row-major constants only */
		in[i].type.layout = n->in[i]->type.layout = LAYOUT_PLAIN;
	}
	assert_true(optab[n->op]->shape(n, &diag));
	assert_true(optab[n->op]->eval(n, in, out, arena));
	for (int i = 0; i < n->nin; i++)
		n->in[i]->type.layout = layout[i];
	assert_true(optab[n->op]->shape(n, &diag));
	for (int i = 0; i < n->nout; i++) {
		assert_true(shape_eq(&out[i].type, &n->out[i]->type));
		assert_int_equal(out[i].type.dtype, n->out[i]->type.dtype);
		print_data(&code, arena_printf(arena, "want%d_%d", k, i), &out[i], &n->out[i]->type);
		buf_printf(&code, "static %s y%d_%d[%" PRId64 "];\n", dtype_c(n->out[i]->type.dtype), k, i,
			type_numel(&n->out[i]->type));
	}
	print_kernel(n, k);
}

static Node *node(OpKind op, const void *attr, int nin, ...)
{
	Value *in[MAXIN];
	va_list ap;

	va_start(ap, nin);
	for (int i = 0; i < nin; i++)
		in[i] = va_arg(ap, Value *);
	va_end(ap);
	return build(&build_at, op, attr, nin, in, NULL);
}

/* attrs(OP, "ints", n, {..}) in a readable form: name and dims pairs, ended by NULL */
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

/* ---- the cases ---- */

static void elementwise_cases(void)
{
	static const OpKind any[] = { OP_Relu, OP_Sigmoid, OP_Tanh, OP_Erf, OP_Exp, OP_Neg, OP_Abs, OP_Sign, OP_Sin,
		OP_Cos, OP_Floor, OP_Ceil, OP_Round },
			    pos[] = { OP_Log, OP_Sqrt, OP_Reciprocal };
	static const OpKind two[] = { OP_Add, OP_Sub, OP_Mul, OP_Div, OP_Max, OP_Min, OP_Equal, OP_Less, OP_LessOrEqual,
		OP_Greater, OP_GreaterOrEqual, OP_ReluGrad, OP_SigmoidGrad, OP_TanhGrad };
	static const double power[] = { 2, 3, 4, 0.5, -1, -2, -0.5, 1.5, 1, 0, 0.75 };

	for (size_t i = 0; i < sizeof any / sizeof *any; i++)
		run_case(node(any[i], NULL, 1, F32(mixed, 3, 4)));
	for (size_t i = 0; i < sizeof pos / sizeof *pos; i++)
		run_case(node(pos[i], NULL, 1, F32(positive, 5)));
	for (size_t i = 0; i < sizeof two / sizeof *two; i++) {
		run_case(node(two[i], NULL, 2, F32(mixed, 3, 4), F32(positive, 3, 4)));
		run_case(node(two[i], NULL, 2, F32(mixed, 2, 3, 4), F32(positive, 4)));
		run_case(node(two[i], NULL, 2, F32(mixed, 2, 1, 4), F32(positive, 3, 1)));
		run_case(node(two[i], NULL, 2, F32(mixed, 7), scalar(0.125)));
	}
	for (size_t i = 0; i < sizeof power / sizeof *power; i++)
		run_case(node(OP_Pow, NULL, 2, F32(positive, 6), scalar(power[i])));
	run_case(node(OP_Pow, NULL, 2, F32(positive, 6), F32(mixed, 6)));
	run_case(node(OP_Pow, NULL, 2, OF(i64, whole, 6), OF(i64, bits, 6)));
	run_case(node(OP_Mod, NULL, 2, OF(i64, whole, 9), OF(i64, nonzero, 9)));
	run_case(node(
		OP_Mod, with(attr_new(arena, OP_Mod), OP_Mod, "fmod", 1), 2, OF(i32, whole, 9), OF(i32, nonzero, 9)));
	run_case(node(OP_Mod, with(attr_new(arena, OP_Mod), OP_Mod, "fmod", 1), 2, F32(mixed, 9), F32(positive, 9)));
	run_case(node(OP_Not, NULL, 1, OF(bool, bits, 5)));
	run_case(node(OP_And, NULL, 2, OF(bool, bits, 2, 5), OF(bool, bits, 5)));
	run_case(node(OP_Or, NULL, 2, OF(bool, bits, 2, 5), OF(bool, bits, 5)));
	run_case(node(OP_Xor, NULL, 2, OF(bool, bits, 2, 5), OF(bool, bits, 5)));
	run_case(node(OP_Where, NULL, 3, OF(bool, bits, 2, 1, 3), F32(mixed, 2, 4, 3), scalar(-INFINITY)));
	run_case(node(OP_Where, NULL, 3, OF(bool, bits, 3), OF(i64, whole, 2, 3), OF(i64, nonzero, 2, 1)));
	run_case(node(OP_Sum, NULL, 3, F32(mixed, 2, 3), F32(positive, 3), F32(whole, 2, 1)));
	run_case(node(OP_Max, NULL, 4, F32(mixed, 2, 3), F32(positive, 3), F32(whole, 2, 1), F32(nonzero, 2, 3)));
	run_case(node(OP_Min, NULL, 3, OF(i32, whole, 4), OF(i32, nonzero, 4), OF(i32, bits, 4)));
	run_case(node(OP_Div, NULL, 2, OF(i64, whole, 9), OF(i64, nonzero, 9)));
	run_case(node(OP_Tanh, NULL, 1, OF(f64, mixed, 9)));
	run_case(node(OP_Mul, NULL, 2, OF(f64, mixed, 9), const_scalar(mod, DT_f64, 1 / 3.0)));
	for (DType t = DT_f32; t < DT_COUNT; t++)
		if (!dtype_half(t) && !dtype_f8(t)) {
			void *at = with(attr_new(arena, OP_Cast), OP_Cast, "to", dtype_onnx(t));
			run_case(node(OP_Cast, at, 1, F32(positive, 6)));
			run_case(node(OP_Cast, at, 1, OF(i64, index5, 6)));
		}
}

static void fused_case(void)
{
	Value *x = F32(mixed, 2, 6), *row = F32(positive, 6);
	Node *n[4];

	n[0] = node(OP_Mul, NULL, 2, x, row);
	n[1] = node(OP_Tanh, NULL, 1, n[0]->out[0]);
	n[2] = node(OP_Add, NULL, 2, n[1]->out[0], scalar(1));
	n[3] = node(OP_Mul, NULL, 2, n[2]->out[0], n[1]->out[0]);
	graph_output(mod->graph, n[3]->out[0]);
	graph_output(mod->graph, n[1]->out[0]);
	const char *name = n[3]->out[0]->name;
	Node *f = ew_fuse(&build_at, n, 4);
	assert_non_null(f);
	assert_string_equal(attr_str(f, "code"), "Mul 0 1; Tanh 3; Add 4 2; Mul 5 4");
	assert_int_equal(f->nout, 2);
	assert_string_equal(f->out[1]->name, name);
	assert_ptr_equal(mod->graph->out[0], f->out[1]);
	run_case(f);
}

/* A constant's data is row-major; say that the kernel meets it channels-last. */
static Value *nhwc(Value *v)
{
	v->type.layout = LAYOUT_NHWC;
	return v;
}

static void move_cases(void)
{
	run_case(node(OP_Transpose, NULL, 1, F32(mixed, 3, 4)));
	run_case(node(OP_Transpose, ints(OP_Transpose, "perm", DIMS(0, 2, 1, 3), NULL), 1, F32(mixed, 2, 3, 4, 5)));
	run_case(node(OP_Transpose, ints(OP_Transpose, "perm", DIMS(2, 0, 1), NULL), 1, OF(i64, whole, 2, 3, 4)));
	run_case(node(
		OP_Transpose, ints(OP_Transpose, "perm", DIMS(0, 2, 3, 1), NULL), 1, nhwc(F32(mixed, 2, 3, 4, 5))));
	run_case(node(OP_Expand, ints(OP_Expand, "shape", DIMS(2, 3, 4), NULL), 1, F32(mixed, 3, 1)));
	run_case(node(OP_Tile, ints(OP_Tile, "repeats", DIMS(2, 1, 3), NULL), 1, F32(mixed, 2, 3, 4)));
	run_case(node(OP_Slice, ints(OP_Slice, "starts", DIMS(1), "ends", DIMS(3), NULL), 1, F32(mixed, 4, 5)));
	run_case(node(OP_Slice,
		ints(OP_Slice, "starts", DIMS(-1, 0), "ends", DIMS(-100, 1000), "axes", DIMS(1, 0), "steps",
			DIMS(-2, 1), NULL),
		1, F32(mixed, 4, 5)));
	run_case(node(OP_Slice, ints(OP_Slice, "starts", DIMS(1), "ends", DIMS(3), "axes", DIMS(1), NULL), 1,
		nhwc(F32(mixed, 2, 4, 2, 3))));
	run_case(node(OP_SliceGrad,
		ints(OP_SliceGrad, "starts", DIMS(4), "ends", DIMS(-100), "axes", DIMS(1), "steps", DIMS(-2), "shape",
			DIMS(4, 5), NULL),
		1, F32(mixed, 4, 3)));
	for (int axis = 0; axis < 4; axis++) {
		const int64_t part[2] = { 1, (int64_t[]){ 1, 2, 3, 4 }[axis] };
		int64_t dim[4] = { 2, 3, 4, 5 };
		for (int last = 0; last < 2; last++) {
			Value *x = filled(DT_f32, 4, dim, mixed);
			dim[axis] = 2;
			Value *y = filled(DT_f32, 4, dim, positive);
			dim[axis] = part[0] + part[1];
			if (last)
				x = nhwc(x), y = nhwc(y);
			run_case(node(
				OP_Concat, with(attr_new(arena, OP_Concat), OP_Concat, "axis", axis - 4), 2, x, y));
			Node *s = node(
				OP_Split, with(ints(OP_Split, "split", 2, part, NULL), OP_Split, "axis", axis), 1, x);
			assert_int_equal(s->nout, 2);
			run_case(s);
		}
	}
	run_case(node(OP_Pad, ints(OP_Pad, "pads", DIMS(0, 1, 2, 1), NULL), 1, F32(mixed, 3, 4)));
	run_case(node(OP_Pad, ints(OP_Pad, "pads", DIMS(0, -1, 2, -1), NULL), 1, F32(mixed, 3, 4)));
	run_case(node(OP_Pad, ints(OP_Pad, "pads", DIMS(0, -1, -2, -1), NULL), 1, F32(mixed, 3, 4)));
	run_case(node(
		OP_Pad, ints(OP_Pad, "pads", DIMS(0, 0, 1, 1, 0, 0, 1, 1), NULL), 1, nhwc(F32(mixed, 2, 3, 4, 5))));
	Node *p = node(OP_Pad, ints(OP_Pad, "pads", DIMS(1, 2, 0, 3), NULL), 1, F32(mixed, 3, 4));
	attr_set_float(p, "value", -1.5);
	run_case(p);
	attr_set_str(p, "mode", "reflect");
	run_case(p);
	attr_set_str(p, "mode", "edge");
	run_case(p);
	run_case(node(OP_Gather, NULL, 2, F32(mixed, 5, 3), OF(i64, index5, 2, 4)));
	run_case(node(OP_Gather, NULL, 2, F32(mixed, 5), OF(i32, index5, 7)));
	run_case(node(OP_Gather, with(attr_new(arena, OP_Gather), OP_Gather, "axis", 1), 2, F32(mixed, 2, 4, 3),
		OF(i64, whole, 2)));
	run_case(node(OP_Trilu, NULL, 1, F32(positive, 2, 4, 4)));
	run_case(node(OP_Trilu, with(with(attr_new(arena, OP_Trilu), OP_Trilu, "upper", 0), OP_Trilu, "k", -1), 1,
		OF(i64, nonzero, 4, 5)));
	run_case(node(OP_GatherGrad, with(attr_new(arena, OP_GatherGrad), OP_GatherGrad, "dim0", 5), 2,
		F32(mixed, 2, 4, 3), OF(i64, index5, 2, 4)));
	run_case(node(OP_GatherAdd, with(attr_new(arena, OP_GatherAdd), OP_GatherAdd, "dim0", 5), 3,
		F32(positive, 5, 3), F32(mixed, 2, 4, 3), OF(i64, index5, 2, 4)));
	void *at = with(attr_new(arena, OP_GatherAdd), OP_GatherAdd, "dim0", 5);
	run_case(node(OP_GatherAdd, with(with(at, OP_GatherAdd, "axis", 1), OP_GatherAdd, "padding", 3), 3,
		F32(positive, 2, 5, 3), F32(mixed, 2, 7, 3), OF(i64, index5, 7)));
}

static void reduce_cases(void)
{
	static const OpKind op[] = { OP_ReduceSum, OP_ReduceMean, OP_ReduceMax, OP_ReduceMin, OP_ReduceProd,
		OP_ReduceL2 };

	for (size_t i = 0; i < sizeof op / sizeof *op; i++) {
		run_case(node(op[i], NULL, 1, F32(mixed, 3, 4)));
		run_case(node(op[i], ints(op[i], "axes", DIMS(0), NULL), 1, F32(mixed, 3, 70)));
		run_case(node(op[i], ints(op[i], "axes", DIMS(-1), NULL), 1, F32(mixed, 3, 70)));
		run_case(node(op[i], ints(op[i], "axes", DIMS(0, 2), NULL), 1, F32(mixed, 2, 3, 4)));
		run_case(node(op[i], with(ints(op[i], "axes", DIMS(0, 2, 3), NULL), op[i], "keepdims", 0), 1,
			nhwc(F32(mixed, 2, 3, 4, 5))));
		run_case(node(op[i], with(ints(op[i], "axes", DIMS(2), NULL), op[i], "keepdims", 0), 1,
			nhwc(F32(mixed, 2, 3, 4, 5))));
		run_case(node(op[i], ints(op[i], "axes", DIMS(1, 3), NULL), 1, F32(mixed, 2, 3, 4, 5, 2)));
		run_case(node(op[i], with(ints(op[i], NULL), op[i], "noop_with_empty_axes", 1), 1, F32(positive, 3)));
	}
	run_case(node(OP_ReduceMax, NULL, 1, OF(i64, whole, 3, 4)));
	run_case(node(OP_ReduceSum, ints(OP_ReduceSum, "axes", DIMS(1), NULL), 1, OF(i32, whole, 3, 4)));
}

/* Big enough for threads. */
static void big_cases(void)
{
	run_case(node(OP_Add, NULL, 2, F32(mixed, 128, 256), F32(positive, 256)));
	run_case(node(OP_Relu, NULL, 1, F32(mixed, 128, 256)));
	run_case(node(OP_Concat, NULL, 2, F32(mixed, 100, 256), F32(positive, 28, 256)));
	run_case(node(OP_Concat, with(attr_new(arena, OP_Concat), OP_Concat, "axis", 1), 2, F32(mixed, 128, 200),
		F32(positive, 128, 56)));
	run_case(node(OP_Gather, NULL, 2, F32(mixed, 5, 130), OF(i64, index5, 260)));
	run_case(node(OP_GatherGrad, with(attr_new(arena, OP_GatherGrad), OP_GatherGrad, "dim0", 6), 2,
		F32(mixed, 260, 130), OF(i64, index5, 260)));
	run_case(node(OP_GatherAdd, with(attr_new(arena, OP_GatherAdd), OP_GatherAdd, "dim0", 6), 3,
		F32(positive, 6, 130), F32(mixed, 260, 130), OF(i64, index5, 260)));
	run_case(node(OP_ReduceSum, ints(OP_ReduceSum, "axes", DIMS(0), NULL), 1, F32(mixed, 128, 300)));
	run_case(node(OP_Transpose, NULL, 1, F32(mixed, 190, 200)));
	run_case(node(OP_Transpose, ints(OP_Transpose, "perm", DIMS(2, 1, 0), NULL), 1, F32(mixed, 40, 3, 20)));
	run_case(node(OP_ReduceMax, ints(OP_ReduceMax, "axes", DIMS(0, 2), NULL), 1, F32(mixed, 16, 8, 260)));
	run_case(node(OP_ReduceSum, ints(OP_ReduceSum, "axes", DIMS(1), NULL), 1, F32(mixed, 16, 8, 260)));
	run_case(node(OP_ReduceL2, NULL, 1, F32(mixed, 128, 260)));
}

static const char head[] =
	"#include <math.h>\n#include <stdint.h>\n#include <stdio.h>\n#include <string.h>\n"
	"#define DIFFERS(y, w, name) check_(name, sizeof y / sizeof *y, sizeof *y, \\\n"
	"\t_Generic(*y, float: 1, double: 1, default: 0), y, w)\n"
	"static double at(const void *p, size_t size, size_t i)\n{\n"
	"\treturn size == sizeof(float) ? (double)((const float *)p)[i] : ((const double *)p)[i];\n}\n"
	"static int check_(const char *name, size_t n, size_t size, int real, const void *y, const void *w)\n{\n"
	"\tif (!real && !memcmp(y, w, n * size))\n\t\treturn 0;\n"
	"\tif (!real) {\n\t\tprintf(\"%s: differs\\n\", name);\n\t\treturn 1;\n\t}\n"
	"\tfor (size_t i = 0; i < n; i++) {\n\t\tdouble u = at(y, size, i), v = at(w, size, i);\n"
	"\t\tif (u != v && !(fabs(u - v) <= 1e-5 * (1 + fabs(v)))) {\n"
	"\t\t\tprintf(\"%s: element %zu is %g, not %g\\n\", name, i, u, v);\n\t\t\treturn 1;\n\t\t}\n\t}\n\treturn 0;\n}\n";

static void test_kernels(void **state)
{
	char dir[] = "/tmp/pdcc-ops-XXXXXX";

	(void)state;
	buf_puts(&code, head);
	elementwise_cases();
	fused_case();
	move_cases();
	reduce_cases();
	big_cases();
	buf_printf(&code, "int main(void)\n{\n\tint bad = 0;\n%s\treturn bad != 0;\n}\n", buf_str(&body));
	assert_non_null(mkdtemp(dir));
	const char *file = arena_printf(arena, "%s/k.c", dir);
	assert_true(file_write(file, code.s, code.n));
	const char *flags = "-std=c11 -O1 -fopenmp-simd -Wno-pass-failed -Wall -Wextra -Wpedantic -Wshadow -Werror "
			    "-Wno-unused-variable"; /* operands that became literals */
	assert_int_equal(
		system(arena_printf(arena, "%s %s -o %s/k %s -lm && %s/k", compiler, flags, dir, file, dir)), 0);
	assert_int_equal(system(arena_printf(arena, "rm -r %s", dir)), 0);
}

/* ---- shape rules ---- */

static void refused(Node *n, const char *want)
{
	(void)n;
	fflush(diag.out);
	assert_true(build_at.failed);
	if (!strstr(said, want))
		fail_msg("'%s' does not say '%s'", said, want);
	build_at.failed = false;
	rewind(diag.out);
}

static Value *input(const char *name, DType t, int rank, const int64_t *dim)
{
	return graph_input(mod->graph, name, type_make(t, rank, dim));
}

static void test_refused(void **state)
{
	Value *x = input("x", DT_f32, DIMS(3, 4)), *i = input("i", DT_i64, DIMS(2));

	(void)state;
	refused(node(OP_Add, NULL, 2, x, F32(mixed, 5)), "shapes do not broadcast: x is [3,4]");
	refused(node(OP_Add, NULL, 2, x, i), "operands differ in element type: x is f32[3,4], i is i64[2]");
	refused(node(OP_Tanh, NULL, 1, i), "Tanh takes floats, i is i64[2]");
	refused(node(OP_Where, NULL, 3, x, x, x), "Where: the condition is f32[3,4], not bool");
	refused(node(OP_Reshape, ints(OP_Reshape, "shape", DIMS(5, 2), NULL), 1, x),
		"12 elements, the new shape [5_2]");
	refused(node(OP_Reshape, ints(OP_Reshape, "shape", DIMS(-1, -1), NULL), 1, x), "the second -1");
	refused(node(OP_Transpose, ints(OP_Transpose, "perm", DIMS(0, 0), NULL), 1, x), "perm names axis 0 twice");
	refused(node(OP_Concat, NULL, 2, x, F32(mixed, 3, 5)), "operands differ off axis 0");
	refused(node(OP_Gather, NULL, 2, x, OF(i64, whole, 4)), "index -4 of");
	refused(node(OP_Expand, ints(OP_Expand, "shape", DIMS(2), NULL), 1, x), "does not broadcast to [2]");
	refused(node(OP_ReduceSum, ints(OP_ReduceSum, "axes", DIMS(2), NULL), 1, x),
		"axes 2 is outside of [-2, 2) for rank 2");
	refused(node(OP_Range, NULL, 3, x, x, x), "no fixed size");
	refused(node(OP_Fused, ints(OP_Fused, "outs", DIMS(1), NULL), 1, x), "Fused: 0 steps");
}

static void test_types(void **state)
{
	Value *x = input("x", DT_f32, DIMS(3, 4)), *ids = input("ids", DT_i64, DIMS(2, 2));
	const int64_t one = 1;

	(void)state;
	Type t = node(OP_Gather, NULL, 2, x, ids)->out[0]->type;
	assert_string_equal(str_type(arena, &t), "f32[2,2,4]");
	Value *dy = graph_input(mod->graph, "dy", t);
	t = node(OP_GatherGrad, with(attr_new(arena, OP_GatherGrad), OP_GatherGrad, "dim0", 100), 2, dy, ids)
	            ->out[0]
	            ->type;
	assert_string_equal(str_type(arena, &t), "f32[100,4] rows<=4");
	t = mk_reduce(&build_at, OP_ReduceSum, x, (Ints){ 1, &one }, 0)->type;
	assert_string_equal(str_type(arena, &t), "f32[3]");
	t = node(OP_Reshape, ints(OP_Reshape, "shape", DIMS(0, 2, -1), NULL), 1, x)->out[0]->type;
	assert_string_equal(str_type(arena, &t), "f32[3,2,2]");
	t = node(OP_Equal, NULL, 2, x, scalar(1))->out[0]->type;
	assert_string_equal(str_type(arena, &t), "bool[3,4]");
	Node *w = node(OP_Where, NULL, 3, F32(bits, 1), x, x);
	refused(w, "Where");
	assert_string_equal(ew_expr(arena, node(OP_Sigmoid, NULL, 1, x)), "1 / (1 + expf(-$0))");
}

/* Range, Shape, Size, ConstantOfShape and half floats: values of folding. */
static void test_fold(void **state)
{
	Tensor in[3], out[1];
	Node *n = node(OP_Range, NULL, 3, scalar(1), scalar(2), scalar(0.25));

	(void)state;
	for (int i = 0; i < 3; i++)
		in[i] = const_tensor(n->in[i]);
	assert_true(optab[OP_Range]->eval(n, in, out, arena));
	assert_int_equal(out[0].type.dim[0], 4);
	assert_float_equal(elem_f(&out[0], 3), 1.75, 0);
	n = node(OP_Shape, with(attr_new(arena, OP_Shape), OP_Shape, "start", -2), 1, F32(mixed, 2, 3, 4));
	in[0] = const_tensor(n->in[0]);
	assert_true(optab[OP_Shape]->eval(n, in, out, arena));
	assert_int_equal(out[0].type.dim[0], 2);
	assert_int_equal(elem_i(&out[0], 0), 3);
	for (DType t = DT_f16; t <= DT_bf16; t++) {
		const Type type = type_scalar(t);
		Tensor h;
		tensor_alloc(&h, &type, arena);
		for (unsigned u = 0; u < 65536; u++) {
			*(uint16_t *)h.data = (uint16_t)u;
			const double x = elem_f(&h, 0);
			elem_set_f(&h, 0, x);
			if (!isnan(x))
				assert_int_equal(*(uint16_t *)h.data, u);
		}
	}
	const Type half = type_scalar(DT_f16);
	Tensor h;
	tensor_alloc(&h, &half, arena);
	elem_set_f(&h, 0, 2049); /* a tie: to even */
	assert_float_equal(elem_f(&h, 0), 2048, 0);
	elem_set_f(&h, 0, 65520);
	assert_true(isinf(elem_f(&h, 0)));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_types, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_refused, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_fold, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_kernels, set_up, tear_down),
	};

	if (argc > 1)
		tree = argv[1];
	if (argc > 2)
		compiler = argv[2];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
