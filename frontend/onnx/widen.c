/* Element types on the way in. Half precision (f16, bf16) is a form of storage: values of it are read as f32 and computed
 * with as f32; with --f64 every float is f64. */
#include <math.h>
#include "onnx_file.h"

DType onnx_dtype(const Import *im, DType t)
{
	if (t == DT_f16 || t == DT_bf16)
		t = DT_f32;
	return im->o->f64 && t == DT_f32 ? DT_f64 : t;
}

static double half(uint16_t h)
{
	const int exponent = h >> 10 & 31, mantissa = h & 1023;
	const double sign = h & 0x8000 ? -1 : 1;

	if (exponent == 31)
		return mantissa ? (double)NAN : sign * (double)INFINITY;
	return sign * (exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24));
}

static double brain(uint16_t h)
{
	const union {
		uint32_t i;
		float f;
	} u = { (uint32_t)h << 16 };

	return (double)u.f;
}

static double element(const Tensor *t, int64_t i)
{
	switch (t->type.dtype) {
	case DT_f16: return half(((const uint16_t *)t->data)[i]);
	case DT_bf16: return brain(((const uint16_t *)t->data)[i]);
	case DT_f32: return (double)((const float *)t->data)[i];
	default: return ((const double *)t->data)[i];
	}
}

Tensor onnx_widen(Import *im, Tensor t)
{
	const DType to = onnx_dtype(im, t.type.dtype);
	const int64_t n = type_numel(&t.type);
	Type type = t.type;

	type.dtype = to;
	im->half |= t.type.dtype == DT_f16 || t.type.dtype == DT_bf16;
	if (to == t.type.dtype || !t.data)
		return (Tensor){ type, t.data };
	char *p = arena_alloc(im->a, (size_t)n * (size_t)dtype_bytes(to) + 1);
	for (int64_t i = 0; i < n; i++)
		if (to == DT_f64)
			((double *)(void *)p)[i] = element(&t, i);
		else
			((float *)(void *)p)[i] = (float)element(&t, i);
	return (Tensor){ type, p };
}
