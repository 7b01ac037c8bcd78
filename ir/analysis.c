/* Questions about a module that several passes ask: what a value takes, where its loss is, what its stages keep, whose gradient
 * a value is. */
#include <math.h>
#include <string.h>
#include "analysis.h"
#include "op.h"

int64_t value_bytes(const Value *v)
{
	Type t = v->type;

	t.rows = 0;
	return type_bytes(&t);
}

int64_t held_count(const Value *v)
{
	if (v->kind == VAL_PARAM && v->param->part && v->param->kind == PARAM_WEIGHT)
		return v->param->part;
	return v->kind == VAL_NODE && cast_once(v->def) ? held_count(v->def->in[0]) : type_numel(&v->type);
}

int64_t held_bytes(const Value *v)
{
	const int64_t n = held_count(v);

	return n < type_numel(&v->type) ? n * dtype_bytes(v->type.dtype) : value_bytes(v);
}

Type held_type(const Value *v)
{
	const int64_t n = held_count(v);

	return n < type_numel(&v->type) ? type_make(v->type.dtype, 1, &n) : v->type;
}

bool gathers_weights(const Stage *s)
{
	Graph *g[4];
	const int n = stage_graphs(s, g);

	for (int k = 0; k < n; k++)
		for (const Node *x = g[k]->first; x; x = x->next)
			if (x->op == OP_GatherWeight)
				return true;
	return false;
}

void find_loss(Module *m, const Graph *g)
{
	for (const Node *n = g->first; n; n = n->next)
		if (n->op == OP_Report) {
			m->loss = n->in[0];
			m->count = n->in[1];
		}
}

static bool read_by(const Value *v, const Graph *g)
{
	for (int i = 0; g && i < v->nuses; i++)
		if (v->uses[i].node->graph == g)
			return true;
	return false;
}

static void keep_read(Module *m, Stage *s, const Graph *made, const Graph *reader)
{
	for (const Node *n = made->first; n; n = n->next)
		for (int o = 0; o < n->nout; o++)
			if (n->out[o] && (read_by(n->out[o], reader) || read_by(n->out[o], s->weight)))
				PUSH(m->arena, s->keep, s->nkeep, s->capkeep) = n->out[o];
}

void list_kept(Module *m, Stage *s)
{
	s->nkeep = 0;
	for (int i = 0; i < s->forward->nin; i++)
		if (read_by(s->forward->in[i], s->backward) || read_by(s->forward->in[i], s->weight))
			PUSH(m->arena, s->keep, s->nkeep, s->capkeep) = s->forward->in[i];
	keep_read(m, s, s->forward, s->backward);
	keep_read(m, s, s->backward, s->weight);
}

/* k ids drawn evenly from V rows hit V (1 - (1 - 1/V)^k) different ones. Between measured points rows grow as a power of k;
 * behind the last one no more are known. */
double rows_touched(const Value *w, double lookups)
{
	const double rows = w->type.rank ? (double)w->type.dim[0] : 1;
	const Touch *t = w->param->touch;
	int i = 1;

	if (!t || t->n < 2)
		return rows > 1 ? -expm1(lookups * log1p(-1 / rows)) : 1;
	while (i < t->n - 1 && t->lookups[i] < lookups)
		i++;
	const double power = log(t->rows[i] / t->rows[i - 1]) / log(t->lookups[i] / t->lookups[i - 1]);
	const double at =
		t->rows[i - 1] * pow((lookups < t->lookups[i] ? lookups : t->lookups[i]) / t->lookups[i - 1], power);
	return (at < rows ? at : rows) / rows;
}

static const Node *update_of(const Value *sum)
{
	for (int i = 0; i < sum->nuses; i++) {
		const Node *n = sum->uses[i].node;
		if (optab[n->op]->flags & OP_UPDATE)
			return n;
		n = n->nout ? update_of(n->out[0]) : NULL;
		if (n)
			return n;
	}
	return NULL;
}

const Value *gradient_of(const Value *sum)
{
	const Node *n = update_of(sum);

	return n ? n->in[0] : NULL;
}

Value *added_where_made(const Node *sum)
{
	Value *v = sum->in[0];

	while (v->kind == VAL_NODE && v->nuses == 1 &&
		((optab[v->def->op]->flags & OP_VIEW) || v->def->op == OP_GatherAdd))
		v = v->def->in[0];
	if (v->kind != VAL_NODE || v->nuses != 1 || v->index)
		return NULL;
	return product_adds(v->def) || (v->def->op == OP_GatherGrad && v->type.dtype == DT_f32) ? v : NULL;
}

Node *made_once(const Node *acc)
{
	Value *v = acc->in[0];

	while (v->kind == VAL_NODE && v->nuses == 1 && (optab[v->def->op]->flags & OP_VIEW))
		v = v->def->in[0];
	if (v->kind != VAL_NODE || v->nuses != 1 || v->type.dtype != DT_f32)
		return NULL;
	Node *n = v->def;
	const bool rows = (n->op == OP_Gemm || n->op == OP_MatMul) && n->nin == 2 && n->in[0]->type.rank == 2 &&
	                  n->in[1]->type.rank == 2 && attr_int(n, "transA") && !attr_int(n, "transB");
	const DType x = n->in[0]->type.dtype;
	return (rows || n->op == OP_ConvGradWeights) && n->out[0] == v && (x == DT_f32 || x == DT_bf16) &&
	                       n->in[1]->type.dtype == x
	               ? n
	               : NULL;
}

bool at_once_pays(const Node *made, int64_t micro)
{
	enum { LARGER = 2 };
	const int64_t rows = value_bytes(made->in[0]) + value_bytes(made->in[1]);

	return micro > 1 &&
	       rows <= value_bytes(made->out[0]) / (LARGER * micro); /* a product of sizes may be above 2^63 */
}

const char *at_once_name(Arena *a, const Node *acc) { return arena_printf(a, "%s.once", acc->out[0]->name); }

int64_t part_of_sum(const Value *sum)
{
	const Node *n = update_of(sum);

	return n && op_attr(n->op, "part") ? attr_int(n, "part") : 0;
}

int64_t part_of(int64_t n, int replicas)
{
	enum { LINE = 16 };
	const int64_t each = (n + replicas - 1) / replicas, part = (each + LINE - 1) / LINE * LINE;

	return part < n ? part : n;
}

int64_t part_held(int64_t n, int64_t part, int r)
{
	const int64_t left = n - part * r;

	return left < 0 ? 0 : left < part ? left : part;
}

/* The operand of an update that is the gradient: SquareSum(@w, g), SGD(@w, g, n), Adam(@w, @m, @v, g, n). */
int gradient_operand(const Node *update) { return update->op == OP_SquareSum ? 1 : update->nin - 2; }

const Value *copy_beside(const Node *update)
{
	const Value *w = update->in[0], *copy = NULL;

	if (!op_attr(update->op, "part") || attr_int(update, "part"))
		return NULL;
	for (int i = 0; i < w->nuses; i++) {
		const Node *n = w->uses[i].node;
		if (n != update && n->phase == PHASE_UPDATE && n->op != OP_SquareSum)
			return NULL;
		if (n->op != OP_Cast || !cast_once(n) || n->stage != update->stage)
			continue;
		if (copy)
			return NULL;
		copy = n->out[0];
	}
	return copy;
}
