/* Sequences whose length is known while importing (PyTorch's newer exporter writes split, chunk, unbind and stack with
 * them): a name stands for a list of values, and reading one element is that value. Nothing is left in the IR. */
#include <string.h>
#include "canon.h"

typedef struct Sequence {
	int n;
	Value **v;
} Sequence;

static Sequence *sequence(Import *im, int n)
{
	Sequence *s = NEW(im->a, Sequence);

	s->n = n;
	s->v = NEWN(im->a, Value *, n);
	return s;
}

static bool bind(Import *im, const OnnxNode *n, Sequence *s)
{
	if (n->n_output && *n->output[0])
		map_put(&im->seq, n->output[0], s);
	return true;
}

static const Sequence *operand(Import *im, const OnnxNode *n)
{
	const Sequence *s = n->n_input ? map_get(&im->seq, n->input[0]) : NULL;

	if (!s)
		canon_refuse(im, "operand 0 is not a sequence");
	return s;
}

bool canon_sequence_construct(Import *im, const OnnxNode *n)
{
	int nin;
	Value **in = canon_operands(im, n, &nin);
	Sequence *s = sequence(im, nin);

	if (!canon_need(im, n, (size_t)nin))
		return false;
	memcpy(s->v, in, sizeof *in * (size_t)nin);
	return bind(im, n, s);
}

bool canon_sequence_empty(Import *im, const OnnxNode *n) { return bind(im, n, sequence(im, 0)); }

/* Operand i as a place in a sequence where there are `places`; absent: the last. Those below 0 count from element s->n. */
static bool place(Import *im, const OnnxNode *n, size_t i, const Sequence *s, int places, int *at)
{
	Ints given;

	if (!onnx_const_ints(im, n, i, &given) || given.n > 1)
		return canon_refuse(im, "the position in a sequence is not constant: export with the loop unrolled");
	const int64_t v = given.n ? given.v[0] : places - 1, k = v + (v < 0 ? s->n : 0);
	if (k < 0 || k >= places)
		return diag_error(im->d, im->b.loc, 302, "position %lld of a sequence of %d", (long long)v, s->n);
	*at = (int)k;
	return true;
}

bool canon_sequence_insert(Import *im, const OnnxNode *n)
{
	const Sequence *s = operand(im, n);
	Value *x = onnx_in(im, n, 1);
	int at;

	if (!s || !x)
		return s ? canon_refuse(im, "operand 1 is no tensor") : false;
	if (!place(im, n, 2, s, s->n + 1, &at))
		return false;
	Sequence *y = sequence(im, s->n + 1);
	for (int i = 0; i < s->n; i++)
		y->v[i + (i >= at)] = s->v[i];
	y->v[at] = x;
	return bind(im, n, y);
}

bool canon_sequence_erase(Import *im, const OnnxNode *n)
{
	const Sequence *s = operand(im, n);
	int at;

	if (!s || !place(im, n, 1, s, s->n, &at))
		return false;
	Sequence *y = sequence(im, s->n - 1);
	for (int i = 0; i < y->n; i++)
		y->v[i] = s->v[i + (i >= at)];
	return bind(im, n, y);
}

/* Sizes along axis from the split operand: several sizes, or one that all parts have but the last. */
static bool split_sizes(Import *im, int64_t dim, const Value *split, Ints given, Ints *sizes)
{
	int64_t part = given.n == 1 && split->type.rank == 0 ? given.v[0] : 1, k;

	if (split && split->type.rank) {
		*sizes = given;
		return true;
	}
	if (part < 1)
		return diag_error(im->d, im->b.loc, 302, "split is %lld, it must be at least 1", (long long)part);
	k = (dim + part - 1) / part;
	if (k > 4096)
		return diag_error(im->d, im->b.loc, 302, "an axis of %lld is split into %lld parts, the most is 4096",
			(long long)dim, (long long)k);
	int64_t *v = NEWN(im->a, int64_t, k);
	for (int64_t i = 0; i < k; i++)
		v[i] = i < k - 1 ? part : dim - part * (k - 1);
	*sizes = (Ints){ (int)k, v };
	return true;
}

bool canon_split_to_sequence(Import *im, const OnnxNode *n)
{
	int64_t axis = onnx_int(n, "axis", 0);
	Ints given, sizes;

	if (!canon_need(im, n, 1))
		return false;
	Value *x = onnx_in(im, n, 0), *split = onnx_in(im, n, 1);
	int64_t ax = axis + (axis < 0 ? x->type.rank : 0);
	if (ax < 0 || ax >= x->type.rank)
		return diag_error(
			im->d, im->b.loc, 302, "axis %lld of %s", (long long)axis, str_type(im->d->scratch, &x->type));
	if (!onnx_const_ints(im, n, 1, &given))
		return canon_refuse(im, "split is not constant");
	if (!split_sizes(im, x->type.dim[ax], split, given, &sizes))
		return false;
	void *at = canon_attr_of(im, OP_Split);
	canon_put_int(OP_Split, at, "axis", ax);
	canon_put_ints(OP_Split, at, "split", sizes);
	const Node *y = build(&im->b, OP_Split, at, 1, &x, canon_out_name(n));
	if (im->b.failed)
		return false;
	Sequence *s = sequence(im, y->nout);
	for (int i = 0; i < y->nout; i++) {
		const Type *t = &y->out[i]->type;
		int64_t dim[MAXRANK];
		int rank = 0;

		for (int k = 0; k < t->rank; k++)
			if (k != ax)
				dim[rank++] = t->dim[k];
		s->v[i] = split || onnx_int(n, "keepdims", 1) ? y->out[i]
		                                              : canon_reshape_to(im, y->out[i], rank, dim, NULL);
	}
	return bind(im, n, s);
}

bool canon_sequence_at(Import *im, const OnnxNode *n)
{
	const Sequence *s = operand(im, n);
	int at;

	if (!s || !onnx_in(im, n, 1))
		return s ? canon_refuse(im, "operand 1 is missing") : false;
	if (!place(im, n, 1, s, s->n, &at))
		return false;
	onnx_bind(im, n, 0, s->v[at]);
	return true;
}

bool canon_sequence_length(Import *im, const OnnxNode *n)
{
	const Sequence *s = operand(im, n);

	if (!s)
		return false;
	onnx_bind(im, n, 0, canon_scalar(im, DT_i64, s->n));
	return true;
}

bool canon_concat_from_sequence(Import *im, const OnnxNode *n)
{
	const Sequence *s = operand(im, n);

	if (!s)
		return false;
	if (!s->n || s->n > 4096)
		return diag_error(im->d, im->b.loc, 302, "a sequence of %d, it must have 1 to 4096 elements", s->n);
	Value *y =
		canon_stack(im, s->n, s->v, onnx_int(n, "axis", 0), onnx_int(n, "new_axis", 0) != 0, canon_out_name(n));
	if (!y)
		return false;
	onnx_bind(im, n, 0, y);
	return true;
}
