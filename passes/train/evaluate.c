/* evaluate: what an evaluation set and short steps ask of the graph; a part of train.
 *
 * The same forward graph trains and evaluates. In evaluation Dropout and dropping attention pass everything on,
 * and BatchNormalization takes its running statistics, which become operands of the node. A step that has fewer
 * samples than places is computed whole: labels in the places that are left are the ignored index; where there
 * are no labels, what each sample adds to the loss is multiplied by 1 or by 0 (an input that the runtime makes),
 * and so is the count. Both leave the bits of samples that are there as they are. */
#include <string.h>
#include "evaluate.h"
#include "passes/common/plan.h"
#include "passes/schedule/schedule.h"

bool samples_may_lack(const Training *t) { return t && (t->data.eval.on || t->data.last == LAST_KEEP); }

/* ---- labels ---- */

/* What only moves labels about. */
static bool moves(OpKind op)
{
	return optab[op]->flags & OP_VIEW || op == OP_Slice || op == OP_Cast || op == OP_Transpose;
}

static bool feeds_labels_only(const Value *v)
{
	for (int i = 0; i < v->nuses; i++) {
		const Node *n = v->uses[i].node;
		const bool loss = n->op == OP_SoftmaxCrossEntropyLoss || n->op == OP_NegativeLogLikelihoodLoss ||
		                  n->op == OP_CountLabels || n->op == OP_CountHits;
		if (!(loss && n->in[0] != v) && n->op != OP_CountLabels &&
			!(moves(n->op) && feeds_labels_only(n->out[0])))
			return false;
	}
	return true;
}

bool mask_labels(Node *ce)
{
	Value *v = ce->in[1];

	while (v->kind == VAL_NODE && moves(v->def->op))
		v = v->def->in[0];
	if (v->kind != VAL_INPUT || (v->type.dtype != DT_i64 && v->type.dtype != DT_i32) || !feeds_labels_only(v))
		return false;
	if (!attr_int(ce, "has_ignore")) {
		attr_set_int(ce, "has_ignore", 1);
		attr_set_int(ce, "ignore_index", INT32_MIN);
	}
	v->ignore_index = attr_int(ce, "ignore_index");
	v->masked = true;
	return true;
}

Value *count_hits(Builder *b, const Node *ce)
{
	Value *in[2] = { ce->in[0], ce->in[1] };
	Node *n = build(b, OP_CountHits, NULL, 2, in, "hits");

	attr_set_int(n, "ignore_index", attr_int(ce, "ignore_index"));
	attr_set_int(n, "has_ignore", attr_int(ce, "has_ignore"));
	return n->out[0];
}

/* ---- presence ---- */

Value *presence(Builder *b, const Value *like, int axis)
{
	const char *name = unique_name(b->g, axis < 0 ? "microbatch_is_there" : "sample_is_there");
	int64_t dim[MAXRANK];

	if (axis < 0) {
		Value *v = graph_input(b->g, name, type_scalar(like->type.dtype));
		v->batch_axis = -1;
		v->presence = true;
		return v;
	}
	Value *v = graph_input(b->g, name, type_make(like->type.dtype, 1, &like->type.dim[axis]));
	v->batch_axis = 0;
	v->presence = true;
	for (int i = 0; i < like->type.rank; i++)
		dim[i] = i == axis ? like->type.dim[i] : 1;
	const Type t = type_make(like->type.dtype, like->type.rank, dim);
	return mk_reshape(b, v, &t);
}

/* ---- modes of evaluation ---- */

/* The parameter that keeps a running mean of this value of every microbatch; NULL: none does. */
static Value *running(const Value *v)
{
	for (int i = 0; v && i < v->nuses; i++) {
		const Node *stack = v->uses[i].node;
		if (stack->op != OP_Stack)
			continue;
		for (int k = 0; k < stack->out[0]->nuses; k++)
			if (stack->out[0]->uses[k].node->op == OP_RunningStat)
				return stack->out[0]->uses[k].node->in[0];
	}
	return NULL;
}

static bool by_running(Module *m, Node *n, PassCx *cx)
{
	Value *mean = running(n->out[1]), *var = running(n->out[2]);
	Builder b = {
		.m = m, .g = m->graph, .loc = n->loc, .phase = n->phase, .stage = n->stage, .before = n, .d = cx->d
	};

	if (!mean || !var)
		return diag_error(cx->d, n->loc, 315,
			"this BatchNormalization keeps no running statistics, so it cannot evaluate");
	Value *in[5] = { n->in[0], n->in[1], n->in[2], mean, var };
	const char *name = n->out[0]->name;
	Node *both = build(&b, OP_BatchNorm, n->attr, 5, in, NULL);
	for (int i = 0; i < 3; i++)
		value_replace(n->out[i], both->out[i]);
	node_remove(n);
	value_rename(m->graph, both->out[0], name);
	return !b.failed;
}

bool evaluation_modes(Module *m, PassCx *cx)
{
	const Training *t = cx->train;
	const bool keep = t && t->data.last == LAST_KEEP;

	if (!samples_may_lack(t))
		return true;
	if (keep && schedule_async(t))
		return diag_error(cx->d, FILELOC(m->file), 315,
			"data.last: keep trains on a short step, and asynchronous schedule '%s' "
			"updates by microbatches, of which some would have no sample; say data.last: drop or wrap",
			schedule_str(cx->scratch, t->plan.schedule));
	for (Node *n = m->graph->first, *next; n; n = next) {
		next = n->next;
		if (n->op == OP_BatchNorm && keep)
			return diag_error(cx->d, n->loc, 315,
				"data.last: keep trains on a short step, and statistics of this "
				"BatchNormalization would count places that have no sample; say data.last: drop or wrap");
		if (n->op == OP_BatchNorm && t->data.eval.on && !by_running(m, n, cx))
			return false;
		if (t->data.eval.on && (n->op == OP_Dropout || n->op == OP_Attention))
			attr_set_int(n, "evaluates", 1);
	}
	return true;
}
