/* The IR as JSON and as a drawing for dot (forms.h). */
#include "forms.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include "ir/op.h"
#include "text.h"

const char *const ir_form_name[FORMS] = { "text", "json", "dot" };

/* ---- JSON ---- */

static void key_string(Buf *b, const char *key, const char *s)
{
	buf_printf(b, ", \"%s\": ", key);
	buf_json(b, s);
}

/* JSON has no infinity: such an attribute is a string. */
static void real(Buf *b, double x)
{
	if (isfinite(x))
		text_real(b, x);
	else
		buf_printf(b, "\"%s\"", isnan(x) ? "nan" : x < 0 ? "-inf" : "inf");
}

/* {"name": ..., "dtype": ..., "shape": [...]; the caller closes it. */
static void value(Buf *b, const Value *v)
{
	buf_puts(b, "{\"name\": ");
	buf_json(b, v->name);
	buf_printf(b, ", \"dtype\": \"%s\", \"shape\": [", dtype_name(v->type.dtype));
	for (int i = 0; i < v->type.rank; i++)
		buf_printf(b, "%s%" PRId64, i ? ", " : "", v->type.dim[i]);
	buf_putc(b, ']');
	if (v->type.rows)
		buf_printf(b, ", \"rows\": %" PRId64, v->type.rows);
	if (v->type.layout == LAYOUT_NHWC)
		buf_puts(b, ", \"layout\": \"nhwc\"");
}

static void memory(Buf *b, const Value *v)
{
	if (v->region)
		buf_printf(b, ", \"region\": \"%s\", \"offset\": %" PRId64, region_name[v->region], v->offset);
	if (v->alias)
		key_string(b, "alias", v->alias->name);
}

/* All of them, those of defaults too. */
static void attributes(Buf *b, const Node *n)
{
	bool first = true;

	buf_puts(b, ", \"attributes\": {");
	for (const AttrDef *d = optab[n->op]->attrs; d && d->name; d++) {
		const void *p = (const char *)n->attr + d->offset;
		const char *s = d->kind == A_STR ? *(const char *const *)p : NULL;
		const int many = d->kind == A_INTS     ? ((const Ints *)p)->n
		                 : d->kind == A_FLOATS ? ((const Floats *)p)->n
		                                       : -1;

		buf_printf(b, "%s\"%s\": %s", first ? "" : ", ", d->name, many >= 0 ? "[" : "");
		first = false;
		if (d->kind == A_INT)
			buf_printf(b, "%" PRId64, *(const int64_t *)p);
		else if (d->kind == A_FLOAT)
			real(b, *(const double *)p);
		else if (d->kind == A_STR)
			buf_json(b, s ? s : d->sdef ? d->sdef : "");
		for (int i = 0; i < many; i++) {
			buf_puts(b, i ? ", " : "");
			if (d->kind == A_INTS)
				buf_printf(b, "%" PRId64, ((const Ints *)p)->v[i]);
			else
				real(b, ((const Floats *)p)->v[i]);
		}
		buf_puts(b, many >= 0 ? "]" : "");
	}
	buf_putc(b, '}');
}

static void node(Buf *b, const Node *n)
{
	buf_printf(b, "\n   {\"op\": \"%s\", \"phase\": \"%s\", \"in\": [", optab[n->op]->name, phase_name[n->phase]);
	for (int i = 0; i < n->nin; i++) {
		buf_puts(b, i ? ", " : "");
		if (n->in[i])
			buf_json(b, n->in[i]->name);
		else
			buf_puts(b, "null");
	}
	buf_puts(b, "], \"out\": [");
	for (int i = 0; i < n->nout; i++) {
		buf_puts(b, i ? ", " : "");
		if (!n->out[i]) {
			buf_puts(b, "null");
			continue;
		}
		value(b, n->out[i]);
		memory(b, n->out[i]);
		buf_putc(b, '}');
	}
	buf_putc(b, ']');
	attributes(b, n);
	if (n->loc.node >= 0)
		buf_printf(b, ", \"onnx\": %d", n->loc.node);
	if (n->loc.name)
		key_string(b, "onnx_name", n->loc.name);
	if (n->loc.op)
		key_string(b, "onnx_op", n->loc.op);
	if (n->loc.module)
		key_string(b, "module", n->loc.module);
	if (n->stage >= 0)
		buf_printf(b, ", \"stage\": %d", n->stage);
	if (n->time > 0) {
		buf_puts(b, ", \"time\": ");
		text_real(b, n->time);
	}
	buf_putc(b, '}');
}

static void graph(Buf *b, const Graph *g, bool first)
{
	buf_printf(b, "%s\n  {\"name\": ", first ? "" : ",");
	buf_json(b, g->name);
	if (g->stage)
		buf_printf(b, ", \"stage\": %d", g->stage->id);
	buf_puts(b, ", \"inputs\": [");
	for (int i = 0; i < g->nin; i++) {
		buf_puts(b, i ? ", " : "");
		value(b, g->in[i]);
		memory(b, g->in[i]);
		buf_printf(b, "%s}", g->in[i]->is_label ? ", \"label\": true" : "");
	}
	buf_puts(b, "], \"outputs\": [");
	for (int i = 0; i < g->nout; i++) {
		buf_puts(b, i ? ", " : "");
		buf_json(b, g->out[i]->name);
	}
	buf_puts(b, "], \"nodes\": [");
	for (const Node *n = g->first; n; n = n->next) {
		node(b, n);
		buf_puts(b, n->next ? "," : "");
	}
	buf_puts(b, "]}");
}

static void params(Buf *b, const Module *m)
{
	buf_puts(b, ",\n \"params\": [");
	for (int i = 0; i < m->nparam; i++) {
		const Param *p = m->param[i]->param;

		buf_puts(b, i ? ",\n  " : "\n  ");
		value(b, m->param[i]);
		buf_printf(b, ", \"kind\": \"%s\", \"frozen\": %s", param_kind_name[p->kind],
			p->frozen ? "true" : "false");
		if (p->of)
			key_string(b, "of", p->of->name);
		buf_putc(b, '}');
	}
	buf_puts(b, "],\n \"constants\": [");
	for (int i = 0; i < m->nkonst; i++) {
		buf_puts(b, i ? ",\n  " : "\n  ");
		value(b, m->konst[i]);
		buf_putc(b, '}');
	}
	buf_putc(b, ']');
}

void module_json(Buf *b, const Module *m)
{
	Graph *g[4];
	bool first = true;

	buf_puts(b, "{\"kind\": \"pdcc ir\", \"version\": 1, \"module\": ");
	buf_json(b, m->name);
	buf_printf(b, ", \"opset\": %d, \"batch\": %" PRId64 ", \"microbatches\": %" PRId64, m->opset, m->batch,
		m->microbatches);
	params(b, m);
	buf_puts(b, ",\n \"stages\": [");
	for (int i = 0; i < m->nstage; i++) {
		const Stage *s = m->stage[i];

		buf_printf(b,
			"%s\n  {\"id\": %d, \"server\": %s, \"replicas\": %d, \"rank\": %d, \"arena_bytes\": %" PRId64
			"}",
			i ? "," : "", s->id, s->server ? "true" : "false", s->replicas, s->rank, s->arena);
	}
	buf_puts(b, "],\n \"graphs\": [");
	if (m->graph)
		graph(b, m->graph, true);
	for (int i = 0; i < m->nstage; i++)
		for (int k = 0, n = stage_graphs(m->stage[i], g); k < n; k++, first = false)
			graph(b, g[k], first && !m->graph);
	buf_puts(b, "]}\n");
}

/* ---- dot ---- */

/* A box's name: its first output's, which is unique in a stage; a number for one that has none. */
static void box(Buf *b, const Node *n, int nth)
{
	const int stage = n->graph->stage ? n->graph->stage->id : -1;
	Buf name = { 0 };

	for (int i = 0; i < n->nout && !name.n; i++)
		if (n->out[i])
			buf_printf(&name, "%d %s", stage, n->out[i]->name);
	if (!name.n)
		buf_printf(&name, "%d %s %d", stage, n->graph->name, nth);
	buf_json(b, buf_str(&name));
	buf_free(&name);
}

/* What is no node's output stands in an ellipse of the value's name. */
static void source(Buf *b, const Value *v)
{
	if (v->kind == VAL_NODE)
		box(b, v->def, 0);
	else
		buf_json(b, v->name);
}

static void shape(Buf *b, const Type *t)
{
	buf_printf(b, "%s[", dtype_name(t->dtype));
	for (int i = 0; i < t->rank; i++)
		buf_printf(b, "%s%" PRId64, i ? "," : "", t->dim[i]);
	buf_putc(b, ']');
}

static void draw_node(Buf *b, const Node *n, int nth)
{
	buf_puts(b, "\t\t");
	box(b, n, nth);
	buf_printf(b, " [shape=box, label=\"%s\"];\n", optab[n->op]->name);
	for (int i = 0; i < n->nin; i++) {
		const Value *v = n->in[i];

		if (!v || v->kind == VAL_CONST)
			continue;
		buf_puts(b, "\t\t");
		source(b, v);
		buf_puts(b, " -> ");
		box(b, n, nth);
		buf_puts(b, " [label=\"");
		shape(b, &v->type);
		buf_puts(b, "\"];\n");
	}
}

static void draw_graph(Buf *b, const Graph *g, int nth)
{
	int k = 0;

	buf_printf(b, "\tsubgraph cluster_%d {\n\t\tlabel=", nth);
	Buf title = { 0 };
	if (g->stage)
		buf_printf(&title, "%s %d %s", g->stage->server ? "server" : "stage", g->stage->id, g->name);
	else
		buf_puts(&title, g->name);
	buf_json(b, buf_str(&title));
	buf_free(&title);
	buf_puts(b, ";\n");
	for (const Node *n = g->first; n; n = n->next)
		draw_node(b, n, k++);
	buf_puts(b, "\t}\n");
}

/* From every Send of a channel to its Recv. */
static void draw_channel(Buf *b, const Graph *const *g, int ngraph, const Node *send, int nth)
{
	for (int i = 0; i < ngraph; i++)
		for (const Node *n = g[i]->first; n; n = n->next)
			if (n->op == OP_Recv && attr_int(n, "channel") == attr_int(send, "channel")) {
				buf_putc(b, '\t');
				box(b, send, nth);
				buf_puts(b, " -> ");
				box(b, n, 0);
				buf_puts(b, " [style=dashed];\n");
			}
}

void module_dot(Buf *b, const Module *m)
{
	const Graph **g = NEWN(m->arena, const Graph *, 4 * m->nstage + 1);
	int n = 0;

	if (m->graph)
		g[n++] = m->graph;
	for (int i = 0; i < m->nstage; i++) {
		Graph *of[4];
		const int k = stage_graphs(m->stage[i], of);

		for (int j = 0; j < k; j++)
			g[n++] = of[j];
	}
	buf_puts(b, "digraph ");
	buf_json(b, m->name);
	buf_puts(b, " {\n\tnode [shape=ellipse];\n");
	for (int i = 0; i < n; i++)
		draw_graph(b, g[i], i);
	for (int i = 0; i < n; i++) {
		int nth = 0;
		for (const Node *at = g[i]->first; at; at = at->next, nth++)
			if (at->op == OP_Send)
				draw_channel(b, g, n, at, nth);
	}
	buf_puts(b, "}\n");
}
