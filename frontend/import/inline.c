/* Scopes of bodies, and If: a condition that is constant after folding picks the branch, whose nodes are then imported
 * in the place of If. Branches see the values around them. */
#include <string.h>
#include "frontend/canon/canon.h"
#include "inline.h"

/* ---- names ---- */

static const char *text(const char *s) { return s ? s : ""; }

void inline_names(Map *taken, const OnnxGraph *g)
{
	for (size_t i = 0; i < g->n_initializer; i++)
		map_put(taken, text(g->initializer[i]->name), taken);
	for (size_t i = 0; i < g->n_input; i++)
		map_put(taken, text(g->input[i]->name), taken);
	for (size_t i = 0; i < g->n_node; i++) {
		const OnnxNode *n = g->node[i];

		for (size_t k = 0; k < n->n_output; k++)
			map_put(taken, n->output[k], taken);
		for (size_t k = 0; k < n->n_attribute; k++)
			if (n->attribute[k]->g)
				inline_names(taken, n->attribute[k]->g);
	}
}

bool inline_depth_ok(OnnxNode *const *node, size_t n, int depth)
{
	if (depth > MAXNEST)
		return false;
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < node[i]->n_attribute; k++) {
			const OnnxAttr *x = node[i]->attribute[k];

			if (x->g && !inline_depth_ok(x->g->node, x->g->n_node, depth + 1))
				return false;
			for (size_t j = 0; j < x->n_graphs; j++)
				if (!inline_depth_ok(x->graphs[j]->node, x->graphs[j]->n_node, depth + 1))
					return false;
		}
	return true;
}

const char *inline_prefix(const OnnxNode *n)
{
	return *text(n->name) ? n->name : n->n_output && *n->output[0] ? n->output[0] : text(n->op_type);
}

const char *inline_inner(const OnnxNode *n, const char *name)
{
	const char *path = inline_prefix(n), *end = strrchr(path, '/');
	size_t len = end ? (size_t)(end - path) + 1 : 0;

	return strncmp(path, name, len) == 0 && name[len] ? name + len : name;
}

const char *inline_branch(Arena *a, const OnnxNode *n, const char *prefix, bool then)
{
	return arena_printf(a, "%s%s%s/%s", prefix, *prefix ? "/" : "", inline_prefix(n), then ? "then" : "else");
}

void scope_open(Scope *s, const Scope *up, const char *prefix)
{
	*s = (Scope){ .a = up->a, .up = up, .taken = up->taken, .origin = up->origin, .prefix = prefix };
	map_init(&s->names, s->a, true);
}

/* The name of something in the scope. What an outer branch has named already keeps that part once: a name does not
 * double with every level. */
static const char *inside(const Scope *s, const char *name)
{
	return arena_printf(s->a, "%s/%s", s->prefix, s->node ? inline_inner(s->node, name) : name);
}

const char *scope_define(Scope *s, const char *name)
{
	const char *base, *full;

	if (!*name || map_has(&s->names, name))
		return *name ? map_get(&s->names, name) : "";
	full = base = inside(s, name);
	for (int i = 1; map_has(s->taken, full); i++)
		full = arena_printf(s->a, "%s.%d", base, i);
	map_put(s->taken, full, s->taken);
	map_put(&s->names, name, (void *)(uintptr_t)full);
	return full;
}

const char *scope_use(const Scope *s, const char *name)
{
	const char *as = *name ? map_get(&s->names, name) : "";

	if (as)
		return as;
	if (s->closed)
		return arena_printf(s->a, "%s/%s", s->prefix, name);
	return s->up ? scope_use(s->up, name) : name;
}

/* ---- copies ---- */

static char *own(const char *s) /* protobuf-c has its strings without const */ { return (char *)(uintptr_t)s; }

static char **renamed(const Scope *s, char *const *name, size_t n)
{
	char **p = NEWN(s->a, char *, n + 1);

	for (size_t i = 0; i < n; i++)
		p[i] = own(scope_use(s, name[i]));
	return p;
}

static Onnx__ValueInfoProto **renamed_infos(const Scope *s, Onnx__ValueInfoProto *const *v, size_t n)
{
	Onnx__ValueInfoProto **p = NEWN(s->a, Onnx__ValueInfoProto *, n + 1);

	for (size_t i = 0; i < n; i++) {
		p[i] = arena_dup(s->a, v[i], sizeof *v[i]);
		p[i]->name = own(scope_use(s, text(v[i]->name)));
	}
	return p;
}

static OnnxTensor *renamed_tensor(const Scope *s, const OnnxTensor *t)
{
	OnnxTensor *c = arena_dup(s->a, t, sizeof *t);

	c->name = own(scope_use(s, text(t->name)));
	return c;
}

static void define_all(Scope *s, const OnnxGraph *g)
{
	for (size_t i = 0; i < g->n_input; i++)
		scope_define(s, text(g->input[i]->name));
	for (size_t i = 0; i < g->n_initializer; i++)
		scope_define(s, text(g->initializer[i]->name));
	for (size_t i = 0; i < g->n_node; i++)
		for (size_t k = 0; k < g->node[i]->n_output; k++)
			scope_define(s, g->node[i]->output[k]);
}

OnnxGraph *scope_graph(const Scope *up, const OnnxGraph *g)
{
	OnnxGraph *c = arena_dup(up->a, g, sizeof *g);
	Scope s;

	scope_open(&s, up, up->prefix);
	s.node = up->node;
	define_all(&s, g);
	c->input = renamed_infos(&s, g->input, g->n_input);
	c->output = renamed_infos(&s, g->output, g->n_output);
	c->n_value_info = 0;
	c->initializer = NEWN(s.a, OnnxTensor *, g->n_initializer + 1);
	for (size_t i = 0; i < g->n_initializer; i++)
		c->initializer[i] = renamed_tensor(&s, g->initializer[i]);
	c->node = NEWN(s.a, OnnxNode *, g->n_node + 1);
	for (size_t i = 0; i < g->n_node; i++)
		c->node[i] = scope_node(&s, g->node[i]);
	return c;
}

static const OnnxAttr *find_attr(const OnnxNode *n, const char *name)
{
	const OnnxAttr *x = onnx_attr(n, name);

	return x && !*text(x->ref_attr_name) ? x : NULL;
}

/* An attribute as the scope sees it; NULL: it refers to one that neither the call nor the function gives. */
static OnnxAttr *scope_attr(const Scope *s, const OnnxAttr *x)
{
	const Scope *f = s;
	OnnxAttr *c;

	while (f && !f->fun)
		f = f->up;
	if (*text(x->ref_attr_name) && f) {
		const OnnxAttr *given = find_attr(f->call, x->ref_attr_name);

		const bool as_is = given != NULL; /* a graph among the call's attributes has its names already */

		given = given ? given : function_default(s->a, f->fun, x->ref_attr_name);
		if (!given)
			return NULL;
		c = arena_dup(s->a, given, sizeof *given);
		c->name = x->name;
		c->ref_attr_name = own("");
		c->g = c->g && !as_is ? scope_graph(s, c->g) : c->g;
		return c;
	}
	c = arena_dup(s->a, x, sizeof *x);
	if (c->g)
		c->g = scope_graph(s, c->g);
	c->graphs = NEWN(s->a, OnnxGraph *, c->n_graphs + 1);
	for (size_t i = 0; i < c->n_graphs; i++)
		c->graphs[i] = scope_graph(s, x->graphs[i]);
	return c;
}

OnnxNode *scope_node(const Scope *s, const OnnxNode *n)
{
	OnnxNode *c = arena_dup(s->a, n, sizeof *n);

	c->name = own(inside(s, *text(n->name) ? n->name : text(n->op_type)));
	c->input = renamed(s, n->input, n->n_input);
	c->output = renamed(s, n->output, n->n_output);
	c->attribute = NEWN(s->a, OnnxAttr *, n->n_attribute + 1);
	c->n_attribute = 0;
	for (size_t i = 0; i < n->n_attribute; i++) {
		OnnxAttr *x = scope_attr(s, n->attribute[i]);

		if (x)
			c->attribute[c->n_attribute++] = x;
	}
	if (s->origin && map_has(s->origin, n))
		map_put(s->origin, c, map_get(s->origin, n));
	return c;
}

/* ---- If ---- */

/* Which branch; false after a diagnostic. */
static bool condition(Import *im, const OnnxNode *n, bool *then)
{
	if (!canon_need(im, n, 1))
		return false;
	const Value *c = onnx_in(im, n, 0);
	if (c->type.dtype != DT_bool || type_numel(&c->type) != 1)
		return diag_error(im->d, im->b.loc, 302, "the condition '%s' is %s, one bool is wanted", n->input[0],
			str_type(im->d->scratch, &c->type));
	if (c->kind != VAL_CONST || !c->data) {
		diag_error(im->d, im->b.loc, 302,
			"the condition '%s' is not constant: a branch is taken when the model is read, "
			"by what shapes and constants say",
			n->input[0]);
		diag_note(im->d, im->b.loc,
			"export the model with the branch that training takes (a traced export follows one), "
			"or choose between two results with Where");
		return false;
	}
	*then = *(const unsigned char *)c->data != 0;
	return true;
}

bool inline_nodes(Import *im, const OnnxGraph *g)
{
	const int opset = im->opset;
	const Loc loc = im->b.loc;

	for (size_t i = 0; i < g->n_initializer; i++)
		if (!onnx_initializer(im, g, g->initializer[i]))
			return false;
	for (size_t i = 0; i < g->n_node; i++) {
		im->opset = onnx_opset(im, g->node[i], opset);
		if (!onnx_node(im, g->node[i], (size_t)loc.node))
			return false;
	}
	im->opset = opset;
	im->b.loc = loc;
	return true;
}

/* The branch was taken at the export's batch too. */
static bool same_branch(Import *im, const OnnxGraph *g)
{
	const OnnxNode *n = g->n_node ? g->node[0] : NULL;

	if (!n || !im->shapes || !n->n_output || !*n->output[0] || map_has(im->shapes, n->output[0]))
		return true;
	return rebind_refuse(im,
		arena_printf(im->a, "the condition takes another branch at the export's batch %lld than at batch %lld",
			(long long)im->from, (long long)im->to));
}

void inline_root(Import *im, Scope *s, const OnnxNode *n)
{
	if (!im->taken.arena) {
		map_init(&im->taken, im->a, true);
		inline_names(&im->taken, im->top);
	}
	*s = (Scope){ .a = im->a, .taken = &im->taken, .origin = im->origin, .node = n, .prefix = inline_prefix(n) };
	map_init(&s->names, im->a, true);
}

bool inline_initializers(Import *im, Scope *s, const OnnxGraph *g)
{
	for (size_t i = 0; i < g->n_initializer; i++) {
		scope_define(s, text(g->initializer[i]->name));
		if (!onnx_initializer(im, g, renamed_tensor(s, g->initializer[i])))
			return false;
	}
	return true;
}

/* What the branch gives (x as it stands in the file, g with names of the graph) becomes what If gives, by name too. */
static bool branch_outputs(Import *im, const OnnxNode *n, const OnnxAttr *x, const OnnxGraph *g, const char *prefix)
{
	for (size_t i = 0; i < n->n_output; i++) {
		const char *name = g->output[i]->name;
		Value *v = map_get(&im->env, name);

		if (!v && map_has(&im->seq, name)) {
			map_put(&im->seq, n->output[i], map_get(&im->seq, name));
			continue;
		}
		if (!v)
			return diag_error(im->d, im->b.loc, 204, "output %zu of %s, '%s', is defined nowhere", i,
				x->name, text(x->g->output[i]->name));
		bool own_name = strcmp(v->name, name) == 0 && strncmp(name, prefix, strlen(prefix)) == 0;
		if (v->kind == VAL_NODE && *n->output[i] && own_name)
			value_rename(im->b.g, v, n->output[i]);
		onnx_bind(im, n, i, v);
	}
	return true;
}

bool inline_if(Import *im, const OnnxNode *n)
{
	Scope s;
	bool then = false;

	if (!condition(im, n, &then))
		return false;
	const OnnxAttr *x = onnx_attr(n, then ? "then_branch" : "else_branch");
	if (!x || !x->g)
		return diag_error(
			im->d, im->b.loc, 302, "attribute %s is missing", then ? "then_branch" : "else_branch");
	if (x->g->n_output < n->n_output)
		return diag_error(im->d, im->b.loc, 302, "%s gives %zu value%s, the node has %zu outputs", x->name,
			x->g->n_output, x->g->n_output == 1 ? "" : "s", n->n_output);
	if (x->g->n_input || x->g->n_sparse_initializer)
		return diag_error(
			im->d, im->b.loc, 302, "%s has %s", x->name, x->g->n_input ? "inputs" : "sparse initializers");
	inline_root(im, &s, n);
	s.prefix = inline_branch(im->a, n, "", then);
	const OnnxGraph *g = scope_graph(&s, x->g);
	return onnx_operators(im, x->g) && same_branch(im, g) && inline_nodes(im, g) &&
	       branch_outputs(im, n, x, g, s.prefix);
}
