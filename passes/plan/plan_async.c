/* Plans for schedules that are never flushed (plan_model.h): what a step is where every microbatch is one, which plans there are
 * none of, versions of weights, and what a step in the steady state takes at least.
 *
 * A device of a stage of R replicas does its share of a step (1/R of a microbatch where each is a step), and its sums and its
 * update as often as it has one: a round of R microbatches, or a step. Neither start nor drain counts. Whether sums and what
 * computes go on at one time the schedule's row says. */
#include <limits.h>
#include <math.h>
#include "plan_model.h"
#include "passes/schedule/placement.h"
#include "passes/schedule/schedule.h"

bool trial_each(const PlanModel *p) { return schedule_row(p->schedule)->flow & FLOW_EACH; }

int64_t trial_share(const PlanModel *p, const Trial *t, int stage)
{
	return trial_each(p) ? 1 : (t->micro + t->replicas[stage] - 1) / t->replicas[stage];
}

int trial_in_flight(const PlanModel *p, const Trial *t, int stage)
{
	const int grains = trial_each(p) ? INT_MAX : (int)trial_share(p, t, stage);

	return schedule_depth(p->schedule, t->replicas, t->n, stage, grains);
}

int trial_versions(const PlanModel *p, const Trial *t, int stage)
{
	return schedule_versions(p->schedule, schedule_rule(p->train), t->replicas, t->n, stage);
}

bool trial_older(const PlanModel *p, int stage)
{
	const int flow = schedule_row(p->schedule)->flow;

	return flow & FLOW_EACH ? flow & FLOW_VERSIONS && schedule_rule(p->train) == VERSION_VERTICAL && stage > 0
	                        : flow & FLOW_ASYNC;
}

/* A weight that is trained in two stages, whose updates are of different steps. */
static bool weight_apart(const PlanModel *p, const int *stage)
{
	const int flow = schedule_row(p->schedule)->flow;

	for (int i = 0; i < p->nweight && flow & FLOW_ASYNC && !(flow & FLOW_ONE_UPDATE); i++)
		if (p->weight[i].trained && plan_stage_with(&p->weight[i], stage) < 0)
			return true;
	return false;
}

/* The last stage tells the others in its backwards how many labels count. */
static bool last_without_backward(const PlanModel *p, const Trial *t, const int *stage)
{
	double time = 0;

	for (int i = 0; i < p->nlayer; i++)
		time += stage[i] == t->n - 1 ? p->bwd[0][i] : 0;
	return t->n > 1 && time <= 0;
}

bool trial_refused(const PlanModel *p, const Trial *t, const int *stage)
{
	return schedule_is_async(p->schedule) && (weight_apart(p, stage) || last_without_backward(p, t, stage));
}

/* When a device's sums are made at least, once it has `work` seconds to compute, the last `bwd` of them the backward in which those
 * of buckets begin. */
static double sums_made(const StageSums *sums, double work, double bwd)
{
	double end = sums->buckets ? 0 : work;

	for (int q = 0; q < sums->n; q++)
		end = fmax(end, work - (sums->buckets ? (1 - sums->sum[q].join.ready) * bwd : 0)) + sums->sum[q].least;
	return fmax(end, work);
}

double trial_steady(const PlanModel *p, const Trial *t, const TrialStage *s, const int *stage)
{
	const bool beside = schedule_row(p->schedule)->flow & FLOW_BESIDE;
	double least = 0;

	for (int i = 0, r = 0; i < t->n; r += t->replicas[i++]) {
		const StageSums *sums = trial_sums(p, t, i, t->device + r, stage, true);
		const double steps = trial_each(p) ? t->replicas[i] : 1, share = (double)trial_share(p, t, i);
		double sum = 0;
		for (int q = 0; q < sums->n; q++)
			sum += sums->sum[q].least;
		for (int k = r; k < r + t->replicas[i]; k++) {
			const int c = p->class_of[t->device[k]];
			const double work = share * (s[i].fwd[c] + s[i].bwd[c]), update = s[i].update[c];
			const double made =
				beside ? fmax(work + update, sum) : sums_made(sums, work, s[i].bwd[c]) + update;
			least = fmax(least, made / steps);
		}
	}
	return least;
}
