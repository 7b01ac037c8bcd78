/* Exports that PyTorch's newer exporter optimized (its default), undone: constant folding turns weights of linear
 * layers into new initializers that are transposed, and of initializers that are equal (the weights of all
 * normalisations, before training) one is kept, and none of biases that are zero. The signature tells which parameters
 * there were, the calls tell which of them a node read. */
#include <ctype.h>
#include <string.h>
#include "torch_unfold.h"

/* ---- text ---- */

static bool word_char(char c) { return isalnum((unsigned char)c) || c == '_'; }

/* Does the call name this parameter? */
bool unfold_reads(const Unfold *u, const char *call, const char *param)
{
	const TorchTarget *t = map_get(u->sig, param);
	size_t n = t && t->place ? strlen(t->place) : 0;

	for (const char *p = call; n && (p = strchr(p, '%')); p++)
		if (strncmp(p + 1, t->place, n) == 0 && !word_char(p[1 + n]))
			return true;
	return false;
}

/* Where the call names the parameter; for order. */
const char *unfold_place(const Unfold *u, const char *call, const char *param)
{
	const TorchTarget *t = map_get(u->sig, param);
	const char *p = call;

	while ((p = strchr(p, '%')) &&
		(strncmp(p + 1, t->place, strlen(t->place)) || word_char(p[1 + strlen(t->place)])))
		p++;
	return p;
}

static bool listed(const char *list, const char *name)
{
	size_t n = strlen(name);

	for (const char *p = list; (p = strchr(p, '\'')); p++)
		if (strncmp(p + 1, name, n) == 0 && p[1 + n] == '\'')
			return true;
	return false;
}

/* ---- the graph ---- */

static bool is_float(const OnnxTensor *t)
{
	return t->has_data_type && dtype_from_onnx(t->data_type) != DT_NONE &&
	       dtype_float(dtype_from_onnx(t->data_type));
}

static bool is_array(const OnnxTensor *t)
{
	for (size_t i = 0; i < t->n_dims; i++)
		if (t->dims[i] != 1)
			return true;
	return false;
}

void unfold_add(Unfold *u, OnnxTensor *t)
{
	u->init[u->ninit++] = t;
	map_put(&u->have, t->name, t);
}

void unfold_drop(Unfold *u, const OnnxTensor *t)
{
	size_t k = 0;

	for (size_t i = 0; i < u->ninit; i++)
		if (u->init[i] != t)
			u->init[k++] = u->init[i];
	u->ninit = k;
	map_put(&u->have, t->name, NULL);
}

static bool gone(const Unfold *u, size_t i)
{
	const TorchTarget *t = u->sig->slot[i].val;

	return t->param && !map_get(&u->have, u->sig->slot[i].key);
}

static const char *folded_into(const Unfold *u, const char *param)
{
	for (size_t i = 0; i < u->from.n; i++)
		if (map_get(&u->have, u->from.slot[i].key) && listed(u->from.slot[i].val, param))
			return u->from.slot[i].key;
	return NULL;
}

/* ---- equal parameters that were merged ---- */

/* Operand i of n is a parameter that its call does not name. */
static bool misread(const Unfold *u, const OnnxNode *n, size_t i, const char *call)
{
	const char *x = n->input[i];

	return map_get(&u->have, x) && torch_is_param(u->sig, x) && !unfold_reads(u, call, x);
}

/* Operands of n that are parameters which its call does not name are others, merged; those are the ones that the call
 * names and that are not there. They keep their order. */
static void unmerge(Unfold *u, OnnxNode *n)
{
	const char *call = torch_call(u->a, n), *missing[8];
	size_t operand[8], count = 0, k = 0;

	for (size_t i = 0; i < n->n_input; i++) {
		if (!map_get(&u->have, n->input[i]) || !torch_is_param(u->sig, n->input[i]))
			continue;
		u->blind |= !call;
		if (call && !unfold_reads(u, call, n->input[i]) && count < 8)
			operand[count++] = i;
	}
	if (!count)
		return;
	for (size_t i = 0; i < u->sig->n; i++) {
		const char *name = u->sig->slot[i].key;
		size_t at = k;

		if (!gone(u, i) || !unfold_reads(u, call, name) || folded_into(u, name))
			continue;
		if (k == 8)
			return;
		for (; at && unfold_place(u, call, missing[at - 1]) > unfold_place(u, call, name); at--)
			missing[at] = missing[at - 1];
		missing[at] = name;
		k++;
	}
	if (k != count)
		return; /* what is still missing is an error at the end */
	for (size_t i = 0; i < count; i++) {
		OnnxTensor *t = arena_dup(u->a, map_get(&u->have, n->input[operand[i]]), sizeof *t);

		n->input[operand[i]] = t->name = arena_str(u->a, missing[i]);
		unfold_add(u, t);
	}
}

/* A node that comes later may read a parameter that an earlier one brought back. */
static void unmerge_again(Unfold *u, OnnxNode *n)
{
	const char *call = torch_call(u->a, n);
	size_t wrong = n->n_input, count = 0;
	const char *right = NULL;

	for (size_t i = 0; call && i < n->n_input; i++)
		if (misread(u, n, i, call)) {
			wrong = i;
			count++;
		}
	if (count != 1)
		return;
	count = 0;
	for (size_t i = 0; i < u->sig->n; i++) {
		const TorchTarget *t = u->sig->slot[i].val;
		const OnnxTensor *x = map_get(&u->have, n->input[wrong]), *y = map_get(&u->have, u->sig->slot[i].key);
		bool used = false;

		if (!t->param || !y || !unfold_reads(u, call, u->sig->slot[i].key) || y->n_dims != x->n_dims)
			continue;
		for (size_t k = 0; k < n->n_input; k++)
			used |= strcmp(n->input[k], u->sig->slot[i].key) == 0;
		if (used || memcmp(x->dims, y->dims, x->n_dims * sizeof *x->dims))
			continue;
		right = u->sig->slot[i].key;
		count++;
	}
	if (count == 1)
		n->input[wrong] = arena_str(u->a, right);
}

/* ---- biases of zeros that were dropped ---- */

/* n has no bias, but its call names one more parameter than its weights: one that was zero. */
static void undrop(Unfold *u, OnnxNode *n)
{
	bool gemm = strcmp(n->op_type, "Gemm") == 0, turned = strcmp(n->op_type, "ConvTranspose") == 0;
	const char *call = torch_call(u->a, n), *bias = NULL;
	const OnnxTensor *w = n->n_input > 1 ? map_get(&u->have, n->input[1]) : NULL;
	int64_t *dim = NEW(u->a, int64_t);

	if ((!gemm && !turned && strcmp(n->op_type, "Conv")) || !call || !w || w->n_dims < 2 || !is_float(w) ||
		(n->n_input > 2 && *n->input[2]) || (!strstr(call, "aten.linear.") && !strstr(call, "conv")))
		return;
	for (size_t i = 0; i < u->sig->n; i++) {
		const char *name = u->sig->slot[i].key;

		if (!gone(u, i) || !unfold_reads(u, call, name) || folded_into(u, name))
			continue;
		if (bias)
			return;
		bias = name;
	}
	if (!bias || (unfold_reads(u, call, n->input[1]) &&
			     unfold_place(u, call, n->input[1]) > unfold_place(u, call, bias)))
		return;
	int64_t group = turned ? onnx_int(n, "group", 1) : 1;
	*dim = w->dims[gemm ? !onnx_int(n, "transB", 0) : turned];
	if (*dim < 1 || *dim > 1 << 24 || group < 1 || group > 1 << 24)
		return;
	*dim *= group;
	OnnxTensor *t = NEW(u->a, OnnxTensor);
	onnx__tensor_proto__init(t);
	t->name = arena_str(u->a, bias);
	t->has_data_type = t->has_raw_data = 1;
	t->data_type = w->data_type;
	t->n_dims = 1;
	t->dims = dim;
	t->raw_data.len = (size_t)*dim * (size_t)dtype_bytes(dtype_from_onnx(w->data_type));
	t->raw_data.data = memset(arena_alloc(u->a, t->raw_data.len), 0, t->raw_data.len);
	char **input = NEWN(u->a, char *, 3);
	input[0] = n->input[0];
	input[1] = n->input[1];
	input[2] = t->name;
	n->input = input;
	n->n_input = 3;
	unfold_add(u, t);
}

/* ---- weights that were transposed in the file ---- */

static void transpose_bytes(const char *x, char *y, int64_t rows, int64_t columns, size_t size)
{
	for (int64_t r = 0; r < rows; r++)
		for (int64_t c = 0; c < columns; c++)
			memcpy(y + (size_t)(c * rows + r) * size, x + (size_t)(r * columns + c) * size, size);
}

/* Does every reader of the value take it as the weights of a linear layer, with this parameter in its call? */
static bool linear_weights(const Unfold *u, const char *value, const char *param)
{
	for (size_t i = 0; i < u->g->n_node; i++) {
		const OnnxNode *n = u->g->node[i];

		for (size_t k = 0; k < n->n_input; k++) {
			if (strcmp(n->input[k], value))
				continue;
			const char *call = torch_call(u->a, n);
			bool product = strcmp(n->op_type, "MatMul") == 0 || strcmp(n->op_type, "Gemm") == 0;

			if (k != 1 || !product || !call || !strstr(call, "aten.linear.") ||
				!unfold_reads(u, call, param))
				return false;
		}
	}
	return true;
}

OnnxTensor *unfold_param(
	Unfold *u, const OnnxTensor *t, const char *param, const int64_t *dim, size_t ndim, char **data)
{
	OnnxTensor *p = arena_dup(u->a, t, sizeof *p);
	int64_t bytes = dtype_bytes(dtype_from_onnx(t->data_type));

	p->name = arena_str(u->a, param);
	p->dims = arena_dup(u->a, dim, ndim * sizeof *dim);
	p->n_dims = ndim;
	*data = NULL;
	unfold_add(u, p);
	if (u->types_only)
		return p;
	for (size_t i = 0; i < ndim; i++)
		bytes *= dim[i];
	*data = arena_alloc(u->a, (size_t)bytes + 1);
	p->raw_data.data = (uint8_t *)*data;
	p->raw_data.len = (size_t)bytes;
	p->has_raw_data = 1;
	p->has_data_location = 0;
	p->n_external_data = p->n_float_data = p->n_double_data = p->n_int32_data = 0;
	return p;
}

/* `param` with the data of t, transposed. */
static bool transposed(Unfold *u, const OnnxTensor *t, const char *param)
{
	Tensor x;
	char *data;

	if (!onnx_tensor(u->a, u->path, t, u->types_only, &x, FILELOC(u->path), u->d))
		return false;
	unfold_param(u, t, param, (int64_t[]){ t->dims[1], t->dims[0] }, 2, &data);
	if (data)
		transpose_bytes(x.data, data, t->dims[0], t->dims[1], (size_t)dtype_bytes(x.type.dtype));
	return true;
}

/* Is t the transpose of the parameter that is there too (tied weights)? */
static bool same_transposed(Unfold *u, const OnnxTensor *t, const OnnxTensor *param)
{
	Tensor x, y;

	if (t->n_dims != 2 || param->n_dims != 2 || t->dims[0] != param->dims[1] || t->dims[1] != param->dims[0])
		return false;
	if (u->types_only)
		return true;
	if (!onnx_tensor(u->a, u->path, t, false, &x, FILELOC(u->path), u->d) ||
		!onnx_tensor(u->a, u->path, param, false, &y, FILELOC(u->path), u->d) || x.type.dtype != y.type.dtype)
		return false;
	char *z = arena_alloc(u->a, (size_t)type_bytes(&x.type) + 1);
	transpose_bytes(x.data, z, t->dims[0], t->dims[1], (size_t)dtype_bytes(x.type.dtype));
	return memcmp(z, y.data, (size_t)type_bytes(&x.type)) == 0;
}

OnnxNode *unfold_node(Unfold *u, const char *op, const char *name, size_t nin, size_t nout)
{
	OnnxNode *n = NEW(u->a, OnnxNode);

	onnx__node_proto__init(n);
	n->op_type = arena_str(u->a, op);
	n->name = arena_str(u->a, name);
	n->n_input = nin;
	n->n_output = nout;
	n->input = NEWN(u->a, char *, nin);
	n->output = NEWN(u->a, char *, nout);
	if (u->nmade == u->cap) {
		OnnxNode **v = NEWN(u->a, OnnxNode *, u->cap = u->cap ? 2 * u->cap : 64);

		if (u->nmade)
			memcpy(v, u->made, u->nmade * sizeof *v);
		u->made = v;
	}
	return u->made[u->nmade++] = n;
}

OnnxAttr *unfold_attr(Unfold *u, OnnxNode *n, const char *name)
{
	OnnxAttr *x = NEW(u->a, OnnxAttr);

	onnx__attribute_proto__init(x);
	x->name = arena_str(u->a, name);
	x->has_type = 1;
	n->n_attribute = 1;
	n->attribute = NEW(u->a, OnnxAttr *);
	return *n->attribute = x;
}

/* value = param transposed. */
static void transpose_node(Unfold *u, const char *param, char *value)
{
	OnnxNode *n = unfold_node(u, "Transpose", arena_printf(u->a, "%s/transpose", value), 1, 1);
	OnnxAttr *x = unfold_attr(u, n, "perm");

	x->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS;
	x->n_ints = 2;
	x->ints = NEWN(u->a, int64_t, 2);
	x->ints[0] = 1;
	*n->input = arena_str(u->a, param);
	*n->output = value;
}

/* ---- rows of an embedding at fixed positions ---- */

/* Rows of an embedding: equal ones may be one row, which two copies would not train as one. */
static bool distinct_rows(Unfold *u, const OnnxTensor *t)
{
	Tensor x;

	if (strncmp(t->name, "embedding", 9) || t->n_dims < 2)
		return false;
	if (u->types_only)
		return true;
	if (!onnx_tensor(u->a, u->path, t, false, &x, FILELOC(u->path), u->d))
		return false;
	int64_t width = t->dims[t->n_dims - 1], rows = width ? type_numel(&x.type) / width : 0;
	if (rows > 4096)
		return false;
	size_t bytes = (size_t)width * (size_t)dtype_bytes(x.type.dtype);

	for (int64_t i = 0; i < rows; i++)
		for (int64_t k = 0; k < i; k++)
			if (memcmp((char *)x.data + (size_t)i * bytes, (char *)x.data + (size_t)k * bytes, bytes) == 0)
				return false;
	return true;
}

/* t is trained as it lies, under the name of the parameter. */
static void renamed(Unfold *u, OnnxTensor *t, const char *param)
{
	if (u->told)
		diag_note(u->d, FILELOC(u->path), "parameter '%s' is trained as the exporter folded it, '%s'", param,
			t->name);
	for (size_t i = 0; i < u->g->n_node; i++)
		for (size_t k = 0; k < u->g->node[i]->n_input; k++)
			if (strcmp(u->g->node[i]->input[k], t->name) == 0)
				u->g->node[i]->input[k] = arena_str(u->a, param);
	map_put(&u->have, t->name, NULL);
	t->name = arena_str(u->a, param);
	map_put(&u->have, t->name, t);
}

/* ---- the whole ---- */

static bool refuse(Unfold *u, const char *param, const char *into)
{
	diag_error(u->d, FILELOC(u->path), 208,
		into ? "this is an optimized export: parameter '%s' was folded into '%s'"
		     : "this is an optimized export: '%s' was folded or merged away",
		param, into);
	diag_note(u->d, FILELOC(u->path),
		"export for training: torch.onnx.export(model.train(), args, path, dynamo=True, "
		"optimize=False)");
	return false;
}

/* BatchNormalization that was folded into the weights of a convolution leaves no variance. */
static bool norms_there(Unfold *u)
{
	for (size_t i = 0; i < u->sig->n; i++) {
		const char *name = u->sig->slot[i].key, *stat = strrchr(name, '.');

		if (stat && strcmp(stat, ".running_var") == 0 && !map_get(&u->have, name))
			return refuse(u, name, NULL);
	}
	return true;
}

/* One initializer that the exporter made. */
static bool unfold(Unfold *u, OnnxTensor *t)
{
	const char *list = map_get(&u->from, t->name), *all[8], *param = NULL;
	bool done = false;
	int count = 0;

	u->blind |= !list && is_float(t) && is_array(t); /* PyTorch 2.8 and older do not tell */
	for (size_t i = 0; list && i < u->sig->n; i++)
		if (torch_is_param(u->sig, u->sig->slot[i].key) && listed(list, u->sig->slot[i].key)) {
			param = param ? param : u->sig->slot[i].key;
			if (count < 8)
				all[count] = u->sig->slot[i].key;
			count++;
		}
	if (!count || !is_float(t))
		return true; /* a constant */
	const OnnxTensor *there = map_get(&u->have, param);
	char *name = t->name;
	if (count == 1 && there && same_transposed(u, t, there)) {
		unfold_drop(u, t);
		transpose_node(u, param, name);
		return true;
	}
	if (there)
		return refuse(u, param, name);
	if (count == 1 && t->n_dims == 2 && linear_weights(u, name, param)) {
		unfold_drop(u, t);
		transpose_node(u, param, name);
		return transposed(u, t, param);
	}
	if (count <= 8 && !unfold_recurrent(u, t, all, count, &done))
		return false;
	if (!done && count == 1 && distinct_rows(u, t)) {
		renamed(u, t, param);
		map_put(&u->from, param, (void *)(uintptr_t)list); /* what is left of it is accounted for */
		done = true;
	}
	return done || refuse(u, param, name);
}

/* Is the parameter an operand of a node of this call, as it is or folded? */
static bool is_operand(Unfold *u, const char *call, const char *param)
{
	for (size_t i = 0; i < u->g->n_node; i++) {
		const OnnxNode *n = u->g->node[i];
		const char *own = torch_call(u->a, n);

		for (size_t k = 0; own && strcmp(own, call) == 0 && k < n->n_input; k++) {
			const char *list = map_get(&u->from, n->input[k]);

			if (strcmp(n->input[k], param) == 0 || (list && listed(list, param)))
				return true;
		}
	}
	return false;
}

/* No node may read a parameter where its call names another one. Where it names none, it read a view; what that was of
 * is not told. */
static bool right_operands(Unfold *u)
{
	for (size_t i = 0; i < u->g->n_node; i++) {
		const OnnxNode *n = u->g->node[i];
		const char *call = torch_call(u->a, n);
		bool wrong = false;

		for (size_t k = 0; call && k < n->n_input; k++)
			wrong |= misread(u, n, k, call) && !map_has(&u->from, n->input[k]);
		for (size_t k = 0; wrong && k < u->sig->n; k++) {
			const char *name = u->sig->slot[k].key;

			if (torch_is_param(u->sig, name) && unfold_reads(u, call, name) && !is_operand(u, call, name))
				return refuse(u, name, NULL);
		}
		u->blind |= wrong;
	}
	return true;
}

/* Parameters that are still missing: tied ones and unused ones are named nowhere. */
static bool complete(Unfold *u)
{
	for (size_t i = 0; i < u->sig->n; i++) {
		const char *name = u->sig->slot[i].key;
		const TorchTarget *t = u->sig->slot[i].val;

		if (!gone(u, i) || folded_into(u, name))
			continue;
		bool named = u->blind || !t->place;
		for (size_t k = 0; k < u->g->n_node && !named; k++) {
			const char *call = torch_call(u->a, u->g->node[k]);

			named = call && unfold_reads(u, call, name);
		}
		if (named)
			return refuse(u, name, NULL);
	}
	return true;
}

static void write_back(Unfold *u, Map *origin)
{
	OnnxNode **node = NEWN(u->a, OnnxNode *, u->g->n_node + u->nmade);

	for (size_t i = 0; i < u->g->n_node; i++) {
		node[u->nmade + i] = u->g->node[i];
		if (origin && !map_has(origin, u->g->node[i])) {
			OnnxOrigin o = { (int)i, 0 };

			map_put(origin, u->g->node[i], arena_dup(u->a, &o, sizeof o));
		}
	}
	for (size_t i = 0; i < u->nmade; i++) {
		OnnxOrigin o = { 0, 0 };

		node[i] = u->made[i];
		if (origin)
			map_put(origin, node[i], arena_dup(u->a, &o, sizeof o));
	}
	u->g->node = node;
	u->g->n_node += u->nmade;
	u->g->initializer = u->init;
	u->g->n_initializer = u->ninit;
}

bool torch_unfold(Arena *a, OnnxModel *p, const char *path, bool types_only, Map *origin, Diag *d)
{
	OnnxGraph *g = p->graph;
	Unfold u = { .a = a,
		.d = d,
		.path = arena_str(a, path),
		.g = g,
		.sig = torch_signature(a, g),
		.types_only = types_only,
		.told = origin != NULL };
	bool changed = false;

	if (!u.sig)
		return true;
	map_init(&u.have, a, true);
	map_init(&u.from, a, true);
	for (size_t i = 0; i < g->n_node; i++)
		if (!g->node[i]->op_type)
			return true; /* the import says what is wrong */
	u.init = NEWN(a, OnnxTensor *, 2 * g->n_initializer + u.sig->n);
	for (size_t i = 0; i < g->n_initializer; i++) {
		if (!g->initializer[i]->name || !*g->initializer[i]->name || map_has(&u.have, g->initializer[i]->name))
			return true;
		unfold_add(&u, g->initializer[i]);
		changed |= !map_has(u.sig, g->initializer[i]->name);
	}
	for (size_t i = 0; i < u.sig->n;
		i++) /* biases of zeros are dropped and normalisations folded without a trace */
		changed |= !map_get(&u.have, u.sig->slot[i].key);
	if (!changed)
		return true;
	for (size_t i = 0; i < g->n_value_info; i++) {
		const char *list = torch_folded_from(a, g->value_info[i]);

		if (list && g->value_info[i]->name && map_has(&u.have, g->value_info[i]->name))
			map_put(&u.from, g->value_info[i]->name, (void *)(uintptr_t)list);
	}
	if (!norms_there(&u))
		return false;
	for (size_t i = 0; i < g->n_node; i++)
		unmerge(&u, g->node[i]);
	for (size_t i = 0; i < g->n_node; i++)
		unmerge_again(&u, g->node[i]);
	for (size_t i = 0; i < g->n_node; i++)
		undrop(&u, g->node[i]);
	for (size_t i = 0; i < g->n_initializer; i++)
		if (!map_has(u.sig, g->initializer[i]->name) && !unfold(&u, g->initializer[i]))
			return false;
	if (!right_operands(&u) || !complete(&u))
		return false;
	write_back(&u, origin);
	return true;
}
