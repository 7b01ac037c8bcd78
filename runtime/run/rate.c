/* rate.c: the factor of the learning rate: a rise, then a schedule.
 *
 * A schedule over the whole run that names no steps of its own ends where the first run was to end. Checkpoints keep that step,
 * so that going on with other --steps does not bend what is behind: the run says so. */
#include "rt.h"
#include <math.h>
#include <stdio.h>

enum { STEPWISE = 1, EXPONENTIAL, LINEAR, COSINE, INVERSE_SQRT, INVERSE }; /* rate.kind; 0: constant */

static int64_t end; /* of LINEAR and COSINE: the step behind which nothing changes; 0: not known yet */

void rt_rate_resume(int64_t step) { end = step; }

int64_t rt_rate_end(void) { return end; }

void rt_rate_fix(const pd_program *p, int64_t last)
{
	const int64_t own = p->rate.steps ? p->rate.warmup + p->rate.steps : 0, first = end;

	if (p->rate.kind != LINEAR && p->rate.kind != COSINE) {
		end = 0;
		return;
	}
	end = own ? own : first ? first : last;
	if (!first || !rt_leads(p) || rt_log < RT_LOG_NOTE)
		return;
	if (own && own != first)
		printf("the schedule of the learning rate ends at step %lld; before it was resumed, at step %lld\n",
			(long long)own, (long long)first);
	else if (!own && last != first)
		printf("the schedule of the learning rate ends at step %lld, as in the first run, not at step %lld; "
		       "--lr-schedule with steps=N changes it\n",
			(long long)first, (long long)last);
}

double rt_rate(int64_t t)
{
	const int64_t w = rt_program->rate.warmup, s = t - w, steps = end - w;
	const double last = rt_program->rate.last, gamma = rt_program->rate.gamma;

	if (t < w)
		return (double)(t + 1) / (double)w;
	const double p = s < steps ? (double)s / (double)steps : 1;

	switch (rt_program->rate.kind) {
	case STEPWISE: return pow(gamma, (double)(s / rt_program->rate.every));
	case EXPONENTIAL: return pow(gamma, (double)s / (double)rt_program->rate.every);
	case LINEAR: return 1 + (last - 1) * p;
	case COSINE: return last + (1 - last) * (1 + cos(3.14159265358979323846 * p)) / 2;
	case INVERSE_SQRT: return 1 / sqrt(1 + (double)s / (double)rt_program->rate.every);
	case INVERSE: return 1 / (1 + (double)s / (double)rt_program->rate.every);
	default: return 1;
	}
}

double pd_rate(void)
{
	rt_section_spoil("a kernel is told the learning rate");
	return rt_rate((rt_program->server || rt_replays()) && rt_update >= 0 ? rt_update_step : pd_step_index());
}
