/* What the stages of a trial tell each other (plan_flow.h). */
#include "plan_flow.h"

static void flow_on(Flow *f, bool back, int from, int to, double bytes)
{
	(back ? f->bwd : f->fwd)[from * f->n + to] += bytes;
	f->waits[back][from * f->n + to] = true;
}

static void flow_tensor(Flow *f, const PlanTensor *t, const int *stage, int *seen, int stamp)
{
	const int s = stage[t->from];
	int first = t->kind == PLAN_BOTH ? f->n : s;

	for (int k = 0; k < t->nto; k++)
		first = stage[t->to[k]] < first ? stage[t->to[k]] : first;
	for (int k = 0; k < t->nto; k++) {
		const int to = stage[t->to[k]];
		if (seen[to] == stamp)
			continue;
		seen[to] = stamp;
		if (t->kind != PLAN_BACKWARD && to != s)
			flow_on(f, false, s, to, t->bytes);
		if (t->kind == PLAN_BACKWARD && to != s)
			flow_on(f, true, s, to, t->bytes);
		if (t->kind == PLAN_BOTH && to != first)
			flow_on(f, true, to, first, t->bytes);
	}
	bool sent = false;
	for (int k = 0; k < t->nto && t->kind != PLAN_BACKWARD; k++)
		sent |= stage[t->to[k]] != s;
	if (sent)
		(t->kept ? f->sent_kept : f->sent_only)[s] += t->bytes;
	if (t->kind == PLAN_BOTH && first != s)
		flow_on(f, true, first, s, t->bytes);
}

Flow flow_of(Arena *a, const PlanModel *p, const Trial *t, const int *stage)
{
	const int n = t->n;
	Flow f = { .n = n,
		.fwd = NEWN(a, double, n *n),
		.bwd = NEWN(a, double, n *n),
		.waits = { NEWN(a, bool, n *n), NEWN(a, bool, n *n) },
		.sent_only = NEWN(a, double, n),
		.sent_kept = NEWN(a, double, n) };
	int *seen = NEWN(a, int, t->n);

	for (int i = 0; i < p->ntensor; i++)
		flow_tensor(&f, &p->tensor[i], stage, seen, i + 1);
	return f;
}
