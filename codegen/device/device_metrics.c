/* What pd_program says of what a run tells: the predicted step, FLOP, metrics, evaluation, the early stop. */
#include <inttypes.h>
#include <string.h>
#include "device.h"

/* Some stage reports how many labels were found. */
static bool counts_hits(const Module *m)
{
	for (int t = 0; t < m->nstage; t++)
		for (const Node *n = m->stage[t]->forward->first; n; n = n->next)
			if (n->op == OP_ReportHits)
				return true;
	return false;
}

/* FLOP of a microbatch: forwards, backwards, weight parts; what is computed again in a backward ("re." of recompute) is no
 * work of the model's. */
static double model_flops(const Module *m)
{
	double flops = 0;

	for (int t = 0; t < m->nstage; t++) {
		Graph *g[4];
		const int k = stage_graphs(m->stage[t], g);

		for (int i = 0; i < k; i++)
			for (const Node *n = g[i]->first; n && g[i] != m->stage[t]->update; n = n->next) {
				const bool again = g[i] == m->stage[t]->backward && n->nout && n->out[0] &&
				                   !strncmp(n->out[0]->name, "re.", 3);
				if (optab[n->op]->cost && !again)
					flops += optab[n->op]->cost(n).flops;
			}
	}
	return flops;
}

/* FLOP/s of all devices that compute, with --amp those in 16-bit floats; 0: the cluster file does not say them. */
static double peak_flops(const Build *b)
{
	double sum = 0;

	for (int t = 0; t < b->m->nstage; t++)
		for (int r = 0; r < b->m->stage[t]->replicas; r++) {
			const Device *d = &b->c->device[b->m->stage[t]->device[r]];
			const double flops = b->t->target.amp.kind != AMP_OFF ? d->half_flops : d->flops;
			if (b->m->stage[t]->server || next_chunk(b, t) >= 0)
				continue;
			if (!(flops > 0))
				return 0;
			sum += flops;
		}
	return sum;
}

/* What the run tells by default. */
void write_watch(const Build *b, Cw *w)
{
	const Training *t = b->t;
	const double peak = peak_flops(b);

	cw_line(w, ".lr = %.17g,", opt_get(&t->model.opt, OPT_LR));
	if (b->m->step_time > 0)
		cw_line(w, ".predicted = %.3g,", b->m->step_time);
	if (peak > 0)
		cw_line(w, ".flops = %.6g, .peak = %.6g,", model_flops(b->m) * (double)b->m->microbatches, peak);
	if (t->loop.jsonl || t->loop.csv || t->loop.tensorboard || t->loop.metrics_every)
		cw_line(w, ".metrics = { .every = %" PRId64 ", .jsonl = %s, .csv = %s, .tensorboard = %s },",
			t->loop.metrics_every, t->loop.jsonl ? quoted(b->a, t->loop.jsonl) : "NULL",
			t->loop.csv ? quoted(b->a, t->loop.csv) : "NULL",
			t->loop.tensorboard ? quoted(b->a, t->loop.tensorboard) : "NULL");
	if (t->data.last != LAST_WRAP)
		cw_line(w, ".last = %s,", t->data.last == LAST_KEEP ? "PD_LAST_KEEP" : "PD_LAST_DROP");
	if (t->data.eval.on)
		cw_line(w,
			".eval = { .on = true, .accuracy = %s, .every = %" PRId64 ", .epochs = %" PRId64
			", .samples = %" PRId64 "%s },",
			counts_hits(b->m) ? "true" : "false", t->data.eval.every, t->data.eval.epochs,
			t->data.eval.samples, t->data.eval.averages ? ", .averages = true" : "");
	if (t->loop.stop)
		cw_line(w, ".stop = \"%s\",", t->loop.stop);
}
