/* once: the gradient of a weight that is larger than what it is made of is one product of all microbatches of a step.
 *
 *     backward  %d.w = Gemm(%x, %dy) {transA}                    update  %x.all = Stack(%x) {joined}
 *     update    %g.w = Accumulate(%d.w)                   ->             %dy.all = Stack(%dy) {joined}
 *                                                                        %g.w = Gemm(%x.all, %dy.all) {transA}
 *
 * A sum over microbatches is written and read once for each of them; a small microbatch multiplies few rows by few rows to do so. Where
 * the rows of all of them are at most half the bytes of the weight (at_once_pays) they are kept, and the sum has no memory of its own: it is a
 * temporary of the update. ConvGradWeights likewise.
 *
 * Of one replica alone, whose gradients wait for nobody: several sum theirs while the backward goes on (comm.c). Left as they are: f64 and
 * --reproducible, which promise an order of additions, and pdcc verify, which looks at gradients of microbatches; fp16; servers;
 * asynchronous schedules, which update between microbatches, and those with a W, which is for each of them; GPUs, where an addition to a sum
 * costs little; tensor groups.
 *
 * Reads the stages; writes backward and update graphs, Stage.keep. */
#include "ir/analysis.h"
#include "passes/common/plan.h"
#include "passes/cost/cost.h"
#include "passes/schedule/placement.h"
#include "passes/schedule/schedule.h"
#include "split.h"

bool may_be_at_once(const Training *t)
{
	return t && !t->loop.reproducible && !t->target.apart && !t->target.each && !t->target.f64 &&
	       t->target.amp.kind != AMP_FP16 && !target_cuda(t) &&
	       (t->comm.by == COMM_UNSAID || t->comm.by == COMM_ALLREDUCE) && !schedule_async(t);
}

static bool node_or_input(const Value *v) { return v->kind == VAL_NODE || v->kind == VAL_INPUT; }

/* What is stacked of an operand: the first of those values that are views of one another. NULL: it is the same in all microbatches. */
static Value *origin(Value *v)
{
	while (v->kind == VAL_NODE && (optab[v->def->op]->flags & OP_VIEW) && node_or_input(v->def->in[0]) &&
		v->def->in[0]->type.layout == LAYOUT_PLAIN && v->type.layout == LAYOUT_PLAIN &&
		type_numel(&v->def->in[0]->type) == type_numel(&v->type))
		v = v->def->in[0];
	return node_or_input(v) && v->type.rank > 0 ? v : NULL;
}

/* Does the sum stay with its stage's update? */
static bool stays(const Value *sum)
{
	for (int i = 0; i < sum->nuses; i++)
		if (optab[sum->uses[i].node->op]->flags & OP_COMM)
			return false;
	return sum->nuses > 0;
}

/* An input as a value of the forward, which copies what it makes. */
static Value *made_of(const Builder *b, Stage *s, Value *v)
{
	Builder f = *b;

	if (v->kind == VAL_NODE)
		return v;
	for (int i = 0; i < v->nuses; i++) {
		Node *u = v->uses[i].node;
		if (u->op == OP_Identity && u->graph == s->forward)
			return u->out[0];
	}
	f.g = s->forward;
	f.before = s->forward->first;
	f.phase = PHASE_FWD;
	return build(&f, OP_Identity, NULL, 1, &v, v->name)->out[0];
}

/* The rows of all microbatches of a value: one Stack for all products that read it. */
static Value *stack_of(Builder *b, Value *v)
{
	for (int i = 0; i < v->nuses; i++) {
		Node *u = v->uses[i].node;
		if (u->op == OP_Stack && u->graph == b->g && attr_int(u, "joined"))
			return u->out[0];
	}
	Value *all = mk(b, OP_Stack, NULL, arena_printf(b->m->arena, "%s.all", v->name), 1, v);
	attr_set_int(all->def, "joined", 1);
	optab[OP_Stack]->shape(all->def, b->d);
	return all;
}

static Value *all_of(Builder *b, Stage *s, Value *v, const Type *as)
{
	Type t = *as;

	t.dim[0] *= b->m->microbatches;
	t.rows = 0;
	return mk_reshape(b, stack_of(b, made_of(b, s, v)), &t);
}

static void drop(Value *v)
{
	while (v->kind == VAL_NODE && value_dead(v)) {
		Node *n = v->def;
		Value *in = n->in[0];
		for (int i = 0; i < n->nout; i++)
			if (n->out[i] && !value_dead(n->out[i]))
				return;
		node_remove(n);
		v = in;
	}
}

/* The first that reads a sum; Node.mark says where the nodes of the update stand. */
static Node *first_reader(const Value *sum)
{
	Node *first = sum->uses[0].node;

	for (int i = 1; i < sum->nuses; i++)
		first = sum->uses[i].node->mark < first->mark ? sum->uses[i].node : first;
	return first;
}

/* What adds up a result of n, the gradient of a bias beside that of its weight; NULL: something else reads it too. */
static Node *added_by(const Value *v)
{
	Node *u = v->nuses == 1 ? v->uses[0].node : NULL;

	return u && u->op == OP_Accumulate && stays(u->out[0]) ? u : NULL;
}

static void replace(Builder *b, Node *acc, Value *made)
{
	const char *name = acc->out[0]->name;
	Value *old = acc->in[0];

	b->before = first_reader(acc->out[0]);
	Value *sum = mk_reshape(b, made, &acc->out[0]->type);
	value_replace(acc->out[0], sum);
	node_remove(acc);
	if (sum != made || made->index > 0)
		value_rename(b->g, sum, name);
	drop(old);
}

/* *next: the node behind it, which goes where it is the sum beside it. */
static bool at_once(Module *m, Stage *s, Node *acc, Node **next, double rate, PassCx *cx)
{
	Node *n = stays(acc->out[0]) ? made_once(acc) : NULL;
	Value *x = n ? origin(n->in[0]) : NULL, *dy = n ? origin(n->in[1]) : NULL;
	Node *beside = n && n->nout > 1 && n->out[1] ? added_by(n->out[1]) : NULL;

	if (!x || !dy || !at_once_pays(n, m->microbatches) || n->graph != s->backward ||
		(n->nout > 1 && n->out[1] && !beside))
		return false;
	Builder b = {
		.m = m, .g = s->update, .before = acc, .loc = n->loc, .phase = PHASE_UPDATE, .stage = s->id, .d = cx->d
	};
	Value *in[2] = { all_of(&b, s, x, &n->in[0]->type), all_of(&b, s, dy, &n->in[1]->type) };
	b.before = first_reader(acc->out[0]);
	if (beside && first_reader(beside->out[0])->mark < b.before->mark)
		b.before = first_reader(beside->out[0]);
	Node *all = build(&b, n->op, n->attr, 2, in, NULL);
	value_rename(s->update, all->out[0], at_once_name(cx->scratch, acc));
	const Speed on = device_speed(cx->cluster, 0);
	all->time = time_at_once(n, n->time, (double)m->microbatches, rate, &on);
	*next = beside && *next == beside ? beside->next : *next;
	if (beside)
		replace(&b, beside, all->out[1]);
	replace(&b, acc, all->out[0]);
	return true;
}

static int in_stage(Module *m, Stage *s, PassCx *cx)
{
	const double rate = product_rate(m, cx);
	int at = 0, n = 0;

	for (Node *k = s->update->first; k; k = k->next)
		k->mark = ++at;
	for (Node *acc = s->update->first, *next; acc; acc = next) {
		next = acc->next;
		n += acc->op == OP_Accumulate && at_once(m, s, acc, &next, rate, cx);
	}
	for (Node *k = s->update->first; k; k = k->next)
		k->mark = 0;
	return n;
}

bool pass_once(Module *m, PassCx *cx)
{
	if (!may_be_at_once(cx->train) || m->microbatches < 2 || schedule_splits(schedule_asked(m, cx)))
		return true;
	for (int i = 0; i < m->nstage; i++) {
		Stage *s = m->stage[i];
		const int n = s->replicas == 1 && stage_tensor(m, i) == 1 ? in_stage(m, s, cx) : 0;
		if (n)
			list_kept(m, s);
		if (n && cx->explain)
			buf_printf(cx->explain,
				"stage %d: %d gradients are made once a step, of all %lld microbatches\n", i, n,
				(long long)m->microbatches);
	}
	return true;
}
