/* Canonical form of transposed convolution: it is the gradient of a convolution by its data, with the roles of the two
 * sides swapped; Col2Im is one by weights of ones. And of what undoes a MaxPool: its Indices, and MaxUnpool, which scatters by them. */
#include <string.h>
#include "canon.h"

enum { STEP = 1 << 20, EXTENT = 1 << 30 }; /* the most of a pad, of an extent */

/* One spatial axis of a transposed convolution: `full` is what the kernels cover, of which `begin` and `end` are cut
 * off; extra zeros may follow. */
typedef struct Axis {
	int64_t full, begin, end, extra, stride;
} Axis;

/* Sets begin and end so that the result has `out` elements; the odd one lies at the end, with SAME_LOWER before. */
static void fit(Axis *a, int64_t out, bool upper)
{
	const int64_t all = a->full + a->extra - out;

	a->begin = upper ? all / 2 : all - all / 2;
	a->end = all - a->begin;
}

static bool lists(Import *im, const OnnxNode *n, int nd, Ints *extra, Ints *shape)
{
	onnx_ints(im->a, n, "output_padding", extra);
	onnx_ints(im->a, n, "output_shape", shape);
	if (shape->n == nd + 2)
		*shape = (Ints){ nd, shape->v + 2 };
	if ((extra->n && extra->n != nd) || (shape->n && shape->n != nd))
		return diag_error(im->d, im->b.loc, 302,
			"%d spatial axes, but output_padding has %d entries, output_shape %d", nd, extra->n, shape->n);
	for (int i = 0; i < nd; i++)
		if ((extra->n && (extra->v[i] < 0 || extra->v[i] > STEP)) ||
			(shape->n && (shape->v[i] < 1 || shape->v[i] > EXTENT)))
			return diag_error(im->d, im->b.loc, 302,
				"output_padding %lld, output_shape %lld of spatial axis %d: they must lie "
				"in 0..%d and 1..%d",
				extra->n ? (long long)extra->v[i] : 0, shape->n ? (long long)shape->v[i] : 1, i, STEP,
				EXTENT);
	return true;
}

static bool axes_of(Import *im, const OnnxNode *n, const void *at, const Type *x, Axis *axis)
{
	const char *mode = onnx_str(im->a, n, "auto_pad", "NOTSET");
	const Ints kernel = canon_get_ints(OP_ConvGradData, at, "kernel_shape");
	const Ints dil = canon_get_ints(OP_ConvGradData, at, "dilations");
	const Ints stride = canon_get_ints(OP_ConvGradData, at, "strides");
	const int nd = x->rank - 2;
	Ints pads, extra, shape;

	onnx_ints(im->a, n, "pads", &pads);
	if (!lists(im, n, nd, &extra, &shape))
		return false;
	for (int i = 0; i < nd; i++) {
		Axis *a = &axis[i];

		if (x->dim[2 + i] < 1 || x->dim[2 + i] > EXTENT)
			return diag_error(im->d, im->b.loc, 304, "X is %s: spatial axes must lie in 1..%d",
				str_type(im->d->scratch, x), EXTENT);
		*a = (Axis){ .extra = extra.n ? extra.v[i] : 0,
			.stride = stride.v[i],
			.full = stride.v[i] * (x->dim[2 + i] - 1) + (kernel.v[i] - 1) * dil.v[i] + 1 };
		if (shape.n) {
			fit(a, shape.v[i], strcmp(mode, "SAME_LOWER") != 0);
		} else if (strncmp(mode, "SAME", 4) == 0) {
			fit(a, x->dim[2 + i] * stride.v[i], strcmp(mode, "SAME_UPPER") == 0);
		} else if (pads.n && strcmp(mode, "VALID")) {
			a->begin = pads.v[i];
			a->end = pads.v[nd + i];
			if (a->begin < -STEP || a->begin > STEP || a->end < -STEP || a->end > STEP)
				return diag_error(im->d, im->b.loc, 302,
					"pads of spatial axis %d are %lld and %lld: they must lie in "
					"-%d..%d",
					i, (long long)a->begin, (long long)a->end, STEP, STEP);
		}
		const int64_t out = a->full + a->extra - a->begin - a->end;
		if (out < 1 || out > EXTENT || a->begin < -EXTENT || a->end < -EXTENT)
			return diag_error(im->d, im->b.loc, 304,
				"spatial axis %d of the result has %lld elements; X is %s", i, (long long)out,
				str_type(im->d->scratch, x));
	}
	return true;
}

/* The convolution whose gradient it is fits only where nothing is cut off in excess and less than a stride is added;
 * else the whole is made, and a Pad cuts and adds. */
static Value *transposed(Import *im, void *at, Value *x, Value *w, const Axis *axis)
{
	const int rank = x->type.rank, nd = rank - 2;
	const int64_t group = canon_get_int(OP_ConvGradData, at, "group");
	int64_t dim[MAXRANK] = { x->type.dim[0], w->type.dim[1] * group }, pad[2 * MAXRANK] = { 0 };
	int64_t *pads = NEWN(im->a, int64_t, 2 * nd);
	bool direct = true;

	for (int i = 0; i < nd; i++)
		direct &= axis[i].begin >= 0 && axis[i].begin <= STEP && axis[i].end >= 0 && axis[i].end <= STEP &&
		          axis[i].extra < axis[i].stride;
	for (int i = 0; i < nd; i++) {
		pads[i] = direct ? axis[i].begin : 0;
		pads[nd + i] = direct ? axis[i].end : 0;
		dim[2 + i] = axis[i].full + (direct ? axis[i].extra : 0) - pads[i] - pads[nd + i];
		pad[2 + i] = -axis[i].begin;
		pad[rank + 2 + i] = axis[i].extra - axis[i].end;
	}
	canon_put_ints(OP_ConvGradData, at, "pads", (Ints){ 2 * nd, pads });
	canon_put_ints(OP_ConvGradData, at, "dims", (Ints){ rank, arena_dup(im->a, dim, sizeof dim) });
	x = canon_emit1(im, OP_ConvGradData, at, x, w, NULL);
	if (direct)
		return x;
	at = canon_attr_of(im, OP_Pad);
	canon_put_ints(OP_Pad, at, "pads", (Ints){ 2 * rank, arena_dup(im->a, pad, sizeof pad) });
	return canon_emit1(im, OP_Pad, at, x, NULL, NULL);
}

bool canon_conv_transpose(Import *im, const OnnxNode *n)
{
	void *at = canon_attr_of(im, OP_ConvGradData);
	Axis axis[MAXRANK];

	if (!canon_need(im, n, 2))
		return false;
	Value *x = onnx_in(im, n, 0), *w = onnx_in(im, n, 1), *b = onnx_in(im, n, 2);
	const int64_t group = onnx_int(n, "group", 1);
	if (w->type.rank != x->type.rank || x->type.rank < 3 || x->type.rank > 5)
		return diag_error(im->d, im->b.loc, 304, "X is %s, W is %s: equal ranks of 3 to 5 are needed",
			str_type(im->d->scratch, &x->type), str_type(im->d->scratch, &w->type));
	if (group < 1 || x->type.dim[1] != w->type.dim[0] || w->type.dim[0] % group)
		return diag_error(im->d, im->b.loc, 304, "X has %lld channels, W is %s, group is %lld",
			(long long)x->type.dim[1], str_type(im->d->scratch, &w->type), (long long)group);
	canon_put_int(OP_ConvGradData, at, "group", group);
	if (!canon_window(im, n, OP_ConvGradData, at, &x->type, w->type.dim + 2) || !axes_of(im, n, at, &x->type, axis))
		return false;
	x = transposed(im, at, x, w, axis);
	if (b && !im->b.failed) {
		int64_t dim[MAXRANK] = { b->type.dim[0], 1, 1, 1 };

		if (b->type.rank != 1 || b->type.dim[0] != x->type.dim[1])
			return diag_error(im->d, im->b.loc, 304, "the bias is %s, the result has %lld channels",
				str_type(im->d->scratch, &b->type), (long long)x->type.dim[1]);
		x = canon_emit1(im, OP_Add, NULL, x, canon_reshape_to(im, b, x->type.rank - 1, dim, NULL), NULL);
	}
	onnx_bind(im, n, 0, x);
	return true;
}

/* ---- Col2Im: blocks of columns are added where they came from ---- */

/* [channels * places, 1, block]: each place of a block goes to itself. */
static Value *one_hot_blocks(Import *im, DType dtype, int64_t channels, int nd, const int64_t *block)
{
	Type t = { .dtype = dtype, .rank = nd + 2, .dim = { channels, 1 } };
	int64_t places = 1;

	for (int i = 0; i < nd; i++)
		places *= t.dim[2 + i] = block[i];
	t.dim[0] *= places;
	char *v = arena_alloc(im->a, (size_t)type_bytes(&t));
	memset(v, 0, (size_t)type_bytes(&t));
	for (int64_t i = 0; i < t.dim[0]; i++) {
		if (dtype == DT_f64)
			((double *)v)[i * places + i % places] = 1;
		else
			((float *)v)[i * places + i % places] = 1;
	}
	return module_const(im->m, NULL, t, v);
}

/* Steps of a window over each axis; x, whose last axis goes over all of them, with these as axes of its own. */
static Value *columns(Import *im, const OnnxNode *n, void *at, Value *x, Ints image, const int64_t *block, Axis *axis)
{
	int64_t dim[MAXRANK] = { x->type.dim[0], x->type.dim[1] }, all = 1;
	Type grid = { .dtype = x->type.dtype, .rank = image.n + 2 };

	if (!canon_window(im, n, OP_ConvGradData, at, &grid, block))
		return NULL;
	const Ints stride = canon_get_ints(OP_ConvGradData, at, "strides"),
		   pads = canon_get_ints(OP_ConvGradData, at, "pads");
	const Ints dil = canon_get_ints(OP_ConvGradData, at, "dilations");
	for (int i = 0; i < image.n; i++) {
		Axis *a = &axis[i];
		const int64_t wide = (block[i] - 1) * dil.v[i] + 1;

		*a = (Axis){ .begin = pads.v[i], .end = pads.v[image.n + i], .stride = stride.v[i] };
		const int64_t room = image.v[i] + a->begin + a->end - wide;
		if (image.v[i] < 1 || image.v[i] > EXTENT || a->begin < 0 || a->end < 0 || a->begin > STEP ||
			a->end > STEP || room < 0) {
			diag_error(im->d, im->b.loc, 302,
				"axis %d of the image: %lld elements and pads of %lld and %lld for a window of %lld", i,
				(long long)image.v[i], (long long)a->begin, (long long)a->end, (long long)wide);
			return NULL;
		}
		all *= dim[2 + i] = room / a->stride + 1;
		a->full = room / a->stride * a->stride + wide;
		a->extra = room % a->stride;
	}
	if (all == x->type.dim[2])
		return canon_reshape_to(im, x, image.n + 2, dim, NULL);
	diag_error(im->d, im->b.loc, 304, "the input is %s; blocks have %lld places in the image",
		str_type(im->d->scratch, &x->type), (long long)all);
	return NULL;
}

/* The transposed convolution by weights of ones. */
bool canon_col2im(Import *im, const OnnxNode *n)
{
	void *at = canon_attr_of(im, OP_ConvGradData);
	Axis axis[MAXRANK];
	Ints image, block;
	int64_t places = 1;

	if (!canon_need(im, n, 3))
		return false;
	Value *x = onnx_in(im, n, 0);
	if (!onnx_const_ints(im, n, 1, &image) || !onnx_const_ints(im, n, 2, &block))
		return canon_refuse(im, "image_shape and block_shape must be constant");
	for (int i = 0; i < block.n && places > 0; i++)
		places = block.v[i] < 1 || block.v[i] > STEP || places > STEP ? 0 : places * block.v[i];
	if (x->type.rank != 3 || image.n != block.n || image.n < 1 || image.n > 3 || !places || x->type.dim[1] % places)
		return diag_error(im->d, im->b.loc, 302,
			"the input is %s, with %d axes of the image and %d of blocks of %lld places",
			str_type(im->d->scratch, &x->type), image.n, block.n, (long long)places);
	x = columns(im, n, at, x, image, block.v, axis);
	if (!x)
		return false;
	const int64_t channels = x->type.dim[1] / places;
	canon_put_int(OP_ConvGradData, at, "group", channels);
	onnx_bind(im, n, 0, transposed(im, at, x, one_hot_blocks(im, x->type.dtype, channels, image.n, block.v), axis));
	return !im->b.failed;
}

/* ---- MaxPool's Indices and MaxUnpool ---- */

/* Output 1 of a MaxPool with the attributes `pool` over x; place: what the op itself says of the winners. */
bool canon_max_pool_indices(Import *im, const OnnxNode *n, const void *pool, const Type *x, Value *place)
{
	static const char *const window[] = { "kernel_shape", "strides", "dilations", "pads" };
	const int64_t order = onnx_int(n, "storage_order", 0);
	void *at = canon_attr_of(im, OP_MaxPoolIndices);

	if (order != 0 && order != 1)
		return diag_error(im->d, im->b.loc, 302, "storage_order is %lld; it must be 0 or 1", (long long)order);
	for (size_t i = 0; i < sizeof window / sizeof *window; i++)
		canon_put_ints(OP_MaxPoolIndices, at, window[i], canon_get_ints(OP_MaxPool, pool, window[i]));
	canon_put_ints(OP_MaxPoolIndices, at, "dims", (Ints){ x->rank, arena_dup(im->a, x->dim, sizeof x->dim) });
	canon_put_int(OP_MaxPoolIndices, at, "storage_order", order);
	onnx_bind(im, n, 1, canon_emit1(im, OP_MaxPoolIndices, at, place, NULL, n->output[1]));
	return true;
}

/* The extents before the pooling, and the zeros behind them that output_shape asks for. */
static bool unpooled(Import *im, const OnnxNode *n, const Type *x, Type *y, int64_t *pad)
{
	void *at = canon_attr_of(im, OP_MaxPool);
	Ints shape;

	if (!onnx_const_ints(im, n, 2, &shape))
		return canon_refuse(im, "output_shape is not constant");
	if (!canon_window(im, n, OP_MaxPool, at, x, NULL))
		return false;
	const Ints kernel = canon_get_ints(OP_MaxPool, at, "kernel_shape"),
		   stride = canon_get_ints(OP_MaxPool, at, "strides");
	const Ints pads = canon_get_ints(OP_MaxPool, at, "pads");
	const int nd = x->rank - 2;
	*y = *x;
	for (int i = 0; i < nd; i++) {
		const int64_t begin = pads.v[i], end = pads.v[nd + i];

		if (begin < 0 || begin > STEP || end < 0 || end > STEP || x->dim[2 + i] < 1 || x->dim[2 + i] > EXTENT)
			return diag_error(im->d, im->b.loc, 304,
				"spatial axis %d has %lld elements, pads are %lld and %lld: they must lie "
				"in 1..%d and 0..%d",
				i, (long long)x->dim[2 + i], (long long)begin, (long long)end, EXTENT, STEP);
		y->dim[2 + i] = (x->dim[2 + i] - 1) * stride.v[i] + kernel.v[i] - begin - end;
		if (y->dim[2 + i] < 1 || y->dim[2 + i] > EXTENT)
			return diag_error(im->d, im->b.loc, 304,
				"spatial axis %d of the result has %lld elements; X is %s", i, (long long)y->dim[2 + i],
				str_type(im->d->scratch, x));
	}
	if (shape.n && shape.n != x->rank)
		return diag_error(im->d, im->b.loc, 302, "output_shape has %d entries, X is %s", shape.n,
			str_type(im->d->scratch, x));
	for (int i = 0; i < shape.n; i++) {
		int64_t size = shape.v[i];

		if (i == 0 && !canon_rebound(im, n, x, i, &size))
			return false;
		if (size < y->dim[i] || size > EXTENT || (i < 2 && size != x->dim[i]))
			return diag_error(im->d, im->b.loc, 304,
				"output_shape[%d] is %lld, the pooled tensor has %lld there", i, (long long)size,
				(long long)y->dim[i]);
		pad[x->rank + i] = i < 2 ? 0 : size - y->dim[i];
	}
	return true;
}

/* Indices count in the tensor that the window implies; a larger output_shape adds zeros behind it, as ONNX's own cases
 * have it. */
bool canon_max_unpool(Import *im, const OnnxNode *n)
{
	int64_t pad[2 * MAXRANK] = { 0 }, count, total;
	bool padded = false;
	Type y;

	if (!canon_need(im, n, 2))
		return false;
	Value *x = onnx_in(im, n, 0), *ids = onnx_in(im, n, 1), *out[MAXIN] = { 0 };
	if (x->type.rank < 3 || x->type.rank > 5 || !shape_eq(&x->type, &ids->type))
		return diag_error(im->d, im->b.loc, 304,
			"X is %s, I is %s: one shape with one to three spatial axes is needed",
			str_type(im->d->scratch, &x->type), str_type(im->d->scratch, &ids->type));
	if (!unpooled(im, n, &x->type, &y, pad))
		return false;
	count = type_numel(&x->type);
	total = type_numel(&y);
	if (type_bytes(&y) > (int64_t)1 << 40)
		return diag_error(im->d, im->b.loc, 304, "the result %s is too large", str_type(im->d->scratch, &y));
	void *at = canon_attr_of(im, OP_ConstantOfShape);
	canon_put_ints(OP_ConstantOfShape, at, "shape", (Ints){ 1, arena_dup(im->a, &total, sizeof total) });
	canon_put_int(OP_ConstantOfShape, at, "dtype", dtype_onnx(x->type.dtype));
	canon_emit(im, OP_ConstantOfShape, at, 0, NULL, NULL, out);
	Value *in[3] = { out[0], canon_reshape_to(im, ids, 1, &count, NULL), canon_reshape_to(im, x, 1, &count, NULL) };
	canon_emit(im, OP_ScatterElements, NULL, 3, in, NULL, out);
	x = canon_reshape_to(im, out[0], y.rank, y.dim, NULL);
	for (int i = 0; i < y.rank; i++)
		padded |= pad[y.rank + i] != 0;
	if (padded && !im->b.failed) {
		at = canon_attr_of(im, OP_Pad);
		canon_put_ints(OP_Pad, at, "pads", (Ints){ 2 * y.rank, arena_dup(im->a, pad, sizeof pad) });
		x = canon_emit1(im, OP_Pad, at, x, NULL, NULL);
	}
	onnx_bind(im, n, 0, x);
	return true;
}
