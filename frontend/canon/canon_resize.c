/* Canonical form of Resize and Upsample: for every axis that changes, a table of which elements make each result and by
 * what weights, worked out here, and one ResizeAxis node. */
#include <math.h>
#include <string.h>
#include "canon.h"

enum { EXTENT = 1 << 30, TABLE = 1 << 22 }; /* the most elements along an axis, and in a table */

typedef enum Coord {
	HALF_PIXEL,
	HALF_PIXEL_SYMMETRIC,
	PYTORCH_HALF_PIXEL,
	ALIGN_CORNERS,
	ASYMMETRIC,
	TF_HALF_PIXEL,
	TF_CROP,
	COORDS
} Coord;
typedef enum Kind { NEAREST, LINEAR, CUBIC, KINDS } Kind;
typedef enum Round { PREFER_FLOOR, PREFER_CEIL, FLOOR, CEIL, ROUNDS } Round;

static const char *const coord_name[] = { "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners",
	"asymmetric", "tf_half_pixel_for_nn", "tf_crop_and_resize" };
static const char *const kind_name[] = { "nearest", "linear", "cubic" };
static const char *const round_name[] = { "round_prefer_floor", "round_prefer_ceil", "floor", "ceil" };

typedef struct Resize {
	Kind kind;
	Coord coord;
	Round round;
	bool antialias, exclude;
	bool torch; /* corners are those of the result; ONNX's cases have them at the scale times the length of X, a fraction */
	double a, fill; /* cubic_coeff_a, extrapolation_value */
	int rank;
	double scale[MAXRANK], begin[MAXRANK], end[MAXRANK]; /* begin, end: the roi */
	int64_t out[MAXRANK];
} Resize;

/* One axis: result j is the sum over k of w[j, k] x[at[j, k]]; outside[j]: it is extrapolation_value instead. */
typedef struct Table {
	int64_t out, k;
	int32_t *at;
	double *w;
	bool *outside, any_outside;
} Table;

/* ---- attributes and operands ---- */

static bool word(Import *im, const OnnxNode *n, const char *attr, const char *const *names, int count, int *out)
{
	const char *s = onnx_str(im->a, n, attr, names[0]);

	for (int i = 0; i < count; i++)
		if (strcmp(s, names[i]) == 0) {
			*out = i;
			return true;
		}
	return diag_error(im->d, im->b.loc, 302, "%s '%s' is unknown", attr, s);
}

/* Operand i as constant numbers; none: it is absent or empty. */
static bool numbers(Import *im, const OnnxNode *n, size_t i, const char *what, Floats *out)
{
	const Value *v = onnx_in(im, n, i);

	*out = (Floats){ 0, NULL };
	if (!v || type_numel(&v->type) == 0)
		return true;
	if (v->kind != VAL_CONST || !v->data || !dtype_float(v->type.dtype) || type_numel(&v->type) > 2 * MAXRANK)
		return diag_error(im->d, im->b.loc, 302,
			"%s not constant: a list of floats that the graph holds is needed", what);
	double *p = NEWN(im->a, double, type_numel(&v->type));
	for (int k = 0; k < (int)type_numel(&v->type); k++)
		p[k] = v->type.dtype == DT_f64   ? ((const double *)v->data)[k]
		       : v->type.dtype == DT_f32 ? (double)((const float *)v->data)[k]
		                                 : NAN;
	*out = (Floats){ (int)type_numel(&v->type), p };
	return true;
}

static Floats float_attr(Import *im, const OnnxNode *n, const char *name)
{
	const OnnxAttr *x = onnx_attr(n, name);
	double *p = NEWN(im->a, double, x ? x->n_floats : 0);

	for (size_t i = 0; x && i < x->n_floats; i++)
		p[i] = (double)x->floats[i];
	return (Floats){ x ? (int)x->n_floats : 0, p };
}

static bool set_scale(Import *im, Resize *r, const Type *x, int axis, double scale)
{
	const double out = floor(scale * (double)x->dim[axis]);

	if (!(scale > 0) || !(out >= 1) || out > EXTENT)
		return diag_error(im->d, im->b.loc, 302,
			"the scale of axis %d is %g, X is %s: the result must have 1..%d elements "
			"there",
			axis, scale, str_type(im->d->scratch, x), EXTENT);
	r->scale[axis] = scale;
	r->out[axis] = (int64_t)out;
	return true;
}

/* A size that is the batch of the export follows the batch that is wanted. */
bool canon_rebound(Import *im, const OnnxNode *n, const Type *x, int axis, int64_t *size)
{
	const Type *old = im->shapes ? map_get(im->shapes, n->input[0]) : NULL;

	if (!old || old->rank != x->rank || old->dim[axis] == x->dim[axis])
		return true;
	if (*size == x->dim[axis]) /* read off the shape; nobody resizes samples */
		return true;
	if (*size != old->dim[axis])
		return rebind_refuse(im,
			arena_printf(im->a,
				"axis %d, which is %lld at the export's batch %lld and %lld at batch %lld, gets %lld "
				"elements: it cannot be told how they follow the batch",
				axis, (long long)old->dim[axis], (long long)im->from, (long long)x->dim[axis],
				(long long)im->to, (long long)*size));
	*size = x->dim[axis];
	return true;
}

static bool set_sizes(Import *im, const OnnxNode *n, Resize *r, const Type *x, Ints sizes, const int *axis)
{
	const char *policy = onnx_str(im->a, n, "keep_aspect_ratio_policy", "stretch");
	const bool larger = strcmp(policy, "not_smaller") == 0;
	double one = 0;

	if (!larger && strcmp(policy, "stretch") && strcmp(policy, "not_larger"))
		return diag_error(im->d, im->b.loc, 302, "keep_aspect_ratio_policy '%s' is unknown", policy);
	for (int i = 0; i < sizes.n; i++) {
		int64_t size = sizes.v[i];

		if (!canon_rebound(im, n, x, axis[i], &size))
			return false;
		const double scale = (double)size / (double)x->dim[axis[i]];
		if (size < 1 || size > EXTENT)
			return diag_error(im->d, im->b.loc, 302, "the size of axis %d is %lld; it must lie in 1..%d",
				axis[i], (long long)size, EXTENT);
		r->out[axis[i]] = size;
		r->scale[axis[i]] = scale;
		one = i == 0 || (larger ? scale > one : scale < one) ? scale : one;
	}
	if (strcmp(policy, "stretch") == 0)
		return true;
	for (int i = 0; i < sizes.n; i++) {
		const double out = floor(one * (double)x->dim[axis[i]] + 0.5);

		r->scale[axis[i]] = one;
		r->out[axis[i]] = out < 1 ? 1 : out > EXTENT ? EXTENT : (int64_t)out;
	}
	return true;
}

/* Which axes the lists speak of: `axes`, else all. */
static bool listed_axes(Import *im, const OnnxNode *n, int rank, int *axis, int *count)
{
	bool seen[MAXRANK] = { 0 };
	Ints axes;

	*count = rank;
	for (int i = 0; i < rank; i++)
		axis[i] = i;
	if (!onnx_ints(im->a, n, "axes", &axes))
		return true;
	for (int i = 0; i < axes.n; i++) {
		const int64_t ax = axes.v[i] + (axes.v[i] < 0 ? rank : 0);

		if (axes.v[i] < -rank || ax < 0 || ax >= rank || seen[ax])
			return diag_error(im->d, im->b.loc, 302,
				"axes[%d] is %lld; X has rank %d, and an axis is named once", i, (long long)axes.v[i],
				rank);
		seen[ax] = true;
		axis[i] = (int)ax;
	}
	*count = axes.n;
	return true;
}

/* The extents of the result and the roi. */
static bool targets(Import *im, const OnnxNode *n, Resize *r, const Type *x)
{
	const bool upsample = strcmp(n->op_type, "Upsample") == 0, old = upsample || im->opset < 11;
	Floats scales, roi = { 0, NULL };
	Ints sizes = { 0, NULL };
	int axis[MAXRANK], count;

	if (upsample && im->opset < 9)
		scales = float_attr(im, n, "scales");
	else if (!numbers(im, n, old ? 1 : 2, "scales are", &scales))
		return false;
	if (!old && r->coord == TF_CROP && !numbers(im, n, 1, "roi is", &roi))
		return false;
	if (!old && !onnx_const_ints(im, n, 3, &sizes))
		return canon_refuse(im, "sizes are not constant: bind every symbolic axis with --dim");
	if (!listed_axes(im, n, x->rank, axis, &count))
		return false;
	if (!scales.n == !sizes.n || (scales.n && scales.n != count) || (sizes.n && sizes.n != count) ||
		(roi.n && roi.n != 2 * count))
		return diag_error(im->d, im->b.loc, 302,
			"%d axes, but %d scales, %d sizes and %d numbers in roi: a scale or a "
			"size for each is needed, and two numbers of roi",
			count, scales.n, sizes.n, roi.n);
	for (int i = 0; i < count && roi.n; i++) {
		r->begin[axis[i]] = roi.v[i];
		r->end[axis[i]] = roi.v[count + i];
		if (!(fabs(roi.v[i]) < 1e6 && fabs(roi.v[count + i]) < 1e6))
			return diag_error(im->d, im->b.loc, 302, "roi of axis %d is %g to %g", axis[i], roi.v[i],
				roi.v[count + i]);
	}
	if (sizes.n)
		return set_sizes(im, n, r, x, sizes, axis);
	for (int i = 0; i < count; i++)
		if (!set_scale(im, r, x, axis[i], scales.v[i]))
			return false;
	return true;
}

static bool settings(Import *im, const OnnxNode *n, Resize *r, const Type *x)
{
	const bool old = strcmp(n->op_type, "Upsample") == 0 || im->opset < 11;
	int kind = NEAREST, coord = ASYMMETRIC, round = FLOOR;

	if (!word(im, n, "mode", kind_name, KINDS, &kind))
		return false;
	if (!old && (!word(im, n, "coordinate_transformation_mode", coord_name, COORDS, &coord) ||
			    !word(im, n, "nearest_mode", round_name, ROUNDS, &round)))
		return false;
	*r = (Resize){ .kind = (Kind)kind,
		.coord = (Coord)coord,
		.round = (Round)round,
		.rank = x->rank,
		.antialias = onnx_int(n, "antialias", 0) != 0,
		.exclude = onnx_int(n, "exclude_outside", 0) != 0,
		.torch = im->by_torch,
		.a = onnx_float(n, "cubic_coeff_a", -0.75),
		.fill = onnx_float(n, "extrapolation_value", 0) };
	for (int i = 0; i < x->rank; i++) {
		r->scale[i] = r->end[i] = 1;
		r->out[i] = x->dim[i];
		if (x->dim[i] < 1 || x->dim[i] > EXTENT)
			return diag_error(im->d, im->b.loc, 304, "X is %s: every axis must have 1..%d elements",
				str_type(im->d->scratch, x), EXTENT);
	}
	return targets(im, n, r, x);
}

/* ---- tables ---- */

/* Where result j lies among the elements of x. */
static double origin(const Resize *r, int axis, int64_t in, int64_t j)
{
	const double scale = r->scale[axis], x = (double)j, last = (double)(in - 1), width = scale * (double)in;
	const double length = r->torch ? (double)r->out[axis] : width;

	switch (r->coord) {
	case ALIGN_CORNERS: return length == 1 ? 0 : x * last / (length - 1);
	case ASYMMETRIC: return x / scale;
	case TF_HALF_PIXEL: return (x + 0.5) / scale;
	case TF_CROP:
		return r->begin[axis] * last +
		       (r->end[axis] - r->begin[axis]) * last * (width == 1 ? 0.5 : x / (width - 1));
	case PYTORCH_HALF_PIXEL: return width == 1 ? -0.5 : (x + 0.5) / scale - 0.5;
	case HALF_PIXEL_SYMMETRIC: return (double)in / 2 * (1 - (double)r->out[axis] / width) + (x + 0.5) / scale - 0.5;
	default: return (x + 0.5) / scale - 0.5;
	}
}

/* The weight of an element at distance x. */
static double weight(const Resize *r, double x)
{
	x = fabs(x);
	if (r->kind == LINEAR)
		return x < 1 ? 1 - x : 0;
	if (x <= 1)
		return ((r->a + 2) * x - (r->a + 3)) * x * x + 1;
	return x < 2 ? ((x - 5) * x + 8) * r->a * x - 4 * r->a : 0;
}

static double nearest(Round round, double x)
{
	return round == FLOOR         ? floor(x)
	       : round == CEIL        ? ceil(x)
	       : round == PREFER_CEIL ? floor(x + 0.5)
	                              : ceil(x - 0.5);
}

static int32_t inside(double x, int64_t in) { return x<0 ? 0 : x>(double)(in - 1) ? (int32_t)(in - 1) : (int32_t)x; }

/* Result j from the k elements round x; antialiasing spreads the weights when the axis shrinks. */
static void weigh(const Resize *r, Table *t, int64_t in, int64_t j, double x, double spread)
{
	const double first = ceil(x) - (double)t->k / 2;
	const int64_t k = t->k;
	double sum = 0;

	for (int64_t i = 0; i < k; i++) {
		const double at = first + (double)i;
		double *w = &t->w[j * k + i];

		*w = weight(r, (at - x) * spread);
		if (r->exclude && (at < 0 || at > (double)(in - 1)))
			*w = 0;
		t->at[j * k + i] = inside(at, in);
		sum += *w;
	}
	for (int64_t i = 0; i < k && (r->antialias || r->exclude) && sum != 0; i++)
		t->w[j * k + i] /= sum;
}

static bool make_table(Import *im, const Resize *r, int axis, int64_t in, Table *t)
{
	const double spread = r->antialias && r->scale[axis] < 1 ? r->scale[axis] : 1;
	const double reach = r->kind == LINEAR ? 1 : 2, k = r->kind == NEAREST ? 1 : 2 * ceil(reach / spread);

	if (k * (double)r->out[axis] > TABLE)
		return diag_error(im->d, im->b.loc, 302, "axis %d: %lld elements from %g each are too many", axis,
			(long long)r->out[axis], k);
	*t = (Table){ .out = r->out[axis], .k = (int64_t)k };
	t->at = NEWN(im->a, int32_t, t->out * t->k);
	t->w = NEWN(im->a, double, t->out * t->k);
	t->outside = NEWN(im->a, bool, t->out);
	for (int64_t j = 0; j < t->out; j++) {
		const double x = origin(r, axis, in, j);

		t->outside[j] = r->coord == TF_CROP && (x < 0 || x > (double)(in - 1));
		t->any_outside |= t->outside[j];
		if (t->outside[j])
			continue; /* weights of 0 */
		if (r->kind == NEAREST) {
			t->at[j] = inside(nearest(r->round, x), in);
			t->w[j] = 1;
		} else {
			weigh(r, t, in, j, x, spread);
		}
	}
	return true;
}

/* Leaves out the table's columns whose weights are all 0. */
static void trim(Table *t)
{
	int64_t k = 0;

	for (int64_t i = 0; i < t->k; i++) {
		bool any = false;

		for (int64_t j = 0; j < t->out; j++)
			any |= t->w[j * t->k + i] != 0;
		for (int64_t j = 0; any && j < t->out; j++) {
			t->w[j * t->k + k] = t->w[j * t->k + i];
			t->at[j * t->k + k] = t->at[j * t->k + i];
		}
		k += any;
	}
	k = k ? k : 1;
	for (int64_t j = 0; j < t->out; j++)
		for (int64_t i = 0; i < k; i++) {
			t->w[j * k + i] = t->w[j * t->k + i];
			t->at[j * k + i] = t->at[j * t->k + i];
		}
	t->k = k;
}

/* ---- nodes ---- */

static Value *apply(Import *im, const Table *t, int axis, Value *x)
{
	const DType dtype = x->type.dtype;
	void *at = canon_attr_of(im, OP_ResizeAxis), *data = NULL;
	const int64_t count = t->out * t->k, dim[2] = { t->out, t->k };
	bool ones = t->k == 1, same = ones && t->out == x->type.dim[axis];
	Value *in[3] = { x }, *out[MAXIN] = { 0 };

	for (int64_t i = 0; i < count; i++) {
		ones &= t->w[i] == 1;
		same &= t->w[i] == 1 && t->at[i] == i;
	}
	if (same)
		return x;
	in[1] = module_const(im->m, NULL, type_make(DT_i32, 2, dim), t->at);
	if (!ones && dtype == DT_f64) {
		data = t->w;
	} else if (!ones) {
		float *w = data = NEWN(im->a, float, count);

		for (int64_t i = 0; i < count; i++)
			w[i] = (float)t->w[i];
	}
	if (data)
		in[2] = module_const(im->m, NULL, type_make(dtype, 2, dim), data);
	canon_put_int(OP_ResizeAxis, at, "axis", axis);
	canon_emit(im, OP_ResizeAxis, at, data ? 3 : 2, in, NULL, out);
	return out[0];
}

/* extrapolation_value where the axis lies outside. */
static Value *extrapolate(Import *im, const Resize *r, const Table *t, int axis, Value *y)
{
	int64_t dim[MAXRANK];
	Value *out[MAXIN] = { 0 };

	for (int i = 0; i < r->rank; i++)
		dim[i] = i == axis ? t->out : 1;
	Value *in[3] = { module_const(im->m, NULL, type_make(DT_bool, r->rank, dim), t->outside),
		canon_scalar(im, y->type.dtype, r->fill), y };
	canon_emit(im, OP_Where, NULL, 3, in, NULL, out);
	return out[0];
}

bool canon_resize(Import *im, const OnnxNode *n)
{
	Table t[MAXRANK];
	Resize r;
	bool done[MAXRANK] = { 0 };

	if (!canon_need(im, n, 1))
		return false;
	Value *x = onnx_in(im, n, 0), *y = x;
	if (!settings(im, n, &r, &x->type))
		return false;
	if (!dtype_float(x->type.dtype) && (r.kind != NEAREST || r.coord == TF_CROP))
		return diag_error(im->d, im->b.loc, 302, "X is %s; mode %s with %s takes floats",
			str_type(im->d->scratch, &x->type), kind_name[r.kind], coord_name[r.coord]);
	for (int i = 0; i < r.rank; i++) {
		t[i].any_outside = false;
		done[i] =
			r.out[i] == x->type.dim[i] && r.scale[i] == 1 && r.coord != TF_CROP && r.coord != TF_HALF_PIXEL;
		if (done[i]) /* every element is itself */
			continue;
		if (!make_table(im, &r, i, x->type.dim[i], &t[i]))
			return false;
		trim(&t[i]);
	}
	for (int best = 0; best >= 0 && !im->b.failed;) { /* the axis that shrinks most comes first */
		best = -1;
		for (int i = 0; i < r.rank; i++)
			if (!done[i] && (best < 0 || (double)r.out[i] * (double)x->type.dim[best] <
							     (double)r.out[best] * (double)x->type.dim[i]))
				best = i;
		if (best < 0)
			break;
		done[best] = true;
		y = apply(im, &t[best], best, y);
	}
	for (int i = 0; i < r.rank && r.fill != 0 && !im->b.failed; i++)
		if (t[i].any_outside)
			y = extrapolate(im, &r, &t[i], i, y);
	onnx_bind(im, n, 0, y);
	return true;
}
