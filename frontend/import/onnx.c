/* ModelProto -> Module: initializers and inputs, the batch axis, the nodes in order, the outputs. */
#include <stdlib.h>
#include <string.h>
#include "frontend/onnx/contract.h"
#include "guess.h"
#include "ir/base/buf.h"
#include "frontend/onnx/onnx_file.h"
#include "frontend/onnx/torch.h"
#include "frontend/onnx/torch_calls.h"

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

/* One value, all over. */
static bool alike(const Tensor *x)
{
	const size_t size = (size_t)dtype_bytes(x->type.dtype);

	for (int64_t i = 1; x->data && i < type_numel(&x->type); i++)
		if (memcmp(x->data, (const char *)x->data + (size_t)i * size, size))
			return false;
	return x->data != NULL;
}

bool onnx_initializer(Import *im, const OnnxGraph *g, const OnnxTensor *t)
{
	Tensor x;
	Loc loc = FILELOC(im->path);

	if (!t->name || !*t->name)
		return diag_error(im->d, loc, 204, "an initializer has no name");
	if (!strcmp(t->name, "__metadata__"))
		return diag_error(im->d, loc, 204,
			"an initializer is called '__metadata__': files of weights (safetensors) keep that name for themselves");
	if (map_has(&im->env, t->name))
		return diag_error(im->d, loc, 204, "initializer '%s' is there twice", t->name);
	if (!onnx_tensor(im->a, im->path, t, im->o->init_random != 0, &x, loc, im->d))
		return false;
	Value *v;
	const Role role = im->contract ? contract_role(im->contract, t->name) : ROLE_NONE;
	const bool param = /* without elements there is nothing to train, and no place in memory of its own */
		dtype_float(x.type.dtype) && type_numel(&x.type) &&
		(onnx_running_stat(im, g, t->name) || is_param(im, t->name, role, &x));
	if (param && im->unrolling && !alike(&x))
		return diag_error(im->d, im->b.loc, 302,
			"initializer '%s' stands in a branch within a Loop: it would be another parameter in every iteration; "
			"move it to the graph",
			t->name);
	if (!param || im->unrolling || (type_numel(&x.type) <= 2 * MAXRANK && is_setting(g, t->name))) {
		if (!x.data)
			make_up(im, t->name, &x);
		x = onnx_widen(im, x);
		v = module_const(im->m, t->name, x.type, x.data);
	} else {
		const bool wider = onnx_dtype(im, x.type.dtype) != x.type.dtype, mapped = onnx_mapped(t, x.type.dtype);
		x = onnx_widen(im, x);
		v = module_param(im->m, t->name, x.type, PARAM_WEIGHT);
		v->param->data = x.data;
		v->param->mapped = mapped && !wider;
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

/* ---- nodes ---- */

bool onnx_node(Import *im, const OnnxNode *n, size_t i)
{
	im->b.loc = (Loc){ im->path, 0, 0, onnx_index(im, n, i), n->name && *n->name ? arena_str(im->a, n->name) : NULL,
		arena_str(im->a, n->op_type), torch_module(im->a, n) };
	for (size_t k = 0; k < n->n_input; k++)
		if (*n->input[k] && !map_get(&im->env, n->input[k]) && !map_get(&im->seq, n->input[k]))
			return diag_error(im->d, im->b.loc, 204, "operand %zu '%s' is defined nowhere before this node",
				k, n->input[k]);
	if (!n->n_output)
		return diag_error(im->d, im->b.loc, 204, "the node has no output");
	for (size_t k = 0; k < n->n_output; k++)
		if (*n->output[k] && (map_get(&im->env, n->output[k]) || map_get(&im->seq, n->output[k])))
			return diag_error(im->d, im->b.loc, 204, "output '%s' is defined twice", n->output[k]);
	if (!torch_call_kept(im, n) || !canon_node(im, n) || im->b.failed || !torch_padding(im, n))
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
		.guess = im->guess,
		.by_torch = im->by_torch };
	im->m = module_new(a, arena_strn(a, base, dot && dot != base ? (size_t)(dot - base) : strlen(base)));
	im->m->file = strcmp(path, "-") ? im->path : "stdin.onnx";
	im->m->graph = graph_new(im->m, im->m->name);
	map_init(&im->env, a, true);
	map_init(&im->seq, a, true);
	map_init(&im->measured, a, true);
	map_init(&im->summed, a, true);
	map_init(&im->counted, a, true);
	im->torch = torch_signature(a, g);
	im->b = (Builder){
		.m = im->m, .g = im->m->graph, .loc = FILELOC(im->path), .phase = PHASE_FWD, .stage = -1, .d = d
	};
	if (!check_versions(im, p))
		return NULL;
	im->m->opset = im->opset;
	onnx_find_batch(im, g);
	if (!onnx_operators(im, g) || (!o->keep_eval && !onnx_refuse_inference(im, g)))
		return NULL;
	for (size_t i = 0; i < g->n_initializer; i++)
		onnx_initializer(im, g, g->initializer[i]);
	if (d->errors > errors && d->last_code == 203)
		diag_note(d, FILELOC(path), "--init random:1 draws initial weights instead");
	if (g->n_sparse_initializer)
		diag_error(d, FILELOC(path), 202, "sparse initializers are not supported");
	const int before = d->errors;
	for (int i = 0; i < o->nbind && !o->keep_eval; i++)
		onnx_check_binding(im, g, &o->bind[i]);
	const bool bound = d->errors == before; /* else what an input lacks may be a word misspelt */
	for (size_t i = 0; i < g->n_input && bound; i++)
		if (!g->input[i]->name || !onnx_is_initializer(g, g->input[i]->name))
			onnx_input(im, g->input[i]);
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

static bool by_torch(const OnnxModel *p) { return p->producer_name && strcmp(p->producer_name, "pytorch") == 0; }

/* PyTorch's exporters drop these without a word; a trainer who froze a teacher must hear of it. */
static void note_no_contract(const OnnxModel *p, const char *path, Diag *d)
{
	if (by_torch(p))
		diag_note(d, FILELOC(path),
			"a plain export has no requires_grad=False, no detach() and no label_smoothing; "
			"pdcc.export of frontend/python writes them with the graph");
}

/* The types of all values of the last import, by name. */
static Map *types_of(Arena *a, const Import *im)
{
	Map *shapes = NEW(a, Map);

	map_init(shapes, a, true);
	for (size_t i = 0; i < im->env.n; i++) {
		const Value *v = im->env.slot[i].val;

		if (v)
			map_put(shapes, im->env.slot[i].key, arena_dup(a, &v->type, sizeof v->type));
	}
	return shapes;
}

/* An import at another batch than the export's, which is fine: where it fails, it is the batch that cannot be rebound. A trial
 * that succeeds says nothing. */
static Module *import_other(Arena *a, const OnnxModel *p, const char *path, const ImportOpt *o, const Map *shapes,
	Import *im, bool trial, Diag *d)
{
	char *said = NULL;
	size_t n = 0;
	Diag aside = *d;

	aside.out = open_memstream(&said, &n);
	if (!aside.out)
		return import_at(a, p, path, o, shapes, im, d);
	Module *m = import_at(a, p, path, o, shapes, im, &aside);
	fclose(aside.out);
	aside.out = d->out;
	const bool own = m || aside.last_code < 300 || aside.last_code >= 400; /* shapes and constants are 3xx */
	if (own && !(m && trial)) {
		fwrite(said, 1, n, d->out);
		*d = aside;
	}
	free(said);
	im->d = im->b.d = d;
	if (own)
		return m;
	rebind_refuse(im, arena_printf(a, "exported at batch %lld, and not to be had at batch %lld: %s",
				  (long long)im->from, (long long)im->to, aside.last_text));
	return NULL;
}

/* The model at another batch: types at the export's say what depends on it. A batch of one hides sizes that do not fit, for one
 * broadcasts: there three samples are tried first. */
static Module *import_rebound(Arena *a, const OnnxModel *p, const char *path, const ImportOpt *o, Import *im, Diag *d)
{
	ImportOpt other = *o;

	other.micro = im->from;
	if (!import_at(a, p, path, &other, NULL, im, d))
		return NULL;
	const Map *shapes = types_of(a, im);
	if (o->micro == 1) {
		other.micro = im->from == 3 ? 5 : 3;
		if (!import_other(a, p, path, &other, shapes, im, true, d))
			return NULL;
	}
	return import_other(a, p, path, o, shapes, im, false, d);
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
	im = (Import){ .a = a, .o = o, .path = path, .origin = &origin, .top = p->graph, .by_torch = by_torch(p) };
	if (!o->keep_eval && !contract_read(a, p, path, &im.contract, d))
		return NULL;
	if (!o->keep_eval && !im.contract && !p->n_training_info)
		im.guess = guess_new(a, p, o);
	onnx_find_batch(&im, p->graph);
	if (!o->keep_eval && im.from && im.to && im.from != im.to)
		m = import_rebound(a, p, path, o, &im, d);
	else
		m = import_at(a, p, path, o, NULL, &im, d);
	if (m && im.guess && !guess_report(im.guess, im.path, d))
		return NULL;
	if (m && im.guess) {
		guess_padding(m, o, im.path, d);
		note_no_contract(p, im.path, d);
	}
	if (m && !o->keep_eval)
		note_no_dropout(p->graph, im.path, d);
	if (m && im.half && !o->keep_eval)
		diag_note(d, FILELOC(im.path),
			"the model is stored in half precision; it is computed with and trained in %s",
			o->f64 ? "f64" : "f32");
	return m;
}
