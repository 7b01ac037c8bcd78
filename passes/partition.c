/* partition: how many stages, where the cuts lie, how many replicas each stage has, on which devices.
 *
 * The forward graph is a row of segments (segment.c), and a plan is a grouping of segments. `--plan 2-1-1` fixes the
 * replica counts: the cuts are then those with the least slowest stage (plancut.c). Else the planner that --planner
 * names looks for a plan (plansearch.h); auto asks all of them, searches from there, and takes what the simulator
 * plays fastest within memory. Reads Node.time; writes Node.stage, the plan (ir/plan.h), Module.microbatches. */
#include <math.h>
#include <string.h>
#include "plansearch.h"
#include "stages.h"

static bool used_in(const Value *param, int stage)
{
	for (int i = 0; i < param->nuses; i++)
		if (param->uses[i].node->phase != PHASE_UPDATE && param->uses[i].node->stage == stage)
			return true;
	return false;
}

static void describe(const Segments *p, Plan *plan)
{
	for (Node *n = p->m->graph->first; n; n = n->next) {
		PlanStage *s = &plan->stage[n->stage];
		if (n->phase == PHASE_UPDATE) {
			s->update += n->time;
			continue;
		}
		*(n->phase == PHASE_FWD ? &s->fwd : &s->bwd) += n->time;
		if (n->phase != PHASE_FWD)
			continue;
		s->nodes++;
		if (optab[n->op]->flags & OP_HEAVY) {
			s->heavy++;
			s->last = node_label(n);
			s->first = s->first ? s->first : s->last;
		}
		for (int o = 0; o < n->nout; o++)
			for (int t = n->stage + 1; n->out[o] && t < plan->nstage; t++)
				if (used_in(n->out[o], t))
					s->out_bytes += value_bytes(n->out[o]);
	}
	for (int s = 0; s < plan->nstage; s++)
		for (int i = 0; i < p->m->nparam; i++)
			if (p->m->param[i]->param->kind == PARAM_WEIGHT && used_in(p->m->param[i], s))
				plan->stage[s].weight_bytes += value_bytes(p->m->param[i]);
}


static void explain(const Segments *g, const Plan *plan)
{
	Buf *b = g->cx->explain;

	buf_printf(b, "plan %s%s: %lld microbatches, predicted step %.3g ms (one device %.3g ms)\n",
		plan_str(g->cx->scratch, plan), plan->forced ? " (as asked)" : "", (long long)plan->microbatches,
		1e3 * plan->step_time, 1e3 * plan->one_time);
	for (int s = 0; s < plan->nstage; s++) {
		const PlanStage *t = &plan->stage[s];
		buf_printf(b, "  stage %d x %d: %d nodes, %s .. %s, forward %.3g ms, backward %.3g ms, weights %lld B, "
			"sends %lld B\n", s, t->replicas, t->nodes, t->first ? t->first : "-", t->last ? t->last : "-", 1e3 * t->fwd,
			1e3 * t->bwd, (long long)t->weight_bytes, (long long)t->out_bytes);
	}
}

static double alone(const PlanModel *p, int64_t micro)
{
	double each = 0, update = 0;

	for (int i = 0; i < p->nlayer; i++) {
		each += p->fwd[0][i] + p->bwd[0][i];
		update += p->update[0][i];
	}
	return (double)micro * each + update;
}

static const char *schedule_of(const PassCx *cx)
{
	return cx->train ? cx->train->schedule : NULL;
}

static bool write_plan(Segments *g, const PlanModel *p, const Trial *t, bool forced)
{
	Arena *a = g->m->arena;
	int *cut = NEWN(g->cx->scratch, int, t->n);
	Placement at;

	if (!plan_place(a, schedule_of(g->cx), t->n, t->replicas, &at, g->cx->d))
		return false;

	for (int s = 1; s < t->n; s++)
		cut[s] = t->end[s - 1] + 1;
	segments_assign(g, cut, t->n);
	if (!g->cx->plan)
		g->cx->plan = NEW(a, Plan);
	Plan *plan = g->cx->plan;
	*plan = (Plan){ .nstage = t->n, .stage = NEWN(a, PlanStage, t->n), .ndevice = at.ndevice, .rank = at.rank, .step_time = t->step,
		.forced = forced, .by = t->by };
	plan->device = NEWN(a, int, at.ndevice);
	for (int s = 0, i = 0; s < t->n; s++) {
		plan->stage[s].replicas = t->replicas[s];
		for (int r = 0; r < t->replicas[s]; r++)
			plan->device[at.rank[s] + r] = t->device[i++];
	}
	plan->microbatches = g->m->microbatches = one_per_step(g->cx->train) ? 1 : t->micro;
	plan->step_time *= (double)plan->microbatches / (double)t->micro;
	for (Node *k = g->m->graph->first; k; k = k->next)      /* a Stack has a row per microbatch of the step */
		if (k->op == OP_Stack)
			optab[OP_Stack]->shape(k, g->cx->d);
	plan->one_time = alone(p, plan->microbatches);
	describe(g, plan);
	if (g->cx->explain)
		explain(g, plan);
	return true;
}

/* ---- choosing ---- */

static int largest(const int *v, int n)
{
	int r = 0;

	for (int i = 0; i < n; i++)
		r = v[i] > r ? v[i] : r;
	return r;
}

static bool check_batch(const Segments *g)
{
	const Training *t = g->cx->train;
	const int64_t batch = g->m->batch > 0 ? g->m->batch : 1;

	if (t && t->global > 0 && t->global % batch)
		return diag_error(g->cx->d, FILELOC(t->file), 405,
			"the global batch of %lld samples is no multiple of the microbatch of %lld", (long long)t->global,
			(long long)batch);
	if (one_per_step(t) && ((t->global > 0 && t->global != batch) || t->microbatches > 1))
		return diag_error(g->cx->d, FILELOC(t->file), 405,
			"schedule %s updates after every microbatch: a step is one microbatch of %lld samples, not %lld", t->schedule,
			(long long)batch, t->global > 0 ? (long long)t->global : (long long)(t->microbatches * batch));
	return true;
}

static bool check_forced(const Segments *g, int n, int sum)
{
	const Cluster *c = g->cx->cluster;

	if (c && sum > c->ndevice)
		return diag_error(g->cx->d, FILELOC(c->file), 403, "plan %s needs %d devices; the cluster has %d",
			g->cx->train->plan, sum, c->ndevice);
	if (n > g->n)
		return diag_error(g->cx->d, FILELOC(g->m->file), 404,
			"plan %s has %d stages; the model has only %d nodes to cut behind",
			g->cx->train->plan, n, g->n);
	return true;
}

/* A plan of these replicas on the devices in the order of the cluster file, not cut yet. */
static Trial *new_plan(PlanSearch *s, const int *replicas, int n, const Placement *at, const char *by)
{
	int sum = 0;

	for (int i = 0; i < n; i++)
		sum += replicas[i];
	Trial *t = trial_new(s->a, n, sum, by);
	memcpy(t->replicas, replicas, sizeof *replicas * (size_t)n);
	for (int i = 0, k = 0; i < n; i++)
		for (int r = 0; r < replicas[i]; r++)
			t->device[k++] = at->rank[i] + r;
	return t;
}

/* The cuts of a plan whose replicas are given; NULL after a diagnostic. */
static Trial *forced_plan(PlanSearch *s, const Segments *g, const int *replicas, int n)
{
	const int most = largest(replicas, n);
	Placement at;

	if (!plan_place(s->a, schedule_of(g->cx), n, replicas, &at, g->cx->d) || !check_forced(g, n, at.ndevice))
		return NULL;
	Trial *t = new_plan(s, replicas, n, &at, "as asked");
	t->micro = trial_micro(s->p, n, replicas);
	if (t->micro < most) {
		const Training *x = g->cx->train;
		diag_error(g->cx->d, FILELOC(x ? x->file : NULL), 405, "%lld microbatches per step cannot feed %d replicas; make the "
			"microbatch smaller or the global batch larger", (long long)t->micro, most);
		return NULL;
	}
	s->cut_budget = INFINITY;
	cut_best(s, t);
	trial_judge(s->p, t);
	trial_play(s->p, t);
	return t;
}

/* Several stages on every device: all numbers of devices in the pipeline, with as many equal replicas as there are
 * devices for. */
static const Trial *chunked_plan(PlanSearch *s, const Segments *g)
{
	const int chunks = schedule_chunks(schedule_of(g->cx)), ndev = s->p->c->ndevice;
	const Trial *best = NULL;

	s->cut_budget = INFINITY;
	for (int n = chunks; n <= ndev * chunks && n <= g->n; n += chunks) {
		int *replicas = NEWN(s->a, int, n);
		Placement at;
		for (int i = 0; i < n; i++)
			replicas[i] = ndev * chunks / n;
		if (!plan_place(s->a, schedule_of(g->cx), n, replicas, &at, g->cx->d))
			return NULL;
		Trial *t = new_plan(s, replicas, n, &at, "chunks");
		t->micro = trial_micro(s->p, n, replicas);
		if (t->micro < replicas[0])
			continue;
		cut_best(s, t);
		trial_play(s->p, t);
		if (!best || t->score < best->score)
			best = t;
	}
	if (!best)
		diag_error(g->cx->d, FILELOC(g->m->file), 404, "schedule %s needs %d stages; the model has only %d nodes to cut behind",
			schedule_of(g->cx), chunks, g->n);
	return best;
}

static PlannerKind planner_kind(const Training *t)
{
	static const char *const name[] = { "auto", "pipedream", "dapple", "blocks", "exhaustive" };

	for (int i = 0; t && t->planner && i < 5; i++)
		if (!strcmp(t->planner, name[i]))
			return (PlannerKind)i;
	return PLANNER_AUTO;
}

static DpCost dp_cost(const Training *t)
{
	static const char *const name[] = { "measured", "seed", "sosp", "code" };

	for (int i = 0; t && t->dp_cost && i < 4; i++)
		if (!strcmp(t->dp_cost, name[i]))
			return (DpCost)i;
	return DP_MEASURED;
}

bool pass_partition(Module *m, PassCx *cx)
{
	Segments g = { .m = m, .cx = cx };
	PlanSearch s;
	Cluster one = { .ndevice = 1, .device = &(Device){ .name = "device" } };
	int n, *replicas;

	if (!m->graph)
		return diag_error(cx->d, FILELOC(m->file), 410, "partition runs before split; this module has stages already");
	if (!plan_parse(cx->scratch, cx->train ? cx->train->plan : NULL, &replicas, &n, cx->d) || !check_batch(&g))
		return false;
	segments_find(&g, n ? n : schedule_chunks(schedule_of(cx)) > 1 ? schedule_chunks(schedule_of(cx)) : 0);
	PlanModel *p = plan_model(cx->scratch, &g);
	if (!p->c || p->c->ndevice < 1)
		p->c = &one;
	search_start(&s, cx->scratch, p);
	const Trial *t = NULL;
	if (n)
		t = forced_plan(&s, &g, replicas, n);
	else if (schedule_chunks(schedule_of(cx)) > 1)
		t = chunked_plan(&s, &g);
	else if (plan_search(&s, planner_kind(cx->train), dp_cost(cx->train), cx->d))
		t = s.best;
	return t && write_plan(&g, p, t, n > 0);
}
