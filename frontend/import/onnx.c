/* ModelProto -> Module: initializers and inputs, the batch axis, the nodes in order, the outputs. */
#include <string.h>
#include "frontend/onnx/contract.h"
#include "guess.h"
#include "ir/base/buf.h"
#include "frontend/onnx/onnx_file.h"
#include "frontend/onnx/torch.h"

/* ---- values by ONNX name ---- */

/* ---- initializers ---- */

/* Initializers that are settings: scales and roi of Resize, and nothing else reads them. */
static bool is_setting(const OnnxGraph *g, const char *name)
{
	bool found = false;

	for (size_t i = 0; i < g->n_node; i++) {
		const OnnxNode *n = g->node[i];
		bool resize = strcmp(n->op_type, "Resize") == 0 || strcmp(n->op_type, "Upsample") == 0;

		for (size_t k = 0; k < n->n_input; k++)
			if (strcmp(n->input[k], name) == 0) {
				if (!resize || k == 0)
					return false;
				found = true;
			}
	}
	return found;
}

/* Data of a constant under --init random, when the file that has it is not there: ones, as masks and indices; of a square of bools
 * the lower triangle, for the squares that exports keep say what a step of a sequence sees. */
static void make_up(Import *im, const char *name, Tensor *x)
{
	const int64_t n = type_numel(&x->type), size = dtype_bytes(x->type.dtype);
	const int64_t cols = x->type.rank > 1 ? x->type.dim[x->type.rank - 1] : 0;
	const bool square = x->type.dtype == DT_bool && cols > 0 && x->type.dim[x->type.rank - 2] == cols;
	unsigned char *p = arena_alloc(im->a, (size_t)type_bytes(&x->type));

	for (int64_t i = 0; i < n; i++)
		p[i * size] = !square || i % cols <= i / cols % cols;
	x->data = p;
	diag_warn(im->d, FILELOC(im->path), "constant-missing", "constant '%s' is not in the file; %s taken", name,
		square ? "a lower triangle is" : "ones are");
}

static bool is_param(Import *im, const char *name, Role role, const Tensor *x)
{
	if (im->contract)
		return role == ROLE_PARAMETER || role == ROLE_FROZEN;
	if (im->torch)
		return torch_is_param(im->torch, name);
	return im->guess ? guess_initializer(im->guess, name, x).param : x->type.rank > 0;
}

bool onnx_initializer(Import *im, const OnnxGraph *g, const OnnxTensor *t)
{
	Tensor x;
	Loc loc = FILELOC(im->path);

	if (!t->name || !*t->name)
		return diag_error(im->d, loc, 204, "an initializer has no name");
	if (map_has(&im->env, t->name))
		return diag_error(im->d, loc, 204, "initializer '%s' is there twice", t->name);
	if (!onnx_tensor(im->a, im->path, t, im->o->init_random != 0, &x, loc, im->d))
		return false;
	Value *v;
	const Role role = im->contract ? contract_role(im->contract, t->name) : ROLE_NONE;
	const bool param =
		dtype_float(x.type.dtype) && (onnx_running_stat(im, g, t->name) || is_param(im, t->name, role, &x));
	if (!param || (type_numel(&x.type) <= 2 * MAXRANK && is_setting(g, t->name))) {
		if (!x.data)
			make_up(im, t->name, &x);
		x = onnx_widen(im, x);
		v = module_const(im->m, t->name, x.type, x.data);
	} else {
		const bool wider = onnx_dtype(im, x.type.dtype) != x.type.dtype;
		x = onnx_widen(im, x);
		v = module_param(im->m, t->name, x.type, PARAM_WEIGHT);
		v->param->data = x.data;
		v->param->mapped = onnx_external(t) && !wider;
		v->param->onnx_name = v->name;
		v->param->frozen = role == ROLE_FROZEN;
		if (im->o->init_random) {
			v->param->random = im->o->init_random;
			v->param->data = NULL;
			v->param->fill = 0.02;
		}
		int k = onnx_running_stat(im, g, t->name);
		if (k) {
			v->param->kind = PARAM_BUFFER;
			v->param->is_mean = k == 3;
			v->param->is_var = k == 4;
			if (im->o->init_random) {
				v->param->random = 0;
				v->param->fill = k == 4;
			}
		}
	}
	map_put(&im->env, t->name, v);
	return true;
}

/* ---- inputs: bound dimensions, the batch axis ---- */

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

static bool is_initializer(const OnnxGraph *g, const char *name)
{
	for (size_t i = 0; i < g->n_initializer; i++)
		if (g->initializer[i]->name && strcmp(g->initializer[i]->name, name) == 0)
			return true;
	return false;
}

/* Sets im->from (batch of the export, 0 symbolic) and im->to (batch wanted, 0 not known). */
static void find_batch(Import *im, const OnnxGraph *g)
{
	im->from = 0;
	im->to = im->o->micro;
	for (size_t i = 0; i < g->n_input; i++) {
		const Onnx__ValueInfoProto *v = g->input[i];
		size_t rank;

		if (!v->name || is_initializer(g, v->name))
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
static bool check_binding(Import *im, const OnnxGraph *g, const Binding *b)
{
	const char *symbol[64];
	int n = 0;
	size_t rank = 0;
	bool known = false;

	for (size_t i = 0; i < g->n_input; i++) {
		const Onnx__ValueInfoProto *v = g->input[i];

		if (is_initializer(g, v->name))
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

/* ---- nodes ---- */

bool onnx_node(Import *im, const OnnxNode *n, size_t i)
{
	im->b.loc = (Loc){ im->path, 0, 0, onnx_index(im, n, i), n->name && *n->name ? arena_str(im->a, n->name) : NULL,
		arena_str(im->a, n->op_type) };
	for (size_t k = 0; k < n->n_input; k++)
		if (*n->input[k] && !map_get(&im->env, n->input[k]) && !map_get(&im->seq, n->input[k]))
			return diag_error(im->d, im->b.loc, 204, "operand %zu '%s' is defined nowhere before this node",
				k, n->input[k]);
	for (size_t k = 0; k < n->n_output; k++)
		if (*n->output[k] && (map_get(&im->env, n->output[k]) || map_get(&im->seq, n->output[k])))
			return diag_error(im->d, im->b.loc, 204, "output '%s' is defined twice", n->output[k]);
	if (!canon_node(im, n) || im->b.failed)
		return false;
	contract_stop(im, n);
	rebind_note(im, n);
	for (size_t k = 0; k < n->n_output; k++) {
		Value *v = *n->output[k] ? map_get(&im->env, n->output[k]) : NULL;

		if (v && type_numel(&v->type) > (int64_t)1 << 42)
			return diag_error(im->d, im->b.loc, 207, "output '%s' is too large: %s", n->output[k],
				str_type(im->d->scratch, &v->type));
	}
	return true;
}

/* ---- exports that are no training graphs ---- */

/* val_N with floats in it: PyTorch's newer exporter names a constant so that it folded, or a weight; without its signature
 * one cannot tell which. */
static bool folded_name(const OnnxTensor *t)
{
	return strncmp(t->name, "val_", 4) == 0 && t->name[4] && !t->name[4 + strspn(t->name + 4, "0123456789")] &&
	       t->n_dims && dtype_float(dtype_from_onnx(t->data_type));
}

/* A weight, not a mask or table that an Identity passes on. */
static bool is_weight(const Import *im, const OnnxGraph *g, const char *name)
{
	for (size_t i = 0; i < g->n_initializer; i++)
		if (g->initializer[i]->name && strcmp(g->initializer[i]->name, name) == 0)
			return im->torch ? torch_is_param(im->torch, name)
			                 : dtype_float(dtype_from_onnx(g->initializer[i]->data_type));
	return false;
}

static bool refuse_inference(Import *im, const OnnxGraph *g)
{
	bool norm = false, folded = false;
	const char *alias = NULL;

	for (size_t i = 0; i < g->n_node; i++) {
		const OnnxNode *n = g->node[i];

		norm |= strcmp(n->op_type, "BatchNormalization") == 0;
		if (strcmp(n->op_type, "Identity") == 0 && n->n_input && is_weight(im, g, n->input[0]))
			alias = n->input[0];
	}
	const char *mark = NULL;
	for (size_t i = 0; i < g->n_initializer && !folded; i++) {
		const char *s = g->initializer[i]->name;

		folded = s && !im->contract &&
		         (strncmp(s, "onnx::Conv_", 11) == 0 || strncmp(s, "onnx::MatMul_", 13) == 0 ||
				 (!im->torch && folded_name(g->initializer[i])));
		if (folded)
			mark = s;
	}
	if (!folded && (norm || !alias || im->contract))
		return true;
	diag_error(im->d, FILELOC(im->path), 208, "this is an inference export: %s '%s'",
		folded ? "weights were folded into" : "equal weights were merged through Identity of",
		folded ? mark : alias);
	diag_note(im->d, FILELOC(im->path), "export for training: torch.onnx.export(%s)",
		mark && strncmp(mark, "val_", 4) == 0
			? "model.train(), args, path, dynamo=True, optimize=False"
			: "model, args, path, training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False");
	return false;
}

/* ---- the whole ---- */

static bool check_versions(Import *im, const OnnxModel *p)
{
	Loc loc = FILELOC(im->path);

	if (!p->has_ir_version || p->ir_version < 3 || p->ir_version > 14)
		return diag_error(im->d, loc, 202, "IR version %lld; 3 to 14 are read", (long long)p->ir_version);
	im->opset = p->ir_version < 3 ? 1 : 0;
	for (size_t i = 0; i < p->n_opset_import; i++) {
		const char *dom = p->opset_import[i]->domain;

		if (!dom || !*dom || strcmp(dom, "ai.onnx") == 0)
			im->opset = (int)p->opset_import[i]->version;
	}
	if (im->opset < OPSET_LEAST || im->opset > OPSET_MOST)
		return diag_error(im->d, loc, 202,
			"opset %d of the default domain; %d to %d are read, 13 to 18 promised", im->opset, OPSET_LEAST,
			OPSET_MOST);
	return true;
}

static void mark_index_ranges(Module *m)
{
	for (Node *n = m->graph->first; n; n = n->next)
		if (n->op == OP_Gather && n->in[1] && n->in[1]->kind == VAL_INPUT) {
			const Type *t = &n->in[0]->type;
			int64_t axis = attr_int(n, "axis"), dim = t->dim[axis < 0 ? axis + t->rank : axis];

			if (!n->in[1]->index_range || dim < n->in[1]->index_range)
				n->in[1]->index_range = dim;
		}
}

static bool import_outputs(Import *im, const OnnxGraph *g)
{
	for (size_t i = 0; i < g->n_output; i++) {
		const char *name = g->output[i]->name;
		Value *v = name ? map_get(&im->env, name) : NULL;

		if (!v)
			return diag_error(
				im->d, FILELOC(im->path), 204, "output '%s' is defined nowhere", name ? name : "");
		bool again = false;
		for (int k = 0; k < im->m->graph->nout; k++)
			again |= im->m->graph->out[k] == v;
		if (v->kind != VAL_NODE || again) { /* an output is made by a node of its own */
			im->b.loc = FILELOC(im->path);
			v = mk(&im->b, OP_Identity, NULL, name, 1, v);
		} else if (strcmp(v->name, name)) {
			value_rename(im->m->graph, v, name);
		}
		graph_output(im->m->graph, v);
	}
	return true;
}

/* One pass over the model at one batch; shapes NULL: at the batch of the export. */
static Module *import_at(
	Arena *a, const OnnxModel *p, const char *path, const ImportOpt *o, const Map *shapes, Import *im, Diag *d)
{
	const OnnxGraph *g = p->graph;
	const char *base = strrchr(path, '/'), *dot;
	int errors = d->errors;

	base = base ? base + 1 : strcmp(path, "-") ? path : "stdin";
	dot = strrchr(base, '.');
	*im = (Import){ .a = a,
		.d = d,
		.path = arena_str(a, path),
		.o = o,
		.shapes = shapes,
		.top = g,
		.origin = im->origin,
		.contract = im->contract,
		.guess = im->guess };
	im->m = module_new(a, arena_strn(a, base, dot && dot != base ? (size_t)(dot - base) : strlen(base)));
	im->m->file = strcmp(path, "-") ? im->path : "stdin.onnx";
	im->m->graph = graph_new(im->m, im->m->name);
	map_init(&im->env, a, true);
	map_init(&im->seq, a, true);
	map_init(&im->measured, a, true);
	im->torch = torch_signature(a, g);
	im->b = (Builder){
		.m = im->m, .g = im->m->graph, .loc = FILELOC(im->path), .phase = PHASE_FWD, .stage = -1, .d = d
	};
	if (!check_versions(im, p))
		return NULL;
	im->m->opset = im->opset;
	find_batch(im, g);
	if (!onnx_operators(im, g) || (!o->keep_eval && !refuse_inference(im, g)))
		return NULL;
	for (size_t i = 0; i < g->n_initializer; i++)
		onnx_initializer(im, g, g->initializer[i]);
	if (d->errors > errors && d->last_code == 203)
		diag_note(d, FILELOC(path), "--init random:1 draws initial weights instead");
	if (g->n_sparse_initializer)
		diag_error(d, FILELOC(path), 202, "sparse initializers are not supported");
	for (size_t i = 0; i < g->n_input; i++)
		if (!g->input[i]->name || !is_initializer(g, g->input[i]->name))
			onnx_input(im, g->input[i]);
	for (int i = 0; i < o->nbind && !o->keep_eval; i++)
		check_binding(im, g, &o->bind[i]);
	if (d->errors > errors)
		return NULL;
	for (size_t i = 0; i < g->n_node; i++) {
		im->opset = onnx_opset(im, g->node[i], im->m->opset);
		if (!onnx_node(im, g->node[i], i))
			return NULL;
	}
	if (!contract_padding(im) || !import_outputs(im, g) || d->errors > errors)
		return NULL;
	im->opset = im->m->opset;
	if (p->n_training_info && o->told && !onnx_training_info(im, p))
		return NULL;
	im->m->export_batch = im->from;
	im->m->batch = im->to ? im->to : im->from;
	if (!o->keep_eval) /* ONNX allows negative indices as data; a run checks its data against the range */
		mark_index_ranges(im->m);
	return im->m;
}

/* Not a mark of an inference export, but what one looks like when nothing was folded. */
static void note_no_dropout(const OnnxGraph *g, const char *path, Diag *d)
{
	for (size_t i = 0; i < g->n_node; i++)
		if (strcmp(g->node[i]->op_type, "Dropout") == 0 ||
			strcmp(g->node[i]->op_type, "BatchNormalization") == 0)
			return;
	diag_note(d, FILELOC(path), "the graph has no Dropout; if the model has, it was exported for inference");
}

Module *onnx_import(Arena *a, const char *path, const ImportOpt *o, Diag *d)
{
	OnnxModel *p = onnx_open(a, path, d);
	Import im;
	Map origin;
	Module *m;

	if (!p || !inline_functions(a, p, path, &origin, d))
		return NULL;
	if (!o->keep_eval && !torch_unfold(a, p, path, o->init_random != 0, &origin, d))
		return NULL;
	im = (Import){ .a = a, .o = o, .path = path, .origin = &origin, .top = p->graph };
	if (!o->keep_eval && !contract_read(a, p, path, &im.contract, d))
		return NULL;
	if (!o->keep_eval && !im.contract && !p->n_training_info)
		im.guess = guess_new(a, p, o);
	find_batch(&im, p->graph);
	if (!o->keep_eval && im.from && im.to &&
		im.from != im.to) { /* shapes at the export's batch say what depends on it */
		ImportOpt as_is = *o;
		Map *shapes = NEW(a, Map);

		as_is.micro = im.from;
		if (!import_at(a, p, path, &as_is, NULL, &im, d))
			return NULL;
		map_init(shapes, a, true);
		for (size_t i = 0; i < im.env.n; i++) {
			const Value *v = im.env.slot[i].val;

			if (v)
				map_put(shapes, im.env.slot[i].key, arena_dup(a, &v->type, sizeof v->type));
		}
		m = import_at(a, p, path, o, shapes, &im, d);
	} else {
		m = import_at(a, p, path, o, NULL, &im, d);
	}
	if (m && im.guess && !guess_report(im.guess, im.path, d))
		return NULL;
	if (m && !o->keep_eval)
		note_no_dropout(p->graph, im.path, d);
	if (m && im.half && !o->keep_eval)
		diag_note(d, FILELOC(im.path),
			"the model is stored in half precision; it is computed with and trained in %s",
			o->f64 ? "f64" : "f32");
	return m;
}
