/* Graphs exported at a fixed batch hold it in constants: Reshape targets, Expand shapes, ends of Slices. Here they are
 * derived anew for the batch that is wanted. `shapes` holds every value's type at the export's batch. */
#include <string.h>
#include "canon.h"

static const Type *old_type(const Import *im, const char *name) { return map_get(im->shapes, name); }

/* ---- constants that were read off shapes hold the batch that is wanted already ---- */

static bool is_one_of(const char *s, const char *const *list)
{
	for (; *list; list++)
		if (strcmp(s, *list) == 0)
			return true;
	return false;
}

/* An integer constant with an element that may stand for the batch. */
static bool may_hold_batch(const Import *im, const Value *v)
{
	if (!v || v->kind != VAL_CONST || !v->data || v->type.dtype != DT_i64)
		return true;
	for (int64_t i = 0; i < type_numel(&v->type); i++) {
		int64_t x = ((const int64_t *)v->data)[i];

		if (x > 0 && im->from && x % im->from == 0)
			return true;
	}
	return false;
}

static bool measured(const Import *im, const char *name) { return map_has(&im->measured, name); }

void rebind_note(Import *im, const OnnxNode *n)
{
	static const char *const source[] = { "Shape", "Size", "SequenceLength", NULL };
	static const char *const moves[] = { "Identity", "Cast", "CastLike", "Slice", "Gather", "Squeeze", "Unsqueeze",
		"Reshape", "Flatten", "Transpose", "Expand", "ReduceProd", "ReduceSum", "Neg", NULL };
	static const char *const reckons[] = { "Add", "Sub", "Mul", "Div", "Mod", "Sum", NULL };
	bool yes = is_one_of(n->op_type, source);

	if (!im->shapes)
		return;
	rebind_note_sum(im, n);
	if (yes) { /* a constant's own shape is as old as the constant */
		const Value *x = n->n_input ? onnx_in(im, n, 0) : NULL;

		yes = !x || x->kind != VAL_CONST;
	} else if (is_one_of(n->op_type, moves)) {
		yes = n->n_input && measured(im, n->input[0]);
	} else if (is_one_of(n->op_type, reckons)) {
		for (size_t i = 0; i < n->n_input; i++)
			yes |= measured(im, n->input[i]);
	} else if (strcmp(n->op_type, "Concat") == 0) {
		yes = true;
		for (size_t i = 0; i < n->n_input; i++)
			yes &= measured(im, n->input[i]) || !may_hold_batch(im, onnx_in(im, n, i));
	}
	if (yes && n->n_output && *n->output[0])
		map_put(&im->measured, n->output[0], im);
}

/* ---- targets ---- */

/* The target in full: 0 and -1 as they came out at the export's batch. */
static bool ambiguous(Import *im, const char *what, const Type *old)
{
	return rebind_refuse(
		im, arena_printf(im->a,
			    "%s %s was exported at batch %lld: it cannot be told which of its dimensions is the batch",
			    what, str_shape(im->d->scratch, old), (long long)im->from));
}

/* Which dimension of the group out[j0, j1) carries the batch, when `outer` elements of the group lie before it; -1: none.
 * outer < 0: not known, the only dimension of the batch's size, or the only one that it divides. */
static int batch_dim(const Import *im, const Type *out, int j0, int j1, int64_t outer)
{
	int64_t before = 1;
	int exact = -1, divides = -1;

	for (int j = j0; j < j1; j++) {
		if (outer >= 0) {
			if (before == outer && out->dim[j] % im->from == 0)
				return j;
			if (before < outer && outer % before == 0 && before * out->dim[j] >= outer * im->from &&
				out->dim[j] % (outer / before * im->from) == 0)
				return j;
		} else if (out->dim[j] == im->from) {
			if (exact >= 0)
				return -1;
			exact = j;
		} else if (out->dim[j] % im->from == 0) {
			divides = divides == -1 ? j : -2;
		}
		before *= out->dim[j];
	}
	return exact >= 0 ? exact : divides >= 0 ? divides : -1;
}

/* Elements that lay before the batch when it was merged into a dimension of `size` (heads, steps); -1: not known. What one
 * Reshape merges, a later one takes apart. */
static int64_t split_outer(const Import *im, int64_t size)
{
	for (int i = 0; i < im->nmerged; i++)
		if (im->merged[i].size == size)
			return im->merged[i].outer;
	return -1;
}

/* The batch lies in dimension `at` of the group out[j0 ..), behind `outer` elements of the group. */
static void note_merged(Import *im, const Type *out, int j0, int at, int64_t outer)
{
	int64_t size = out->dim[at], before = 1;
	int i = 0;

	for (int j = j0; j < at; j++)
		before *= out->dim[j];
	if (size == im->from || outer % before)
		return;
	while (i < im->nmerged && im->merged[i].size != size)
		i++;
	if (i == (int)(sizeof im->merged / sizeof *im->merged))
		return;
	const int64_t within = outer / before;
	im->merged[i].outer = i == im->nmerged || im->merged[i].outer == within ? within : -1;
	im->merged[i].size = size;
	im->nmerged += i == im->nmerged;
}

/* Dimensions of the operand and of the result fall into groups of equal product. In a group whose size changed with
 * the batch, the result's dimension that carries the batch is scaled; all others stay. */
bool rebind_reshape(Import *im, const OnnxNode *n, const Type *in_new, Ints *shape)
{
	const Type *in = old_type(im, n->input[0]), *out = old_type(im, n->output[0]);
	Type t;

	if (!in || !out || shape_eq(in, in_new) || (n->n_input > 1 && measured(im, n->input[1])))
		return true;
	for (int k = 0; k < shape->n; k++) /* a target that was computed from shapes fits already */
		if (shape->v[k] > 0 && (k >= out->rank || shape->v[k] != out->dim[k]))
			return true;
	t = *out;
	for (int i = 0, j = 0; i < in->rank || j < out->rank;) {
		int i0 = i, j0 = j;
		int64_t a = i < in->rank ? in->dim[i++] : 1, b = j < out->rank ? out->dim[j++] : 1;

		while (a != b) {
			if (a < b && i < in->rank)
				a *= in->dim[i++];
			else if (j < out->rank)
				b *= out->dim[j++];
			else if (i < in->rank)
				a *= in->dim[i++];
			else
				break;
		}
		int changed = -1, many = 0;
		int64_t outer = 1, before = 1;
		for (int k = i0; k < i; k++) {
			if (in->dim[k] != in_new->dim[k]) {
				changed = k;
				many++;
				outer = before;
			}
			before *= in->dim[k];
		}
		if (changed < 0)
			continue;
		int64_t scaled = in_new->dim[changed], was = in->dim[changed];
		const int64_t within = was == im->from ? 1 : split_outer(im, was);
		int at = many > 1 ? -1 : batch_dim(im, out, j0, j, within > 0 ? outer * within : -1);
		if (at < 0 && j - j0 == 1)
			at = j0;
		if (at < 0 || out->dim[at] * scaled % was)
			return ambiguous(im, "Reshape to", out);
		t.dim[at] = out->dim[at] * scaled / was;
		if (within > 0)
			note_merged(im, out, j0, at, outer * within);
	}
	*shape = (Ints){ t.rank, arena_dup(im->a, t.dim, sizeof t.dim) };
	return true;
}

/* Elements of axis `ax` of a constant are all alike. */
static bool uniform(const Value *x, int ax)
{
	int64_t inner = dtype_bytes(x->type.dtype), outer = 1, dim = x->type.dim[ax];

	for (int i = 0; i < ax; i++)
		outer *= x->type.dim[i];
	for (int i = ax + 1; i < x->type.rank; i++)
		inner *= x->type.dim[i];
	for (int64_t o = 0; o < outer; o++)
		for (int64_t k = 1; k < dim; k++) {
			const char *first = (const char *)x->data + o * dim * inner;

			if (memcmp(first, first + k * inner, (size_t)inner))
				return false;
		}
	return true;
}

/* Dimension i of `shape` is that of x: it has the size of x, of the export's batch or of the one that is wanted. */
static bool own_size(const Import *im, const OnnxNode *n, const Value *x, const Ints *shape, int i)
{
	const Type *old = old_type(im, n->input[0]);
	const int j = i - shape->n + x->type.rank;

	if (j < 0 || x->kind == VAL_CONST)
		return false;
	return x->type.dim[j] == shape->v[i] ||
	       (old && old->rank == x->type.rank && old->dim[j] != 1 && old->dim[j] == shape->v[i]);
}

/* Sizes that x has by itself follow it. Does one of them hold the batch? */
static bool follow_own(Import *im, const OnnxNode *n, const Value *x, Ints *shape)
{
	const Type *old = old_type(im, n->input[0]);
	bool held = false;

	if (!old || x->kind == VAL_CONST || old->rank != x->type.rank)
		return false;
	int64_t *v = arena_dup(im->a, shape->v, sizeof *v * (size_t)shape->n);
	for (int j = 0; j < old->rank; j++) {
		const int i = j + shape->n - old->rank;

		if (i < 0 || old->dim[j] == x->type.dim[j] || old->dim[j] == 1)
			continue;
		held = true;
		if (v[i] == old->dim[j])
			v[i] = x->type.dim[j];
	}
	shape->v = v;
	return held;
}

/* Expand of x: the one dimension that is as large as the batch follows it. An operand that
 * has the batch brings it along. */
bool rebind_dims(Import *im, const OnnxNode *n, const Value *x, Ints *shape)
{
	const Type *out = old_type(im, n->output[0]);
	int at = -1;

	if (!out || shape->n != out->rank || measured(im, n->input[1]) || (x->kind == VAL_CONST && x->data))
		return true; /* what reads a constant says how it goes on */
	for (int i = 0; i < shape->n; i++)
		if (shape->v[i] != out->dim[i] && shape->v[i] != 1 && shape->v[i] != -1)
			return true; /* computed from shapes: it fits already */
	if (follow_own(im, n, x, shape))
		return true;
	for (int i = 0; i < shape->n; i++) {
		if (shape->v[i] != im->from || im->from == 1 || own_size(im, n, x, shape, i))
			continue;
		if (at >= 0)
			return ambiguous(im, "shape", out);
		at = i;
	}
	if (at >= 0) {
		int64_t *v = arena_dup(im->a, shape->v, sizeof *v * (size_t)shape->n);

		v[at] = im->to;
		shape->v = v;
	}
	return true;
}

/* Tile of what has no batch, once per sample. */
bool rebind_repeats(Import *im, const OnnxNode *n, const Value *x, Ints *repeats)
{
	const Type *old = old_type(im, n->input[0]);

	if (!old || !shape_eq(old, &x->type) || (x->kind == VAL_CONST && x->data) || measured(im, n->input[1]) ||
		im->from == 1 || repeats->n != old->rank || !repeats->n || old->dim[0] != 1 ||
		repeats->v[0] != im->from)
		return true;
	int64_t *v = arena_dup(im->a, repeats->v, sizeof *v * (size_t)repeats->n);
	v[0] = im->to;
	repeats->v = v;
	return true;
}

/* Axes of constant *x on which operand j, aligned at the last axis, followed the batch. */
static bool follow(Import *im, const OnnxNode *n, Value **x, size_t j, const Type *now)
{
	const Type *old = old_type(im, n->input[j]);
	const int lead = now->rank - (*x)->type.rank;

	if (!old || old->rank != now->rank)
		return true;
	for (int i = 0; i < (*x)->type.rank; i++) {
		const int k = lead + i;

		if (k < 0 || old->dim[k] == now->dim[k] || (*x)->type.dim[i] != old->dim[k] || old->dim[k] == 1)
			continue;
		if (uniform(*x, i)) {
			*x = canon_slice_axis(im, *x, i, 0, 1, 1);
			continue;
		}
		Value *y = rebind_rows(im, *x, i, now->dim[k]);
		if (!y)
			return rebind_refuse(
				im, arena_printf(im->a,
					    "constant %s is %s and meets axis %d, which follows the batch from %lld to "
					    "%lld; its rows differ",
					    (*x)->name, str_type(im->d->scratch, &(*x)->type), k,
					    (long long)old->dim[k], (long long)now->dim[k]));
		*x = y;
	}
	return true;
}

bool rebind_broadcast(Import *im, const OnnxNode *n, int nin, Value **in)
{
	for (int i = 0; i < nin; i++)
		for (int j = 0; j < nin && in[i] && in[i]->kind == VAL_CONST && in[i]->data; j++)
			if (in[j] && !rebind_stale(im, n, in[j], (size_t)j) &&
				!follow(im, n, &in[i], (size_t)j, &in[j]->type))
				return false;
	return true;
}

Value *rebind_constant(Import *im, Value *x, const Ints *shape)
{
	const int lead = shape->n - x->type.rank;

	if (x->kind != VAL_CONST || !x->data || lead < 0)
		return x;
	for (int i = 0; i < x->type.rank; i++) {
		const int64_t was = x->type.dim[i], is = shape->v[lead + i];

		if (was == is || was == 1 || is < 2)
			continue;
		Value *rows = uniform(x, i) ? canon_slice_axis(im, x, i, 0, 1, 1) : rebind_rows(im, x, i, is);
		x = rows ? rows : x;
	}
	return x;
}

/* x of an axis of `dim`, counted from the end when negative, held in [lo, hi]. */
static int64_t clamp(int64_t x, int64_t dim, int64_t lo, int64_t hi)
{
	if (x < 0)
		x = x < -dim ? lo : x + dim;
	return x < lo ? lo : x > hi ? hi : x;
}

/* Elements that start:end:step takes of an axis, as ONNX counts them. */
static int64_t taken(int64_t start, int64_t end, int64_t step, int64_t dim)
{
	if (step > 0) {
		int64_t a = clamp(start, dim, 0, dim), b = clamp(end, dim, 0, dim);

		return b > a ? (b - a - 1) / step + 1 : 0;
	}
	int64_t a = clamp(start, dim, 0, dim - 1), b = clamp(end, dim, -1, dim - 1);

	return a > b ? (a - b - 1) / (step == INT64_MIN ? INT64_MAX : -step) + 1 : 0;
}

static bool slice_fault(Import *im, int64_t axis, int64_t start, int64_t end, int64_t step, int64_t was, int64_t is)
{
	return rebind_refuse(im,
		arena_printf(im->a,
			"Slice %lld:%lld:%lld of axis %lld, which is %lld at the export's batch %lld and %lld at batch "
			"%lld: it cannot be told how its bounds follow the batch",
			(long long)start, (long long)end, (long long)step, (long long)axis, (long long)was,
			(long long)im->from, (long long)is, (long long)im->to));
}

/* Slice on an axis that changed with the batch: one that took the whole axis still does; one that takes the same share
 * (its bounds were computed from shapes) fits already; what is left is an error. */
bool rebind_slice(Import *im, const OnnxNode *n, const Type *in_new, const Ints *starts, Ints *ends, const Ints *axes,
	const Ints *steps)
{
	const Type *in = old_type(im, n->input[0]), *out = old_type(im, n->output[0]);
	int64_t *v = NULL;

	if (!in || !out || starts->n != ends->n || in->rank != in_new->rank)
		return true; /* the shape rule says what is wrong */
	for (int i = 0; i < ends->n; i++) {
		int64_t ax = i < axes->n ? axes->v[i] : i, step = i < steps->n ? steps->v[i] : 1;

		ax += ax < 0 ? in->rank : 0;
		if (ax < 0 || ax >= in->rank || step == 0 || in->dim[ax] == in_new->dim[ax])
			continue;
		int64_t was = in->dim[ax], is = in_new->dim[ax], len = taken(starts->v[i], ends->v[i], step, is);

		if ((double)len * (double)was == (double)out->dim[ax] * (double)is)
			continue;
		if (step != 1 || out->dim[ax] != was)
			return slice_fault(im, ax, starts->v[i], ends->v[i], step, was, is);
		if (!v)
			v = arena_dup(im->a, ends->v, sizeof *v * (size_t)ends->n);
		v[i] = is;
	}
	if (v)
		ends->v = v;
	return true;
}
