/* The elementwise ops as C text: a node's expression, its kernel; on GPUs several elements a thread. */
#include <ctype.h>
#include <math.h>
#include <string.h>
#include "ir/analysis.h"
#include "ir/base/buf.h"
#include "ew.h"

bool ew_literal(const Node *n, int i)
{
	const Value *v = n->in[i];

	return (ew_row(n->op) || n->op == OP_Fused) && v && v->kind == VAL_CONST && v->data &&
	       type_numel(&v->type) == 1;
}

bool ew_passed(const Node *n, int i)
{
	for (int k = 0; k < i && n->op == OP_Fused; k++)
		if (n->in[k] == n->in[i])
			return false;
	return !ew_literal(n, i);
}

const char *ew_literal_text(Arena *a, const Node *n, int i)
{
	const Tensor t = const_tensor(n->in[i]);

	return c_literal(a, t.type.dtype, elem_f(&t, 0), elem_i(&t, 0));
}

/* Powers that need no pow(). NULL: none of them. */
static const char *pow_pattern(const Node *n)
{
	static const struct {
		double e;
		const char *pattern;
	} known[] = {
		{ 2, "a * a" },
		{ 3, "a * a * a" },
		{ 1, "a" },
		{ 4, "a * a * (a * a)" },
		{ 0.5, "SQRT(a)" },
		{ -1, "1 / a" },
		{ -2, "1 / (a * a)" },
		{ -0.5, "1 / SQRT(a)" },
		{ 1.5, "a * SQRT(a)" },
	};
	const Tensor t = const_tensor(n->in[1]);

	if (!ew_literal(n, 1))
		return NULL;
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (known[i].e == elem_f(&t, 0) && (i < 4 || dtype_float(n->in[0]->type.dtype)))
			return known[i].pattern;
	return NULL;
}

/* ---- division of integers. ONNX leaves x / 0 and x % 0 open, and the least number / -1 has no value of its type; where C
 * has no answer the processor stops the program. Here x / 0 = x % 0 = 0, and the quotient wraps around. A divisor that is
 * a literal needs no question. Folding (elementwise.c) has the same rules. ---- */

/* What the divisor is known to be. */
typedef enum Divisor { OPEN, ZERO, MINUS_ONE, ONE, SMALL, LARGE } Divisor;

static Divisor divisor(const Node *n)
{
	if (!ew_literal(n, 1))
		return OPEN;
	const Tensor t = const_tensor(n->in[1]);
	const int64_t v = elem_i(&t, 0);
	if (v == 0 || v == 1)
		return v ? ONE : ZERO;
	if (!dtype_signed(t.type.dtype))
		return SMALL;
	return v == -1 ? MINUS_ONE : v > -(1 << 30) && v < 1 << 30 ? SMALL : LARGE;
}

/* Two's complement, also of the least number. */
static const char *negated(const Node *n)
{
	const int bits = 8 * dtype_bytes(n->in[0]->type.dtype);

	return arena_printf(node_arena(n), "(int%d_t)(0 - (uint%d_t)a)", bits, bits);
}

static const char *div_pattern(const Node *n)
{
	const DType t = n->in[0]->type.dtype;
	const Divisor by = divisor(n);

	if (dtype_float(t) || by >= ONE)
		return "a / b";
	if (by == ZERO)
		return "a & 0";
	if (by == MINUS_ONE)
		return negated(n);
	if (!dtype_signed(t))
		return "b == 0 ? 0 : a / b";
	return arena_printf(node_arena(n), "b == 0 ? 0 : b == -1 ? %s : a / b", negated(n));
}

/* The sign of the divisor, or with fmod that of the dividend, as C has it. */
static const char *mod_pattern(const Node *n)
{
	static const char *const as_divisor = "(a % b < 0) != (b < 0) && a % b != 0 ? a % b + b : a % b";
	const DType t = n->in[0]->type.dtype;
	const bool as_c = !dtype_signed(t) || ((const struct ew_attr *)n->attr)->fmod;
	const Divisor by = divisor(n);

	if (dtype_float(t))
		return "FMOD(a, b)";
	if (by == ZERO || by == MINUS_ONE || by == ONE)
		return "a & 0";
	if (by != OPEN)
		return as_c ? "a % b" : by == SMALL ? "(a % b + b) % b" : as_divisor;
	if (!dtype_signed(t))
		return "b == 0 ? 0 : a % b";
	return arena_printf(node_arena(n), "b == 0 || b == -1 ? 0 : %s", as_c ? "a % b" : as_divisor);
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
	else if (n->op == OP_Div)
		p = div_pattern(n);
	else if (n->op == OP_Mod)
		p = mod_pattern(n);
	else if (n->op == OP_Cast && n->out[0]->type.dtype == DT_bool)
		p = "a != 0";
	else if (n->op == OP_Cast)
		return arena_printf(node_arena(n), "(%s)a", dtype_c(dtype_math(n->out[0]->type.dtype)));
	return p ? p : ew_row(n->op)->expr;
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

	if (ew_row(n->op)->nin >= 0)
		return fill(a, pattern_of(n), t, operand);
	if (n->op == OP_Sum) {
		Buf sum = { 0 };
		for (int i = 0; i < n->nin; i++)
			buf_printf(&sum, "%s%s", i ? " + " : "", operand[i]);
		return buf_kept(&sum, a);
	}
	const bool min = n->op == OP_Min;
	e = NULL;
	for (int i = 0, joined = 0, last = 0; i < n->nin;
		i++) { /* a turn repeats what came before: only for few operands */
		const char *two[2] = { joined > 1 ? arena_printf(a, "(%s)", e) : e, operand[i] };
		if (at_end(n, i, min) && (e || i + 1 < n->nin))
			continue;
		if (joined == 1 && at_end(n, last, !min))
			e = fill(a, ew_row(n->op)->expr, t, (const char *[]){ two[1], two[0] });
		else
			e = e ? fill(a, ew_row(n->op)->expr, t, two) : operand[i];
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
	Buf params = { 0 }, args = { 0 };

	for (int i = 0; i < n->nout; i++) {
		buf_printf(&params, "%s%s *%s", i ? ", " : "", dtype_c(n->out[i]->type.dtype), var[i]);
		buf_printf(&args, "%s$=%d", i ? ", " : "", i);
	}
	for (int i = 0; i < n->nin; i++) {
		if (!ew_passed(n, i))
			continue;
		buf_printf(&params, ", const %s *%s", dtype_c(n->in[i]->type.dtype), var[n->nout + i]);
		buf_printf(&args, ", $%d", i);
	}
	hole_text(h, "PARAMS", "%s", buf_str(&params));
	hole_text(h, "CALL", "$k(%s);", buf_str(&args));
	buf_free(&params);
	buf_free(&args);
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
		tag = ew_literal(n, i) ? arena_printf(a, "_%s", name_of_literal(a, ew_literal_text(a, n, i)))
		                       : nest_tag(a, s, k++);
		if (*tag)
			tail = arena_printf(a, "%s_%s%s", tail, var[1 + i], tag);
	}
	if (n->op == OP_Pow && !ew_literal(n, 1))
		tail = arena_printf(a, "%s%s", tail, dtype_suffix(n->in[1]->type.dtype));
	if (n->op == OP_Cast)
		tail = arena_printf(
			a, "%s_%s_%s", tail, dtype_name(n->in[0]->type.dtype), dtype_name(n->out[0]->type.dtype));
	else
		tail = arena_printf(a, "%s%s", tail, dtype_suffix(n->in[n->op == OP_Where]->type.dtype));
	if (n->op == OP_Mod && ((const struct ew_attr *)n->attr)->fmod)
		tail = arena_printf(a, "%s_fmod", tail);
	if (ew_row(n->op)->nin < 0)
		tail = arena_printf(a, "of%d%s", n->nin, tail);
	hole_name(h, ew_row(n->op)->nin < 0 ? "%s_%s_%s" : "%s_%s%s", op_name(a, n->op), nest_dims(a, s), tail);
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
	Buf reads = { 0 }, writes = { 0 };
	int v = 4;

	for (int k = 0; k < s->nop; k++)
		v = dtype_bytes(t[k]) < 4 && vectors_of(s, 8, nout) ? 8 : v;
	v = vectors_of(s, v, nout) ? v : 0;
	for (int k = 0; v && k < s->nop; k++) {
		const char *sep = reads.n ? "\n\t" : "";
		if (k < nout) {
			buf_printf(&reads, "%spd_vec<%s, %d> q%d;", sep, dtype_c(t[k]), v, k);
			buf_printf(&writes, "%spd_write(&%s, q%d);", writes.n ? "\n\t" : "", nest_ref(a, s, k), k);
		} else if (s->op[k].stride[s->rank - 1])
			buf_printf(&reads, "%sconst pd_vec<%s, %d> q%d = pd_read<%d>(&%s);", sep, dtype_c(t[k]), v, k,
				v, nest_ref(a, s, k));
	}
	hole_int(h, "VECTORS", v);
	hole_text(h, "READS", "%s", buf_str(&reads));
	hole_text(h, "WRITES", "%s", buf_str(&writes));
	buf_free(&reads);
	buf_free(&writes);
	return v;
}

static const char *ew_body(
	Arena *a, const Node *n, const Nest *s, const char *(*ref_of)(Arena *a, const Nest *s, int op))
{
	const char **ref = NEWN(a, const char *, n->nin);

	for (int i = 0, k = 1; i < n->nin; i++)
		ref[i] = ew_literal(n, i) ? ew_literal_text(a, n, i)
		                          : ew_load(a, n->in[i]->type.dtype, ref_of(a, s, k++));
	return arena_printf(a, "%s = %s;", ref_of(a, s, 0), ew_store(a, n->out[0]->type.dtype, ew_text(a, n, ref)));
}

/* GPUs: a rounded copy of a weight is a row of cast.cuda.cu, channels last where it is to lie so. */
static void once_holes(const Node *n, Holes *h)
{
	const Type *x = &n->in[0]->type, *y = &n->out[0]->type, held = held_type(n->out[0]);
	const char *order = cast_once(n) ? copy_order(h->arena, x, y) : NULL;

	if (!order)
		return;
	hole_text(h, "CUDA_FILE", "cast.cuda.cu");
	hole_text(h, "CUDA_CALL", "$k($rows);");
	hole_text(h, "MANY", "{ .n = $COUNTED, .at = { $=, $0 }%s }", order);
	hole_text(h, "MANY_NAME", "cast_%s_%s", dtype_name(x->dtype), dtype_name(y->dtype));
	hole_int(h, "COUNTED", type_numel(&held));
	hole_text(h, "TX", "%s", dtype_c(x->dtype));
	hole_text(h, "TY", "%s", dtype_c(y->dtype));
	hole_text(h, "LOAD", "%s%s", dtype_half(x->dtype) ? "pd_from_" : "",
		dtype_half(x->dtype) ? dtype_name(x->dtype) : "");
	hole_text(h, "STORE", "%s%s", dtype_half(y->dtype) ? "pd_to_" : "",
		dtype_half(y->dtype) ? dtype_name(y->dtype) : "");
}

void ew_holes(const Node *n, Holes *h)
{
	static const char *const abc[] = { "y", "a", "b", "c" };
	Arena *a = h->arena;
	const char **var = NEWN(a, const char *, n->nin + 1);
	const Type y = held_type(n->out[0]), *t = &y; /* a rounded copy of a weight in parts is one of the part */
	DType *types = NEWN(a, DType, n->nin + 1);
	int k = 0;
	Nest s;

	var[0] = "y";
	nest_begin(&s, a, t->rank, t->dim);
	nest_add_type(&s, "y", t);
	types[k++] = t->dtype;
	for (int i = 0; i < n->nin; i++) {
		var[1 + i] = n->nin <= 3 ? abc[1 + i] : arena_printf(a, "x%d", i);
		if (ew_literal(n, i))
			continue;
		const Type x = held_type(n->in[i]);
		nest_add_type(&s, var[1 + i], &x);
		types[k++] = n->in[i]->type.dtype;
	}
	nest_finish(&s);
	nest_holes(&s, h);
	ew_signature(n, h, var);
	name_kernel(n, h, &s, var);
	hole_text(h, "BODY", "%s", ew_body(a, n, &s, nest_ref));
	if (ew_vector_holes(&s, h, types, 1))
		hole_text(h, "VECTOR_BODY", "%s", ew_body(a, n, &s, ew_vector_ref));
	if (n->op == OP_Cast)
		once_holes(n, h);
}
