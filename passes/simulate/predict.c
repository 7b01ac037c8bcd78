/* The one prediction of a step that is told: the simulator's, of the module as it will be emitted. */
#include <math.h>
#include "ir/plan.h"
#include "simulate.h"

void predict_step(Module *m, PassCx *cx)
{
	Diag mute = *cx->d;
	Plan *p = cx->plan;
	Sim s;

	mute.errors = mute.limit + 1; /* what cannot be simulated is still compiled */
	mute.quiet = true;
	if (!cx->cluster || !cx->train || !(m->step_time > 0) ||
		!simulate(cx->scratch, simulate_model(cx->scratch, m, cx->cluster, cx->train), &s, &mute))
		return;
	m->step_time = s.each;
	if (!p || !(p->step_time > 0))
		return;
	const double f = s.each / p->step_time;
	p->estimate = p->step_time;
	p->step_time = s.each;
	p->one_time = fmin(p->one_time, s.model->alone);
	p->file_order *= f;
	p->least *= f;
	p->terms = (PlanTerms){ f * p->terms.work, f * p->terms.sum, f * p->terms.update, f * p->terms.wait };
	for (int i = 0; i < p->nother; i++) {
		PlanTerms *t = &p->other[i].terms;
		p->other[i].step *= f;
		*t = (PlanTerms){ f * t->work, f * t->sum, f * t->update, f * t->wait };
	}
}
