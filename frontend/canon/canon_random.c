/* Random numbers: noise, Bernoulli, Dropout. What is drawn is counted by node, sample and element, whatever the plan. */
#include <string.h>
#include "canon.h"

/* What tells the numbers of this node from those of others. Nodes of one body or of one iteration of a Loop stand at one
 * place of the file. */
static int64_t own_id(Import *im)
{
	int64_t id = im->b.loc.node + 1;
	bool taken = true;

	while (taken) {
		taken = false;
		for (const Node *n = im->b.g->first; n && !taken; n = n->next)
			taken = optab[n->op]->flags & OP_RANDOM && op_attr(n->op, "id") && attr_int(n, "id") == id;
		id += taken ? (int64_t)1 << 32 : 0;
	}
	return id;
}

/* Does v come from an input that has the batch? */
static bool of_batch(const Value *v, Map *seen)
{
	if (v->kind == VAL_INPUT)
		return v->batch_axis >= 0;
	if (v->kind != VAL_NODE || map_has(seen, v))
		return false;
	map_put(seen, v, seen);
	for (int i = 0; i < v->def->nin; i++)
		if (v->def->in[i] && of_batch(v->def->in[i], seen))
			return true;
	return false;
}

/* The axis of dims that holds the batch: of its extent, else of a multiple where `merged` allows that; -1: none. */
static int axis_of(int rank, const int64_t *dim, int64_t batch, bool merged)
{
	for (int i = 0; batch > 0 && i < rank; i++)
		if (dim[i] == batch)
			return i;
	for (int i = 0; merged && batch > 0 && i < rank; i++)
		if (dim[i] % batch == 0 && dim[i])
			return i;
	return -1;
}

/* The axis along which x, operand 0 of n, has followed the batch; -1: not known. */
static int followed(const Import *im, const OnnxNode *n, const Value *x)
{
	const Type *old = im->shapes && x ? map_get(im->shapes, n->input[0]) : NULL;

	for (int i = 0; old && old->rank == x->type.rank && i < old->rank; i++)
		if (old->dim[i] != x->type.dim[i] && old->dim[i] * im->to == x->type.dim[i] * im->from)
			return i;
	return -1;
}

/* Whose the noise is: of the samples along an axis, or of the step. A shape that a constant says has the export's batch. */
static void share(Import *im, const OnnxNode *n, void *at, const Value *x, int rank, int64_t *dim)
{
	const int64_t to = im->to ? im->to : im->from;
	Map seen;
	int axis = followed(im, n, x);

	map_init(&seen, im->a, false);
	if (axis < 0 && x && of_batch(x, &seen)) {
		axis = axis_of(rank, dim, to, true);
	} else if (axis < 0) {
		axis = axis_of(rank, dim, im->from ? im->from : to, false);
		if (axis < 0 && im->shapes)
			axis = axis_of(rank, dim, to, false);
		if (axis >= 0)
			dim[axis] = to;
	}
	canon_put_int(OP_Noise, at, "axis", axis < 0 ? 0 : axis);
	canon_put_int(OP_Noise, at, "samples", axis < 0 ? 0 : to);
	canon_put_ints(OP_Noise, at, "shape", (Ints){ rank, dim });
}

/* Noise like x, or of the shape that the node says; NULL after a diagnostic. */
static Value *noise(Import *im, const OnnxNode *n, const Value *x, DType t, bool normal, const char *name)
{
	void *at = canon_attr_of(im, OP_Noise);
	Ints shape = { 0, NULL };
	const OnnxAttr *seed = onnx_attr(n, "seed");
	const double low = onnx_float(n, normal ? "mean" : "low", 0),
		     high = onnx_float(n, normal ? "scale" : "high", 1);
	Value *out[MAXIN];
	int64_t *dim = NEWN(im->a, int64_t, MAXRANK);

	if (x)
		shape = (Ints){ x->type.rank, arena_dup(im->a, x->type.dim, sizeof x->type.dim) };
	else if (!onnx_ints(im->a, n, "shape", &shape) || shape.n > MAXRANK)
		return canon_refuse(im, shape.n ? "the shape has too many axes" : "attribute shape is missing"), NULL;
	memcpy(dim, shape.v, sizeof *dim * (size_t)shape.n);
	share(im, n, at, x, shape.n, dim);
	canon_put_int(OP_Noise, at, "dtype", dtype_onnx(t));
	canon_put_int(OP_Noise, at, "normal", normal);
	canon_put_float(OP_Noise, at, "at", low);
	canon_put_float(OP_Noise, at, "by", normal ? high : high - low);
	canon_put_int(OP_Noise, at, "id", own_id(im));
	if (seed) {
		const float f = (float)onnx_float(n, "seed", 0);
		uint32_t bits;

		memcpy(&bits, &f, sizeof bits);
		canon_put_int(OP_Noise, at, "seed", bits);
		canon_put_int(OP_Noise, at, "seeded", 1);
	}
	canon_emit(im, OP_Noise, at, 0, NULL, name, out);
	return im->b.failed ? NULL : out[0];
}

/* The type that the node asks for; `otherwise` where it does not. */
static bool type_of(Import *im, const OnnxNode *n, DType otherwise, DType *t)
{
	const int64_t asked = onnx_attr(n, "dtype") ? onnx_int(n, "dtype", 1) : dtype_onnx(otherwise);

	*t = asked < 0 || asked > INT32_MAX ? DT_NONE : dtype_from_onnx((int)asked);
	if (*t == DT_NONE)
		return diag_error(im->d, im->b.loc, 302, "dtype %lld is no type", (long long)asked);
	*t = onnx_dtype(im, *t);
	return true;
}

bool canon_random(Import *im, const OnnxNode *n)
{
	const bool like = strstr(n->op_type, "Like") != NULL, normal = strstr(n->op_type, "Normal") != NULL;
	const Value *x = like ? onnx_in(im, n, 0) : NULL;
	DType t;

	if ((like && !canon_need(im, n, 1)) || !type_of(im, n, x ? x->type.dtype : DT_f32, &t))
		return false;
	Value *y = noise(im, n, x, t, normal, canon_out_name(n));
	if (y)
		onnx_bind(im, n, 0, y);
	return y != NULL;
}

/* 1 where a number of [0, 1) is below x. */
bool canon_bernoulli(Import *im, const OnnxNode *n)
{
	DType t;

	if (!canon_need(im, n, 1))
		return false;
	Value *x = onnx_in(im, n, 0);
	if (!dtype_float(x->type.dtype))
		return diag_error(im->d, im->b.loc, 302, "Bernoulli takes floats, %s is %s", x->name,
			str_type(im->d->scratch, &x->type));
	if (!type_of(im, n, x->type.dtype, &t))
		return false;
	Value *u = noise(im, n, x, x->type.dtype, false, NULL);
	if (!u)
		return false;
	onnx_bind(im, n, 0, canon_cast_to(im, canon_binary(im, OP_Less, u, x), t));
	return true;
}

bool canon_dropout(Import *im, const OnnxNode *n)
{
	double ratio = onnx_float(n, "ratio", 0.5);
	Value *r = im->opset >= 12 ? onnx_in(im, n, 1) : NULL, *mode = im->opset >= 12 ? onnx_in(im, n, 2) : NULL;
	bool training = im->opset >= 12 ? false : !im->o->keep_eval;

	if (!canon_need(im, n, 1))
		return false;
	if ((r && (r->kind != VAL_CONST || !r->data)) || (mode && (mode->kind != VAL_CONST || !mode->data)))
		return canon_refuse(im, "ratio and training_mode must be constant");
	if (r)
		ratio = r->type.dtype == DT_f64   ? *(const double *)r->data
		        : r->type.dtype == DT_f32 ? (double)*(const float *)r->data
		                                  : 0.5;
	if (mode)
		training = *(const uint8_t *)mode->data != 0;
	Value *x = onnx_in(im, n, 0);
	if (!training || (ratio >= 0 && ratio < 0x1p-17)) { /* what rounds to 0 of 65536 drops nothing: drop_holes */
		onnx_bind(im, n, 0, x);
		if (n->n_output > 1 && *n->output[1]) {
			void *at = canon_attr_of(im, OP_ConstantOfShape);
			Value *out[MAXIN];

			canon_put_ints(OP_ConstantOfShape, at, "shape",
				(Ints){ x->type.rank, arena_dup(im->a, x->type.dim, sizeof x->type.dim) });
			canon_put_float(OP_ConstantOfShape, at, "value", 1);
			canon_put_int(OP_ConstantOfShape, at, "dtype", dtype_onnx(DT_bool));
			canon_emit(im, OP_ConstantOfShape, at, 0, NULL, n->output[1], out);
			onnx_bind(im, n, 1, out[0]);
		}
		return true;
	}
	if (!(ratio >= 0 && ratio < 1))
		return diag_error(im->d, im->b.loc, 302, "ratio %g is outside [0, 1)", ratio);
	void *at = canon_attr_of(im, OP_Dropout);
	canon_put_float(OP_Dropout, at, "ratio", ratio);
	canon_put_int(OP_Dropout, at, "id", own_id(im));
	return canon_emit_bind(im, n, OP_Dropout, at, 1, &x);
}
