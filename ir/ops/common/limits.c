/* Bounds of what attributes ask for: numbers of a file that would overflow an extent or an index are refused by name. */
#include "common.h"

bool need_ints(const Node *n, Diag *d, const char *what, Ints v, int count, int64_t lo, int64_t hi)
{
	if (v.n && v.n != count)
		return diag_error(
			d, n->loc, 305, "%s: %s has %d entries, %d are needed", optab[n->op]->name, what, v.n, count);
	for (int i = 0; i < v.n; i++)
		if (v.v[i] < lo || v.v[i] > hi)
			return diag_error(d, n->loc, 305, "%s: %s[%d] is %lld, outside of %lld..%lld",
				optab[n->op]->name, what, i, (long long)v.v[i], (long long)lo, (long long)hi);
	return true;
}

bool need_window(const Node *n, Diag *d, const Type *x, Ints kernel, Ints strides, Ints dilations, Ints pads)
{
	const int nd = x->rank - 2;

	for (int i = 0; i < x->rank; i++)
		if (x->dim[i] > EXTENT_MOST)
			return diag_error(d, n->loc, 304, "%s: X is %s, the most along an axis is %d",
				optab[n->op]->name, str_type(d->scratch, x), EXTENT_MOST);
	return need_ints(n, d, "kernel_shape", kernel, nd, 1, EXTENT_MOST) &&
	       need_ints(n, d, "strides", strides, nd, 1, STEP_MOST) &&
	       need_ints(n, d, "dilations", dilations, nd, 1, STEP_MOST) &&
	       need_ints(n, d, "pads", pads, 2 * nd, -STEP_MOST, STEP_MOST);
}

bool need_type(const Node *n, Diag *d, const char *what, Ints dims, DType t, Type *out)
{
	int64_t bytes = dtype_bytes(t);

	if (dims.n > MAXRANK)
		return diag_error(d, n->loc, 305, "%s: %s has rank %d, the most is %d", optab[n->op]->name, what,
			dims.n, MAXRANK);
	for (int i = 0; i < dims.n; i++) {
		if (dims.v[i] < 0)
			return diag_error(d, n->loc, 305, "%s: %s[%d] is %lld", optab[n->op]->name, what, i,
				(long long)dims.v[i]);
		if (dims.v[i] > TENSOR_MOST || __builtin_mul_overflow(bytes, dims.v[i], &bytes) || bytes > TENSOR_MOST)
			return diag_error(d, n->loc, 305,
				"%s: %s[%d] is %lld: the tensor would have more than 2^46 bytes", optab[n->op]->name,
				what, i, (long long)dims.v[i]);
	}
	*out = type_make(t, dims.n, dims.v);
	return true;
}

bool dim_times(const Node *n, Diag *d, int axis, int64_t by, int64_t *dim)
{
	const int64_t was = *dim;

	return (!__builtin_mul_overflow(was, by, dim) && *dim <= TENSOR_MOST) ||
	       diag_error(d, n->loc, 305, "%s: axis %d would have %lld * %lld elements, more than 2^46",
		       optab[n->op]->name, axis, (long long)was, (long long)by);
}

bool dim_plus(const Node *n, Diag *d, int axis, int64_t by, int64_t *dim)
{
	const int64_t was = *dim;

	return (!__builtin_add_overflow(was, by, dim) && *dim <= TENSOR_MOST) ||
	       diag_error(d, n->loc, 305, "%s: axis %d would have %lld + %lld elements, more than 2^46",
		       optab[n->op]->name, axis, (long long)was, (long long)by);
}

bool need_count(const Node *n, Diag *d, const Type *x, int64_t count)
{
	return count <= INT32_MAX || diag_error(d, n->loc, 304, "%s: %s has %lld rows or columns, the most is %d",
					     optab[n->op]->name, str_type(d->scratch, x), (long long)count, INT32_MAX);
}

bool need_same_shape(const Node *n, Diag *d, const Value *v, const Type *want)
{
	return shape_eq(&v->type, want) ||
	       diag_error(d, n->loc, 304, "%s: %s is %s, it must be %s", optab[n->op]->name, v->name,
		       str_shape(d->scratch, &v->type), str_shape(d->scratch, want));
}
