/* Gradients that are one product of all microbatches (passes/split/at_once.c), as the planning model sees them: in a stage of one replica
 * their time is the update's, the rows that they are made of are kept to the end of the step, and the sum is a temporary. */
#include <math.h>
#include "ir/analysis.h"
#include "ir/op.h"
#include "passes/cost/cost.h"
#include "passes/schedule/placement.h"
#include "passes/schedule/schedule.h"
#include "passes/split/split.h"
#include "plan_model.h"

static double rounded(const Value *v) { return 64 * ceil((double)value_bytes(v) / 64); }

void find_once(PlanModel *p, const Module *m, PassCx *cx)
{
	int cap = 0;

	if (!may_be_at_once(p->train))
		return;
	p->of = m;
	p->rate = product_rate(m, cx);
	p->speed = NEWN(p->a, Speed, p->nclass);
	for (int d = 0; p->c && d < p->c->ndevice; d++)
		p->speed[p->class_of[d]] = device_speed(p->c, d);
	const Speed first = device_speed(p->c, 0);
	if (!p->c)
		p->speed[0] = first;
	for (const Node *acc = m->graph->first; acc; acc = acc->next) {
		Node *n = acc->op == OP_Accumulate ? made_once(acc) : NULL;
		if (!n)
			continue;
		const Value *bias = n->nout > 1 ? n->out[1] : NULL;
		const Node *beside =
			bias && bias->nuses == 1 && bias->uses[0].node->op == OP_Accumulate ? bias->uses[0].node : NULL;
		PlanOnce *x = &PUSH(p->a, p->once, p->nonce, cap);
		*x = (PlanOnce){ .node = n,
			.layer = n->stage,
			.weight = plan_weight_of(p, gradient_of(acc->out[0])),
			.rows = rounded(n->in[0]) + rounded(n->in[1]),
			.bytes = rounded(n->out[0]),
			.normed = acc->out[0]->nuses > 1,
			.measured = time_measured(cx, n, PHASE_UPDATE, at_once_name(cx->scratch, acc)),
			.seconds = NEWN(p->a, double, p->nclass),
			.adds = NEWN(p->a, double, p->nclass) };
		for (int c = 0; c < p->nclass; c++) {
			x->seconds[c] = node_seconds(n, &first, &p->speed[c]);
			x->adds[c] = node_seconds(acc, &first, &p->speed[c]) +
			             (beside ? node_seconds(beside, &first, &p->speed[c]) : 0);
		}
	}
}

/* Putting the rows of both operands where those of the step are; a measured program has it among what makes them. */
static double rows_seconds(const PlanModel *p, const PlanOnce *x, int64_t micro, const Speed *s)
{
	return p->rate > 0 ? 0 : 2 * s->launch + (double)(micro + 1) * x->rows / s->bandwidth;
}

void trial_once(const PlanModel *p, const Trial *t, TrialStage *s, int at, const int *stage)
{
	double most = 0, all = 0;

	if (!p->nonce || schedule_splits(p->schedule) || t->replicas[at] > 1 || stage_tensor(p->of, at) > 1)
		return;
	for (int i = 0; i < p->nonce; i++) {
		const PlanOnce *x = &p->once[i];
		if (stage[x->layer] != at || !at_once_pays(x->node, t->micro) ||
			(x->weight >= 0 && plan_stage_with(&p->weight[x->weight], stage) != at))
			continue;
		for (int c = 0; c < p->nclass; c++) {
			const double once = x->measured > 0 ? x->measured
			                                    : time_at_once(x->node, x->seconds[c], (double)t->micro,
								      p->rate, &p->speed[c]);
			s->bwd[c] = fmax(0, s->bwd[c] - x->seconds[c]);
			s->update[c] += once - x->adds[c] + rows_seconds(p, x, t->micro, &p->speed[c]);
		}
		s->rows += (double)t->micro * x->rows;
		s->once += x->bytes;
		most = fmax(most, x->normed ? 0 : x->bytes);
		all += x->normed ? x->bytes : 0;
	}
	s->tmp = fmax(s->tmp, all + most); /* those of the update lie where a microbatch's were */
	s->only = fmax(s->only, all + most);
}
