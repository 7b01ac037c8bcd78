/* parts: gradients of a parameter that is used several times in a stage (an unrolled loop, gates cut out of one matrix, a table that is
 * looked up and multiplied with) are added where they are made, so that one sum travels between replicas and not one for each use:
 *
 *     backward  %d.1 = MatMul(..)   %d.2 = MatMul(..)          backward  %d.1 = ..  %d.2 = ..  %d = Add(%d.1, %d.2)
 *     update    %g.1 = Accumulate(%d.1)                 ->     update    %g.1 = Accumulate(%d)
 *               %g.2 = Accumulate(%d.2)
 *               %g = Add(%g.1, %g.2)
 *
 * Each addition stands behind the second of its operands, so that two are alive at a time. What a lookup gives goes to the rows it means,
 * in the memory of the other gradient, so that a table's is there once:
 *
 *     backward  %d.1 = MatMul(..)   %d.2 = GatherGrad(%dy, %ids)   ->   %d.1 = MatMul(..)   %d = GatherAdd(%d.1, %dy, %ids)
 *
 * Left as they are: parts with --reproducible, which promises the bits of plans whose uses lie in several stages; stages without
 * replicas, where nothing travels, but for lookups; tables that are only looked up, where servers are given their rows (those that
 * replicas gather as rows pass sparse has taken away before); slices that go to servers (opsw.c) and are fewer bytes apart.
 * Reads Stage.replicas; writes backward and update graphs. */
#include <string.h>
#include "passes/common/plan.h"
#include "ir/analysis.h"
#include "split.h"

static bool have_servers(const Training *t) { return t->comm.by != COMM_UNSAID && t->comm.by != COMM_ALLREDUCE; }

static bool is_sum_of_parts(const Node *n, bool served)
{
	bool sparse = true;

	if ((n->op != OP_Add && n->op != OP_Sum) || n->nin < 2)
		return false;
	for (int i = 0; i < n->nin; i++) {
		const Value *v = n->in[i];
		if (v->kind != VAL_NODE || v->def->op != OP_Accumulate || v->nuses != 1 ||
			!shape_eq(&v->type, &n->out[0]->type))
			return false;
		const Value *d = v->def->in[0];
		if (d->kind != VAL_NODE || d->nuses != 1 || d->def->phase != PHASE_BWD ||
			d->def->graph != n->in[0]->def->in[0]->def->graph || d->type.dtype != v->type.dtype ||
			!shape_eq(&d->type, &v->type))
			return false;
		sparse &= d->def->op == OP_GatherGrad;
	}
	return !sparse || !served;
}

/* Fewer bytes as slices, which servers sum and put in their places. */
static bool better_apart(const Node *n, const Training *t)
{
	int64_t bytes = 0;

	if (!have_servers(t) || t->comm.no_opsw)
		return false;
	for (int i = 0; i < n->nin; i++) {
		const Node *d = n->in[i]->def->in[0]->def;
		bytes += value_bytes(d->op == OP_SliceGrad ? d->in[0] : d->out[0]);
	}
	return bytes < value_bytes(n->out[0]);
}

bool parts_joined(const Node *n, const Training *t)
{
	return t && !t->loop.reproducible && !t->target.f64 && is_sum_of_parts(n, have_servers(t)) &&
	       !better_apart(n, t);
}

static bool has_lookup(const Node *n)
{
	for (int i = 0; i < n->nin; i++)
		if (n->in[i]->def->in[0]->def->op == OP_GatherGrad)
			return true;
	return false;
}

/* The sum of two gradients, where both are there. */
static Value *add(Builder *b, Value *all, Value *d)
{
	if (all->def->op == OP_GatherGrad && d->def->op != OP_GatherGrad) {
		Value *t = all;
		all = d;
		d = t;
	}
	const Node *n = d->def;
	if (n->op != OP_GatherGrad)
		return build(b, OP_Add, NULL, 2, (Value *[]){ all, d }, d->name)->out[0];
	return build(b, OP_GatherAdd, n->attr, 3, (Value *[]){ all, n->in[0], n->in[1] }, d->name)->out[0];
}

/* Node.mark of the backward says where it stands. */
static void join(Module *m, Stage *s, Node *sum, Arena *scratch)
{
	Node *acc = sum->in[0]->def;
	Value *all = acc->in[0];

	for (int i = 1; i < sum->nin; i++) {
		Value *d = sum->in[i]->def->in[0];
		Node *behind = d->def->mark > all->def->mark ? d->def : all->def;
		Builder b = { .m = m,
			.g = behind->graph,
			.before = behind->next,
			.loc = d->def->loc,
			.phase = PHASE_BWD,
			.stage = s->id };
		all = add(&b, all, d);
		all->def->fwd = d->def->fwd;
		all->def->mark = behind->mark;
		all->def->time = sum->time / (sum->nin - 1);
	}
	const int n = sum->nin;
	Node **gone = NEWN(scratch, Node *, n), **part = NEWN(scratch, Node *, n);
	for (int i = 0; i < n; i++) {
		gone[i] = sum->in[i]->def;
		part[i] = gone[i]->in[0]->def;
	}
	node_set_input(acc, 0, all);
	value_replace(sum->out[0], acc->out[0]);
	node_remove(sum);
	for (int i = 1; i < n; i++)
		node_remove(gone[i]);
	for (int i = 0; i < n; i++)
		if (value_dead(part[i]->out[0]))
			node_remove(part[i]);
}

bool pass_parts(Module *m, PassCx *cx)
{
	for (int t = 0; t < m->nstage; t++) {
		Stage *s = m->stage[t];
		int place = 0;
		for (Node *n = s->backward->first; n; n = n->next)
			n->mark = ++place;
		for (Node *n = s->update->first, *next; n; n = next) {
			next = n->next;
			if (parts_joined(n, cx->train) && (s->replicas > 1 || has_lookup(n)))
				join(m, s, n, cx->scratch);
		}
		for (Node *n = s->backward->first; n; n = n->next)
			n->mark = 0;
	}
	return true;
}
