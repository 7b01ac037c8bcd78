/* Discrete Fourier transforms in canonical form: products with the matrix of their roots of unity, the real and the imaginary
 * part of each element beside one another, as ONNX has them (DFT of opset 17 and 20); over frames of a signal, STFT of opset 17,
 * the matrix is the kernel of a convolution. */
#include <math.h>
#include <string.h>
#include "canon.h"

enum { MOST = 1 << 24 }; /* elements of the matrix */

/* What is transformed: `axis` of rank `rank`, `from` of its elements of `parts` numbers each, as if they were `length`, to `to`. */
typedef struct Transform {
	int axis, rank;
	int64_t from, parts, length, to;
	bool inverse;
	bool real; /* inverse, of the first half of what real numbers became (torch.fft.irfft): real numbers, one part each */
} Transform;

/* The element that half a spectrum does not hold is the conjugate of one that it does. */
static double twice(const Transform *t, int64_t j) { return t->real && j && 2 * j != t->length ? 2 : 1; }

/* [from * parts, to * 2]: exp(-2 pi i j k / length), forward; its conjugate over the length, inverse. [from * 2, to]: its real part. */
static Value *roots(Import *im, const Transform *t, DType type)
{
	const int64_t rows = t->from * t->parts, each = t->real ? 1 : 2, columns = each * t->to;
	const int64_t used = t->real ? t->length / 2 + 1 : t->length;
	double *v = NEWN(im->a, double, rows *columns);
	float *f = NEWN(im->a, float, rows *columns);

	for (int64_t j = 0; j < t->from && j < used; j++)
		for (int64_t k = 0; k < t->to; k++) {
			const double angle = 2 * acos(-1) * (double)(j * k % t->length) / (double)t->length;
			const double scale = t->inverse ? twice(t, j) / (double)t->length : 1;
			const double re = scale * cos(angle), turn = scale * (t->inverse ? sin(angle) : -sin(angle));
			double *row = v + j * t->parts * columns + each * k;

			row[0] = re;
			if (!t->real)
				row[1] = turn;
			if (t->parts == 2)
				row[columns] = -turn;
			if (t->parts == 2 && !t->real)
				row[columns + 1] = re;
		}
	for (int64_t i = 0; i < rows * columns; i++)
		f[i] = (float)v[i];
	const Type y = { .dtype = type, .rank = 2, .dim = { rows, columns } };
	return module_const(im->m, NULL, y, type == DT_f64 ? (const void *)v : f);
}

/* A constant operand of one whole number; `value` stays where it is absent. */
static bool number(Import *im, const OnnxNode *n, size_t i, const char *what, int64_t *value)
{
	Ints v;

	if (!onnx_in(im, n, i))
		return true;
	if (!onnx_const_ints(im, n, i, &v) || v.n != 1)
		return canon_refuse(im, arena_printf(im->a, "%s must be a constant number", what));
	*value = *v.v;
	return true;
}

static bool fits(Import *im, const Transform *t)
{
	if (t->length < 1 || t->length > MOST || t->from > MOST || t->from * t->parts * t->to > MOST / 2)
		return diag_error(im->d, im->b.loc, 302,
			"%lld elements to %lld: the matrix of a DFT has at most %d numbers", (long long)t->from,
			(long long)t->length, MOST);
	return true;
}

static bool transform(Import *im, const OnnxNode *n, const Type *x, Transform *t)
{
	int64_t axis = im->opset < 20 ? onnx_int(n, "axis", 1) : -2;
	const bool half = onnx_int(n, "onesided", 0) != 0;

	if (im->opset >= 20 && !number(im, n, 2, "axis", &axis))
		return false;
	*t = (Transform){ .rank = x->rank, .inverse = onnx_int(n, "inverse", 0) != 0 };
	axis += axis < 0 ? x->rank : 0;
	if (x->rank < 2 || axis < 0 || axis > x->rank - 2 || x->dim[x->rank - 1] < 1 || x->dim[x->rank - 1] > 2 ||
		!dtype_float(x->dtype))
		return diag_error(im->d, im->b.loc, 302,
			"axis %lld of %s: an axis of floats is transformed before the last one, which has 1 or 2 elements",
			(long long)axis, str_type(im->d->scratch, x));
	t->axis = (int)axis;
	t->from = t->length = x->dim[axis];
	t->parts = x->dim[x->rank - 1];
	if (!number(im, n, 1, "dft_length", &t->length))
		return false;
	if (half && t->inverse != (t->parts == 2))
		return canon_refuse(im, "onesided is read of real values forward and of complex ones inverse");
	t->real = half && t->inverse;
	if (t->real && !onnx_in(im, n, 1))
		t->length = 2 * (t->from - 1);
	t->to = half && !t->real ? t->length / 2 + 1 : t->length;
	return fits(im, t);
}

bool canon_dft(Import *im, const OnnxNode *n)
{
	Transform t;

	if (!canon_need(im, n, 1))
		return false;
	Value *x = onnx_in(im, n, 0);
	if (!transform(im, n, &x->type, &t))
		return false;
	const int last = t.rank - 1, beside = t.rank - 2;
	int64_t dim[MAXRANK];

	if (t.axis != beside)
		x = canon_swap(im, x, t.axis, beside);
	memcpy(dim, x->type.dim, sizeof dim);
	dim[beside] = t.from * t.parts;
	x = canon_reshape_to(im, x, last, dim, NULL);
	x = canon_binary(im, OP_MatMul, x, roots(im, &t, x->type.dtype));
	dim[beside] = t.to;
	dim[last] = t.real ? 1 : 2;
	x = canon_reshape_to(im, x, t.rank, dim, t.axis == beside ? canon_out_name(n) : NULL);
	if (t.axis != beside)
		x = canon_swap(im, x, t.axis, beside);
	onnx_bind(im, n, 0, x);
	return !im->b.failed;
}

/* What STFT does with each frame of the signal x [batch, length, 1 or 2], and how far apart frames begin. */
static bool framed(Import *im, const OnnxNode *n, const Type *x, const Type *window, Transform *t, int64_t *step)
{
	const bool half = onnx_int(n, "onesided", 1) != 0;

	if (x->rank != 3 || !dtype_float(x->dtype) || x->dim[2] < 1 || x->dim[2] > 2)
		return diag_error(im->d, im->b.loc, 302,
			"the signal is %s: floats of [batch, length, 1 or 2] are transformed",
			str_type(im->d->scratch, x));
	*t = (Transform){ .parts = x->dim[2], .length = window ? window->dim[0] : 0 };
	if (!number(im, n, 3, "frame_length", &t->length) || !number(im, n, 1, "frame_step", step))
		return false;
	if (half && t->parts == 2)
		return canon_refuse(im, "onesided is read of real values only");
	if (window && (window->rank != 1 || window->dim[0] != t->length || window->dtype != x->dtype))
		return diag_error(im->d, im->b.loc, 302, "the window is %s, frames are of %lld elements of %s",
			str_type(im->d->scratch, window), (long long)t->length, dtype_name(x->dtype));
	if (*step < 1 || t->length < 1 || t->length > x->dim[1])
		return diag_error(im->d, im->b.loc, 302, "frames of %lld elements, one each %lld, of a signal of %lld",
			(long long)t->length, (long long)*step, (long long)x->dim[1]);
	t->from = t->length;
	t->to = half ? t->length / 2 + 1 : t->length;
	return fits(im, t);
}

/* [batch, frames, bins, 2]: the convolution of x [batch, parts, length] with [2 bins, parts, frame], in strides of a step. */
bool canon_stft(Import *im, const OnnxNode *n)
{
	Transform t;
	int64_t step = 0;

	if (!canon_need(im, n, 2))
		return false;
	Value *x = onnx_in(im, n, 0), *window = onnx_in(im, n, 2);
	if (!framed(im, n, &x->type, window ? &window->type : NULL, &t, &step))
		return false;
	const int64_t kernel[3] = { t.from, t.parts, 2 * t.to }, wide[3] = { t.from, 1, 1 };
	Value *w = canon_reshape_to(im, roots(im, &t, x->type.dtype), 3, kernel, NULL);
	void *at = canon_attr_of(im, OP_Conv);

	if (window)
		w = canon_binary(im, OP_Mul, w, canon_reshape_to(im, window, 3, wide, NULL));
	canon_put_ints(OP_Conv, at, "kernel_shape", (Ints){ 1, arena_dup(im->a, &t.from, sizeof t.from) });
	canon_put_ints(OP_Conv, at, "strides", (Ints){ 1, arena_dup(im->a, &step, sizeof step) });
	canon_put_ints(OP_Conv, at, "dilations", (Ints){ 1, arena_dup(im->a, (int64_t[]){ 1 }, sizeof step) });
	canon_put_ints(OP_Conv, at, "pads", (Ints){ 2, arena_dup(im->a, (int64_t[]){ 0, 0 }, 2 * sizeof step) });
	x = canon_swap(im, canon_emit1(im, OP_Conv, at, canon_swap(im, x, 1, 2), canon_swap(im, w, 0, 2), NULL), 1, 2);
	const int64_t dim[4] = { x->type.dim[0], x->type.dim[1], t.to, 2 };
	onnx_bind(im, n, 0, canon_reshape_to(im, x, 4, dim, canon_out_name(n)));
	return !im->b.failed;
}
