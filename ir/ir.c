/* Building and changing graphs. Use lists and links are touched here and nowhere else. */
#include "ir.h"
#include <stdio.h>
#include <string.h>
#include "op.h"

/* ---- modules and graphs ---- */

Module *module_new(Arena *a, const char *name)
{
	Module *m = NEW(a, Module);

	m->arena = a;
	m->name = arena_str(a, name);
	map_init(&m->names, a, true);
	return m;
}

Graph *graph_new(Module *m, const char *name)
{
	Graph *g = NEW(m->arena, Graph);

	g->module = m;
	g->name = arena_str(m->arena, name);
	g->names = NEW(m->arena, Map);
	map_init(g->names, m->arena, true);
	return g;
}

Graph *stage_graph_new(Module *m, Stage *s, const char *name)
{
	Graph *g = graph_new(m, name);
	Graph *other = s->forward ? s->forward : s->backward ? s->backward : s->update;

	g->stage = s;
	if (other)
		g->names = other->names;
	return g;
}

int stage_graphs(const Stage *s, Graph *g[4])
{
	Graph *const all[4] = { s->forward, s->backward, s->weight, s->update };
	int n = 0;

	for (int i = 0; i < 4; i++)
		if (all[i])
			g[n++] = all[i];
	return n;
}

static Value *value_new(Module *m, ValueKind kind, const char *name, Type t)
{
	Value *v = NEW(m->arena, Value);

	v->kind = kind;
	v->name = name;
	v->type = t;
	v->batch_axis = -1;
	v->ignore_index = INT64_MIN;
	return v;
}

static const char *numbered(Arena *a, const Map *names, const char *base)
{
	const size_t n = strlen(base);
	char *name = NEWN(a, char, n + 13);

	memcpy(name, base, n);
	for (int i = 1; map_get(names, name); i++)
		snprintf(name + n, 13, ".%d", i);
	return name;
}

const char *unique_name(Graph *g, const char *base) { return numbered(g->module->arena, g->names, *base ? base : "v"); }

Value *graph_input(Graph *g, const char *name, Type t)
{
	Value *v = value_new(g->module, VAL_INPUT, unique_name(g, name), t);

	v->index = g->nin;
	map_put(g->names, v->name, v);
	PUSH(g->module->arena, g->in, g->nin, g->capin) = v;
	return v;
}

void graph_output(Graph *g, Value *v) { PUSH(g->module->arena, g->out, g->nout, g->capout) = v; }

int stage_tensor(const Module *m, int stage)
{
	const int n = m->tensor_of && stage >= 0 && stage < m->ntensor_of ? m->tensor_of[stage] : m->tensor;

	return n > 1 ? n : 1;
}

int first_task(const Module *m, int rank)
{
	int first = 0;

	if (!m->tensor_of)
		return rank * stage_tensor(m, 0);
	for (int t = 0; t < m->nstage && m->stage[t]->rank < rank; t++) {
		const int before = rank - m->stage[t]->rank, all = m->stage[t]->replicas;

		first += (before < all ? before : all) * stage_tensor(m, t);
	}
	return first;
}

int module_stages(const Module *m)
{
	int n = 0;

	while (n < m->nstage && !m->stage[n]->server)
		n++;
	return n;
}

const char *residual_name(Arena *a, const Value *gradient)
{
	return arena_printf(a, "%s:residual", gradient->name + (strncmp(gradient->name, "g.", 2) ? 0 : 2));
}

Value *module_param(Module *m, const char *name, Type t, ParamKind kind)
{
	Value *v = value_new(m, VAL_PARAM, numbered(m->arena, &m->names, name), t);

	v->param = NEW(m->arena, Param);
	v->param->kind = kind;
	map_put(&m->names, v->name, v);
	PUSH(m->arena, m->param, m->nparam, m->capparam) = v;
	return v;
}

bool module_may_fold(Module *m, const Node *n)
{
	int64_t bytes = 0;

	for (int i = 0; i < n->nout; i++) {
		const int64_t own = n->out[i] ? type_bytes(&n->out[i]->type) : 0;
		if (own > FOLD_BYTES - m->folded - bytes)
			return false;
		bytes += own;
	}
	m->folded += bytes;
	return true;
}

Value *module_const(Module *m, const char *name, Type t, const void *data)
{
	Value *v = value_new(m, VAL_CONST, numbered(m->arena, &m->names, name ? name : "c"), t);

	if (data)
		v->data = arena_dup(m->arena, data, (size_t)type_bytes(&t));
	map_put(&m->names, v->name, v);
	PUSH(m->arena, m->konst, m->nkonst, m->capkonst) = v;
	return v;
}

/* x in the memory form of t. */
static void scalar_bytes(DType t, double x, unsigned char *p)
{
	float f = (float)x;
	int64_t i = x > -0x1p63 && x < 0x1p63 ? (int64_t)x : 0;

	switch (t) {
	case DT_f32: memcpy(p, &f, sizeof f); break;
	case DT_f64: memcpy(p, &x, sizeof x); break;
	case DT_bool: p[0] = x != 0; break;
	case DT_f16:
	case DT_bf16:
	case DT_f8e4m3:
	case DT_f8e5m2:
	case DT_NONE:
	case DT_COUNT: bug("no scalar constants of type %s", dtype_name(t));
	default: memcpy(p, &i, (size_t)dtype_bytes(t)); break; /* little-endian: the low bytes come first */
	}
}

Value *const_scalar(Module *m, DType t, double x)
{
	unsigned char data[8] = { 0 };
	Type type = type_scalar(t);

	scalar_bytes(t, x, data);
	for (int i = 0; i < m->nkonst; i++) {
		const Value *v = m->konst[i];

		if (type_eq(&v->type, &type) && v->data && memcmp(v->data, data, (size_t)dtype_bytes(t)) == 0)
			return m->konst[i];
	}
	return module_const(m, arena_printf(m->arena, "c.%.9g", x), type, data);
}

/* ---- uses ---- */

static void use_add(Value *v, Node *n, int i)
{
	PUSH(n->graph->module->arena, v->uses, v->nuses, v->capuses) = ((Use){ n, i });
}

static void use_drop(Value *v, const Node *n, int i)
{
	for (int k = 0; k < v->nuses; k++)
		if (v->uses[k].node == n && v->uses[k].index == i) {
			memmove(v->uses + k, v->uses + k + 1, sizeof *v->uses * (size_t)(v->nuses - k - 1));
			v->nuses--;
			return;
		}
	bug("%s is not used by that node", v->name);
}

/* ---- the six ---- */

static void link_before(Graph *g, Node *n, Node *before)
{
	n->graph = g;
	n->next = before;
	n->prev = before ? before->prev : g->last;
	*(n->prev ? &n->prev->next : &g->first) = n;
	*(before ? &before->prev : &g->last) = n;
	g->nnodes++;
}

static void unlink_node(Node *n)
{
	*(n->prev ? &n->prev->next : &n->graph->first) = n->next;
	*(n->next ? &n->next->prev : &n->graph->last) = n->prev;
	n->graph->nnodes--;
	n->prev = n->next = NULL;
}

const char *output_word(Arena *a, OpKind op, int i)
{
	const char *const *word = optab[op]->outputs;

	return word && word[i] ? word[i] : arena_printf(a, "%d", i);
}

static const char *out_name(Graph *g, OpKind op, const char *base, int i)
{
	Arena *a = g->module->arena;

	return unique_name(g, i ? arena_printf(a, "%s.%s", base, output_word(a, op, i)) : base);
}

bool node_infer(Node *n, Diag *d)
{
	if (!optab[n->op]->shape)
		return true;
	if (!optab[n->op]->shape(n, d))
		return false;
	for (int i = 0; i < n->nout; i++) {
		const Type *t = n->out[i] ? &n->out[i]->type : NULL;

		for (int k = 0; t && k < t->rank; k++)
			if (t->dim[k] < 0)
				return diag_error(d, n->loc, 305, "%s: the result is %s, axis %d is below 0",
					optab[n->op]->name, str_type(d->scratch, t), k);
		for (int k = 0; t && k < t->rank; k++) /* beside an extent of 0 the others still count */
			if (t->dim[k] > TENSOR_MOST)
				return diag_error(d, n->loc, 305, "%s: the result is %s, axis %d is above 2^46",
					optab[n->op]->name, str_type(d->scratch, t), k);
		if (t && type_bytes(t) > TENSOR_MOST)
			return diag_error(d, n->loc, 305, "%s: the result is %s, more than 2^46 bytes",
				optab[n->op]->name, str_type(d->scratch, t));
	}
	return true;
}

Node *build(Builder *b, OpKind op, const void *attr, int nin, Value *const *in, const char *name)
{
	const OpDef *d = optab[op];
	Arena *a = b->m->arena;
	Node *n = NEW(a, Node);

	n->op = op;
	n->phase = b->phase;
	n->loc = b->loc;
	n->stage = b->stage;
	n->attr = attr ? arena_dup(a, attr, d->attrsize) : attr_new(a, op);
	n->nin = nin;
	n->in = NEWN(a, Value *, nin);
	n->nout = op_outs(op, n->attr);
	n->out = NEWN(a, Value *, n->nout);
	link_before(b->g, n, b->before);
	for (int i = 0; i < nin; i++)
		node_set_input(n, i, in[i]);
	for (int i = 0; i < n->nout; i++) {
		n->out[i] = value_new(b->m, VAL_NODE, NULL, type_scalar(DT_f32));
		n->out[i]->def = n;
		n->out[i]->index = i;
	}
	if (!b->failed && !node_infer(n, b->d)) /* what follows a refusal has operands of made-up types */
		b->failed = true;
	for (int i = 0; i < n->nout; i++)
		if (n->out[i]) {
			n->out[i]->name = out_name(b->g, op, name ? name : arena_printf(a, "%s", d->name), i);
			map_put(b->g->names, n->out[i]->name, n->out[i]);
		}
	return n;
}

void module_sweep(Module *m)
{
	int n = 0;

	for (int i = 0; i < m->nkonst; i++) {
		Value *v = m->konst[i];

		if (v->nuses || v == m->loss || v == m->count)
			m->konst[n++] = v;
		else
			map_put(&m->names, v->name, NULL);
	}
	m->nkonst = n;
}

bool node_complete(Node *n, Diag *d)
{
	Module *m = n->graph->module;
	const int had = n->nout, most = op_outs(n->op, n->attr);
	const char *base = had && n->out[0] ? n->out[0]->name : optab[n->op]->name;
	Value **out = NEWN(m->arena, Value *, most);
	bool whole = had == most;

	for (int i = 0; i < had; i++)
		whole &= n->out[i] != NULL;
	if (whole)
		return true;
	for (int i = 0; i < most; i++) {
		out[i] = i < had ? n->out[i] : NULL;
		if (out[i])
			continue;
		out[i] = value_new(m, VAL_NODE, NULL, type_scalar(DT_f32));
		out[i]->def = n;
		out[i]->index = i;
	}
	n->out = out;
	n->nout = most;
	if (!node_infer(n, d))
		return false;
	for (int i = 0; i < n->nout; i++)
		if (n->out[i] && !n->out[i]->name) {
			n->out[i]->name = out_name(n->graph, n->op, base, i);
			map_put(n->graph->names, n->out[i]->name, n->out[i]);
		}
	return true;
}

Value *mk(Builder *b, OpKind op, const void *attr, const char *name, int nin, ...)
{
	Value *in[MAXIN];
	va_list ap;

	if (nin > MAXIN)
		bug("mk takes up to %d operands", MAXIN);
	va_start(ap, nin);
	for (int i = 0; i < nin; i++)
		in[i] = va_arg(ap, Value *);
	va_end(ap);
	return build(b, op, attr, nin, in, name)->out[0];
}

void node_set_input(Node *n, int i, Value *v)
{
	if (n->in[i] == v)
		return;
	if (n->in[i])
		use_drop(n->in[i], n, i);
	n->in[i] = v;
	if (v)
		use_add(v, n, i);
}

void value_replace(Value *old, Value *neu)
{
	if (old == neu)
		return;
	while (old->nuses)
		node_set_input(old->uses[0].node, old->uses[0].index, neu);
	Graph *g = old->kind == VAL_NODE ? old->def->graph : NULL;
	for (int i = 0; g && i < g->nout; i++)
		if (g->out[i] == old)
			g->out[i] = neu;
}

void node_remove(Node *n)
{
	for (int i = 0; i < n->nout; i++)
		if (n->out[i] && !value_dead(n->out[i]))
			bug("%s is still in use", n->out[i]->name);
	for (int i = 0; i < n->nin; i++)
		node_set_input(n, i, NULL);
	for (int i = 0; i < n->nout; i++)
		if (n->out[i] && map_get(n->graph->names, n->out[i]->name) == n->out[i])
			map_put(n->graph->names, n->out[i]->name, NULL);
	unlink_node(n);
}

void node_drop(Node *n)
{
	for (int i = 0; i < n->nout; i++)
		if (n->out[i] && !value_dead(n->out[i]))
			return;
	for (int i = 0; i < n->nin; i++) {
		Node *def = n->in[i] && n->in[i]->kind == VAL_NODE ? n->in[i]->def : NULL;
		node_set_input(n, i, NULL);
		if (def && def->op != OP_Accumulate && def->op != OP_Recv)
			node_drop(def);
	}
	node_remove(n);
}

Value *value_root(const Value *v)
{
	while (v->kind == VAL_NODE && (optab[v->def->op]->flags & OP_VIEW))
		v = v->def->in[0];
	return (Value *)(uintptr_t)v;
}

void node_move(Node *n, Graph *g, Node *before)
{
	bool renamed = g->names != n->graph->names;

	if (before == n)
		return;
	unlink_node(n);
	for (int i = 0; renamed && i < n->nout; i++)
		if (n->out[i]) {
			map_put(n->graph->names, n->out[i]->name, NULL);
			n->out[i]->name = unique_name(g, n->out[i]->name);
			map_put(g->names, n->out[i]->name, n->out[i]);
		}
	link_before(g, n, before);
}

void value_rename(Graph *g, Value *v, const char *base)
{
	if (map_get(g->names, v->name) == v)
		map_put(g->names, v->name, NULL);
	v->name = unique_name(g, base);
	map_put(g->names, v->name, v);
}

int value_parts(const Value *v, OpKind op)
{
	const Node *n = v->kind == VAL_NODE ? v->def : NULL;
	int all = 0;

	if (!n || n->op == op)
		return n != NULL;
	if (n->op != OP_Add && n->op != OP_Sum)
		return 0;
	for (int i = 0; i < n->nin; i++) {
		const int k = value_parts(n->in[i], op);
		if (!k)
			return 0;
		all += k;
	}
	return all;
}

bool updates_rows(const Node *n, OpKind op)
{
	enum { MOST = 64 }; /* parts that pd_collect_rows (runtime/servers/serve.c) joins */

	if (n->op != OP_SGD || n->nin != optab[OP_SGD]->minin || attr_float(n, "weight_decay") != 0)
		return false;
	const int parts = value_parts(n->in[1], op);
	return parts > 0 && parts <= MOST;
}

bool value_feeds(const Value *v, OpKind op)
{
	for (int i = 0; i < v->nuses; i++)
		if (v->uses[i].node->op == op)
			return true;
	return false;
}

bool value_is_output(const Value *v)
{
	const Graph *g = v->kind == VAL_NODE ? v->def->graph : NULL;

	for (int i = 0; g && i < g->nout; i++)
		if (g->out[i] == v)
			return true;
	return false;
}

bool value_dead(const Value *v) { return !v->nuses && !value_is_output(v); }

static const Value *gradient_of(const Value *sum) { return value_root(sum->def->in[0]); }

static bool touches(const Node *n, const Map *roots)
{
	for (int i = 0; i < n->nin; i++)
		if (n->in[i] && map_has(roots, value_root(n->in[i])))
			return true;
	for (int i = 0; i < n->nout; i++)
		if (n->out[i] && map_has(roots, value_root(n->out[i])))
			return true;
	return false;
}

bool sums_each(const Stage *s)
{
	for (const Node *n = s->update->first; n; n = n->next)
		if (n->op == OP_AllReduce && attr_int(n, "each"))
			return true;
	return false;
}

Node *bucket_node(const Stage *s, const Node *sum)
{
	Arena *a = arena_new();
	Node *last = NULL;
	Map roots;

	map_init(&roots, a, false);
	for (int i = 0; sum->op == OP_AllReduce && attr_int(sum, "bucket") >= 0 && i < sum->nin; i++)
		map_put(&roots, gradient_of(sum->in[i]), last);
	for (Node *n = roots.n ? (s->weight ? s->weight : s->backward)->first : NULL; n; n = n->next)
		last = touches(n, &roots) ? n : last;
	arena_free(a);
	return last;
}
