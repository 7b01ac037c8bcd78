/* partition: how many stages, where the cuts lie, how many replicas each stage has.
 *
 * The main forward nodes (stages.c) in program order are a sequence, and any prefix of it can be cut off: whatever is
 * made before the cut and used behind it is sent, once per stage that needs it. Between two library calls the
 * cheapest such place is taken (fewest live bytes, then the latest), so elementwise tails stay with the call they
 * follow. That leaves segments of one library call each, and a plan is a grouping of segments.
 *
 * For given replica counts R_s the grouping minimises the slowest stage by dynamic programming over prefixes, as in
 * PipeDream (section 3.1), with the time of the cut as a stage of its own:
 *     f(s, j) = min over i of  max( f(s-1, i),  comm(i),  sum of times of segments i..j-1 / R_s )
 * A stage without a parameter costs a fortune, so there is one only when it cannot be avoided. Plans are compared by
 * a predicted step of a synchronous pipeline, per sample:
 *     (M / R + S - 1) * slowest + update
 * `--plan 2-1-1` fixes the replica counts; auto tries every number of stages with equal replicas. */
#include <float.h>
#include "stages.h"

typedef struct Seg {
	int     first, end;         /* main nodes [first, end) */
	double  fwd, bwd;           /* seconds per microbatch, backward by the forward node it belongs to */
	bool    param;              /* reads a weight */
	int64_t live;               /* bytes that cross the cut before this segment */
} Seg;

typedef struct Parter {
	Module        *m;
	PassCx        *cx;
	Node         **node; int nnode;
	Seg           *seg;  int nseg;
	double         bandwidth, latency;      /* the slowest link: any two devices may become neighbours */
	int64_t        weight_bytes;
	double         update;      /* seconds of all update nodes on one device */
} Parter;

static const double NO_PARAM = 1e6;     /* seconds: more than any real stage takes */

/* ---- segments ---- */

static bool reads_weight(const Node *n)
{
	for (int i = 0; i < n->nin; i++) {
		const Value *v = n->in[i];
		while (v && v->kind == VAL_NODE && v->def->nin && v->def->mark == 0)
			v = v->def->in[0];      /* a transposed or reshaped weight */
		if (v && v->kind == VAL_PARAM && v->param->kind == PARAM_WEIGHT)
			return true;
	}
	return false;
}

/* Bytes that cross a cut before main node k, for every k: a value lives from behind its maker to its last user. */
static int64_t *live_bytes(Parter *p)
{
	int64_t *diff = NEWN(p->cx->scratch, int64_t, p->nnode + 2);

	for (int i = 0; i < p->nnode; i++)
		p->node[i]->stage = i;          /* position, for the time being */
	for (int i = 0; i < p->nnode; i++)
		for (int o = 0; o < p->node[i]->nout; o++) {
			const Value *v = p->node[i]->out[o];
			int last = i;
			for (int u = 0; v && u < v->nuses; u++) {
				const Node *n = v->uses[u].node;
				if (n->phase == PHASE_FWD && n->mark && n->stage > last)
					last = n->stage;
			}
			if (v && last > i) {
				diff[i + 1] += value_bytes(v);
				diff[last + 1] -= value_bytes(v);
			}
		}
	for (int i = 1; i <= p->nnode; i++)
		diff[i] += diff[i - 1];
	for (int i = 0; i < p->nnode; i++)
		p->node[i]->stage = -1;
	return diff;
}

/* wanted: stages that a plan asks for. When there are fewer library calls than that, every node is a place to cut. */
static void find_segments(Parter *p, int wanted)
{
	const int64_t *live = live_bytes(p);
	int nanchor = 0, *anchor = NEWN(p->cx->scratch, int, p->nnode);

	for (int i = 0; i < p->nnode; i++)
		if (optab[p->node[i]->op]->flags & OP_HEAVY)
			anchor[nanchor++] = i;
	for (int i = 0; nanchor < 2 && i < p->nnode; i++) {     /* no library calls to speak of: what has weights */
		if (i == 0)
			nanchor = 0;
		if (reads_weight(p->node[i]))
			anchor[nanchor++] = i;
	}
	if (nanchor < wanted) {
		nanchor = 0;
		for (int i = 0; i < p->nnode; i++)
			if (!(optab[p->node[i]->op]->flags & OP_VIEW))
				anchor[nanchor++] = i;
	}
	p->nseg = nanchor > 0 ? nanchor : 1;
	p->seg = NEWN(p->cx->scratch, Seg, p->nseg);
	for (int s = 1; s < p->nseg; s++) {
		int at = anchor[s];
		for (int k = anchor[s] - 1; k > anchor[s - 1]; k--)
			if (live[k] < live[at])
				at = k;
		p->seg[s].first = p->seg[s - 1].end = at;
		p->seg[s].live = live[at];
	}
	p->seg[p->nseg - 1].end = p->nnode;
}

static void time_segments(Parter *p)
{
	for (int s = 0; s < p->nseg; s++)
		for (int i = p->seg[s].first; i < p->seg[s].end; i++) {
			p->node[i]->stage = s;
			p->seg[s].param |= reads_weight(p->node[i]);
		}
	spread_stages(p->m);
	for (Node *n = p->m->graph->first; n; n = n->next) {
		if (n->phase == PHASE_FWD)
			p->seg[n->stage].fwd += n->time;
		else if (n->phase == PHASE_BWD)
			p->seg[n->stage].bwd += n->time;
		else
			p->update += n->time;
		n->stage = -1;
	}
	for (int i = 0; i < p->m->nparam; i++)
		if (p->m->param[i]->param->kind == PARAM_WEIGHT && !p->m->param[i]->param->frozen)
			p->weight_bytes += value_bytes(p->m->param[i]);
}

static void slowest_link(Parter *p)
{
	const Cluster *c = p->cx->cluster;

	p->bandwidth = 2e9;
	p->latency = 20e-6;
	if (!c || c->ndevice < 2)
		return;
	p->bandwidth = DBL_MAX;
	p->latency = 0;
	for (int i = 1; i < c->ndevice; i++) {
		const Link l = cluster_link(c, i - 1, i);
		if (l.bandwidth > 0 && l.bandwidth < p->bandwidth)
			p->bandwidth = l.bandwidth;
		if (l.latency > p->latency)
			p->latency = l.latency;
	}
	if (p->bandwidth >= DBL_MAX)
		p->bandwidth = 2e9;
}

int list_cuts(Module *m, PassCx *cx, Cut **cut)
{
	Parter p = { .m = m, .cx = cx };
	double all = 0, time = 0;

	for (Node *k = m->graph->first; k; k = k->next)
		k->stage = -1;
	p.nnode = main_nodes(m, cx->scratch, &p.node);
	find_segments(&p, 0);
	time_segments(&p);
	for (int s = 0; s < p.nseg; s++)
		all += p.seg[s].fwd + p.seg[s].bwd;
	*cut = NEWN(m->arena, Cut, p.nseg);
	for (int s = 1; s < p.nseg; s++) {
		time += p.seg[s - 1].fwd + p.seg[s - 1].bwd;
		(*cut)[s - 1] = (Cut){ p.node[p.seg[s].first], all > 0 ? time / all : 0, p.seg[s].live };
	}
	return p.nseg - 1;
}

/* ---- the grouping ---- */

static double larger(double x, double y) { return x > y ? x : y; }
static int smaller(int x, int y) { return x < y ? x : y; }

static double cut_time(const Parter *p, int seg, int senders)
{
	return 2 * (p->latency + (double)p->seg[seg].live / p->bandwidth) / senders;
}

/* The best grouping into n stages with the given replicas; cut[s] is the first segment of stage s. Gives the time per
 * microbatch of the slowest stage. */
static double group(const Parter *p, int n, const int *replicas, int *cut)
{
	const int k = p->nseg;
	double *f = NEWN(p->cx->scratch, double, (size_t)(n + 1) * (size_t)(k + 1));
	int *from = NEWN(p->cx->scratch, int, (size_t)(n + 1) * (size_t)(k + 1));

	for (int s = 0; s <= n; s++)
		for (int j = 0; j <= k; j++)
			f[s * (k + 1) + j] = s || j ? DBL_MAX : 0;
	for (int s = 1; s <= n; s++)
		for (int j = s; j <= k - (n - s); j++) {
			double time = 0;
			bool param = false;
			for (int i = j - 1; i >= s - 1; i--) {
				time += p->seg[i].fwd + p->seg[i].bwd;
				param |= p->seg[i].param;
				double worst = time / replicas[s - 1] + (param ? 0 : NO_PARAM);
				if (s > 1)
					worst = larger(worst, cut_time(p, i, smaller(replicas[s - 2], replicas[s - 1])));
				worst = larger(worst, f[(s - 1) * (k + 1) + i]);
				if (worst < f[s * (k + 1) + j]) {
					f[s * (k + 1) + j] = worst;
					from[s * (k + 1) + j] = i;
				}
			}
		}
	for (int s = n, j = k; s > 0; s--)
		cut[s - 1] = j = from[s * (k + 1) + j];
	return f[n * (k + 1) + k];
}

/* The same time of a given grouping, without the penalty. */
static double slowest_stage(const Parter *p, int n, const int *replicas, const int *cut)
{
	double worst = 0;

	for (int s = 0; s < n; s++) {
		double time = 0;
		for (int i = cut[s]; i < (s + 1 < n ? cut[s + 1] : p->nseg); i++)
			time += p->seg[i].fwd + p->seg[i].bwd;
		worst = larger(worst, time / replicas[s]);
		if (s > 0)
			worst = larger(worst, cut_time(p, cut[s], smaller(replicas[s - 1], replicas[s])));
	}
	return worst;
}

static int largest(const int *v, int n)
{
	int r = 0;

	for (int i = 0; i < n; i++)
		r = v[i] > r ? v[i] : r;
	return r;
}

/* Microbatches per step: as asked for, or enough to keep a pipeline busy. 0: the settings do not say. */
static int64_t asked_microbatches(const Parter *p, int rmax)
{
	const Training *t = p->cx->train;

	if (t && t->global > 0)
		return t->global / (p->m->batch > 0 ? p->m->batch : 1);
	return t && t->microbatches > 0 ? t->microbatches * rmax : 0;
}

static int64_t microbatches(const Parter *p, int n, int rmax)
{
	const int64_t asked = asked_microbatches(p, rmax);

	return asked ? asked : (int64_t)rmax * (n > 1 ? 2 * n : 1);
}

static double step_time(const Parter *p, int n, const int *replicas, double slowest)
{
	const int rmax = largest(replicas, n);
	const double rounds = (double)((microbatches(p, n, rmax) + rmax - 1) / rmax + n - 1);
	double ring = 0;

	if (rmax > 1)
		ring = 2.0 * (rmax - 1) * ((double)p->weight_bytes / n / rmax / p->bandwidth + p->latency);
	return rounds * slowest * rmax + p->update / n + ring;  /* slowest is per microbatch of the whole stage */
}

/* ---- writing it down ---- */

static void assign_stages(Parter *p, const int *cut, int n)
{
	main_nodes(p->m, p->cx->scratch, &p->node);     /* sets the marks again */
	for (int s = 0; s < n; s++) {
		const int end = s + 1 < n ? cut[s + 1] : p->nseg;
		for (int i = p->seg[cut[s]].first; i < p->seg[end - 1].end; i++)
			p->node[i]->stage = s;
	}
	spread_stages(p->m);
}

static const char *node_label(const Node *n)
{
	return n->loc.name && *n->loc.name ? n->loc.name : n->nout && n->out[0] ? n->out[0]->name : optab[n->op]->name;
}

static bool used_in(const Value *param, int stage)
{
	for (int i = 0; i < param->nuses; i++)
		if (param->uses[i].node->phase != PHASE_UPDATE && param->uses[i].node->stage == stage)
			return true;
	return false;
}

static void describe(Parter *p, Plan *plan)
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

static void explain(const Parter *p, const Plan *plan)
{
	Buf *b = p->cx->explain;

	buf_printf(b, "plan %s%s: %lld microbatches, predicted step %.3g ms (one device %.3g ms)\n",
		plan_str(p->cx->scratch, plan), plan->forced ? " (as asked)" : "", (long long)plan->microbatches,
		1e3 * plan->step_time, 1e3 * plan->one_time);
	for (int s = 0; s < plan->nstage; s++) {
		const PlanStage *t = &plan->stage[s];
		buf_printf(b, "  stage %d x %d: %d nodes, %s .. %s, forward %.3g ms, backward %.3g ms, weights %lld B, "
			"sends %lld B\n", s, t->replicas, t->nodes, t->first ? t->first : "-", t->last ? t->last : "-", 1e3 * t->fwd, 1e3 * t->bwd,
			(long long)t->weight_bytes, (long long)t->out_bytes);
	}
}

static void write_plan(Parter *p, const int *replicas, int n, double time, double alone, bool forced)
{
	if (!p->cx->plan)
		p->cx->plan = NEW(p->m->arena, Plan);
	Plan *plan = p->cx->plan;
	*plan = (Plan){ .nstage = n, .step_time = time, .forced = forced };
	plan->stage = NEWN(p->m->arena, PlanStage, n);
	for (int s = 0; s < n; s++) {
		plan->stage[s].replicas = replicas[s];
		plan->ndevice += replicas[s];
	}
	plan->microbatches = p->m->microbatches = microbatches(p, n, largest(replicas, n));
	for (Node *k = p->m->graph->first; k; k = k->next)      /* a Stack has a row per microbatch of the step */
		if (k->op == OP_Stack)
			optab[OP_Stack]->shape(k, p->cx->d);
	plan->one_time = (double)plan->microbatches * alone + p->update;
	describe(p, plan);
	if (p->cx->explain)
		explain(p, plan);
}

/* ---- choosing ---- */

static bool check_microbatches(const Parter *p, const int *replicas, int n)
{
	const Training *t = p->cx->train;
	const int64_t batch = p->m->batch > 0 ? p->m->batch : 1, m = microbatches(p, n, largest(replicas, n));

	if (t && t->global > 0 && t->global % batch)
		return diag_error(p->cx->d, FILELOC(t->file), 405,
			"the global batch of %lld samples is no multiple of the microbatch of %lld", (long long)t->global,
			(long long)batch);
	if (m < largest(replicas, n))
		return diag_error(p->cx->d, FILELOC(t ? t->file : NULL), 405,
			"%lld microbatches per step cannot feed %d replicas; make the microbatch smaller or the global batch "
			"larger",
			(long long)m, largest(replicas, n));
	return true;
}

static bool check_forced(const Parter *p, const int *replicas, int n)
{
	const Cluster *c = p->cx->cluster;
	int sum = 0;

	for (int s = 0; s < n; s++)
		sum += replicas[s];
	if (c && sum > c->ndevice)
		return diag_error(p->cx->d, FILELOC(c->file), 403, "plan %s needs %d devices; the cluster has %d",
			p->cx->train->plan, sum, c->ndevice);
	if (n > p->nseg)
		return diag_error(p->cx->d, FILELOC(p->m->file), 404,
			"plan %s has %d stages; the model has only %d nodes to cut behind",
			p->cx->train->plan, n, p->nseg);
	return true;
}

/* Every number of stages with equal replicas; fills replicas and gives the number of stages. */
static int choose(const Parter *p, int *replicas)
{
	const int ndev = p->cx->cluster && p->cx->cluster->ndevice > 0 ? p->cx->cluster->ndevice : 1;
	int *r = NEWN(p->cx->scratch, int, ndev), *cut = NEWN(p->cx->scratch, int, ndev);
	int best_n = 1, best_r = 1;
	double best = DBL_MAX;

	for (int n = 1; n <= ndev && n <= p->nseg; n++)
		for (int k = ndev / n; k >= 1; k--) {
			const int64_t m = microbatches(p, n, k);
			if (m < k)
				continue;
			for (int s = 0; s < n; s++)
				r[s] = k;
			const double t = step_time(p, n, r, group(p, n, r, cut)) / (double)m;
			if (t < best) {
				best = t;
				best_n = n;
				best_r = k;
			}
		}
	for (int s = 0; s < best_n; s++)
		replicas[s] = best_r;
	return best_n;
}

bool pass_partition(Module *m, PassCx *cx)
{
	Parter p = { .m = m, .cx = cx };
	int n, *replicas, one = 1, first = 0;

	if (!m->graph)
		return diag_error(cx->d, FILELOC(m->file), 410, "partition runs before split; this module has stages already");
	for (Node *k = m->graph->first; k; k = k->next)
		k->stage = -1;
	p.nnode = main_nodes(m, cx->scratch, &p.node);
	if (!plan_parse(cx->scratch, cx->train ? cx->train->plan : NULL, &replicas, &n, cx->d))
		return false;
	find_segments(&p, n);
	time_segments(&p);
	slowest_link(&p);
	const bool forced = n > 0;
	if (forced && !check_forced(&p, replicas, n))
		return false;
	if (!forced) {
		replicas = NEWN(cx->scratch, int, p.nseg);
		n = choose(&p, replicas);
	}
	if (!check_microbatches(&p, replicas, n))
		return false;
	int *cut = NEWN(cx->scratch, int, n);
	group(&p, n, replicas, cut);
	const double slowest = slowest_stage(&p, n, replicas, cut), alone = slowest_stage(&p, 1, &one, &first);
	assign_stages(&p, cut, n);
	write_plan(&p, replicas, n, step_time(&p, n, replicas, slowest), alone, forced);
	return true;
}
