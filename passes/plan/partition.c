/* partition: how many stages, where the cuts lie, how many replicas each stage has, on which devices.
 *
 * The forward graph is a row of segments (segment.c), and a plan is a grouping of segments. `--plan 2-1-1` fixes the
 * replica counts: the cuts are then those with the least slowest stage (plan_cut.c). Else the planner that --planner
 * names looks for a plan (plan_search.h); auto asks all of them, searches from there, and takes what the simulator
 * plays fastest within memory. Reads Node.time; writes Node.stage, the plan (ir/plan.h), Module.microbatches. */
#include <limits.h>
#include <math.h>
#include <string.h>
#include "passes/schedule/csv.h"
#include "plan_search.h"
#include "stages.h"
#include "cuts.h"
#include "passes/schedule/placement.h"
#include "passes/schedule/schedule.h"

/* ---- choosing ---- */

/* What is looked for. given: a plan with its cuts; else n: of so many stages, with their replicas; 0: any. */
typedef struct Ask {
	const GivenPlan *given;
	const char *by; /* of a plan whose replicas are said */
	int n, *replicas;
	int64_t micro;
	const Cluster *workers;
} Ask;

static int largest(const int *v, int n)
{
	int r = 0;

	for (int i = 0; i < n; i++)
		r = v[i] > r ? v[i] : r;
	return r;
}

/* Every device's program lists its microbatches of a step: more than this is no schedule but a mistake. */
enum { MOST_MICROBATCHES = 1 << 18 };

static bool check_batch(const Segments *g)
{
	const Training *t = g->cx->train;
	const int64_t batch = g->m->batch > 0 ? g->m->batch : 1;

	if (t && t->loop.global > 0 && t->loop.global % batch)
		return diag_error(g->cx->d, FILELOC(t->file), 405,
			"the global batch of %lld samples is no multiple of the microbatch of %lld",
			(long long)t->loop.global, (long long)batch);
	const int64_t micro = !t ? 0 : t->loop.global > 0 ? t->loop.global / batch : t->loop.microbatches;
	if (micro > MOST_MICROBATCHES)
		return diag_error(g->cx->d, FILELOC(t->file), 405,
			"a step of %lld microbatches of %lld sample%s; at most %d are scheduled, so the microbatch has to "
			"be larger",
			(long long)micro, (long long)batch, batch == 1 ? "" : "s", MOST_MICROBATCHES);
	if (one_per_step(t) && ((t->loop.global > 0 && t->loop.global != batch) || t->loop.microbatches > 1))
		return diag_error(g->cx->d, FILELOC(t->file), 405,
			"schedule %s updates after every microbatch: a step is one microbatch of %lld samples, not %lld",
			schedule_str(g->cx->scratch, t->plan.schedule), (long long)batch,
			t->loop.global > 0 ? (long long)t->loop.global : (long long)(t->loop.microbatches * batch));
	return true;
}

static bool check_forced(const Segments *g, const Trial *t, int sum)
{
	const Cluster *c = g->cx->cluster;
	const char *plan = trial_str(g->cx->scratch, t);
	const char *devices =
		g->m->tensor > 1 ? arena_printf(g->cx->scratch, "groups of %d devices", g->m->tensor) : "devices";

	if (c && sum > cluster_workers(c))
		return diag_error(g->cx->d, FILELOC(c->file), 403, "plan %s needs %d %s; the cluster has %d%s", plan,
			sum, devices, cluster_workers(c),
			cluster_workers(c) < c->ndevice ? " with the role worker" : "");
	if (t->n > g->n)
		return diag_error(g->cx->d, FILELOC(g->m->file), 404,
			"plan %s has %d stages; the model has only %d nodes to cut behind", plan, t->n, g->n);
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

static bool enough(const Segments *g, const Trial *t)
{
	const Training *x = g->cx->train;
	const int most = largest(t->replicas, t->n);

	if (t->micro >= most || one_per_step(x))
		return true;
	const int64_t batch = g->m->batch > 0 ? g->m->batch : 1, samples = t->micro * batch;
	const char *smaller = samples >= most
	                              ? arena_printf(g->cx->scratch, ", or the microbatch %lld or less (--micro-batch)",
						(long long)(samples / most))
	                              : "";
	return diag_error(g->cx->d,
		FILELOC(x && x->plan.given && !x->plan.given->by ? x->plan.given->file
			: x                                      ? x->file
								 : NULL),
		405,
		"%lld microbatch%s of %lld sample%s per step cannot feed %d replicas; the global batch has to be %lld "
		"or more (--global-batch)%s",
		(long long)t->micro, t->micro == 1 ? "" : "es", (long long)batch, batch == 1 ? "" : "s", most,
		(long long)(batch * most), smaller);
}

/* The same on devices as the cluster file's policies give them, cut anew: the fastest. */
static Trial *placed_plan(PlanSearch *s, const Trial *t)
{
	Trial *best = NULL;

	for (int y = PLACE_FRESH; y <= PLACE_SCATTER; y++) {
		if (!policy_allowed(s->p->c, y))
			continue;
		Trial *x = trial_new(s->a, t->n, t->ndevice, t->by);
		x->micro = t->micro;
		memcpy(x->replicas, t->replicas, sizeof *t->replicas * (size_t)t->n);
		place_trial(s->p, x, (PlacePolicy)y);
		cut_best(s, x);
		trial_judge(s->p, x);
		trial_play(s->p, x);
		best = trial_better(x, best) ? x : best;
	}
	return best;
}

/* The cuts of a plan whose replicas are given; NULL after a diagnostic. */
static Trial *forced_plan(PlanSearch *s, const Segments *g, const Ask *q)
{
	const int n = q->n;
	Placement at;

	if (!plan_place(s->a, schedule_asked(g->m, g->cx), n, q->replicas, &at, g->cx->d))
		return NULL;
	Trial *t = new_plan(s, q->replicas, n, &at, q->by);
	if (!check_forced(g, t, at.ndevice))
		return NULL;
	t->micro = trial_micro(s->p, n, q->replicas);
	if (!enough(g, t))
		return NULL;
	s->cut_budget = INFINITY;
	cut_best(s, t);
	if (at.ngroup == n && !policy_allowed(s->p->c, PLACE_ORDER))
		t = placed_plan(s, t);
	trial_judge(s->p, t);
	if (t->over > 1 && t->n > 1 && at.ngroup == n) { /* estimates of cut_best are rough: look closer */
		search_cuts(s, t);
		t = s->best ? s->best : t;
		t->by = q->by;
	}
	trial_play(s->p, t);
	return t;
}

/* For a schedule of several stages on a device; NULL after E0404, E0473, E0510, E0512. */
static const Trial *chunked_plan(PlanSearch *s, const Segments *g, ScheduleSpec schedule)
{
	const char *name = schedule_str(g->cx->scratch, schedule);
	const int chunks = schedule_chunks(schedule);
	NoPlan why;
	const Trial *best = equal_plan(s, schedule, INFINITY, &why, g->cx->d);

	if (!best && why == NO_LEAVE)
		diag_error(g->cx->d, FILELOC(g->m->file), 473,
			"--max-stages, --no-pipeline and --no-dp leave no plan for schedule %s, which has "
			"%d or more stages on every device",
			name, chunks);
	else if (!best && why == NO_PLACES)
		diag_error(g->cx->d, FILELOC(g->m->file), 404,
			"schedule %s needs %d stages; the model has only %d nodes to cut "
			"behind",
			name, chunks, g->n);
	return best;
}

static bool is_place(const Segments *g, const char *name)
{
	for (int i = 0; i < g->n; i++)
		if (!strcmp(until_name(g, i), name))
			return true;
	return false;
}

/* The places where plans may be cut: behind library calls; behind every node where there are more stages than those, where memory
 * was short and there are more devices, or where the given plan says so. */
static void find_places(Segments *g, int stages, const GivenPlan *given)
{
	const PassCx *cx = g->cx;
	bool known = true;

	segments_find(g, stages);
	if (!stages && cx->memory_scale > 1 && cx->cluster && cluster_workers(cx->cluster) > g->n)
		segments_find(g, cluster_workers(cx->cluster));
	for (int i = 0; given && i < given->n; i++)
		known &= !given->until[i] || is_place(g, given->until[i]);
	if (!known)
		segments_find(g, INT_MAX);
	for (int i = 0; !known && i < given->n; i++) /* the error names a place among the usual ones */
		if (given->until[i] && !is_place(g, given->until[i])) {
			segments_find(g, stages);
			return;
		}
}

/* The segment that a plan file calls so; -1 after a diagnostic. */
static int find_until(const Segments *g, const GivenPlan *given, int s)
{
	const char **names = NEWN(g->cx->scratch, const char *, g->n);

	for (int i = 0; i < g->n; i++) {
		names[i] = until_name(g, i);
		if (!strcmp(names[i], given->until[s]))
			return i;
	}
	const char *near = diag_nearest(given->until[s], names, g->n);
	diag_error(g->cx->d, TEXTLOC(given->file, given->line[s], given->col[s]), 408,
		"stage %d ends with '%s': there is no place to cut "
		"behind such a node%s%s%s",
		s, given->until[s], near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
	return -1;
}

/* A plan of a file; NULL after a diagnostic. */
static Trial *given_plan(PlanSearch *s, const Segments *g, const GivenPlan *given)
{
	Trial *t = trial_new(s->a, given->n, given->ndevice, given->by ? given->by : "plan file");

	for (int i = 0; i < given->n; i++) {
		t->end[i] = given->until[i] ? find_until(g, given, i) : g->n - 1;
		t->replicas[i] = given->replicas[i];
		if (t->end[i] < 0)
			return NULL;
		if (i && t->end[i] <= t->end[i - 1]) {
			diag_error(g->cx->d, TEXTLOC(given->file, given->line[i], given->col[i]), 411,
				"stage %d ends with '%s', which is not behind "
				"'%s', the end of the stage before it",
				i, until_name(g, t->end[i]), until_name(g, t->end[i - 1]));
			return NULL;
		}
	}
	if (t->end[given->n - 1] != g->n - 1) {
		diag_error(g->cx->d, TEXTLOC(given->file, given->line[given->n - 1], given->col[given->n - 1]), 411,
			"the last stage ends with '%s'; the "
			"model goes on to '%s'",
			until_name(g, t->end[given->n - 1]), until_name(g, g->n - 1));
		return NULL;
	}
	memcpy(t->device, given->device, sizeof *t->device * (size_t)t->ndevice);
	for (int r = 0; r < t->ndevice; r++)
		if (given->device[r] >= s->p->c->ndevice) {
			const Cluster *c = g->cx->cluster;
			diag_error(g->cx->d, TEXTLOC(given->file, given->line[0], given->col[0]), 403,
				"rank %d is to train on %s, whose host has the "
				"role server alone (%s)",
				r, c->device[given->device[r]].name, c->file);
			return NULL;
		}
	t->micro = s->p->global || !given->micro || one_per_step(g->cx->train) ? trial_micro(s->p, t->n, t->replicas)
	                                                                       : given->micro;
	if (!enough(g, t))
		return NULL;
	trial_judge(s->p, t);
	trial_play(s->p, t);
	return t;
}

/* ---- orders of the nodes (order.c) ---- */

/* What one order comes to. t: its plan; NULL after a diagnostic. */
typedef struct Look {
	PassCx cx;
	Segments g;
	PlanModel *p;
	PlanSearch s;
	const Trial *t;
} Look;

static const Trial *find_plan(Look *l, const Ask *q)
{
	const ScheduleSpec schedule = schedule_asked(l->g.m, &l->cx);

	if (q->given)
		return given_plan(&l->s, &l->g, q->given);
	if (q->n)
		return forced_plan(&l->s, &l->g, q);
	if (schedule_chunks(schedule) > 1)
		return chunked_plan(&l->s, &l->g, schedule);
	const Training *t = l->cx.train;
	return plan_search(&l->s, t ? t->plan.planner : PLANNER_AUTO, t ? t->plan.dp_cost : DP_MEASURED, l->cx.d)
	               ? l->s.best
	               : NULL;
}

static int stages_asked(const Look *l, const Ask *q)
{
	const int chunks = schedule_chunks(schedule_asked(l->g.m, &l->cx));

	return q->n ? q->n : chunks > 1 ? chunks : 0;
}

static Look *look_at(Module *m, const PassCx *cx, const Ask *q, Order order, Diag *d, bool quick)
{
	Look *l = NEW(cx->scratch, Look);

	l->cx = *cx;
	l->cx.d = d;
	l->g = (Segments){ .m = m, .cx = &l->cx, .order = order };
	find_places(&l->g, stages_asked(l, q), q->given);
	l->p = plan_model(cx->scratch, &l->g);
	if (q->micro && !l->p->global && l->p->per_replica <= 0)
		l->p->global = q->micro;
	l->p->c = q->workers;
	search_start(&l->s, cx->scratch, l->p);
	if (quick)
		search_lightly(&l->s);
	l->t = find_plan(l, q);
	return l;
}

/* The segment of every main node, in program order. */
static int *grouping(Module *m, const PassCx *cx, const Ask *q, Order order, int *n)
{
	Look l = { .cx = *cx, .g = { .m = m, .cx = &l.cx, .order = order } };
	Node **node;

	find_places(&l.g, stages_asked(&l, q), NULL);
	for (int s = 0; s < l.g.n; s++)
		for (int i = l.g.seg[s].first; i < l.g.seg[s].end; i++)
			l.g.node[i]->stage = s;
	*n = main_nodes(m, cx->scratch, &node);
	int *of = NEWN(cx->scratch, int, *n);
	for (int i = 0; i < *n; i++)
		of[i] = node[i]->stage;
	segments_clear(&l.g);
	return of;
}

/* Whether x is the better plan by more than what is not worth another order. */
static bool worth(const Trial *x, const Trial *y)
{
	const double gain = 1 - 1e-3;

	if (!x || x->over > 1 || y->over > 1)
		return x && (y->over > 1 && x->over <= 1 ? true : x->over < gain * y->over && y->over > 1);
	return x->score < gain * y->score;
}

/* The order with the best plan, by the rule of trial_better; the file's where no other gains a thousandth. Orders that cut the
 * graph alike are looked at once. Where a search is long the others have a tenth of it first, and the best of them all of
 * it if it gains so. *tried, *played: of all. */
static Look *best_order(Module *m, PassCx *cx, const Ask *q, long *tried, long *played, double *file)
{
	const bool slow = cx->train && cx->train->plan.planner ==
	                                       PLANNER_DAPPLE; /* its first look leaves out clusters of many devices */
	const int devices = q->given ? 1 : q->n ? q->n : q->workers->ndevice;
	Diag silent = { .out = cx->d->out, .errors = 1, .scratch = cx->d->scratch };
	Look *best = look_at(m, cx, q, q->given ? (Order)q->given->order : ORDER_FILE, cx->d, cx->quick && !slow);
	const bool single = devices < 2 && schedule_chunks(schedule_asked(m, cx)) < 2;
	const bool quick = slow || best->s.work + best->s.beside > best->s.budget / 8;
	int *seen[ORDERS] = { NULL }, nseen = 1, n;

	*tried = best->s.n;
	*played = best->s.played;
	*file = best->t ? best->t->score : 0;
	if (!best->t || single || q->given || cx->quick)
		return best;
	seen[0] = grouping(m, cx, q, ORDER_FILE, &n);
	for (Order o = ORDER_FILE + 1; o < ORDERS; o++) {
		bool known = false;
		seen[nseen] = grouping(m, cx, q, o, &n);
		for (int i = 0; i < nseen; i++)
			known |= !memcmp(seen[i], seen[nseen], sizeof **seen * (size_t)n);
		if (known)
			continue;
		nseen++;
		Look *l = look_at(m, cx, q, o, &silent, quick);
		*tried += l->s.n;
		*played += l->s.played;
		best = worth(l->t, best->t) ? l : best;
	}
	if (!best->g.order || !quick)
		return best;
	Look *whole = look_at(m, cx, q, best->g.order, &silent, false);
	*tried += whole->s.n;
	*played += whole->s.played;
	return worth(whole->t, best->t) ? whole : best;
}

/* A text of the IR may say anything. */
static bool stages_fit(const Module *m, const PassCx *cx)
{
	const PlanSettings *p = cx->train ? &cx->train->plan : NULL;
	int *n = NEWN(cx->scratch, int, m->ntensor_of);

	if (!p || p->ntensor_of != m->ntensor_of ||
		memcmp(p->tensor_of, m->tensor_of, sizeof *n * (size_t)m->ntensor_of))
		return diag_error(cx->d, FILELOC(m->file), 410,
			"the graph is divided for groups that are not those of the plan; start from a text in front of shard");
	for (const Node *k = m->graph->first; k; k = k->next) {
		if (k->stage >= m->ntensor_of)
			return diag_error(cx->d, k->loc, 410,
				"a node of stage %d of a graph that is divided for %d stages", k->stage, m->ntensor_of);
		if (k->stage >= 0 && k->phase == PHASE_FWD)
			n[k->stage]++;
	}
	for (int s = 0; s < m->ntensor_of; s++)
		if (!n[s])
			return diag_error(cx->d, FILELOC(m->file), 410,
				"the graph is divided for %d stages, none of its nodes is of stage %d", m->ntensor_of,
				s);
	return true;
}

/* Stages of unlike groups: they were cut before the graph was divided (precut.c), and are looked at as they are now. */
static bool known_stages(Module *m, PassCx *cx, const Cluster *workers)
{
	const Plan *first = cx->plan && cx->plan->nstage == m->ntensor_of ? cx->plan : NULL;
	Look l = { .cx = *cx, .g = { .m = m, .cx = &l.cx } };
	const GivenPlan *from = cx->train ? cx->train->plan.given : NULL;
	GivenPlan given = { .by = "as asked", .micro = m->microbatches };

	if (!stages_fit(m, cx))
		return false;
	segments_known(&l.g, m->ntensor_of);
	if (!plan_parse(cx->scratch, from ? NULL : cx->train->plan.replicas, &given.replicas, &given.n, cx->d))
		return false;
	if (from)
		given = *from;
	else
		for (int i = 0; i < given.n; i++)
			given.ndevice += given.replicas[i];
	given.until = NEWN(cx->scratch, const char *, given.n);
	given.line = given.line ? given.line : NEWN(cx->scratch, int, given.n);
	given.col = given.col ? given.col : NEWN(cx->scratch, int, given.n);
	given.device = NEWN(cx->scratch, int, given.ndevice);
	for (int r = 0; r < given.ndevice; r++)
		given.device[r] = r;
	for (int i = 0; i + 1 < given.n; i++)
		given.until[i] = until_name(&l.g, i);
	l.p = plan_model(cx->scratch, &l.g);
	l.p->c = workers;
	search_start(&l.s, cx->scratch, l.p);
	l.t = given_plan(&l.s, &l.g, &given);
	const Plan cut = first ? *first : (Plan){ 0 };
	if (!l.t || !plan_keeps_pins(l.p, l.t, cx->d) || !plan_write(&l.g, &l.s, l.t, !from || !from->by))
		return false;
	cx->plan = l.cx.plan;
	cx->plan->order = cut.order;
	cx->plan->place = cut.place;
	cx->plan->nplace = cut.nplace;
	for (int i = 0; i < cut.nstage; i++)
		cx->plan->stage[i].until = cut.stage[i].until;
	return true;
}

bool pass_partition(Module *m, PassCx *cx)
{
	Cluster one = { .ndevice = 1, .device = &(Device){ .name = "device" } };
	const Cluster *c = cx->cluster;
	Cluster workers = c ? *c : one;
	const GivenPlan *given = cx->train ? cx->train->plan.given : NULL;
	Ask q = { .given = given && given->until ? given : NULL, .by = given ? given->by : "as asked" };
	const Segments whole = { .m = m, .cx = cx };
	long tried, played;
	double file;

	if (!m->graph)
		return diag_error(
			cx->d, FILELOC(m->file), 410, "partition runs before split; this module has stages already");
	if (!plan_parse(cx->scratch, cx->train && !given ? cx->train->plan.replicas : NULL, &q.replicas, &q.n, cx->d) ||
		!check_batch(&whole))
		return false;
	q.n = given ? given->n : q.n;
	q.replicas = given ? given->replicas : q.replicas;
	if (schedule_row(schedule_asked(m, cx))->place == PLACED_LISTED) {
		const Csv *listed = csv_of(schedule_asked(m, cx));
		q.replicas = q.n ? q.replicas : listed->replicas;
		q.n = q.n ? q.n : listed->nstage;
		q.micro = listed->nmicro;
	}
	workers.ndevice = cluster_workers(&workers); /* those that only serve are seen by servers.c alone */
	if (c && c->ndevice && !workers.ndevice)
		return diag_error(
			cx->d, FILELOC(c->file), 403, "no host of the cluster has the role worker (nodes: roles)");
	q.workers = workers.ndevice ? &workers : &one;
	if (m->tensor_of)
		return known_stages(m, cx, q.workers);
	Look *l = best_order(m, cx, &q, &tried, &played, &file);
	l->cx.d = cx->d;
	if (l->t && cx->train && cx->train->plan.choose_schedule)
		l->t = choose_schedule(&l->s, l->p, l->t, q.n > 0, cx->explain, &m->chosen);
	if (!l->t || !plan_keeps_pins(l->p, l->t, cx->d) ||
		!plan_write(&l->g, &l->s, l->t, q.n > 0 && !(given && given->by)))
		return false;
	cx->plan = l->cx.plan;
	cx->plan->tried = tried;
	cx->plan->played = played;
	cx->plan->file_order = q.given || !isfinite(file) ? 0 : file * (double)cx->plan->microbatches;
	return true;
}
