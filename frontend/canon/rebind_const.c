/* Constants that hold the export's batch, at the batch that is wanted. A constant has `from * p` rows along an axis of
 * the batch: p of them per sample, the same for every sample (masks, states, biases of heads), or an index that grows by
 * the extent of a sample from one to the next (positions in what is gathered). All else is for the caller to refuse. */
#include <string.h>
#include "canon.h"

static const Type *old_type(const Import *im, const char *name) { return map_get(im->shapes, name); }

static bool is_const(const Value *x) { return x && x->kind == VAL_CONST && x->data; }

bool rebind_refuse(Import *im, const char *what)
{
	diag_error(im->d, im->b.loc, 209, "%s", what);
	diag_note(im->d, im->b.loc,
		"export with a symbolic batch axis (dynamic_batch of pdcc.export, dynamic_axes, dynamic_shapes), or use "
		"--micro-batch %lld",
		(long long)im->from);
	return false;
}

/* x as blocks: outer of rows of inner elements of size bytes. */
typedef struct Rows {
	int64_t outer, rows, inner, size;
} Rows;

static Rows rows_of(const Value *x, int axis)
{
	Rows r = { 1, x->type.dim[axis], 1, dtype_bytes(x->type.dtype) };

	for (int i = 0; i < axis; i++)
		r.outer *= x->type.dim[i];
	for (int i = axis + 1; i < x->type.rank; i++)
		r.inner *= x->type.dim[i];
	return r;
}

/* Every sample has the same p rows. */
static bool repeats(const Value *x, int axis, int64_t p)
{
	const Rows r = rows_of(x, axis);
	const size_t bytes = (size_t)(p * r.inner * r.size);

	for (int64_t o = 0; o < r.outer; o++)
		for (int64_t k = p; k + p <= r.rows; k += p) {
			const char *first = (const char *)x->data + o * r.rows * r.inner * r.size;

			if (memcmp(first, first + k * r.inner * r.size, bytes))
				return false;
		}
	return r.rows % p == 0;
}

/* The rows of a sample, for im->to samples; those of integers grow from sample to sample by step[i % n] (n 0: not). */
static Value *for_batch(Import *im, const Value *x, int axis, int64_t p, int n, const int64_t *step)
{
	const Rows r = rows_of(x, axis);
	const size_t block = (size_t)(p * r.inner * r.size);
	Type t = x->type;

	t.dim[axis] = p * im->to;
	char *data = arena_alloc(im->a, (size_t)type_bytes(&t) + 1), *y = data;
	for (int64_t o = 0; o < r.outer; o++)
		for (int64_t k = 0; k < im->to; k++, y += block) {
			memcpy(y, (const char *)x->data + o * r.rows * r.inner * r.size, block);
			for (int64_t i = 0; n && i < p * r.inner; i++)
				((int64_t *)(void *)y)[i] += k * step[i % n];
		}
	return module_const(im->m, NULL, t, data);
}

/* Does the index grow by limit[c] (or not at all) in its components c, from sample to sample? */
static bool grows(const Value *x, int axis, int64_t p, int n, const int64_t *limit, int64_t *step)
{
	const Rows r = rows_of(x, axis);
	const int64_t *v = x->data, block = p * r.inner;
	bool any = false;

	if (x->type.dtype != DT_i64 || p < 1 || r.rows % p || r.rows / p < 2 || r.inner % n || !r.outer)
		return false;
	for (int c = 0; c < n; c++) {
		step[c] = r.rows / p > 1 ? v[block + c] - v[c] : 0;
		if (step[c] && step[c] != limit[c])
			return false;
		any |= step[c] != 0;
	}
	for (int64_t o = 0; o < r.outer; o++)
		for (int64_t k = 0; k < r.rows / p; k++)
			for (int64_t i = 0; i < block; i++) {
				const int64_t at = o * r.rows * r.inner, first = v[at + i], s = step[i % n];

				if (v[at + k * block + i] != first + k * s || (s && (first < 0 || first >= s)))
					return false;
			}
	return any;
}

Value *rebind_rows(Import *im, Value *x, int axis, int64_t is)
{
	const int64_t was = x->type.dim[axis], p = im->from ? was / im->from : 0;
	const int64_t one[1] = { 1 };
	int64_t step[1];

	if (!is_const(x) || p < 1 || was % im->from || is != p * im->to)
		return NULL;
	if (repeats(x, axis, p))
		return for_batch(im, x, axis, p, 0, NULL);
	if (p == 1 && grows(x, axis, 1, 1, one, step))
		return for_batch(im, x, axis, 1, 1, one); /* numbers of the samples */
	return NULL;
}

/* ---- operands ---- */

static bool operand_fault(Import *im, const Value *x, const char *why)
{
	return rebind_refuse(im,
		arena_printf(im->a,
			"constant %s is %s, exported at batch %lld, and %s: it cannot be told what it is at batch %lld",
			x->name, str_type(im->d->scratch, &x->type), (long long)im->from, why, (long long)im->to));
}

/* Constant indices of n components each into the axes from `first` on of an operand whose extents were `was`. */
static bool indices(Import *im, Value **x, const Type *was, const Type *is, int first, int n)
{
	int64_t limit[MAXRANK] = { 0 }, step[MAXRANK];
	bool changed = false;

	if (n > MAXRANK || first + n > was->rank || was->rank != is->rank || (*x)->type.dtype != DT_i64)
		return true;
	for (int c = 0; c < n; c++) {
		const int64_t a = was->dim[first + c], b = is->dim[first + c];

		if (a == b)
			continue;
		changed = true;
		limit[c] = a % im->from == 0 && b % im->to == 0 && a / im->from == b / im->to ? a / im->from : -1;
	}
	const int axes = (*x)->type.rank - (n > 1 || first);
	for (int a = 0; changed && a < axes; a++) {
		const int64_t rows = (*x)->type.dim[a];

		if (rows % im->from == 0 && grows(*x, a, rows / im->from, n, limit, step)) {
			*x = for_batch(im, *x, a, rows / im->from, n, step);
			return true;
		}
	}
	if (changed && type_numel(&(*x)->type) > n)
		return operand_fault(im, *x, "indexes an axis that follows the batch");
	/* rows of a table: the same ones for every sample */
	if (!changed && axes > 1 && (*x)->type.dim[0] == im->from && im->from > 1 && repeats(*x, 0, 1))
		*x = for_batch(im, *x, 0, 1, 0, NULL);
	return true;
}

bool rebind_stale(const Import *im, const OnnxNode *n, const Value *x, size_t i)
{
	const Type *old = i < n->n_input ? old_type(im, n->input[i]) : NULL;

	return is_const(x) && old && shape_eq(old, &x->type);
}

/* Component c of the indices differs along their axis a. */
static bool varies(const Value *x, int a, int64_t k, int64_t c)
{
	const Rows r = rows_of(x, a);

	if (!is_const(x) || x->type.dtype != DT_i64)
		return false;
	for (int64_t i = 1; i < r.rows; i++)
		if (((const int64_t *)x->data)[i * r.inner + c] != ((const int64_t *)x->data)[c])
			return r.inner >= k;
	return false;
}

/* A constant into which (or from which) indices reach that have a row per sample along axis a. */
static void reached(Import *im, const OnnxNode *n, Value **in, int a)
{
	const Type *t = &in[1]->type;
	const int64_t k = t->dim[t->rank - 1];

	for (int c = 0; rebind_stale(im, n, in[0], 0) && c < k && c < in[0]->type.rank; c++)
		if (in[0]->type.dim[c] == im->from && varies(in[1], a, k, c)) {
			Value *y = rebind_rows(im, in[0], c, im->to);

			in[0] = y ? y : in[0];
		}
}

static bool gathered(Import *im, const OnnxNode *n, OpKind op, Value **in)
{
	const Type *was = old_type(im, n->input[0]), *is = &in[0]->type, *old = old_type(im, n->input[1]);

	if (op == OP_GatherND && old && is_const(in[1]) && old->rank == in[1]->type.rank)
		for (int a = 0; a < old->rank - 1; a++)
			if (old->dim[a] != in[1]->type.dim[a])
				reached(im, n, in, a);
	if (!was || !rebind_stale(im, n, in[1], 1) || (is_const(in[0]) && shape_eq(was, is)))
		return true;
	if (op == OP_Gather) {
		int64_t axis = onnx_int(n, "axis", 0);

		axis += axis < 0 ? was->rank : 0;
		if (axis < 0 || axis >= was->rank)
			return true;
		const Type a = type_make(was->dtype, 1, &was->dim[axis]), b = type_make(is->dtype, 1, &is->dim[axis]);
		return was->rank != is->rank || indices(im, &in[1], &a, &b, 0, 1);
	}
	const Type *t = &in[1]->type;
	const int64_t k = t->rank ? t->dim[t->rank - 1] : 0,
		      skip = op == OP_GatherND ? onnx_int(n, "batch_dims", 0) : 0;

	if (k < 1 || k > MAXRANK || skip < 0 || skip + k > was->rank || was->rank != is->rank || skip)
		return true;
	Type a = type_make(was->dtype, (int)k, was->dim), b = type_make(is->dtype, (int)k, is->dim);
	Value *flat = in[1];
	if (k == 1) { /* the axis of components is none of the batch's: dropped, it is an index of Gather */
		flat = canon_reshape_to(im, flat, t->rank - 1, t->dim, NULL);
		if (!is_const(flat) || !indices(im, &flat, &a, &b, 0, 1))
			return is_const(flat) ? false : true;
		Type full = flat->type;
		full.dim[full.rank++] = 1;
		in[1] = canon_reshape_to(im, flat, full.rank, full.dim, NULL);
		return true;
	}
	return indices(im, &in[1], &a, &b, 0, (int)k);
}

/* ScatterND at constant indices, of updates that follow the batch into a constant or of constants into what does: all have
 * a place per sample. */
static void scattered(Import *im, const OnnxNode *n, Value **in)
{
	const Type *was = old_type(im, n->input[2]), *is = &in[2]->type, *t = &in[1]->type,
		   *index = old_type(im, n->input[1]);
	const int k = t->rank ? (int)t->dim[t->rank - 1] : 0;
	int64_t limit[MAXRANK] = { 0 }, step[MAXRANK];

	if (!was || !index || was->rank != is->rank || index->rank != t->rank || k < 1 || k > in[0]->type.rank)
		return;
	for (int a = 0; a < is->rank; a++) {
		const int into = a - (t->rank - 1) + k;
		const bool grown = a < t->rank - 1 && index->dim[a] != t->dim[a];
		Value *y = NULL;

		if (grown && rebind_stale(im, n, in[2], 2) && is->dim[a] == index->dim[a]) {
			y = rebind_rows(im, in[2], a, t->dim[a]);
			in[2] = y ? y : in[2];
		} else if (was->dim[a] != is->dim[a] && a >= t->rank - 1) { /* whole slices are written */
			if (rebind_stale(im, n, in[0], 0) && into < in[0]->type.rank &&
				in[0]->type.dim[into] == was->dim[a])
				y = rebind_rows(im, in[0], into, is->dim[a]);
			in[0] = y ? y : in[0];
		} else if (was->dim[a] != is->dim[a] && rebind_stale(im, n, in[1], 1) && t->dim[a] % im->from == 0) {
			for (int c = 0; c < k; c++)
				limit[c] = in[0]->type.dim[c] % im->from ? -1 : in[0]->type.dim[c] / im->from;
			if (!grows(in[1], a, t->dim[a] / im->from, k, limit, step))
				return;
			in[1] = for_batch(im, in[1], a, t->dim[a] / im->from, k, step);
			t = &in[1]->type;
			reached(im, n, in, a);
		} else if (grown) {
			reached(im, n, in, a);
		}
	}
}

/* Constants that are joined with what follows the batch have its rows. */
static bool joined(Import *im, const OnnxNode *n, int nin, Value **in)
{
	int64_t axis = onnx_int(n, "axis", 1);

	for (int i = 0; i < nin; i++)
		for (int j = 0; j < nin; j++) {
			const Type *was = old_type(im, n->input[j]), *is = in[j] ? &in[j]->type : NULL;

			if (!rebind_stale(im, n, in[i], (size_t)i) || rebind_stale(im, n, in[j], (size_t)j) || !was ||
				!is || was->rank != is->rank || in[i]->type.rank != is->rank)
				continue;
			for (int a = 0; a < is->rank; a++) {
				if (a == axis + (axis < 0 ? is->rank : 0) || was->dim[a] == is->dim[a] ||
					in[i]->type.dim[a] == is->dim[a])
					continue;
				Value *y = rebind_rows(im, in[i], a, is->dim[a]);
				if (!y)
					return operand_fault(im, in[i], "is joined with what follows the batch");
				in[i] = y;
			}
		}
	return true;
}

void rebind_state(Import *im, const OnnxNode *n, size_t i, Value **x)
{
	int at = -1;

	if (!im->shapes || !rebind_stale(im, n, *x, i) || im->from < 2)
		return;
	for (int a = 0; a < (*x)->type.rank - 1; a++)
		if ((*x)->type.dim[a] == im->from && repeats(*x, a, 1))
			at = at == -1 ? a : -2;
	if (at >= 0)
		*x = for_batch(im, *x, at, 1, 0, NULL);
}

bool rebind_operands(Import *im, const OnnxNode *n, OpKind op, int nin, Value **in)
{
	if (nin < 2 || (size_t)nin > n->n_input || !im->from || !im->to)
		return true;
	if (optab[op]->flags & OP_EW)
		return (op != OP_Div || rebind_count(im, n, in)) && rebind_broadcast(im, n, nin, in);
	switch (op) {
	case OP_Gather:
	case OP_GatherND: return gathered(im, n, op, in);
	case OP_ScatterND:
		if (nin > 2 && gathered(im, n, op, in))
			scattered(im, n, in);
		return !im->b.failed;
	case OP_Concat: return joined(im, n, nin, in);
	case OP_Conv:
	case OP_MatMul:
	case OP_Gemm:
		if (!is_const(in[1]) && (op == OP_Conv || in[1]->type.rank == 2) && !onnx_int(n, "transA", 0))
			rebind_state(im, n, 0, &in[0]);
		return true;
	default: return true;
	}
}
