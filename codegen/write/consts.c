/* Constants in emitted C: an initialised array, or, when long and of one value, an array that is filled at start. */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include "build.h"

enum { LONG_CONST = 16 };

static double float_at(const Value *v, int64_t i)
{
	return v->type.dtype == DT_f64 ? ((const double *)v->data)[i] : (double)((const float *)v->data)[i];
}

static int64_t int_at(const Value *v, int64_t i)
{
	switch (v->type.dtype) {
	case DT_i64:
	case DT_u64: return ((const int64_t *)v->data)[i];
	case DT_i32: return ((const int32_t *)v->data)[i];
	case DT_u32: return ((const uint32_t *)v->data)[i];
	case DT_i16: return ((const int16_t *)v->data)[i];
	case DT_u16:
	case DT_f16:
	case DT_bf16: return ((const uint16_t *)v->data)[i];
	case DT_i8: return ((const int8_t *)v->data)[i];
	default: return ((const uint8_t *)v->data)[i];
	}
}

static const char *element(Arena *a, const Value *v, int64_t i)
{
	const DType t = v->type.dtype;

	if (t == DT_u64)
		return arena_printf(a, "%" PRIu64 "u", (uint64_t)int_at(v, i));
	if (t != DT_f32 && t != DT_f64)
		return int_at(v, i) == INT64_MIN ? "INT64_MIN" : arena_printf(a, "%" PRId64, int_at(v, i));
	const double f = float_at(v, i);
	if (isnan(f))
		return "NAN";
	if (isinf(f))
		return f < 0 ? "-INFINITY" : "INFINITY";
	const char *s = arena_printf(a, t == DT_f32 ? "%.9g" : "%.17g", f);
	return arena_printf(a, "%s%s%s", s, strpbrk(s, ".e") ? "" : ".0", t == DT_f32 ? "f" : "");
}

static bool all_equal(const Value *v)
{
	const int64_t n = type_numel(&v->type), size = dtype_bytes(v->type.dtype);
	const char *p = v->data;

	for (int64_t i = 1; i < n; i++)
		if (memcmp(p, p + i * size, (size_t)size) != 0)
			return false;
	return true;
}

static bool filled(const Value *v)
{
	if (!v->data)
		bug("constant %s has no data", v->name);
	return type_numel(&v->type) > LONG_CONST && all_equal(v);
}

void const_write(Cw *w, const Value *v, const char *name, bool gpu)
{
	const int64_t n = type_numel(&v->type);
	const char *c = dtype_c(v->type.dtype);
	Arena *scratch = arena_new();

	if (gpu) {
		cw_line(w, "static const %s *%s;", c, name);
		name = arena_printf(scratch, "%s_on_host", name);
	}
	if (filled(v)) {
		cw_stmt(w, str_type(scratch, &v->type), "static %s %s[%" PRId64 "];", c, name, n);
		arena_free(scratch);
		return;
	}
	if (n <= LONG_CONST / 2) {
		const char *list = n ? element(scratch, v, 0) : "0";
		for (int64_t i = 1; i < n; i++)
			list = arena_printf(scratch, "%s, %s", list, element(scratch, v, i));
		cw_line(w, "static const %s %s[] = { %s };", c, name, list);
		arena_free(scratch);
		return;
	}
	CwItems items = { .w = w };
	cw_open(w, "static const %s %s[%" PRId64 "] =", c, name, n);
	for (int64_t i = 0; i < n; i++) {
		cw_item(&items, "%s", element(scratch, v, i));
		if (i % 1024 == 1023)
			arena_reset(scratch);
	}
	cw_items_end(&items);
	arena_free(scratch);
	cw_close(w, ";");
}

void const_fill(Cw *w, const Value *v, const char *name, bool gpu)
{
	Arena *scratch = arena_new();

	if (filled(v)) {
		cw_line(w, "for (int64_t i = 0; i < %" PRId64 "; i++)", type_numel(&v->type));
		cw_line(w, "\t%s%s[i] = %s;", name, gpu ? "_on_host" : "", element(scratch, v, 0));
	}
	if (gpu)
		cw_line(w, "%s = pd_constant(%s_on_host, sizeof %s_on_host);", name, name, name);
	arena_free(scratch);
}
