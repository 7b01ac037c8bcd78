/* Element types and tensor types. */
#include "type.h"
#include <stdio.h>
#include <string.h>

static const struct {
	const char *name, *c;
	int bytes, onnx;
} info[DT_COUNT] = { [DT_NONE] = { "none", "void", 0, 0 },
#define X(n, ctype, size, id) [DT_##n] = { #n, #ctype, size, id },
	DTYPES(X)
#undef X
};

const char *dtype_name(DType t) { return info[t].name; }
const char *dtype_c(DType t) { return info[t].c; }
int dtype_bytes(DType t) { return info[t].bytes; }
int dtype_onnx(DType t) { return info[t].onnx; }

DType dtype_from_name(const char *s)
{
	for (int i = 1; i < DT_COUNT; i++)
		if (strcmp(info[i].name, s) == 0)
			return (DType)i;
	return DT_NONE;
}

DType dtype_from_onnx(int onnx)
{
	for (int i = 1; i < DT_COUNT; i++)
		if (info[i].onnx == onnx && !dtype_f8((DType)i))
			return (DType)i;
	return DT_NONE;
}

bool dtype_float(DType t) { return t == DT_f32 || t == DT_f64 || t == DT_f16 || t == DT_bf16; }

bool dtype_half(DType t) { return t == DT_f16 || t == DT_bf16; }

bool dtype_f8(DType t) { return t == DT_f8e4m3 || t == DT_f8e5m2; }

DType dtype_math(DType t) { return dtype_half(t) ? DT_f32 : t; }

bool dtype_signed(DType t) { return dtype_float(t) || t == DT_i8 || t == DT_i16 || t == DT_i32 || t == DT_i64; }

Type type_make(DType t, int rank, const int64_t *dim)
{
	Type r = { .dtype = t, .rank = rank };

	for (int i = 0; i < rank; i++)
		r.dim[i] = dim[i];
	return r;
}

Type type_scalar(DType t) { return type_make(t, 0, NULL); }

bool shape_eq(const Type *a, const Type *b)
{
	if (a->rank != b->rank)
		return false;
	for (int i = 0; i < a->rank; i++)
		if (a->dim[i] != b->dim[i])
			return false;
	return true;
}

bool type_eq(const Type *a, const Type *b)
{
	return a->dtype == b->dtype && a->rows == b->rows && a->layout == b->layout && shape_eq(a, b);
}

int64_t type_numel(const Type *t)
{
	int64_t n = 1;

	for (int i = 0; i < t->rank; i++)
		if (__builtin_mul_overflow(n, t->dim[i], &n))
			return INT64_MAX;
	return n;
}

int64_t type_block_rows(const Type *t) { return t->rank > 1 && t->dim[0] > 1 ? (t->dim[0] + 255) / 256 : 0; }

int64_t type_bytes(const Type *t)
{
	int64_t n = type_numel(t), bytes;

	if (t->rows > 0 && t->rank > 0 && t->dim[0] > 0)
		return t->rows * (n / t->dim[0] * dtype_bytes(t->dtype) + 8);
	return __builtin_mul_overflow(n, (int64_t)dtype_bytes(t->dtype), &bytes) ? INT64_MAX : bytes;
}

bool layout_from_name(const char *s, Layout *l)
{
	*l = strcmp(s, "nhwc") ? LAYOUT_PLAIN : LAYOUT_NHWC;
	return *l == LAYOUT_NHWC || !strcmp(s, "plain");
}

void type_strides(const Type *t, int64_t *stride)
{
	int order[MAXRANK], n = 0;

	for (int i = 0; i < t->rank; i++)
		if (!(t->layout == LAYOUT_NHWC && i == 1))
			order[n++] = i;
	if (n < t->rank)
		order[n] = 1;
	int64_t s = 1;
	for (int k = t->rank - 1; k >= 0; k--) {
		stride[order[k]] = s;
		s *= t->dim[order[k]];
	}
}

const char *str_shape(Arena *a, const Type *t)
{
	char s[MAXRANK * 21 + 3], *p = s;

	*p++ = '[';
	for (int i = 0; i < t->rank; i++)
		p += snprintf(p, (size_t)(s + sizeof s - p), "%s%lld", i ? "," : "", (long long)t->dim[i]);
	*p++ = ']';
	return arena_strn(a, s, (size_t)(p - s));
}

const char *str_type(Arena *a, const Type *t)
{
	const char *layout = t->layout == LAYOUT_NHWC ? "nhwc" : "";

	if (t->rows)
		return arena_printf(
			a, "%s%s%s rows<=%lld", dtype_name(t->dtype), str_shape(a, t), layout, (long long)t->rows);
	return arena_printf(a, "%s%s%s", dtype_name(t->dtype), str_shape(a, t), layout);
}

bool shape_broadcast(const Type *a, const Type *b, Type *out)
{
	Type r = { .dtype = a->dtype, .rank = a->rank > b->rank ? a->rank : b->rank };

	for (int i = 1; i <= r.rank; i++) {
		int64_t x = i <= a->rank ? a->dim[a->rank - i] : 1, y = i <= b->rank ? b->dim[b->rank - i] : 1;

		if (x != y && x != 1 && y != 1)
			return false;
		r.dim[r.rank - i] = x == 1 ? y : x;
	}
	*out = r;
	return true;
}
