/* Gradients of fp16 are those of the loss times LossScale(), and updates divide by it with the count (ClipNorm {scaled}). What a
 * user wrote between a sum and its update shall see the gradient as it is: whatever reads a scaled value and is no update reads
 * it divided, and what an update takes that was made of such values is multiplied again:
 *
 *     %u = Tanh(%g.w); @w <- SGD(@w, %u, %n.clip)     ->     %g.w.true = Div(%g.w, %scale); %u = Tanh(%g.w.true);
 *                                                            %u.scaled = Mul(%u, %scale); @w <- SGD(@w, %u.scaled, %n.clip)
 *
 * The scale is a power of two, so both are exact. An update that divides by something of the user's own takes the true gradient.
 * Called at the end of split; reads and writes update graphs. */
#include <string.h>
#include "passes/common/plan.h"
#include "ir/analysis.h"
#include "split.h"

static const Value *sent_to(const Module *m, const Node *broadcast)
{
	for (int t = 0; t < m->nstage; t++)
		for (const Node *n = m->stage[t]->update->first; n; n = n->next)
			if (n->op == OP_Broadcast && n->nin && attr_int(n, "number") == attr_int(broadcast, "number"))
				return n->in[0];
	bug("nobody sends broadcast %d", (int)attr_int(broadcast, "number"));
}

static bool is_scale(const Value *v) { return v->kind == VAL_NODE && v->def->op == OP_LossScale; }

/* Is v the scale times what it would be without? */
static bool is_scaled(const Module *m, const Value *v)
{
	const Node *n = v->kind == VAL_NODE ? v->def : NULL;

	if (!n || (n->op != OP_Add && n->op != OP_Sum))
		return n && (n->op == OP_Accumulate || (n->op == OP_ClipNorm && attr_int(n, "scaled")) ||
				    (n->op == OP_Mul && is_scale(n->in[1])) ||
				    (n->op == OP_Broadcast && is_scaled(m, n->nin ? n->in[0] : sent_to(m, n))));
	for (int i = 0; i < n->nin; i++)
		if (!is_scaled(m, n->in[i]))
			return false;
	return true;
}

/* v divided by the scale, or times it, for node n: made once for all behind it. */
static Value *changed(Module *m, Stage *s, Node *n, Value *v, OpKind op)
{
	Builder b = { .m = m, .g = s->update, .before = n, .loc = n->loc, .phase = PHASE_UPDATE, .stage = s->id };
	Value *scale = NULL;

	for (int i = 0; i < v->nuses; i++)
		if (v->uses[i].node->op == op && v->uses[i].node->graph == s->update && v->uses[i].index == 0 &&
			is_scale(v->uses[i].node->in[1]))
			return v->uses[i].node->out[0];
	for (Node *k = s->update->first; k != n && !scale; k = k->next)
		scale = k->op == OP_LossScale ? k->out[0] : NULL;
	if (!scale)
		scale = build(&b, OP_LossScale, NULL, 0, NULL, "scale")->out[0];
	return build(&b, op, NULL, 2, (Value *[]){ v, scale },
		arena_printf(m->arena, "%s.%s", v->name, op == OP_Div ? "true" : "scaled"))
	        ->out[0];
}

static void want(Module *m, Stage *s, Node *n, int i, bool scaled)
{
	Value *v = n->in[i];

	if (is_scaled(m, v) != scaled)
		node_set_input(n, i, changed(m, s, n, v, scaled ? OP_Mul : OP_Div));
}

void unscale(Module *m, const Training *t)
{
	if (!amp_scaled(t))
		return;
	for (int k = 0; k < m->nstage; k++)
		for (Node *n = m->stage[k]->update->first; n; n = n->next) {
			const bool update = optab[n->op]->flags & OP_UPDATE,
				   own = n->op == OP_ClipNorm || n->op == OP_Broadcast ||
			                 (n->op == OP_Div && is_scale(n->in[1])) ||
			                 (n->nout && is_scaled(m, n->out[0]));
			if (update && n->in[gradient_operand(n)]->kind == VAL_NODE)
				want(m, m->stage[k], n, gradient_operand(n),
					n->op == OP_SquareSum || is_scaled(m, n->in[n->nin - 1]));
			for (int i = 0; i < n->nin && !update && !own; i++)
				if (n->in[i])
					want(m, m->stage[k], n, i, false);
		}
}
