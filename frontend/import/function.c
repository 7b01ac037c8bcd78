/* Local functions (ModelProto.functions, IR 8 on): before anything else is done, every call is replaced by the nodes of
 * its function. A value `inner` of a call `call` is named call/inner; attributes that refer to the function's are those
 * of the call, or the function's defaults (IR 9). */
#include <string.h>
#include "ir/base/buf.h"
#include "frontend/onnx/torch.h"
#include "inline.h"

enum { MAXMADE = 1 << 18 }; /* nodes and calls that a model may grow to; long names count as more */

typedef struct Nodes {
	OnnxNode **v;
	size_t n, cap;
} Nodes;

typedef struct Expand {
	Arena *a;
	Diag *d;
	const char *path;
	Map *origin, taken, fun, size;
	const OnnxFunction *chain[MAXNEST];
	int depth, index; /* calls that are open; the node of the graph at work */
	size_t made;
	const OnnxNode *at;
} Expand;

static const char *text(const char *s) { return s ? s : ""; }

static Loc here(const Expand *x)
{
	return (Loc){ x->path, 0, 0, x->index, x->at ? x->at->name : NULL, x->at ? x->at->op_type : NULL,
		x->at ? torch_module(x->a, x->at) : NULL };
}

/* ---- fields that the generated schema may be too old for ---- */

/* The bytes of a length-prefixed field that the parser did not know; NULL: the k-th is not there. */
static const uint8_t *unknown(const ProtobufCMessage *m, uint32_t tag, unsigned k, size_t *len)
{
	for (unsigned i = 0; i < m->n_unknown_fields; i++) {
		const ProtobufCMessageUnknownField *u = &m->unknown_fields[i];
		size_t at = 0;

		if (u->tag != tag || u->wire_type != PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED || k--)
			continue;
		while (at < u->len && u->data[at++] & 128)
			;
		*len = u->len - at;
		return u->data + at;
	}
	return NULL;
}

/* A string field by number, whether the schema has it or not. */
static const char *string_field(Arena *a, const ProtobufCMessage *m, uint32_t tag)
{
	const ProtobufCFieldDescriptor *f = protobuf_c_message_descriptor_get_field(m->descriptor, tag);
	size_t len = 0;

	if (f)
		return text(*(const char *const *)((const char *)m + f->offset));
	const uint8_t *p = unknown(m, tag, 0, &len);
	return p ? arena_strn(a, (const char *)p, len) : "";
}

static const char *node_overload(Arena *a, const OnnxNode *n) { return string_field(a, &n->base, 8); }

const OnnxAttr *function_default(Arena *a, const OnnxFunction *fun, const char *name)
{
	const ProtobufCFieldDescriptor *f = protobuf_c_message_descriptor_get_field(fun->base.descriptor, 11);
	const uint8_t *p;
	size_t len;

	if (f) {
		size_t n = *(const size_t *)(const void *)((const char *)fun + f->quantifier_offset);
		OnnxAttr *const *x = *(OnnxAttr *const *const *)(const void *)((const char *)fun + f->offset);

		for (size_t i = 0; i < n; i++)
			if (strcmp(text(x[i]->name), name) == 0)
				return x[i];
	}
	for (unsigned k = 0; !f && (p = unknown(&fun->base, 11, k, &len)); k++) {
		const OnnxAttr *x = onnx_attr_unpack(a, p, len);

		if (x && strcmp(text(x->name), name) == 0)
			return x;
	}
	return NULL;
}

/* ---- functions by name ---- */

static const char *key_of(Arena *a, const char *domain, const char *name, const char *overload)
{
	domain = strcmp(text(domain), "ai.onnx") == 0 ? "" : text(domain);
	return arena_printf(a, "%s%s%s%s%s", domain, *domain ? "." : "", text(name), *overload ? ":" : "", overload);
}

static const char *full_name(const Expand *x, const OnnxFunction *f)
{
	return key_of(x->a, f->domain, f->name, string_field(x->a, &f->base, 13));
}

static const OnnxFunction *find(const Expand *x, const OnnxNode *n)
{
	return map_get(&x->fun, key_of(x->a, n->domain, n->op_type, node_overload(x->a, n)));
}

static bool collect(Expand *x, const OnnxModel *p)
{
	for (size_t i = 0; i < p->n_functions; i++) {
		OnnxFunction *f = p->functions[i];
		const char *name = full_name(x, f);

		if (!*text(f->name))
			return diag_error(x->d, FILELOC(x->path), 213, "function #%zu has no name", i);
		if (map_has(&x->fun, name))
			return diag_error(x->d, FILELOC(x->path), 213, "function %s is there twice", name);
		if (!inline_depth_ok(f->node, f->n_node, 0))
			return diag_error(x->d, FILELOC(x->path), 213,
				"function %s: graphs in attributes are nested more than %d "
				"deep",
				name, MAXNEST);
		map_put(&x->fun, name, f);
	}
	return true;
}

/* ---- calls ---- */

static bool expand_node(Expand *x, OnnxNode *n, int opset, Nodes *to);

static bool grow(Expand *x, size_t by)
{
	x->made = x->made > MAXMADE || by > MAXMADE ? MAXMADE + 1 : x->made + by;
	return x->made <= MAXMADE || diag_error(x->d, here(x), 213, "calls grow to more than %d nodes", MAXMADE);
}

static bool push(Expand *x, Nodes *to, OnnxNode *n, int opset)
{
	OnnxOrigin *o = NEW(x->a, OnnxOrigin);

	if (!grow(x, 1))
		return false;
	if (to->n == to->cap) {
		OnnxNode **v = NEWN(x->a, OnnxNode *, to->cap = to->cap ? 2 * to->cap : 64);

		for (size_t i = 0; i < to->n; i++)
			v[i] = to->v[i];
		to->v = v;
	}
	*o = (OnnxOrigin){ x->index, opset };
	map_put(x->origin, n, o);
	to->v[to->n++] = n;
	return true;
}

/* The function's own version of the default domain; `outer` where it says nothing, which is 0, the model's, for a call
 * from the graph. -1 after a diagnostic. */
static int opset_of(Expand *x, const OnnxFunction *f, int outer)
{
	for (size_t i = 0; i < f->n_opset_import; i++) {
		const char *dom = text(f->opset_import[i]->domain);
		int64_t v = f->opset_import[i]->version;

		if (*dom && strcmp(dom, "ai.onnx"))
			continue;
		if (v >= OPSET_LEAST && v <= OPSET_MOST)
			return (int)v;
		diag_error(x->d, here(x), 202, "function %s: opset %lld of the default domain; %d to %d are read",
			full_name(x, f), (long long)v, OPSET_LEAST, OPSET_MOST);
		return -1;
	}
	return outer;
}

static bool check_call(Expand *x, const OnnxNode *call, const OnnxFunction *f)
{
	const bool in = call->n_input > f->n_input;

	if (!in && call->n_output <= f->n_output)
		return true;
	return diag_error(x->d, here(x), 213, "function %s has %zu %s, the call has %zu", full_name(x, f),
		in ? f->n_input : f->n_output, in ? "inputs" : "outputs", in ? call->n_input : call->n_output);
}

static bool open_call(Expand *x, const OnnxFunction *f)
{
	Buf b = { 0 };

	for (int i = 0; i < x->depth; i++) {
		if (x->chain[i] != f)
			continue;
		for (int k = i; k < x->depth; k++)
			buf_printf(&b, "%s -> ", full_name(x, x->chain[k]));
		diag_error(x->d, here(x), 213, "function %s calls itself: %s%s", full_name(x, f), buf_str(&b),
			full_name(x, f));
		buf_free(&b);
		return false;
	}
	if (x->depth == MAXNEST)
		return diag_error(x->d, here(x), 213, "calls of functions are nested more than %d deep", MAXNEST);
	x->chain[x->depth++] = f;
	return true;
}

static bool size_of(Expand *x, const OnnxFunction *f, size_t *size);

/* Adds what these nodes grow to, up to MAXMADE + 1: so that nothing is written out that is refused in the end. */
static bool count(Expand *x, OnnxNode *const *node, size_t n, size_t *sum)
{
	for (size_t i = 0; i < n && *sum <= MAXMADE; i++) {
		const OnnxFunction *f = find(x, node[i]);
		size_t size = 0;

		if (f && !size_of(x, f, &size))
			return false;
		*sum += 1 + size;
		for (size_t k = 0; k < node[i]->n_attribute; k++) {
			const OnnxGraph *g = node[i]->attribute[k]->g;

			if (g && !count(x, g->node, g->n_node, sum))
				return false;
		}
	}
	return true;
}

/* Nodes and calls that a call of f grows to; finds functions that call themselves. */
static bool size_of(Expand *x, const OnnxFunction *f, size_t *size)
{
	const size_t *known = map_get(&x->size, f);

	if (!known) {
		*size = 0;
		if (!open_call(x, f) || !count(x, f->node, f->n_node, size))
			return false;
		x->depth--;
		map_put(&x->size, f, arena_dup(x->a, size, sizeof *size));
		return true;
	}
	*size = *known;
	return true;
}

/* A value that the function passes on: an output that is an input, or is there twice. */
static bool pass_on(Expand *x, const char *from, const char *to, int opset, Nodes *list)
{
	OnnxNode *n = NEW(x->a, OnnxNode);

	onnx__node_proto__init(n);
	n->op_type = (char *)(uintptr_t)"Identity";
	n->name = n->domain = (char *)(uintptr_t)"";
	n->n_input = n->n_output = 1;
	n->input = NEWN(x->a, char *, 1);
	n->output = NEWN(x->a, char *, 1);
	n->input[0] = (char *)(uintptr_t)from;
	n->output[0] = (char *)(uintptr_t)to;
	return push(x, list, n, opset);
}

static bool makes(const OnnxFunction *f, const char *name)
{
	for (size_t i = 0; i < f->n_node; i++)
		for (size_t k = 0; k < f->node[i]->n_output; k++)
			if (strcmp(f->node[i]->output[k], name) == 0)
				return true;
	return false;
}

static bool expand_call(Expand *x, OnnxNode *call, const OnnxFunction *f, int outer, Nodes *to)
{
	Scope root = { .a = x->a, .taken = &x->taken, .origin = x->origin }, s;
	const int opset = opset_of(x, f, outer);
	bool *later = NEWN(x->a, bool, f->n_output + 1);

	const size_t names = strlen(inline_prefix(call)) * f->n_node;

	if (opset < 0 || !check_call(x, call, f) || !open_call(x, f) || !grow(x, 1 + names / 256))
		return false;
	map_init(&root.names, x->a, true);
	scope_open(&s, &root, inline_prefix(call));
	s.closed = true;
	s.call = call;
	s.fun = f;
	for (size_t i = 0; i < f->n_input; i++)
		map_put(&s.names, f->input[i], i < call->n_input ? call->input[i] : (char *)(uintptr_t)"");
	for (size_t i = 0; i < call->n_output; i++) {
		later[i] = map_has(&s.names, f->output[i]);
		if (!later[i] && !makes(f, f->output[i]))
			return diag_error(x->d, here(x), 213, "function %s: output %zu, '%s', is made by no node",
				full_name(x, f), i, f->output[i]);
		if (!later[i] && *call->output[i])
			map_put(&s.names, f->output[i], call->output[i]);
	}
	for (size_t i = 0; i < f->n_node; i++)
		for (size_t k = 0; k < f->node[i]->n_output; k++)
			scope_define(&s, f->node[i]->output[k]);
	for (size_t i = 0; i < f->n_node; i++)
		if (!expand_node(x, scope_node(&s, f->node[i]), opset, to))
			return false;
	for (size_t i = 0; i < call->n_output; i++)
		if (later[i] && *call->output[i] &&
			!pass_on(x, scope_use(&s, f->output[i]), call->output[i], opset, to))
			return false;
	x->depth--;
	return true;
}

static bool expand_graph(Expand *x, OnnxGraph *g, int opset)
{
	Nodes list = { 0 };

	for (size_t i = 0; i < g->n_node; i++)
		if (!expand_node(x, g->node[i], opset, &list))
			return false;
	g->node = list.v;
	g->n_node = list.n;
	return true;
}

static bool expand_node(Expand *x, OnnxNode *n, int opset, Nodes *to)
{
	const OnnxFunction *f = find(x, n);

	if (f)
		return expand_call(x, n, f, opset, to);
	for (size_t i = 0; i < n->n_attribute; i++)
		if (n->attribute[i]->g && !expand_graph(x, n->attribute[i]->g, opset))
			return false;
	return push(x, to, n, opset);
}

bool inline_functions(Arena *a, OnnxModel *p, const char *path, Map *origin, Diag *d)
{
	Expand x = { .a = a, .d = d, .path = arena_str(a, path), .origin = origin };
	Nodes list = { 0 };

	map_init(origin, a, false);
	if (!inline_depth_ok(p->graph->node, p->graph->n_node, 0))
		return diag_error(
			d, FILELOC(x.path), 206, "graphs in attributes are nested more than %d deep", MAXNEST);
	if (!p->n_functions)
		return true;
	map_init(&x.fun, a, true);
	map_init(&x.taken, a, true);
	map_init(&x.size, a, false);
	inline_names(&x.taken, p->graph);
	if (!collect(&x, p))
		return false;
	for (size_t i = 0; i < p->graph->n_node; i++) {
		x.index = (int)i;
		x.at = p->graph->node[i];
		size_t size = 0;
		if (!count(&x, &p->graph->node[i], 1, &size) || (size > MAXMADE && !grow(&x, size)))
			return false;
		if (!expand_node(&x, p->graph->node[i], 0, &list))
			return false;
	}
	p->graph->node = list.v;
	p->graph->n_node = list.n;
	return true;
}
