/* evaluate.c: the evaluation set through the model, between two steps of training.
 *
 * The same devices do the same forwards in the same schedule; an asynchronous pipeline is drained before, as for
 * a checkpoint. Nothing changes: no weight, no statistics, no random numbers (--eval-averages: each weight
 * and its moving average change places for so long; before the first update there is none). The last step is filled with
 * samples that do not count. The loss is the sum over all counted labels divided by their number. */
#include "rt.h"

static int64_t done = -1; /* steps done at the last evaluation */
static rt_score score;
static int64_t every; /* steps; 0: eval.epochs count */
static int64_t came;  /* steps of the set whose result is there */

bool rt_evaluate_due(int64_t step, bool last)
{
	return rt_program->eval.on && step != done && (last || rt_evaluate_next(step - 1) == step);
}

void rt_evaluate_open(int64_t steps)
{
	every = steps;
	done = -1;
}

int64_t rt_evaluate_next(int64_t step)
{
	const pd_program *p = rt_program;
	const int64_t batch = p->micro * p->microbatches, epochs = p->eval.epochs * rt_input_span();

	if (!p->eval.on)
		return INT64_MAX;
	if (every)
		return (step / every + 1) * every;
	return epochs ? ((step * batch / epochs + 1) * epochs + batch - 1) / batch : INT64_MAX;
}

static void add(int64_t step, void *to)
{
	(void)step;
	(void)to;
	score.loss += rt_loss_sum();
	score.count += rt_count();
	score.hits += rt_hits();
	score.labels += rt_labels();
	came++;
}

static bool averages(const pd_param *e, const pd_param *w)
{
	const size_t n = strlen(w->name);

	return e->kind == PD_STATE && w->kind == PD_WEIGHT && e->row == w->row && !strncmp(e->name, w->name, n) &&
	       !strcmp(e->name + n, ":ema");
}

static void swap(char *a, char *b, size_t n)
{
	char block[4096];
	size_t k;

	for (; n; n -= k, a += k, b += k) {
		k = n < sizeof block ? n : sizeof block;
		memcpy(block, a, k);
		memcpy(a, b, k);
		memcpy(b, block, k);
	}
}

/* Every weight that this rank updates and its moving average change places. */
static void swap_averages(const pd_program *p, char *arena)
{
	for (int i = 0; p->eval.averages && i < p->nparams; i++)
		for (int k = 0; k < p->nparams; k++)
			if (averages(&p->params[i], &p->params[k]))
				swap(arena + p->params[i].offset, arena + p->params[k].offset,
					rt_param_bytes(&p->params[i]));
}

void rt_evaluate(const pd_program *p, char *arena, void (*one_step)(const pd_program *p, bool update))
{
	const double loss = rt_loss_sum(), count = rt_count(), hits = rt_hits(), labels = rt_labels(), begin = rt_now();
	const int64_t at = rt_step, steps = rt_input_eval_steps();
	int busiest;
	const double waited = rt_totals_waited(&busiest), sent = rt_totals_sent();

	score = (rt_score){ .step = at };
	came = 0;
	swap_averages(p, arena);
	rt_input_evaluate(true);
	rt_step = 0;
	if (p->flow)
		rt_flow_run(p, steps, RT_FLOW_FORWARD, add, NULL);
	for (; !p->flow && rt_step < steps; rt_step++) {
		one_step(p, false);
		add(rt_step, NULL);
	}
	rt_input_evaluate(false);
	rt_step = at;
	swap_averages(p, arena);
	rt_trace_evaluation(begin);
	rt_totals_put(loss, count, hits, labels, 0);
	done = at;
	score.seconds = rt_now() - begin;
	score.waited = rt_totals_waited(&busiest) - waited;
	score.sent = rt_totals_sent() - sent;
	if (came == steps) /* else a signal came */
		rt_watch_score(&score);
}
