/* Nodes that many translators build: casts, slices, joins and exchanges of axes. */
#include "canon.h"

Value *canon_binary(Import *im, OpKind op, Value *x, Value *y) { return canon_emit1(im, op, NULL, x, y, NULL); }

Value *canon_cast_to(Import *im, Value *x, DType t)
{
	void *at = canon_attr_of(im, OP_Cast);

	if (x->type.dtype == t)
		return x;
	canon_put_int(OP_Cast, at, "to", dtype_onnx(t));
	return canon_emit1(im, OP_Cast, at, x, NULL, NULL);
}

Value *canon_slice_axis(Import *im, Value *x, int axis, int64_t from, int64_t to, int64_t step)
{
	static const char *const name[] = { "starts", "ends", "axes", "steps" };
	const int64_t v[4] = { from, to, axis, step };
	void *at = canon_attr_of(im, OP_Slice);

	if (from == 0 && to == x->type.dim[axis] && step == 1)
		return x;
	for (int i = 0; i < 4 - (step == 1); i++)
		canon_put_ints(OP_Slice, at, name[i], (Ints){ 1, arena_dup(im->a, &v[i], sizeof v[i]) });
	return canon_emit1(im, OP_Slice, at, x, NULL, NULL);
}

Value *canon_join(Import *im, Value *x, Value *y, int axis, const char *name)
{
	void *at = canon_attr_of(im, OP_Concat);

	canon_put_int(OP_Concat, at, "axis", axis);
	return canon_emit1(im, OP_Concat, at, x, y, name);
}

Value *canon_swap(Import *im, Value *x, int a, int b)
{
	void *at = canon_attr_of(im, OP_Transpose);
	int64_t *perm = NEWN(im->a, int64_t, x->type.rank);

	for (int i = 0; i < x->type.rank; i++)
		perm[i] = i == a ? b : i == b ? a : i;
	canon_put_ints(OP_Transpose, at, "perm", (Ints){ x->type.rank, perm });
	return canon_emit1(im, OP_Transpose, at, x, NULL, NULL);
}
