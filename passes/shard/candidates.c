/* The candidates of a division: how values may lie. Every axis of a weight that a product or a table lookup reads is a seed; the
 * ops' rules (ir/shard.h) carry it to all values that could be divided with it, forwards and backwards, until nothing new appears.
 * So the heads of attention, say, reach the columns of the projection that makes them, in as many blocks as stand beside each
 * other. */
#include "shard.h"

int shard_form(ShardSearch *s, const Value *v, Shard shard)
{
	const Forms *f = &s->forms[shard_index(v)];

	for (int i = 0; i < f->n; i++)
		if (shard_same(f->form[i], shard))
			return i;
	return -1;
}

typedef struct Todo {
	int value, form;
} Todo;

typedef struct Work {
	Todo *v;
	int n, cap;
} Work;

static void add_form(ShardSearch *s, Work *w, const Value *v, Shard shard)
{
	Forms *f = &s->forms[shard_index(v)];

	if (shard.kind == SHARD_WHOLE || f->n == SHARD_FORMS || shard_form(s, v, shard) >= 0)
		return;
	if (shard.kind == SHARD_PARTIAL && v->kind != VAL_NODE)
		return;
	if (v->kind == VAL_PARAM && v->param->pad && (shard.axis != v->param->pad_axis || shard.outer != 1))
		return; /* what was added is behind all parts */
	f->form[f->n++] = shard;
	PUSH(s->arena, w->v, w->n, w->cap) = (Todo){ shard_index(v), f->n - 1 };
}

ShardWay shard_new_way(ShardSearch *s, const Node *n)
{
	return (ShardWay){
		.degree = shard_degree(s, n), .in = NEWN(s->arena, Shard, n->nin), .out = NEWN(s->arena, Shard, n->nout)
	};
}

int shard_members(const ShardSearch *s, const Value *v)
{
	const int home = s->home[shard_index(v)];

	return !s->tensor_of ? s->degree : home < 0 ? 1 : s->tensor_of[home];
}

int64_t shard_samples(const ShardSearch *s, int stage)
{
	return !s->along || (stage >= 0 && s->along[stage] == SEQUENCE_ON) ? s->samples : 0;
}

int64_t shard_samples_of(const ShardSearch *s, int value)
{
	return s->along ? shard_samples(s, s->home[value]) : s->samples;
}

bool shard_by_rows(const Node *n, const ShardSearch *s, const ShardChoice *c)
{
	const bool back = n->op == OP_GatherGrad;
	const Value *table = back ? n->out[0] : n->in[0];
	const Shard f = s->forms[shard_index(table)].form[back ? c->out[0] : c->in[0]];

	return f.kind == SHARD_AXIS && f.axis == 0 && attr_int(n, "axis") == 0;
}

/* A product reads the table too: only then its rows are worth dividing, for gradients of rows are dense so. */
static bool multiplied(const Value *table)
{
	for (int i = 0; i < table->nuses; i++)
		if (table->uses[i].node->op == OP_Gemm || table->uses[i].node->op == OP_MatMul)
			return table->kind == VAL_PARAM;
	return false;
}

bool shard_looked_up(const Value *table)
{
	for (int i = 0; i < table->nuses; i++)
		if (table->uses[i].node->op == OP_Gather && !table->uses[i].index)
			return multiplied(table);
	return false;
}

bool shard_way_of(ShardSearch *s, const Node *n, bool out, int at, ShardWay *w)
{
	if (shard_degree(s, n) < 2 || !shard_way(n, out, at, w))
		return false;
	if (n->op != OP_Gather && n->op != OP_GatherGrad)
		return true;
	const bool back = n->op == OP_GatherGrad;
	const Shard f = back ? w->out[0] : w->in[0];
	const int owner = back ? s->owner[shard_index(n->out[0])] : -1;
	const Value *table = !back ? n->in[0] : owner < 0 ? NULL : s->value[owner];

	return f.kind != SHARD_AXIS || f.axis || attr_int(n, "axis") || (table && multiplied(table));
}

/* What comes from another group is whole; so are the gradients of a weight that several stages have, each of which is told all of
 * them (passes/comm). */
bool shard_at_home(const ShardSearch *s, const Node *n, const ShardWay *w)
{
	for (int i = 0; i < n->nin; i++)
		if (n->in[i] && w->in[i].kind != SHARD_WHOLE && shard_foreign(s, n, n->in[i]))
			return false;
	for (int i = 0; i < n->nout && s->tensor_of && n->phase == PHASE_UPDATE; i++) {
		const int owner = n->out[i] ? s->owner[shard_index(n->out[i])] : -1;

		if (owner >= 0 && s->home[owner] < 0 && w->out[i].kind != SHARD_WHOLE)
			return false;
	}
	return true;
}

static void carry(ShardSearch *s, Work *work, const Node *n, bool out, int at, Shard shard)
{
	ShardWay w = shard_new_way(s, n);

	*(out ? &w.out[at] : &w.in[at]) = shard;
	if (!shard_way_of(s, n, out, at, &w) || !shard_at_home(s, n, &w))
		return;
	for (int i = 0; i < n->nin; i++)
		if (n->in[i])
			add_form(s, work, n->in[i], w.in[i]);
	for (int i = 0; i < n->nout; i++)
		if (n->out[i])
			add_form(s, work, n->out[i], w.out[i]);
}

static bool divides_weights(const Node *n)
{
	return n->op == OP_Gemm || n->op == OP_MatMul || n->op == OP_Conv || n->op == OP_Gather;
}

/* The rows of what is normalised, sample by sample: [samples, rows, ...] or [samples * rows, ...]. */
static void seed_sequence(ShardSearch *s, Work *work)
{
	for (int i = 0; i < s->nnode && s->samples; i++) {
		const Node *n = s->node[i];
		const Value *x = n->in[0];

		if (!shard_samples(s, n->stage))
			continue;
		if ((n->op != OP_LayerNormalization && n->op != OP_RMSNormalization) || n->phase != PHASE_FWD)
			continue;
		const bool folded = x->type.rank == 2;
		const Shard rows = { SHARD_AXIS, folded ? 0 : 1, folded ? s->samples : 1 };
		if (x->type.rank > 1 && x->type.dim[0] % s->samples == 0 && shard_degree(s, n) > 1 &&
			shard_fits(&x->type, rows, shard_degree(s, n)) && !shard_foreign(s, n, x))
			add_form(s, work, x, rows);
	}
}

void shard_candidates(ShardSearch *s)
{
	Work work = { 0 };

	for (int i = 0; i < s->nvalue; i++) {
		s->forms[i].n = 1; /* whole; partial where it arises */
		for (int k = 0; k < s->value[i]->nuses && s->value[i]->kind == VAL_PARAM; k++) {
			const Use *u = &s->value[i]->uses[k];

			if (shard_members(s, s->value[i]) < 2)
				continue;
			for (int axis = 0; axis < s->value[i]->type.rank && divides_weights(u->node); axis++) {
				const Shard seed = { SHARD_AXIS, axis, 1 };

				if (shard_fits(&s->value[i]->type, seed, shard_members(s, s->value[i])))
					add_form(s, &work, s->value[i], seed);
			}
		}
	}
	seed_sequence(s, &work);
	for (int i = 0; i < work.n; i++) {
		const Value *v = s->value[work.v[i].value];
		const Shard shard = s->forms[work.v[i].value].form[work.v[i].form];

		if (v->def)
			carry(s, &work, v->def, true, v->index, shard);
		for (int k = 0; k < v->nuses; k++)
			if (!shard_foreign(s, v->uses[k].node, v))
				carry(s, &work, v->uses[k].node, false, v->uses[k].index, shard);
	}
}
