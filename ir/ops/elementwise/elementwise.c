/* The elementwise ops: type and shape rule, constant folding, kernel; all from the rows of elementwise.def. */
#include <ctype.h>
#include <math.h>
#include <string.h>
#include "ew.h"

/* ---- the rows, each expression also compiled for constant folding ---- */

#define EXP(x)     exp((double)(x))
#define TANH(x)    tanh((double)(x))
#define ERF(x)     erf((double)(x))
#define LOG(x)     log((double)(x))
#define SQRT(x)    sqrt((double)(x))
#define SIN(x)     sin((double)(x))
#define COS(x)     cos((double)(x))
#define FLOOR(x)   floor((double)(x))
#define CEIL(x)    ceil((double)(x))
#define RINT(x)    rint((double)(x))
#define EXPM1(x)   expm1((double)(x))
#define LOG1P(x)   log1p((double)(x))
#define TAN(x)     tan((double)(x))
#define ASIN(x)    asin((double)(x))
#define ACOS(x)    acos((double)(x))
#define ATAN(x)    atan((double)(x))
#define SINH(x)    sinh((double)(x))
#define COSH(x)    cosh((double)(x))
#define ASINH(x)   asinh((double)(x))
#define ACOSH(x)   acosh((double)(x))
#define ATANH(x)   atanh((double)(x))
#define POW(x, y)  pow((double)(x), (double)(y))
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

const EwRow *ew_row(OpKind op)
{
	return rows[op].expr ? &rows[op] : NULL;
}

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
		if (!n->in[i] || (n->in[i]->type.dtype != first->type.dtype &&
		    !(dtype_half(first->type.dtype) && n->in[i]->type.dtype == DT_f32 && ew_literal(n, i))))
			return same_dtype(n, from, d);
	return true;
}

static bool check_types(const Node *n, Diag *d)
{
	static const char *const want[] = { "numbers", "signed numbers", "floats", "integers", "unsigned integers", "bools",
		"any type" };
	const EwRow *r = &rows[n->op];
	const bool where = n->op == OP_Where;

	if (where && !n->in[0])
		return diag_error(d, n->loc, 301, "Where: operand 0 is missing");
	if (!one_type(n, n->op == OP_Pow ? n->nin : where, d))
		return false;
	if (where && n->in[0]->type.dtype != DT_bool)
		return diag_error(d, n->loc, 302, "Where: the condition is %s, not bool",
			str_type(d->scratch, &n->in[0]->type));
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
		return diag_error(d, n->loc, 305, "Cast: %s cannot be made in layout '%s'", str_type(d->scratch, &n->in[0]->type), want);
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
	case OP_Less: case OP_LessOrEqual: case OP_Greater: case OP_GreaterOrEqual:
		return r->i((int64_t)(a ^ (uint64_t)1 << 63), (int64_t)(b ^ (uint64_t)1 << 63), 0);
	case OP_Max: return (int64_t)(a < b ? b : a);
	case OP_Min: return (int64_t)(b < a ? b : a);
	case OP_Div: return (int64_t)(a / b);
	case OP_Mod: return (int64_t)(a % b);
	default: return r->i(x[0], x[1], x[2]);
	}
}

static bool mod_eval(int64_t fmod_, int64_t a, int64_t b, int64_t *r)
{
	if (b == 0)
		return false;
	*r = b == -1 ? 0 : a % b;
	if (!fmod_ && *r && (*r < 0) != (b < 0))
		*r += b;
	return true;
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
	if ((n->op == OP_Div || n->op == OP_Mod) && x[1] == 0)
		return false;
	if (n->op == OP_Div && !u64 && x[0] == INT64_MIN && x[1] == -1)
		return false;
	if (n->op == OP_Mod && !u64) {
		if (!mod_eval(((const struct ew_attr *)n->attr)->fmod, x[0], x[1], &y))
			return false;
	} else {
		y = r->nin < 0 ? x[0] : u64 ? of_u64(r, n->op, x) : r->i(x[0], x[1], x[2]);
	}
	for (int i = 1; r->nin < 0 && i < n->nin; i++) {
		const int64_t two[3] = { y, elem_i(&in[i], at[i]) };
		y = u64 ? of_u64(r, n->op, two) : r->i(two[0], two[1], 0);
	}
	elem_set_i(out, o, y);
	return true;
}

bool ew_eval(const Node *n, const Tensor *in, Tensor *out, Arena *a)
{
	const Type *t = &n->out[0]->type;
	const int64_t numel = type_numel(t);
	int64_t *at = NEWN(a, int64_t, n->nin), *stride = NEWN(a, int64_t, n->nin * MAXRANK);

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

/* ---- C text ---- */

bool ew_literal(const Node *n, int i)
{
	const Value *v = n->in[i];

	return (ew_row(n->op) || n->op == OP_Fused) && v && v->kind == VAL_CONST && v->data && type_numel(&v->type) == 1;
}

const char *ew_literal_text(Arena *a, const Node *n, int i)
{
	const Tensor t = const_tensor(n->in[i]);

	return c_literal(a, t.type.dtype, elem_f(&t, 0), elem_i(&t, 0));
}

/* Powers that need no pow(). NULL: none of them. */
static const char *pow_pattern(const Node *n)
{
	static const struct { double e; const char *pattern; } known[] = {
		{ 2, "a * a" }, { 3, "a * a * a" }, { 1, "a" }, { 4, "a * a * (a * a)" }, { 0.5, "SQRT(a)" },
		{ -1, "1 / a" }, { -2, "1 / (a * a)" }, { -0.5, "1 / SQRT(a)" }, { 1.5, "a * SQRT(a)" },
	};
	const Tensor t = const_tensor(n->in[1]);

	if (!ew_literal(n, 1))
		return NULL;
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (known[i].e == elem_f(&t, 0) && (i < 4 || dtype_float(n->in[0]->type.dtype)))
			return known[i].pattern;
	return NULL;
}

/* Integers: the sign of the divisor, or with fmod that of the dividend, as C has it. */
static const char *mod_pattern(const Node *n)
{
	if (dtype_float(n->in[0]->type.dtype))
		return "FMOD(a, b)";
	return ((const struct ew_attr *)n->attr)->fmod ? "a % b" : "(a % b + b) % b";
}

/* Operand i is a literal, the largest (or the smallest) integer of its type. */
static bool at_end(const Node *n, int i, bool largest)
{
	const DType t = n->in[i]->type.dtype;
	const int bits = 8 * dtype_bytes(t);
	const uint64_t half_way = (uint64_t)1 << (bits - 1);

	if (dtype_float(t) || !ew_literal(n, i))
		return false;
	const Tensor c = const_tensor(n->in[i]);
	const uint64_t v = (uint64_t)elem_i(&c, 0), all = half_way + (half_way - 1);
	if (dtype_signed(t))
		return largest ? v == half_way - 1 : v == ~(half_way - 1);
	return largest ? v == all || v == UINT64_MAX : v == 0;
}

/* Comparisons with the end of the type's range, of which compilers warn: nothing is smaller than the smallest. NULL: no
 * such. */
static const char *decided_pattern(const Node *n)
{
	const bool less = n->op == OP_Less || n->op == OP_GreaterOrEqual;
	const bool never = n->op == OP_Less || n->op == OP_Greater;

	if (!never && n->op != OP_LessOrEqual && n->op != OP_GreaterOrEqual)
		return NULL;
	if (at_end(n, 0, less))
		return never ? "(b & 0) != 0" : "(b & 0) == 0";
	if (at_end(n, 1, !less))
		return never ? "(a & 0) != 0" : "(a & 0) == 0";
	return NULL;
}

static const char *pattern_of(const Node *n)
{
	const char *p = decided_pattern(n);

	if (n->op == OP_Pow)
		p = pow_pattern(n);
	else if (n->op == OP_Mod)
		p = mod_pattern(n);
	else if (n->op == OP_Cast && n->out[0]->type.dtype == DT_bool)
		p = "a != 0";
	else if (n->op == OP_Cast)
		return arena_printf(node_arena(n), "(%s)a", dtype_c(dtype_math(n->out[0]->type.dtype)));
	return p ? p : rows[n->op].expr;
}

const char *ew_load(Arena *a, DType t, const char *ref)
{
	return dtype_half(t) ? arena_printf(a, "pd_from_%s(%s)", dtype_name(t), ref) : ref;
}

const char *ew_store(Arena *a, DType t, const char *e)
{
	return dtype_half(t) ? arena_printf(a, "pd_to_%s(%s)", dtype_name(t), e) : e;
}

/* a, b, c become operands, names in capitals the math function of the type, 0.5 a literal of the type. */
static const char *fill(Arena *a, const char *p, DType t, const char *const *operand)
{
	const char *out = "";

	while (*p) {
		const bool number = isdigit((unsigned char)*p);
		size_t len = 1;
		while (isalnum((unsigned char)*p) && (isalnum((unsigned char)p[len]) || (number && p[len] == '.')))
			len++;
		if (number) {
			const bool real = memchr(p, '.', len) != NULL;
			out = arena_printf(a, "%s%.*s%s", out, (int)len, p, real && t == DT_f32 ? "f" : "");
		} else if (len == 1 && *p >= 'a' && *p <= 'c') {
			out = arena_printf(a, "%s%s", out, operand[*p - 'a']);
		} else if (isupper((unsigned char)*p)) {
			char *f = arena_strn(a, p, len);
			for (char *q = f; *q; q++)
				*q = (char)tolower((unsigned char)*q);
			out = arena_printf(a, "%s%s%s", out, f, t == DT_f32 ? "f" : "");
		} else {
			out = arena_printf(a, "%s%.*s", out, (int)len, p);
		}
		p += len;
	}
	return out;
}

const char *ew_text(Arena *a, const Node *n, const char *const *operand)
{
	const DType t = dtype_math(n->in[0]->type.dtype);
	const char *e;

	if (rows[n->op].nin >= 0)
		return fill(a, pattern_of(n), t, operand);
	if (n->op == OP_Sum) {
		e = operand[0];
		for (int i = 1; i < n->nin; i++)
			e = arena_printf(a, "%s + %s", e, operand[i]);
		return e;
	}
	const bool min = n->op == OP_Min;
	e = NULL;
	for (int i = 0, joined = 0, last = 0; i < n->nin; i++) {   /* a turn repeats what came before: only for few operands */
		const char *two[2] = { joined > 1 ? arena_printf(a, "(%s)", e) : e, operand[i] };
		if (at_end(n, i, min) && (e || i + 1 < n->nin))
			continue;
		if (joined == 1 && at_end(n, last, !min))
			e = fill(a, rows[n->op].expr, t, (const char *[]){ two[1], two[0] });
		else
			e = e ? fill(a, rows[n->op].expr, t, two) : operand[i];
		joined++, last = i;
	}
	return e;
}

const char *ew_expr(Arena *a, const Node *n)
{
	const char **operand = NEWN(a, const char *, n->nin);

	if (!ew_row(n->op))
		return NULL;
	for (int i = 0; i < n->nin; i++)
		operand[i] = arena_printf(a, "$%d", i);
	return ew_text(a, n, operand);
}

void ew_signature(const Node *n, Holes *h, const char *const *var)
{
	Arena *a = h->arena;
	const char *params = "", *args = "", *comma = "";

	for (int i = 0; i < n->nout; i++) {
		params = arena_printf(a, "%s%s%s *%s", params, comma, dtype_c(n->out[i]->type.dtype), var[i]);
		args = arena_printf(a, "%s%s$=%d", args, comma, i);
		comma = ", ";
	}
	for (int i = 0; i < n->nin; i++) {
		if (ew_literal(n, i))
			continue;
		params = arena_printf(a, "%s, const %s *%s", params, dtype_c(n->in[i]->type.dtype), var[n->nout + i]);
		args = arena_printf(a, "%s, $%d", args, i);
	}
	hole_text(h, "PARAMS", "%s", params);
	hole_text(h, "CALL", "$k(%s);", args);
}

static const char *op_name(Arena *a, OpKind op)
{
	char *s = arena_str(a, optab[op]->name);

	for (char *p = s; *p; p++)
		*p = (char)tolower((unsigned char)*p);
	return s;
}

/* add_32x128, add_32x128_b01 (b broadcast over rows), mul_8192_b_0p125, cast_32_i64_f32 */
static void name_kernel(const Node *n, Holes *h, const Nest *s, const char *const *var)
{
	Arena *a = h->arena;
	const char *tail = "", *tag;

	for (int i = 0, k = 1; i < n->nin; i++) {
		tag = ew_literal(n, i) ? arena_printf(a, "_%s", name_of_literal(a, ew_literal_text(a, n, i))) :
			nest_tag(a, s, k++);
		if (*tag)
			tail = arena_printf(a, "%s_%s%s", tail, var[1 + i], tag);
	}
	if (n->op == OP_Pow && !ew_literal(n, 1))
		tail = arena_printf(a, "%s%s", tail, dtype_suffix(n->in[1]->type.dtype));
	if (n->op == OP_Cast)
		tail = arena_printf(a, "%s_%s_%s", tail, dtype_name(n->in[0]->type.dtype), dtype_name(n->out[0]->type.dtype));
	else
		tail = arena_printf(a, "%s%s", tail, dtype_suffix(n->in[n->op == OP_Where]->type.dtype));
	if (n->op == OP_Mod && ((const struct ew_attr *)n->attr)->fmod)
		tail = arena_printf(a, "%s_fmod", tail);
	if (rows[n->op].nin < 0)
		tail = arena_printf(a, "of%d%s", n->nin, tail);
	hole_name(h, rows[n->op].nin < 0 ? "%s_%s_%s" : "%s_%s%s", op_name(a, n->op), nest_dims(a, s), tail);
}

/* Element number 0, v, 2 v, ... of the nest begins v elements that lie side by side in operand k, at a multiple of v, or are one. */
static bool side_by_side(const Nest *s, int k, int v)
{
	const NestOp *o = &s->op[k];
	const int in = s->rank - 1;

	if (o->stride[in] == 0)
		return true;
	for (int d = 0; d < in; d++)
		if (o->stride[d] % v)
			return false;
	return o->stride[in] == 1 && o->offset % v == 0;
}

static bool vectors_of(const Nest *s, int v, int nout)
{
	if (!s->rank || s->dim[s->rank - 1] % v)
		return false;
	for (int k = 0; k < s->nop; k++)
		if (!side_by_side(s, k, v) || (k < nout && s->op[k].stride[s->rank - 1] != 1))
			return false;
	return true;
}

const char *ew_vector_ref(Arena *a, const Nest *s, int op)
{
	return s->rank && s->op[op].stride[s->rank - 1] ? arena_printf(a, "q%d.v[u]", op) : nest_ref(a, s, op);
}

int ew_vector_holes(const Nest *s, Holes *h, const DType *t, int nout)
{
	Arena *a = h->arena;
	const char *reads = "", *writes = "";
	int v = 4;

	for (int k = 0; k < s->nop; k++)
		v = dtype_bytes(t[k]) < 4 && vectors_of(s, 8, nout) ? 8 : v;
	v = vectors_of(s, v, nout) ? v : 0;
	for (int k = 0; v && k < s->nop; k++) {
		const char *sep = *reads ? "\n\t" : "";
		if (k < nout) {
			reads = arena_printf(a, "%s%spd_vec<%s, %d> q%d;", reads, sep, dtype_c(t[k]), v, k);
			writes = arena_printf(a, "%s%spd_write(&%s, q%d);", writes, *writes ? "\n\t" : "", nest_ref(a, s, k), k);
		} else if (s->op[k].stride[s->rank - 1])
			reads = arena_printf(a, "%s%sconst pd_vec<%s, %d> q%d = pd_read<%d>(&%s);", reads, sep, dtype_c(t[k]), v, k, v,
				nest_ref(a, s, k));
	}
	hole_int(h, "VECTORS", v);
	hole_text(h, "READS", "%s", reads);
	hole_text(h, "WRITES", "%s", writes);
	return v;
}

static const char *ew_body(Arena *a, const Node *n, const Nest *s, const char *(*ref_of)(Arena *a, const Nest *s, int op))
{
	const char **ref = NEWN(a, const char *, n->nin);

	for (int i = 0, k = 1; i < n->nin; i++)
		ref[i] = ew_literal(n, i) ? ew_literal_text(a, n, i) : ew_load(a, n->in[i]->type.dtype, ref_of(a, s, k++));
	return arena_printf(a, "%s = %s;", ref_of(a, s, 0), ew_store(a, n->out[0]->type.dtype, ew_text(a, n, ref)));
}

void ew_holes(const Node *n, Holes *h)
{
	static const char *const abc[] = { "y", "a", "b", "c" };
	Arena *a = h->arena;
	const char **var = NEWN(a, const char *, n->nin + 1);
	const Type *t = &n->out[0]->type;
	DType *types = NEWN(a, DType, n->nin + 1);
	int k = 0;
	Nest s;

	var[0] = "y";
	nest_begin(&s, node_arena(n), t->rank, t->dim);
	nest_add_type(&s, "y", t);
	types[k++] = t->dtype;
	for (int i = 0; i < n->nin; i++) {
		var[1 + i] = n->nin <= 3 ? abc[1 + i] : arena_printf(a, "x%d", i);
		if (ew_literal(n, i))
			continue;
		nest_add_type(&s, var[1 + i], &n->in[i]->type);
		types[k++] = n->in[i]->type.dtype;
	}
	nest_finish(&s);
	nest_holes(&s, h);
	ew_signature(n, h, var);
	name_kernel(n, h, &s, var);
	hole_text(h, "BODY", "%s", ew_body(a, n, &s, nest_ref));
	if (ew_vector_holes(&s, h, types, 1))
		hole_text(h, "VECTOR_BODY", "%s", ew_body(a, n, &s, ew_vector_ref));
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
		.name = #NAME, .minin = NIN < 0 ? 1 : NIN, .maxin = NIN, .nout = 1, \
		.flags = OP_PURE | OP_EW | OP_INPLACE | OP_NHWC, \
		.attrs = OP_##NAME == OP_Cast ? attrs_Cast : OP_##NAME == OP_Mod ? attrs_Mod : no_attrs, \
		.attrsize = sizeof(struct ew_attr), \
		.shape = ew_shape, .grad = GRAD, \
		.dgrad = { OP_##NAME == OP_Where ? NOGRAD : HAS, \
			SETTINGS(OP_##NAME) ? NOGRAD : HAS, SETTINGS(OP_##NAME) ? NOGRAD : HAS }, \
		.cost = ew_cost, .holes = ew_holes, .eval = ew_eval, \
		.cpu = { .file = "nest.cpu.c" }, .ref = { .file = "nest.cpu.c" }, .cuda = { .file = "nest.cuda.cu" }, \
	};
#define EW(NAME, NIN, TYPES, RESULT, FLOPS, GRAD, ...) ROW(NAME, NIN, GRAD, DENSE)
#define EW0(NAME, NIN, TYPES, RESULT, FLOPS, ...) ROW(NAME, NIN, NULL, NOGRAD)
#define EWI(NAME, NIN, TYPES, RESULT, FLOPS, ...) ROW(NAME, NIN, NULL, NOGRAD)
#include "elementwise.def"
