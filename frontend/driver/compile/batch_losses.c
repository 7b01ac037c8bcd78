/* Losses of a model's own, where a step has several microbatches: the model is read at another batch, so that the pass train sees
 * how they follow it (passes/train/batch_terms.h). */
#include "global_batch.h"
#include "passes/schedule/schedule.h"
#include "passes/train/batch_terms.h"

void batch_look(Compile *c)
{
	const Training *t = &c->o->t;
	const int64_t most =
		t->loop.global ? t->loop.global : c->m->batch * (t->loop.microbatches ? t->loop.microbatches : 1);

	if (c->o->start_from || !c->model || !c->m->graph || one_per_step(t) || !loss_of_its_own(c->m, t))
		return;
	Diag *d = c->d, mute = *d;
	mute.errors = mute.limit + 1; /* what cannot be read at another batch is not said */
	mute.quiet = true;
	c->d = &mute;
	c->rebatched = compile_import(c, most + 1);
	c->d = d;
}

void batch_warn_of_coupling(const Compile *c)
{
	const int64_t batch = c->m->batch, step = batch_of_step(c);
	const Node *n = c->coupled;

	if (n && batch < step)
		diag_warn(c->d, n->loc, "batch-loss",
			"'%s' is made of sums or means over the samples of a microbatch, %lld: the mean of such losses is trained, "
			"which is not that of the %lld samples of a step; --micro-batch %lld --plan 1 (or 1-1) has that",
			n->out[0]->name, (long long)batch, (long long)step, (long long)step);
}
