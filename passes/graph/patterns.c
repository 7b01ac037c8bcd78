/* patterns: what an export spelt out in primitives becomes the one op it is.
 *
 * Reads the forward graph behind simplify, before there are gradients: one op then means one gradient, which keeps less
 * between forward and backward than those of its parts would. A row of the table is a pattern; each is tried at every
 * node, from front to back. A match is exact: constants within 1e-6 of their size, shapes as the op has them, and what
 * lies inside is read by nothing else. The new node has the name of the last value it replaces. */
#include <math.h>
#include <string.h>
#include "patterns.h"

/* ---- finding ---- */

bool match_cover(Match *p, Node *n)
{
	for (int i = 0; i < p->n; i++)
		if (p->node[i] == n)
			return true;
	if (p->n == MATCH_NODES)
		return false;
	p->node[p->n++] = n;
	return true;
}

Node *match_def(Match *p, const Value *v, OpKind op)
{
	if (!v || v->kind != VAL_NODE || v->def->op != op || v->index != 0 || v->def->phase != PHASE_FWD)
		return NULL;
	return match_cover(p, v->def) ? v->def : NULL;
}

static bool is_output(const Value *v)
{
	for (int i = 0; v->kind == VAL_NODE && i < v->def->graph->nout; i++)
		if (v->def->graph->out[i] == v)
			return true;
	return false;
}

Node *match_user(Match *p, const Value *v, OpKind op)
{
	if (v->nuses != 1 || v->uses[0].node->op != op || v->uses[0].node->phase != PHASE_FWD || is_output(v))
		return NULL;
	return match_cover(p, v->uses[0].node) ? v->uses[0].node : NULL;
}

Value *match_other(const Node *n, const Value *v)
{
	if (n->nin != 2)
		return NULL;
	return n->in[0] == v ? n->in[1] : n->in[1] == v ? n->in[0] : NULL;
}

bool match_near(double x, double want) { return fabs(x - want) <= 1e-6 * fabs(want); }

bool match_scalar(const Value *v, double *x)
{
	if (!v || v->kind != VAL_CONST || !v->data || type_numel(&v->type) != 1)
		return false;
	switch (v->type.dtype) {
	case DT_f32: *x = *(const float *)v->data; return true;
	case DT_f64: *x = *(const double *)v->data; return true;
	case DT_i32: *x = *(const int32_t *)v->data; return true;
	case DT_i64: *x = (double)*(const int64_t *)v->data; return true;
	default: return false;
	}
}

bool match_is(const Value *v, double want)
{
	double x;

	return match_scalar(v, &x) && match_near(x, want);
}

bool match_trained(const Value *v)
{
	return v->kind == VAL_PARAM ? v->param->kind == PARAM_WEIGHT && !v->param->frozen : v->mark != 0;
}

/* ---- replacing ---- */

bool match_covers(const Match *p, const Node *n)
{
	for (int i = 0; i < p->n; i++)
		if (p->node[i] == n)
			return true;
	return false;
}

bool match_closed(const Match *p, const Value *last)
{
	for (int i = 0; i < p->n; i++)
		for (int k = 0; k < p->node[i]->nout; k++) {
			const Value *v = p->node[i]->out[k];
			if (!v || v == last || v == p->also)
				continue;
			if (is_output(v) || v == p->m->loss || v == p->m->count)
				return false;
			for (int u = 0; u < v->nuses; u++)
				if (!match_covers(p, v->uses[u].node))
					return false;
		}
	return true;
}

void *match_field(OpKind op, void *attr, const char *name)
{
	const AttrDef *d = op_attr(op, name);

	if (!d)
		bug("%s has no attribute %s", optab[op]->name, name);
	return (char *)attr + d->offset;
}

Builder match_builder(const Match *p, const Value *last)
{
	const Node *n = last->def;

	return (Builder){ .m = p->m,
		.g = n->graph,
		.before = last->def,
		.loc = n->loc,
		.phase = n->phase,
		.stage = n->stage,
		.d = p->cx->d };
}

static void take_place(Match *p, Value *neu, Value *old)
{
	neu->batch_axis = old->batch_axis;
	neu->mark = old->mark;
	value_replace(old, neu);
	if (p->m->loss == old)
		p->m->loss = neu;
}

/* A further result is called by what it is, within the module of the first: /h.0/ln_1/Add_1_output_0 and /h.0/ln_1/mean. */
static const char *beside(Arena *a, OpKind op, const char *first, int i)
{
	const char *slash = strrchr(first, '/'), *word = output_word(a, op, i);

	return slash ? arena_printf(a, "%.*s/%s", (int)(slash - first), first, word)
	             : arena_printf(a, "%s.%s", first, word);
}

Node *match_finish(Match *p, Value *last, Node *fused)
{
	const char *name = last->name, *also = p->also ? p->also->name : NULL;
	int left = p->n;

	take_place(p, fused->out[0], last);
	if (p->also)
		take_place(p, fused->out[1], p->also);
	for (Node *n = last->def, *prev; left; n = prev) { /* readers go before what they read */
		prev = n->prev;
		if (match_covers(p, n)) {
			node_remove(n);
			left--;
		}
	}
	for (int i = 0; i < fused->nout; i++)
		if (fused->out[i])
			value_rename(fused->graph, fused->out[i],
				i == 0           ? name
				: i == 1 && also ? also
						 : beside(p->m->arena, fused->op, name, i));
	return fused;
}

/* ---- the pass ---- */

static Node *(*const table[])(Match *, Node *) = { pattern_layernorm, pattern_gelu, pattern_lrn, pattern_attention,
	pattern_matmul, pattern_swish, pattern_lstm };

static Node *fuse_at(Module *m, PassCx *cx, Node *n)
{
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		Match p = { .m = m, .cx = cx };
		Node *fused = table[i](&p, n);
		if (fused)
			return fused;
	}
	return NULL;
}

/* Value.mark: depends on a trained parameter. */
static void mark_trained(Graph *g, bool clear)
{
	for (Node *n = g->first; n; n = n->next) {
		bool trained = false;
		for (int i = 0; i < n->nin && !clear; i++)
			trained |= n->in[i] && match_trained(n->in[i]);
		for (int i = 0; i < n->nout; i++)
			if (n->out[i])
				n->out[i]->mark = trained;
	}
}

bool pass_patterns(Module *m, PassCx *cx)
{
	if (!m->graph)
		return true;
	mark_trained(m->graph, false);
	for (Node *n = m->graph->first, *next; n; n = next) {
		Node *fused = n->phase == PHASE_FWD ? fuse_at(m, cx, n) : NULL;
		next = fused ? fused->next : n->next;
	}
	mark_trained(m->graph, true);
	return true;
}
