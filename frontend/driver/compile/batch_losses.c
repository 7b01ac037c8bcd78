/* Losses that are of a batch, where a step has several microbatches.
 *
 * Of a loss of the model's own it is looked at how it follows the batch (passes/train/batch_terms.h): the model is
 * read at another batch too, and what is neither a sum nor a mean over samples is said. So is a model under a loss
 * that pdcc adds that does not compute each sample by itself.
 *
 * Over pairs of samples (CLIP, SimCLR): a value with two axes that grow with the batch, samples by samples. Where a
 * step has several microbatches, each sees the pairs of its own samples alone, and what is trained is another loss
 * than the one of the whole batch: that is said. The axes are those that differ when the model is read at another
 * batch; of a model that can be had at no other (CLIP's labels 0, 1, ... are often a constant) a product of two
 * values that is [batch, batch] counts, and one of a value with itself that is a multiple of that. */
#include <string.h>
#include "global_batch.h"
#include "passes/schedule/schedule.h"
#include "passes/train/batch_terms.h"

/* The model at another batch; NULL, and nothing said, where it cannot be had so. */
static const Module *read_at(Compile *c, int64_t batch)
{
	Diag *d = c->d, mute = *d;

	mute.errors = mute.limit + 1;
	mute.quiet = true;
	c->d = &mute;
	const Module *m = compile_import(c, batch);
	c->d = d;
	return m;
}

/* ---- pairs of samples ---- */

static int multiples(const Type *t, int64_t batch)
{
	int n = 0;

	for (int i = 0; i < t->rank; i++)
		n += t->dim[i] > 0 && t->dim[i] % batch == 0;
	return n;
}

/* Axes as many times as long where the batch is `other` and not `batch`. */
static int grown(const Type *t, const Type *u, int64_t batch, int64_t other)
{
	int n = 0;

	for (int i = 0; i < t->rank && t->rank == u->rank; i++)
		n += t->dim[i] != u->dim[i] && t->dim[i] * other == u->dim[i] * batch;
	return n;
}

static const Value *named(const Module *m, const char *name)
{
	for (const Node *n = m->graph->first; n; n = n->next)
		for (int i = 0; i < n->nout; i++)
			if (n->out[i] && !strcmp(n->out[i]->name, name))
				return n->out[i];
	return NULL;
}

/* What a value was before its axes were moved. */
static const Value *unmoved(const Value *v)
{
	while (v->kind == VAL_NODE && (v->def->op == OP_Transpose || v->def->op == OP_Identity))
		v = v->def->in[0];
	return v;
}

/* Samples by samples, or, of several views of each (SimCLR), a value times itself. */
static bool square_product(const Node *n, int64_t batch)
{
	const Type *t = &n->out[0]->type;

	if ((n->op != OP_MatMul && n->op != OP_Gemm && n->op != OP_Product) || t->rank != 2 || t->dim[0] != t->dim[1] ||
		t->dim[0] % batch || n->in[0]->kind == VAL_PARAM || n->in[1]->kind == VAL_PARAM)
		return false;
	return unmoved(n->in[0]) == unmoved(n->in[1]) ||
	       (t->dim[0] == batch && n->in[0]->kind == VAL_NODE && n->in[1]->kind == VAL_NODE);
}

static bool of_pairs(const Node *n, const Module *other, int64_t batch)
{
	const Value *v = n->out[0], *u = other ? named(other, v->name) : NULL;

	return other ? u && grown(&v->type, &u->type, batch, other->batch) > 1 : batch > 1 && square_product(n, batch);
}

/* Nodes of samples by samples, as far as sizes say, the first of each stage; gives how many. */
static int candidates(const Compile *c, const Node **list, int most)
{
	int n = 0;

	for (int t = 0; t < c->m->nstage; t++)
		for (const Node *x = c->m->stage[t]->forward->first; x && n < most; x = x->next)
			if (x->nout && x->out[0] && x->out[0]->name && multiples(&x->out[0]->type, c->m->batch) > 1)
				list[n++] = x;
	return n;
}

static bool warn_of_pairs(Compile *c)
{
	enum { MOST = 4096 };
	const int64_t batch = c->m->batch, step = c->m->microbatches * batch;

	if (c->o->start_from || !c->model || !c->m->nstage || one_per_step(&c->o->t) || c->m->microbatches < 2)
		return false;
	const Node **list = NEWN(c->a, const Node *, MOST);
	const int n = candidates(c, list, MOST);
	if (!n)
		return false;
	const Module *m = c->rebatched ? c->rebatched : read_at(c, batch + 1);
	for (int i = 0; i < n; i++) {
		if (!of_pairs(list[i], m, batch))
			continue;
		diag_warn(c->d, list[i]->loc, "batch-pairs",
			"pairs of samples: each microbatch of %lld sees those of its own samples, not those of the %lld of a step; "
			"one microbatch on one device (--micro-batch %lld --plan 1, or 1-1) sees them all",
			(long long)batch, (long long)step, (long long)step);
		return true;
	}
	return false;
}

/* ---- losses of the model's own ---- */

void batch_look(Compile *c)
{
	const Training *t = &c->o->t;
	const int64_t most =
		t->loop.global ? t->loop.global : c->m->batch * (t->loop.microbatches ? t->loop.microbatches : 1);

	if (c->o->start_from || !c->model || !c->m->graph || one_per_step(t))
		return;
	map_init(&c->uneven, c->a, true);
	c->rebatched = read_at(c, most + 1);
	c->unseen = !c->rebatched && loss_of_its_own(c->m, t);
}

void batch_warn(Compile *c)
{
	const int64_t batch = c->m->batch, step = batch_of_step(c);
	const Node *n = c->coupled;

	if (warn_of_pairs(c) || batch >= step || c->m->microbatches < 2)
		return;
	if (n)
		diag_warn(c->d, n->loc, "batch-loss",
			"'%s' is made of the samples of a microbatch together, %lld: the mean of such losses is trained, which is "
			"not that of the %lld samples of a step; --micro-batch %lld --plan 1 (or 1-1) has that",
			n->out[0]->name, (long long)batch, (long long)step, (long long)step);
	else if (c->unseen)
		diag_warn(c->d, FILELOC(c->m->file), "batch-loss",
			"the model can be read at batch %lld alone, so it is not known whether its loss is a mean over samples: the mean "
			"of microbatches is trained; where it is a sum, --micro-batch %lld --plan 1 (or 1-1) has that of a step",
			(long long)batch, (long long)step);
}
