/* Elements of compile-time tensors: reading and writing any dtype, and C literals. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "common.h"

static double half_value(uint16_t h)
{
	const int e = h >> 10 & 31, m = h & 1023;
	double x;

	if (e == 31)
		x = m ? NAN : INFINITY;
	else
		x = e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
	return h >> 15 ? -x : x;
}

/* Round to nearest even: scale so that the last kept bit is 1, let rint() round. */
static uint16_t half_bits(double x)
{
	const uint16_t s = signbit(x) ? 0x8000 : 0;
	int e;
	double r;

	x = fabs(x);
	if (isnan(x))
		return s | 0x7e00;
	if (x < 0x1p-14)
		return s | (uint16_t)rint(x * 0x1p24);
	if (x >= 65520)
		return s | 0x7c00;
	frexp(x, &e);
	r = rint(ldexp(x, 11 - e)); /* in [1024, 2048] */
	return s | (uint16_t)((unsigned)(e + 14) * 1024 + (unsigned)r - 1024);
}

static double bf16_value(uint16_t h)
{
	const uint32_t u = (uint32_t)h << 16;
	float f;

	memcpy(&f, &u, sizeof f);
	return f;
}

static uint16_t bf16_bits(double x)
{
	const float f = (float)x;
	uint32_t u;

	memcpy(&u, &f, sizeof u);
	if (isnan(x))
		return (uint16_t)(u >> 16 | 0x40);
	return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

double elem_f(const Tensor *t, int64_t i)
{
	switch (t->type.dtype) {
	case DT_f32: return ((const float *)t->data)[i];
	case DT_f64: return ((const double *)t->data)[i];
	case DT_f16: return half_value(((const uint16_t *)t->data)[i]);
	case DT_bf16: return bf16_value(((const uint16_t *)t->data)[i]);
	case DT_u64: return (double)((const uint64_t *)t->data)[i];
	default: return (double)elem_i(t, i);
	}
}

int64_t elem_i(const Tensor *t, int64_t i)
{
	switch (t->type.dtype) {
	case DT_i8: return ((const int8_t *)t->data)[i];
	case DT_i16: return ((const int16_t *)t->data)[i];
	case DT_i32: return ((const int32_t *)t->data)[i];
	case DT_i64: return ((const int64_t *)t->data)[i];
	case DT_u8:
	case DT_bool: return ((const uint8_t *)t->data)[i];
	case DT_u16: return ((const uint16_t *)t->data)[i];
	case DT_u32: return ((const uint32_t *)t->data)[i];
	case DT_u64: return (int64_t)((const uint64_t *)t->data)[i];
	default: break;
	}
	const double x = elem_f(t, i);
	if (isnan(x))
		return 0;
	return x >= 0x1p63 ? INT64_MAX : x < -0x1p63 ? INT64_MIN : (int64_t)x;
}

void elem_set_i(Tensor *t, int64_t i, int64_t x)
{
	switch (t->type.dtype) {
	case DT_i8:
	case DT_u8: ((uint8_t *)t->data)[i] = (uint8_t)x; break;
	case DT_i16:
	case DT_u16: ((uint16_t *)t->data)[i] = (uint16_t)x; break;
	case DT_i32:
	case DT_u32: ((uint32_t *)t->data)[i] = (uint32_t)x; break;
	case DT_i64:
	case DT_u64: ((int64_t *)t->data)[i] = x; break;
	case DT_bool: ((uint8_t *)t->data)[i] = x != 0; break;
	default: elem_set_f(t, i, (double)x); break;
	}
}

void elem_set_f(Tensor *t, int64_t i, double x)
{
	switch (t->type.dtype) {
	case DT_f32: ((float *)t->data)[i] = (float)x; break;
	case DT_f64: ((double *)t->data)[i] = x; break;
	case DT_f16: ((uint16_t *)t->data)[i] = half_bits(x); break;
	case DT_bf16: ((uint16_t *)t->data)[i] = bf16_bits(x); break;
	case DT_bool: ((uint8_t *)t->data)[i] = x != 0; break;
	default:
		if (isnan(x))
			x = 0;
		elem_set_i(t, i, x >= 0x1p63 ? INT64_MAX : x < -0x1p63 ? INT64_MIN : (int64_t)x);
	}
}

void tensor_alloc(Tensor *t, const Type *type, Arena *a)
{
	t->type = *type;
	t->type.layout = LAYOUT_PLAIN;
	t->type.rows = 0;
	t->data = arena_alloc(a, (size_t)(type_numel(type) * dtype_bytes(type->dtype)) + 1);
}

Tensor const_tensor(const Value *v)
{
	Tensor t = { .type = v ? v->type : type_scalar(DT_f32) };

	if (v && v->kind == VAL_CONST)
		memcpy(&t.data, &v->data, sizeof t.data); /* only read; Tensor serves both ways */
	return t;
}

static const char *float_literal(Arena *a, DType t, double x)
{
	char s[40];
	const int digits = t == DT_f64 ? 17 : 9;

	if (isnan(x))
		return "NAN";
	if (isinf(x))
		return x > 0 ? "INFINITY" : "(-INFINITY)";
	for (int p = 1; p <= digits; p++) {
		snprintf(s, sizeof s, "%.*g", p, x);
		if (t == DT_f64 ? strtod(s, NULL) == x : strtof(s, NULL) == (float)x)
			break;
	}
	if (!strpbrk(s, ".e"))
		strcat(s, ".0");
	if (t != DT_f64)
		strcat(s, "f");
	return signbit(x) ? arena_printf(a, "(%s)", s) : arena_str(a, s);
}

const char *c_literal(Arena *a, DType t, double f, int64_t i)
{
	if (dtype_float(t))
		return float_literal(a, t, f);
	if (i == INT64_MIN)
		return "INT64_MIN";
	if (t == DT_u64)
		return arena_printf(a, "%" PRIu64 "u", (uint64_t)i);
	return arena_printf(a, i < 0 ? "(%" PRId64 ")" : "%" PRId64, i);
}

const char *name_of_literal(Arena *a, const char *s)
{
	char *r = arena_str(a, s), *w = r;

	for (const char *p = s; *p; p++)
		if (*p != '(' && *p != ')' && *p != '+' && !(*p == 'f' && (!p[1] || p[1] == ')')))
			*w++ = *p == '-' ? 'm' : *p == '.' ? 'p' : *p;
	*w = 0;
	return r;
}
