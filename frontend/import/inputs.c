/* Inputs of a model: bound dimensions, the batch axis. */
#include <string.h>
#include "frontend/onnx/contract.h"
#include "frontend/onnx/onnx_file.h"

typedef Onnx__TensorShapeProto__Dimension OnnxDim;

static bool is_batch_name(const char *s)
{
	static const char *const names[] = { "batch", "batch_size", "N", "n", "B", "Batch", "batchsize" };

	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (strcmp(s, names[i]) == 0)
			return true;
	return false;
}

static const OnnxDim *dim_of(const Onnx__ValueInfoProto *v, size_t *rank, size_t i)
{
	const Onnx__TypeProto__Tensor *t =
		v->type && v->type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE ? v->type->tensor_type : NULL;

	*rank = t && t->shape ? t->shape->n_dim : 0;
	return i < *rank ? t->shape->dim[i] : NULL;
}

static const char *dim_symbol(const OnnxDim *x)
{
	if (x->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE)
		return NULL;
	return x->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM && x->dim_param ? x->dim_param
	                                                                                             : "";
}

static int named_batch(const Onnx__ValueInfoProto *v)
{
	size_t rank;

	dim_of(v, &rank, 0);
	for (size_t i = 0; i < rank; i++) {
		const char *s = dim_symbol(dim_of(v, &rank, i));

		if (s && is_batch_name(s))
			return (int)i;
	}
	return -1;
}

/* The axis of the batch: as told, else the symbolic axis that has a batch's name, else axis 0; -1 for scalars, and for
 * inputs of fixed shape where others name their batch: those are the same for all samples. */
static int batch_axis_of(const Import *im, const Onnx__ValueInfoProto *v)
{
	size_t rank;
	bool symbolic = false;

	dim_of(v, &rank, 0);
	for (int i = 0; i < im->o->nbatch_axis; i++)
		if (strcmp(im->o->batch_axis[i].name, v->name) == 0)
			return im->o->batch_axis[i].axis < (int)rank ? im->o->batch_axis[i].axis : -1;
	if (im->contract && im->contract->says_batch) {
		for (int i = 0; i < im->contract->nbatch; i++)
			if (strcmp(im->contract->batch[i].name, v->name) == 0)
				return im->contract->batch[i].axis;
		return -1;
	}
	const int named = named_batch(v);
	if (named >= 0)
		return named;
	for (size_t i = 0; i < rank; i++)
		symbolic |= dim_symbol(dim_of(v, &rank, i)) != NULL;
	for (size_t i = 0; im->top && !symbolic && i < im->top->n_input; i++)
		if (named_batch(im->top->input[i]) >= 0)
			return -1;
	return rank ? 0 : -1;
}

static int64_t bound_value(const Import *im, const char *input, int axis, const char *symbol)
{
	int64_t found = 0;

	for (int i = 0; i < im->o->nbind; i++) {
		const Binding *b = &im->o->bind[i];

		if (b->axis >= 0 ? strcmp(b->name, input) == 0 && b->axis == axis
				 : symbol && strcmp(b->name, symbol) == 0)
			found = b->value;
	}
	return found;
}

bool onnx_is_initializer(const OnnxGraph *g, const char *name)
{
	for (size_t i = 0; i < g->n_initializer; i++)
		if (g->initializer[i]->name && strcmp(g->initializer[i]->name, name) == 0)
			return true;
	return false;
}

/* Sets im->from (batch of the export, 0 symbolic) and im->to (batch wanted, 0 not known). */
void onnx_find_batch(Import *im, const OnnxGraph *g)
{
	im->from = 0;
	im->to = im->o->micro;
	for (size_t i = 0; i < g->n_input; i++) {
		const Onnx__ValueInfoProto *v = g->input[i];
		size_t rank;

		if (!v->name || onnx_is_initializer(g, v->name))
			continue;
		int axis = batch_axis_of(im, v);
		if (axis < 0)
			continue;
		const OnnxDim *x = dim_of(v, &rank, (size_t)axis);
		const char *s = dim_symbol(x);
		if (!s && !im->from)
			im->from = x->dim_value;
		int64_t bound = s ? bound_value(im, v->name, axis, s) : 0;
		if (!im->to)
			im->to = bound ? bound : s ? im->o->default_micro : x->dim_value;
		return;
	}
}

static bool input_dim(Import *im, const Onnx__ValueInfoProto *v, const OnnxDim *x, int axis, bool batch, int64_t *out)
{
	const char *s = dim_symbol(x);
	int64_t bound = bound_value(im, v->name, axis, s);
	Loc loc = FILELOC(im->path);

	if (batch && im->to && !im->o->keep_eval && (s || !im->from || x->dim_value == im->from)) {
		*out = im->to;
		return true;
	}
	if (batch && im->to != im->from && !im->o->keep_eval && !s) {
		if (im->from && x->dim_value % im->from == 0) { /* several rows per sample */
			*out = x->dim_value / im->from * im->to;
			return true;
		}
		diag_error(im->d, loc, 205,
			"input '%s' has %lld elements on axis %d, the first input says that the batch is %lld", v->name,
			(long long)x->dim_value, axis, (long long)im->from);
		diag_note(im->d, loc, "name the axes in train.yaml: batch_axis: {%s: N}", v->name);
		return false;
	}
	if (!s) {
		*out = x->dim_value;
		if (*out < 0 || *out > (int64_t)1 << 40)
			return diag_error(
				im->d, loc, 205, "input '%s': dimension %d is %lld", v->name, axis, (long long)*out);
		if (bound && bound != *out)
			return diag_error(im->d, loc, 205,
				"input '%s': axis %d is %lld in the model, --dim binds it to %lld", v->name, axis,
				(long long)*out, (long long)bound);
		return true;
	}
	*out = bound;
	if (!bound && im->o->keep_eval)
		*out = batch && im->to ? im->to : 1;
	if (*out > 0)
		return true;
	diag_error(im->d, loc, 205, "input '%s': axis %d (%s) is not bound", v->name, axis, *s ? s : "without a name");
	if (batch)
		diag_note(im->d, loc, "it is the batch: --micro-batch N, or --dim %s%s=N", *s ? "" : v->name,
			*s ? s : ":0");
	else
		diag_note(
			im->d, loc, *s ? "bind it with --dim %s=N" : "bind it with --dim %s:AXIS=N", *s ? s : v->name);
	return false;
}

bool onnx_input(Import *im, const Onnx__ValueInfoProto *v)
{
	Loc loc = FILELOC(im->path);
	size_t rank;

	if (!v->name || !*v->name)
		return diag_error(im->d, loc, 204, "an input has no name");
	if (map_has(&im->env, v->name))
		return diag_error(im->d, loc, 204, "input '%s' is there twice", v->name);
	if (!v->type || v->type->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE)
		return diag_error(im->d, loc, 205, "input '%s' is not a tensor", v->name);
	Type t = { .dtype = dtype_from_onnx(v->type->tensor_type->elem_type) };
	if (t.dtype == DT_NONE)
		return diag_error(im->d, loc, 205, "input '%s' has element type %d, which is not supported", v->name,
			v->type->tensor_type->elem_type);
	im->half |= t.dtype == DT_f16 || t.dtype == DT_bf16;
	t.dtype = onnx_dtype(im, t.dtype);
	dim_of(v, &rank, 0);
	if (rank > MAXRANK)
		return diag_error(im->d, loc, 205, "input '%s' has rank %zu, the most is %d", v->name, rank, MAXRANK);
	t.rank = (int)rank;
	int axis = batch_axis_of(im, v);
	bool ok = true;
	for (int i = 0; i < t.rank; i++)
		ok &= input_dim(im, v, dim_of(v, &rank, (size_t)i), i, i == axis, &t.dim[i]);
	if (!ok)
		return false;
	if (type_bytes(&t) > (int64_t)1 << 46)
		return diag_error(
			im->d, loc, 205, "input '%s' is too large: %s", v->name, str_type(im->d->scratch, &t));
	Value *x = graph_input(im->m->graph, v->name, t);
	x->batch_axis = axis;
	map_put(&im->env, v->name, x);
	return true;
}

/* Every --dim must have bound something, and the batch to what --micro-batch says. */
bool onnx_check_binding(Import *im, const OnnxGraph *g, const Binding *b)
{
	const char *symbol[64] = { NULL };
	int n = 0;
	size_t rank = 0;
	bool known = false;

	for (size_t i = 0; i < g->n_input; i++) {
		const Onnx__ValueInfoProto *v = g->input[i];

		if (onnx_is_initializer(g, v->name))
			continue;
		known |= strcmp(b->name, v->name) == 0;
		dim_of(v, &rank, 0);
		for (size_t k = 0; k < rank; k++) {
			const char *s = dim_symbol(dim_of(v, &rank, k));
			const bool hit = b->axis >= 0 ? strcmp(b->name, v->name) == 0 && (size_t)b->axis == k
			                              : s && strcmp(b->name, s) == 0;

			if (hit && (int)k == batch_axis_of(im, v) && s && im->to && im->to != b->value)
				return diag_error(im->d, NOLOC, 205,
					"--dim binds the batch to %lld, --micro-batch to %lld", (long long)b->value,
					(long long)im->to);
			if (hit)
				return true;
			if (s && *s && n < 64)
				symbol[n++] = s;
		}
	}
	if (b->axis >= 0 && known)
		return diag_error(im->d, NOLOC, 205, "--dim %s:%d=%lld: the input has no such axis", b->name, b->axis,
			(long long)b->value);
	if (b->axis >= 0) { /* labels are an input only where a loss is added */
		diag_warn(im->d, NOLOC, "dim-unread", "--dim %s:%d=%lld: the model has no such input", b->name, b->axis,
			(long long)b->value);
		return true;
	}
	const char *near = diag_nearest(b->name, symbol, n), *all = "";
	for (int i = 0; i < n && !near; i++)
		if (!strstr(all, symbol[i]))
			all = arena_printf(im->a, "%s%s%s", all, *all ? ", " : "", symbol[i]);
	return diag_error(im->d, NOLOC, 205, "--dim %s=%lld: no axis of the inputs is called so%s%s%s", b->name,
		(long long)b->value,
		near   ? "; did you mean '"
		: *all ? "; there are "
		       : "",
		near ? near : all, near ? "'?" : "");
}
