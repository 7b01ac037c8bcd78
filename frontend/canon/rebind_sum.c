/* Sums over the batch: what they are divided by may be the number of samples, or of their elements (len(x), x.numel()), which
 * the exporters write as a constant. A divisor that is the batch times extents of what was summed follows the batch, one
 * that is a product of those extents alone does not; a multiple of the batch of which neither or both hold is refused. */
#include <string.h>
#include "canon.h"

static const Type *now(const Import *im, const char *name)
{
	const Value *v = map_get(&im->env, name);

	return v ? &v->type : NULL;
}

/* Is an axis gone, or one, that follows the batch? */
static bool sums_batch(const Import *im, const OnnxNode *n)
{
	const Type *was = map_get(im->shapes, n->input[0]), *is = now(im, n->input[0]);
	const Type *gave = map_get(im->shapes, n->output[0]), *gives = now(im, n->output[0]);

	return was && is && gave && gives && !shape_eq(was, is) && shape_eq(gave, gives);
}

void rebind_note_sum(Import *im, const OnnxNode *n)
{
	static const char *const through[] = { "Identity", "Neg", "Cast", "CastLike", "Reshape", "Squeeze", "Unsqueeze",
		"Add", "Sub", "Sum", "Mul", "Div", "ReduceSum", "ReduceMean" };
	const Type *of = NULL;

	if (!n->n_input || !n->n_output || !*n->output[0])
		return;
	if (!strcmp(n->op_type, "ReduceSum") && sums_batch(im, n))
		of = map_get(im->shapes, n->input[0]);
	for (size_t i = 0; !of && i < sizeof through / sizeof *through; i++)
		for (size_t k = 0; !strcmp(n->op_type, through[i]) && !of && k < n->n_input; k++)
			of = map_get(&im->summed, n->input[k]);
	if (of && !map_has(&im->counted, n->output[0]))
		map_put(&im->summed, n->output[0], (void *)(uintptr_t)of);
}

/* A product of some of the dimensions, the batch's, if it has one of its own, left out. */
static bool of_extents(const Type *t, int64_t batch, int64_t c)
{
	int skip = -1;

	for (int i = 0; i < t->rank && skip < 0; i++)
		skip = t->dim[i] == batch ? i : -1;
	for (unsigned set = 0; set < 1u << t->rank; set++) {
		int64_t product = 1;

		for (int i = 0; i < t->rank && product <= c; i++)
			product *= (set >> i & 1) && i != skip ? t->dim[i] : 1;
		if (product == c)
			return true;
	}
	return false;
}

static int64_t whole(const Value *x)
{
	double c = 0;

	if (!x || x->kind != VAL_CONST || !x->data || type_numel(&x->type) != 1)
		return 0;
	switch (x->type.dtype) {
	case DT_f32: c = (double)*(const float *)x->data; break;
	case DT_f64: c = *(const double *)x->data; break;
	case DT_i64: c = (double)*(const int64_t *)x->data; break;
	case DT_i32: c = (double)*(const int32_t *)x->data; break;
	default: return 0;
	}
	return c > 0 && c < 1e15 && c == (double)(int64_t)c ? (int64_t)c : 0;
}

bool rebind_count(Import *im, const OnnxNode *n, Value **in)
{
	const Type *of = n->n_input > 1 ? map_get(&im->summed, n->input[0]) : NULL;
	const int64_t c = of && im->from > 1 ? whole(in[1]) : 0;

	if (!c || c % im->from || map_has(&im->measured, n->input[1]))
		return true;
	const bool samples = of_extents(of, im->from, c / im->from), extents = of_extents(of, im->from, c);
	if (samples == extents)
		return rebind_refuse(im,
			arena_printf(im->a,
				"%s is a sum over the batch of %s, divided by %lld: it cannot be told whether that counts "
				"its samples, %lld when it was exported",
				n->input[0], str_shape(im->d->scratch, of), (long long)c, (long long)im->from));
	if (samples) {
		const Type t = in[1]->type;

		diag_note(im->d, im->b.loc,
			"%s, a sum over the batch, is divided by %lld, taken for a count of its samples: it is %lld here",
			n->input[0], (long long)c, (long long)(c / im->from * im->to));
		in[1] = canon_scalar(im, t.dtype, (double)(c / im->from * im->to));
		if (t.rank)
			in[1] = canon_reshape_to(im, in[1], t.rank, t.dim, NULL);
		if (*n->output[0])
			map_put(&im->counted, n->output[0], im);
	}
	return true;
}
