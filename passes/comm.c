/* comm: joins what the replicas of a stage have. Reads Stage.replicas; writes Param.sync and, in the update graph of
 * each stage with several replicas, behind the last Accumulate or Stack:
 *     AllReduce(%g.w1, %g.b1, ...) {over=replicas}     sums in place; one bucket, in the module's order of parameters
 *     AllReduce(%stack, ...) {over=rows}               rows of other replicas are zero before: the sum joins them
 * --compress packs the messages of the first kind; rows stay exact.
 * What replicas of different stages share (tied weights) split has arranged already, as Broadcast; those follow. */
#include <string.h>
#include "plan.h"

static void join(Module *m, Stage *s, OpKind what, const char *over, PassCx *cx)
{
	Graph *g = s->update;
	Value **in = NULL;
	Node *last = NULL, *before = g->first;
	int n = 0, cap = 0;

	for (Node *k = g->first; k; k = k->next) {
		if (k->op == what)
			PUSH(cx->scratch, in, n, cap) = k->out[0];
		if (k->op == OP_Accumulate || k->op == OP_Stack || k->op == OP_AllReduce)
			last = k;
	}
	if (!n)
		return;
	if (last)
		before = last->next;
	Builder b = { .m = m, .g = g, .before = before, .loc = FILELOC(m->file), .phase = PHASE_UPDATE, .stage = s->id,
		.d = cx->d };
	Node *sum = build(&b, OP_AllReduce, NULL, n, in, NULL);
	attr_set_str(sum, "over", over);
	if (what == OP_Accumulate && cx->train && cx->train->compress) {
		attr_set_str(sum, "codec", cx->train->compress);
		attr_set_int(sum, "block", cx->train->compress_block);
	}
	if (what == OP_Accumulate && cx->train && cx->train->allreduce)
		attr_set_str(sum, "by", cx->train->allreduce);
}

bool pass_comm(Module *m, PassCx *cx)
{
	if (cx->train && cx->train->compress && cx->train->allreduce && strcmp(cx->train->allreduce, "ring"))
		return diag_error(cx->d, NOLOC, 406, "--compress %s goes by the ring; --allreduce is %s", cx->train->compress,
			cx->train->allreduce);
	if (cx->train && cx->train->compress && (cx->train->reproducible || cx->train->f64))
		return diag_error(cx->d, NOLOC, 406, "--compress %s rounds gradients on their way; %s wants exact sums",
			cx->train->compress, cx->train->reproducible ? "--reproducible" : "--f64");
	for (int i = 0; i < m->nstage; i++) {
		Stage *s = m->stage[i];
		if (s->replicas < 2)
			continue;
		for (const Node *n = s->update->first; n; n = n->next)
			if (n->op == OP_AllReduce)
				return diag_error(cx->d, n->loc, 410, "comm has run on this module");
		join(m, s, OP_Accumulate, "replicas", cx);
		join(m, s, OP_Stack, "rows", cx);
		for (int k = 0; k < s->nparam; k++)
			if (s->param[k]->param->kind == PARAM_WEIGHT && !s->param[k]->param->frozen)
				s->param[k]->param->sync = SYNC_ALLREDUCE;
	}
	return true;
}
