/* The elementwise ops: type and shape rule, constant folding; all from the rows of elementwise.def. */
#include <math.h>
#include <string.h>
#include "ew.h"

/* ---- the rows, each expression also compiled for constant folding ---- */

#define EXP(x) exp((double)(x))
#define TANH(x) tanh((double)(x))
#define ERF(x) erf((double)(x))
#define LOG(x) log((double)(x))
#define SQRT(x) sqrt((double)(x))
#define SIN(x) sin((double)(x))
#define COS(x) cos((double)(x))
#define FLOOR(x) floor((double)(x))
#define CEIL(x) ceil((double)(x))
#define RINT(x) rint((double)(x))
#define EXPM1(x) expm1((double)(x))
#define LOG1P(x) log1p((double)(x))
#define TAN(x) tan((double)(x))
#define ASIN(x) asin((double)(x))
#define ACOS(x) acos((double)(x))
#define ATAN(x) atan((double)(x))
#define SINH(x) sinh((double)(x))
#define COSH(x) cosh((double)(x))
#define ASINH(x) asinh((double)(x))
#define ACOSH(x) acosh((double)(x))
#define ATANH(x) atanh((double)(x))
#define POW(x, y) pow((double)(x), (double)(y))
#define FMOD(x, y) fmod((double)(x), (double)(y))

#define EWI(name, nin, types, result, flops, ...) \
	static int64_t i_##name(int64_t a, int64_t b, int64_t c) \
	{ \
		(void)a, (void)b, (void)c; \
		return (int64_t)(__VA_ARGS__); \
	}
#define EW(name, nin, types, result, flops, grad, ...) \
	static double f_##name(double a, double b, double c) \
	{ \
		(void)a, (void)b, (void)c; \
		return (double)(__VA_ARGS__); \
	} \
	EWI(name, nin, types, result, flops, __VA_ARGS__)
#define EW0(name, nin, types, result, flops, ...) EW(name, nin, types, result, flops, NULL, __VA_ARGS__)
#include "elementwise.def"
#undef EW0
#undef EW
#undef EWI

#undef EXP
#undef TANH
#undef ERF
#undef LOG
#undef SQRT
#undef SIN
#undef COS
#undef FLOOR
#undef CEIL
#undef RINT
#undef EXPM1
#undef LOG1P
#undef TAN
#undef ASIN
#undef ACOS
#undef ATAN
#undef SINH
#undef COSH
#undef ASINH
#undef ACOSH
#undef ATANH
#undef POW
#undef FMOD

static const EwRow rows[OP_COUNT] = {
#define EW(name, nin, types, result, flops, grad, ...) \
	[OP_##name] = { nin, EW_##types, EW_R_##result, flops, #__VA_ARGS__, f_##name, i_##name },
#define EW0(name, nin, types, result, flops, ...) EW(name, nin, types, result, flops, NULL, __VA_ARGS__)
#define EWI(name, nin, types, result, flops, ...) \
	[OP_##name] = { nin, EW_##types, EW_R_##result, flops, #__VA_ARGS__, NULL, i_##name },
#include "elementwise.def"
#undef EWI
#undef EW0
#undef EW
};

const EwRow *ew_row(OpKind op) { return rows[op].expr ? &rows[op] : NULL; }

/* ---- types and shapes ---- */

static bool fits(EwTypes k, DType t)
{
	switch (k) {
	case EW_NUM: return t != DT_bool;
	case EW_SIGNED: return t != DT_bool && (dtype_float(t) || dtype_signed(t));
	case EW_FLOAT: return dtype_float(t);
	case EW_INT: return t != DT_bool && !dtype_float(t);
	case EW_UINT: return t != DT_bool && !dtype_float(t) && !dtype_signed(t);
	case EW_BOOL: return t == DT_bool;
	case EW_ANY: break;
	}
	return true;
}

/* Operands are of one type. A scalar constant stays in f32 beside 16-bit floats: the kernel has it as a literal. */
static bool one_type(const Node *n, int from, Diag *d)
{
	const Value *first = NULL;

	for (int i = from; i < n->nin; i++)
		if (n->in[i] && (!first || (dtype_half(n->in[i]->type.dtype) && !dtype_half(first->type.dtype))))
			first = n->in[i];
	for (int i = from; i < n->nin; i++)
		if (!n->in[i] ||
			(n->in[i]->type.dtype != first->type.dtype &&
				!(dtype_half(first->type.dtype) && n->in[i]->type.dtype == DT_f32 && ew_literal(n, i))))
			return same_dtype(n, from, d);
	return true;
}

static bool check_types(const Node *n, Diag *d)
{
	static const char *const want[] = { "numbers", "signed numbers", "floats", "integers", "unsigned integers",
		"bools", "any type" };
	const EwRow *r = &rows[n->op];
	const bool where = n->op == OP_Where;

	if (where && !n->in[0])
		return diag_error(d, n->loc, 301, "Where: operand 0 is missing");
	if (!one_type(n, n->op == OP_Pow ? n->nin : where, d))
		return false;
	if (where && n->in[0]->type.dtype != DT_bool)
		return diag_error(
			d, n->loc, 302, "Where: the condition is %s, not bool", str_type(d->scratch, &n->in[0]->type));
	for (int i = 0; i < n->nin; i++) {
		if (!n->in[i])
			return diag_error(d, n->loc, 301, "%s: operand %d is missing", optab[n->op]->name, i);
		const Type *t = &n->in[i]->type;
		if (!fits(r->types, t->dtype))
			return diag_error(d, n->loc, 302, "%s takes %s, %s is %s", optab[n->op]->name, want[r->types],
				n->in[i]->name, str_type(d->scratch, t));
	}
	if (n->op == OP_Mod && dtype_float(n->in[0]->type.dtype) && !((const struct ew_attr *)n->attr)->fmod)
		return diag_error(d, n->loc, 302, "Mod of floats needs fmod=1");
	return true;
}

static DType result_dtype(const Node *n)
{
	if (n->op == OP_Cast)
		return dtype_from_onnx((int)((const struct ew_attr *)n->attr)->to);
	if (rows[n->op].result == EW_R_BOOL)
		return DT_bool;
	for (int i = 0; i < n->nin && n->op != OP_Pow; i++)
		if (dtype_half(n->in[i]->type.dtype))
			return n->in[i]->type.dtype;
	return n->in[n->op == OP_Where]->type.dtype;
}

/* The order that a Cast is asked for. */
static bool cast_layout(const Node *n, Layout *l, Diag *d)
{
	const char *want = ((const struct ew_attr *)n->attr)->layout;

	if (!want || !*want)
		return true;
	if (!layout_from_name(want, l) || (*l == LAYOUT_NHWC && n->in[0]->type.rank < 3))
		return diag_error(d, n->loc, 305, "Cast: %s cannot be made in layout '%s'",
			str_type(d->scratch, &n->in[0]->type), want);
	return true;
}

bool ew_shape(Node *n, Diag *d)
{
	Type t, sum;

	if (!check_types(n, d))
		return false;
	t = n->in[0]->type;
	for (int i = 1; i < n->nin; i++) {
		if (!shape_broadcast(&t, &n->in[i]->type, &sum))
			return diag_error(d, n->loc, 304, "%s: shapes do not broadcast: %s is %s, %s is %s",
				optab[n->op]->name, n->in[0]->name, str_shape(d->scratch, &n->in[0]->type),
				n->in[i]->name, str_shape(d->scratch, &n->in[i]->type));
		t = sum;
	}
	t.dtype = result_dtype(n);
	if (t.dtype == DT_NONE)
		return diag_error(d, n->loc, 302, "Cast to element type %lld, which is not known",
			(long long)((const struct ew_attr *)n->attr)->to);
	t.rows = 0;
	t.layout = LAYOUT_PLAIN;
	for (int i = 0; i < n->nin; i++)
		if (n->in[i]->type.rank == t.rank && t.rank >= 3 && n->in[i]->type.layout != LAYOUT_PLAIN)
			t.layout = n->in[i]->type.layout;
	if (n->op == OP_Cast && !cast_layout(n, &t.layout, d))
		return false;
	set_out(n, 0, t);
	return true;
}

Cost ew_cost(const Node *n)
{
	double flops = rows[n->op].flops;

	if (n->op == OP_Pow && ew_literal(n, 1))
		flops = 2;
	if (rows[n->op].nin < 0)
		flops = n->nin - 1;
	return cost_bytes(n, flops * (double)type_numel(&n->out[0]->type));
}

/* ---- constant folding ---- */

/* The row's rule for u64, whose upper half int64_t takes for negative. */
static int64_t of_u64(const EwRow *r, OpKind op, const int64_t *x)
{
	const uint64_t a = (uint64_t)x[0], b = (uint64_t)x[1];

	switch (op) {
	case OP_Less:
	case OP_LessOrEqual:
	case OP_Greater:
	case OP_GreaterOrEqual: return r->i((int64_t)(a ^ (uint64_t)1 << 63), (int64_t)(b ^ (uint64_t)1 << 63), 0);
	case OP_Max: return (int64_t)(a < b ? b : a);
	case OP_Min: return (int64_t)(b < a ? b : a);
	case OP_Div: return b ? (int64_t)(a / b) : 0;
	case OP_Mod: return b ? (int64_t)(a % b) : 0;
	default: return r->i(x[0], x[1], x[2]);
	}
}

/* The rules of text.c: x / 0 = x % 0 = 0, and what has no value of its type wraps around. */
static int64_t of_signed(const EwRow *r, const Node *n, const int64_t *x)
{
	const bool easy = x[1] == 0 || x[1] == -1;
	const uint64_t a = (uint64_t)x[0], b = (uint64_t)x[1];

	switch (n->op) {
	case OP_Neg: return (int64_t)(0 - a);
	case OP_Abs: return (int64_t)(x[0] < 0 ? 0 - a : a);
	case OP_Add:
	case OP_Sum: return (int64_t)(a + b);
	case OP_Sub: return (int64_t)(a - b);
	case OP_Mul: return (int64_t)(a * b);
	case OP_Div: return easy ? (int64_t)(a * b) : x[0] / x[1]; /* x * -1 is x / -1, x * 0 is 0 */
	case OP_Mod: {
		const int64_t m = easy ? 0 : x[0] % x[1];
		return !((const struct ew_attr *)n->attr)->fmod && m && (m < 0) != (x[1] < 0) ? m + x[1] : m;
	}
	default: return r->i(x[0], x[1], x[2]);
	}
}

static bool eval_element(const Node *n, const Tensor *in, const int64_t *at, Tensor *out, int64_t o)
{
	const EwRow *r = &rows[n->op];
	const int typed = n->op == OP_Where ? 1 : 0;

	if (dtype_float(in[typed].type.dtype) || n->op == OP_Pow) {
		double x[3] = { 0 };
		for (int i = 0; i < n->nin && i < 3; i++)
			x[i] = elem_f(&in[i], at[i]);
		double y = r->nin < 0 ? x[0] : r->f(x[0], x[1], x[2]);
		for (int i = 1; r->nin < 0 && i < n->nin; i++)
			y = r->f(y, elem_f(&in[i], at[i]), 0);
		elem_set_f(out, o, y);
		return true;
	}
	int64_t x[3] = { 0 }, y;
	for (int i = 0; i < n->nin && i < 3; i++)
		x[i] = elem_i(&in[i], at[i]);
	const bool u64 = in[typed].type.dtype == DT_u64;
	y = r->nin < 0 ? x[0] : u64 ? of_u64(r, n->op, x) : of_signed(r, n, x);
	for (int i = 1; r->nin < 0 && i < n->nin; i++) {
		const int64_t two[3] = { y, elem_i(&in[i], at[i]) };
		y = u64 ? of_u64(r, n->op, two) : of_signed(r, n, two);
	}
	elem_set_i(out, o, y);
	return true;
}

bool ew_eval(const Node *n, const Tensor *in, Tensor *out, Arena *a)
{
	const Type *t = &n->out[0]->type;
	const int64_t numel = type_numel(t);
	int64_t *at = NEWN(a, int64_t, n->nin), *stride = NEWN(a, int64_t, n->nin *MAXRANK);

	for (int i = 0; i < n->nin; i++) {
		const Type *p = &in[i].type;
		int64_t s = 1;
		for (int k = p->rank - 1; k >= 0; s *= p->dim[k--])
			stride[i * MAXRANK + t->rank - p->rank + k] = p->dim[k] == 1 ? 0 : s;
	}
	tensor_alloc(&out[0], t, a);
	for (int64_t o = 0; o < numel; o++) {
		int64_t rest = o;
		memset(at, 0, (size_t)n->nin * sizeof *at);
		for (int k = t->rank - 1; k >= 0; rest /= t->dim[k--])
			for (int i = 0; i < n->nin; i++)
				at[i] += rest % t->dim[k] * stride[i * MAXRANK + k];
		if (!eval_element(n, in, at, &out[0], o))
			return false;
	}
	return true;
}

/* ---- the table entries ---- */

static const AttrDef no_attrs[] = { AT_END };
static const AttrDef attrs_Cast[] = { AT_INT(struct ew_attr, to, 1), AT_INT(struct ew_attr, once, 0),
	AT_STR(struct ew_attr, layout, ""), AT_END };
static const AttrDef attrs_Mod[] = { AT_INT(struct ew_attr, fmod, 0), AT_END };

/* The second and third operand are settings, not data. */
#define SETTINGS(OP) (OP == OP_Elu || OP == OP_Selu || OP == OP_Celu || OP == OP_Swish || OP == OP_HardSigmoid)

/* Where's condition has no gradient, nor have settings; column 0 counts for all operands of variadic ops. */
#define ROW(NAME, NIN, GRAD, HAS) \
	const OpDef op_##NAME = { \
		.name = #NAME, \
		.minin = NIN < 0 ? 1 : NIN, \
		.maxin = NIN, \
		.nout = 1, \
		.flags = OP_PURE | OP_EW | OP_INPLACE | OP_NHWC, \
		.attrs = OP_##NAME == OP_Cast  ? attrs_Cast \
		         : OP_##NAME == OP_Mod ? attrs_Mod \
		                               : no_attrs, \
		.attrsize = sizeof(struct ew_attr), \
		.shape = ew_shape, \
		.grad = GRAD, \
		.dgrad = { OP_##NAME == OP_Where ? NOGRAD : HAS, SETTINGS(OP_##NAME) ? NOGRAD : HAS, \
			SETTINGS(OP_##NAME) ? NOGRAD : HAS }, \
		.cost = ew_cost, \
		.holes = ew_holes, \
		.eval = ew_eval, \
		.cpu = { .file = "nest.cpu.c" }, \
		.ref = { .file = "nest.cpu.c" }, \
		.cuda = { .file = "nest.cuda.cu" }, \
	};
#define EW(NAME, NIN, TYPES, RESULT, FLOPS, GRAD, ...) ROW(NAME, NIN, GRAD, DENSE)
#define EW0(NAME, NIN, TYPES, RESULT, FLOPS, ...) ROW(NAME, NIN, NULL, NOGRAD)
#define EWI(NAME, NIN, TYPES, RESULT, FLOPS, ...) ROW(NAME, NIN, NULL, NOGRAD)
#include "elementwise.def"
