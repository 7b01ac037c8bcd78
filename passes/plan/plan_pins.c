/* What the cluster file asks of plans (placement): parameters that are to be in a stage (pin: {PATTERN: stageN}), and how
 * stages are given devices (policies: DAPPLE's three placements, section IV-B). Planning looks at no other plans; a plan that is
 * asked for by its replicas is cut, and given devices, so. */
#include <fnmatch.h>
#include "plan_search.h"

/* Node.stage says the segment. The first pattern that matches counts, of stages and servers alike. */
void find_pins(PlanModel *p, const Module *m)
{
	int cap = 0;

	for (int i = 0; i < m->nparam && p->c; i++) {
		const Value *v = m->param[i];
		const char *name = v->param->onnx_name ? v->param->onnx_name : v->name;
		int k = 0;
		while (k < p->c->npin && fnmatch(p->c->pin[k].pattern, name, 0))
			k++;
		if (v->param->kind == PARAM_STATE || k == p->c->npin || p->c->pin[k].stage < 0)
			continue;
		for (int u = 0; u < v->nuses; u++)
			if (v->uses[u].node->phase == PHASE_FWD)
				PUSH(p->a, p->pin, p->npin, cap) =
					(PlanPin){ v->uses[u].node->stage, p->c->pin[k].stage, name, &p->c->pin[k] };
	}
}

static bool under(const States *st, int state, int layer)
{
	return state >= 0 &&
	       st->under[(size_t)state * (size_t)st->layer_words + (size_t)(layer / 64)] >> (layer % 64) & 1;
}

int pins_broken(const PlanModel *p, int stage, int k, int j)
{
	int n = 0;

	for (int i = 0; i < p->npin; i++)
		n += (under(p->st, j, p->pin[i].layer) && !under(p->st, k, p->pin[i].layer)) !=
		     (p->pin[i].stage == stage);
	return n;
}

static bool keeps(const PlanModel *p, const Trial *t)
{
	bool ok = true;

	for (int i = 0; i < p->npin; i++)
		ok &= p->pin[i].stage < t->n;
	for (int s = 0; s < t->n && ok; s++)
		ok &= !pins_broken(p, s, s ? t->end[s - 1] : -1, t->end[s]);
	return ok;
}

bool plan_keeps_pins(const PlanModel *p, const Trial *t, Diag *d)
{
	const int *stage = p->npin ? trial_stage_of(p->a, p, t) : NULL;

	if (!d)
		return !p->npin || keeps(p, t);
	for (int i = 0; i < p->npin; i++) {
		const PlanPin *x = &p->pin[i];
		if (x->stage >= t->n)
			return diag_error(d, TEXTLOC(p->c->file, x->from->line, x->from->col), 474,
				"placement.pin: '%s' is to be in stage %d; plan "
				"%s has the stages 0 to %d",
				x->name, x->stage, trial_str(p->a, t), t->n - 1);
		if (stage[x->layer] != x->stage)
			return diag_error(d, TEXTLOC(p->c->file, x->from->line, x->from->col), 474,
				"placement.pin: '%s' is to be in stage %d; plan "
				"%s has it in stage %d%s",
				x->name, x->stage, trial_str(p->a, t), stage[x->layer],
				p->st->n > t->n ? "" : ", and can be cut nowhere else");
	}
	return true;
}

bool policy_allowed(const Cluster *c, int policy)
{
	return !c || !c->policies ||
	       (policy >= PLACE_FRESH && policy <= PLACE_SCATTER && c->policies >> (policy - PLACE_FRESH) & 1);
}
