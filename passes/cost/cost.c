/* cost: seconds per node by the roofline of the device: the slower of its arithmetic and its memory traffic, plus
 * what a call costs. Products of 16-bit floats (--amp) have the device's rate of those, `bf16` in the cluster file. Reads OpDef.cost and the cluster's numbers; writes Node.time. Views cost nothing.
 * Update nodes get their time per step. Predictions rank plans; they are not measurements.
 *
 * With --profile a node that was measured under its name, type and number of threads has its typical time instead.
 * Nodes are measured as they are emitted, behind fusion: elementwise nodes that became one loop share its time, and once
 * fusion has been done here too, every node of the stages is looked up again (cost_again).
 *
 * Where microbatches were measured at another size, a time grows as the cost model's does: what a call costs and reading
 * the weights stay, arithmetic and activations go with the samples (PassCx.sized, cost_sizes). */
#include <math.h>
#include <string.h>
#include "ir/text/profile.h"
#include "cost.h"
#include "passes/common/conv.h"
#include "ir/analysis.h"

/* Where the cluster file is silent: one modest CPU core, a mid-range GPU (f32). */
static const double CPU_FLOPS_PER_CORE = 40e9, CPU_BANDWIDTH = 12e9, CPU_LAUNCH = 1e-6;
static const double GPU_FLOPS = 12e12, GPU_BANDWIDTH = 500e9, GPU_LAUNCH = 6e-6;

Speed device_speed(const Cluster *c, int device)
{
	Speed s = { CPU_FLOPS_PER_CORE, CPU_BANDWIDTH, CPU_LAUNCH, 0 };

	if (!c || device >= c->ndevice)
		return s;
	const Device *dev = &c->device[device];
	if (dev->cuda)
		s = (Speed){ GPU_FLOPS, GPU_BANDWIDTH, GPU_LAUNCH, 0 };
	else if (dev->cores > 1)
		s.flops *= dev->cores;
	if (dev->flops > 0)
		s.flops = dev->flops;
	if (dev->mem_bandwidth > 0)
		s.bandwidth = dev->mem_bandwidth;
	s.half = dev->half_flops > 0 ? dev->half_flops : s.flops;
	return s;
}

/* Convolutions of f32 lie channels-last on CPUs alone, whose library needs not all multiplications. */
static double library_flops(const Node *n, double flops)
{
	Lib l;

	optab[n->op]->lib(n, &l);
	if (l.kind != LIB_CONV)
		return flops;
	const pd_conv_desc d = conv_of(&l);

	return pd_conv_work(&d);
}

static Cost node_cost(const Node *n)
{
	Cost c = { 0, 0 };

	if (optab[n->op]->cost) {
		c = optab[n->op]->cost(n);
		if (optab[n->op]->lib && n->nin && n->in[0] && n->in[0]->type.layout == LAYOUT_NHWC &&
			n->in[0]->type.dtype == DT_f32)
			c.flops = library_flops(n, c.flops);
		return c;
	}
	for (int i = 0; i < n->nin; i++)
		if (n->in[i])
			c.bytes += (double)value_bytes(n->in[i]);
	for (int i = 0; i < n->nout; i++)
		if (n->out[i])
			c.bytes += (double)value_bytes(n->out[i]);
	return c;
}

static double roofline(const Node *n, Cost c, const Speed *s)
{
	const bool half = (optab[n->op]->flags & OP_HEAVY) && n->nin && n->in[0] && dtype_half(n->in[0]->type.dtype) &&
	                  s->half > 0;
	const double arith = c.flops / (half ? s->half : s->flops), mem = c.bytes / s->bandwidth;

	return (arith > mem ? arith : mem) + s->launch;
}

double node_time(const Node *n, const Speed *s)
{
	return optab[n->op]->flags & OP_VIEW ? 0 : roofline(n, node_cost(n), s);
}

static double roofline_at_once(const Node *n, double times, const Speed *s)
{
	Cost c = node_cost(n);

	c.flops *= times;
	for (int i = 0; i < n->nin; i++)
		c.bytes += (times - 1) * (double)value_bytes(n->in[i]);
	return roofline(n, c, s);
}

double time_at_once(const Node *n, double time, double times, double rate, const Speed *s)
{
	const double least = rate > 0 ? times * node_cost(n).flops / rate : 0;

	if (rate > 0) /* of few rows the result's bytes are what takes time, and they are the same */
		return time > least ? time : least;
	return time * (roofline_at_once(n, times, s) / node_time(n, s));
}

static double fastest(const Graph *g, double rate)
{
	enum { SMALL = 1000000 };

	for (const Node *n = g ? g->first : NULL; n; n = n->next) {
		const double flops = optab[n->op]->flags & OP_HEAVY && n->time > 0 ? node_cost(n).flops : 0;
		rate = flops > SMALL && flops / n->time > rate ? flops / n->time : rate;
	}
	return rate;
}

double product_rate(const Module *m, const PassCx *cx)
{
	double rate = 0;

	if (!cx->profile)
		return 0;
	for (int t = 0; t < m->nstage; t++)
		rate = fastest(m->stage[t]->backward, fastest(m->stage[t]->forward, rate));
	return fastest(m->graph, rate);
}

/* ---- measured times ---- */

/* What the cost model says of a node at the size that was measured. */
typedef struct SizedTime {
	double time;
	const char *type;
} SizedTime;

static const char *size_key(Arena *a, Phase phase, const Value *v)
{
	return arena_printf(a, "%s %s", profile_phase[phase], v->name);
}

Map *cost_sizes(Arena *a, const Module *m)
{
	Map *sizes = NEW(a, Map);

	map_init(sizes, a, true);
	for (const Node *n = m->graph->first; n; n = n->next) {
		const Value *v = node_known_by(n);
		SizedTime *t = v && n->time > 0 ? NEW(a, SizedTime) : NULL;
		if (!t)
			continue;
		*t = (SizedTime){ n->time, str_type(a, &v->type) };
		map_put(sizes, size_key(a, n->phase, v), t);
	}
	return sizes;
}

static bool same_size(const Module *m, const PassCx *cx)
{
	return !cx->profile->micro || !m->batch || cx->profile->micro == m->batch;
}

/* The record of a node that was emitted as it stands; *grown: what its time is to be multiplied with. NULL also where type
 * or threads are others. */
static const ProfileNode *measured(const Module *m, const PassCx *cx, const Node *n, const char *op, double *grown)
{
	const Value *v = node_known_by(n);
	const ProfileNode *r = cx->profile && v ? profile_find(cx->profile, n->phase, op, v->name) : NULL;
	const Speed s = device_speed(cx->cluster, 0);

	*grown = 1;
	if (!r || (cx->train && r->threads != cx->train->target.threads))
		return NULL;
	if (same_size(m, cx))
		return strcmp(r->type, str_type(cx->scratch, &v->type)) ? NULL : r;
	const SizedTime *t = cx->sized ? map_get(cx->sized, size_key(cx->scratch, n->phase, v)) : NULL;
	if (!t || strcmp(r->type, t->type))
		return NULL;
	*grown = node_time(n, &s) / t->time;
	return r;
}

static bool same_loop(const Node *x, const Node *y)
{
	return (optab[y->op]->flags & OP_EW) && y->phase == x->phase && y->nout == 1 && y->out[0] && !y->mark &&
	       shape_eq(&x->out[0]->type, &y->out[0]->type);
}

/* Elementwise nodes that were measured as one loop, known by what it makes: all that hang together with n and have no
 * record of their own share the time as the cost model would. mark: the time is known. */
static void share_time(Node *n, double time, const Speed *s, Arena *a)
{
	Node **node = NULL;
	int count = 0, cap = 0;
	double all = 0;

	PUSH(a, node, count, cap) = n;
	n->mark = 1;
	for (int i = 0; i < count; i++) {
		Node *x = node[i];
		all += node_time(x, s);
		for (int k = 0; k < x->nin; k++)
			if (x->in[k] && x->in[k]->def && same_loop(n, x->in[k]->def)) {
				PUSH(a, node, count, cap) = x->in[k]->def;
				x->in[k]->def->mark = 1;
			}
		for (int k = 0; k < x->out[0]->nuses; k++)
			if (x->out[0]->uses[k].node && same_loop(n, x->out[0]->uses[k].node)) {
				PUSH(a, node, count, cap) = x->out[0]->uses[k].node;
				x->out[0]->uses[k].node->mark = 1;
			}
	}
	for (int i = 0; i < count; i++)
		node[i]->time = all > 0 ? time * (node_time(node[i], s) / all) : time / count;
}

double time_measured(const PassCx *cx, const Node *n, Phase phase, const char *value)
{
	const ProfileNode *r = cx->profile ? profile_find(cx->profile, phase, optab[n->op]->name, value) : NULL;

	return r && cx->train && r->threads == cx->train->target.threads ? r->typical : 0;
}

/* A gradient that was measured as one product of all microbatches (passes/split/at_once.c): of one in proportion. MICRO: where nobody
 * says how many there are. */
static void take_once(const Module *m, const PassCx *cx, const Node *acc, const Speed *s)
{
	enum { MICRO = 8 };
	Node *n = made_once(acc);
	const double all = n && !n->mark ? time_measured(cx, n, PHASE_UPDATE, at_once_name(cx->scratch, acc)) : 0;
	const int64_t micro = all > 0 && m->batch > 0 ? cx->train->loop.global / m->batch : 0;

	if (all > 0) {
		n->time = all * node_time(n, s) / roofline_at_once(n, micro > 1 ? (double)micro : MICRO, s);
		n->mark = 1;
	}
}

static void take_measured(const Module *m, PassCx *cx, const Speed *s)
{
	double grown;

	for (Node *n = m->graph->first; n; n = n->next) {
		const ProfileNode *r = measured(m, cx, n, optab[n->op]->name, &grown);
		if (r) {
			n->time = r->typical * grown;
			n->mark = 1;
		}
	}
	for (const Node *n = m->graph->first; n; n = n->next)
		if (n->op == OP_Accumulate)
			take_once(m, cx, n, s);
	for (Node *n = m->graph->first; n; n = n->next) {
		const ProfileNode *r = (optab[n->op]->flags & OP_EW) && n->nout == 1 && n->out[0] && !n->mark
		                               ? measured(m, cx, n, "Fused", &grown)
		                               : NULL;
		if (r)
			share_time(n, r->typical * grown, s, cx->scratch);
	}
	for (Node *n = m->graph->first; n; n = n->next)
		n->mark = 0;
}

/* Reading an input counts with the first node that reads it. */
static void add_inputs(const Module *m, Graph *g, const PassCx *cx)
{
	const bool same = same_size(m, cx);

	for (int i = 0; i < g->nin; i++) {
		const Value *v = g->in[i];
		const ProfileNode *r = profile_find(cx->profile, PHASE_FWD, "Input", v->name);
		Node *n = g->first;
		if (!r || (same ? strcmp(r->type, str_type(cx->scratch, &v->type)) != 0 : !cx->sized) ||
			(cx->train && r->threads != cx->train->target.threads))
			continue;
		while (n && ((optab[n->op]->flags & (OP_VIEW | OP_COMM)) || n->phase != PHASE_FWD))
			n = n->next;
		if (n)
			n->time += same ? r->typical : r->typical * (double)m->batch / (double)cx->profile->micro;
	}
}

/* What members of a tensor group tell each other: every byte but a member's own comes in, and for a sum goes out, once. */
static double member_time(const Module *m, const Node *n, const Cluster *c, const Speed *s)
{
	const Link link = c && c->ndevice ? cluster_link(c, 0, 0) : (Link){ .bandwidth = 8e9, .latency = 2e-6 };
	const Value *all = n->op == OP_TensorReduceScatter ? n->in[0] : n->out[0];
	const double d = stage_tensor(m, n->stage), bytes = all ? (double)value_bytes(all) : 0;

	if (n->op == OP_TensorAllReduce)
		return s->launch + 2 * link.latency + 2 * (d - 1) / d * bytes / link.bandwidth;
	return s->launch + link.latency + (d - 1) / d * bytes / link.bandwidth;
}

static double time_of(const Module *m, const Node *n, const Cluster *c, const Speed *s)
{
	return n->op == OP_TensorAllReduce || n->op == OP_TensorAllGather || n->op == OP_TensorReduceScatter
	               ? member_time(m, n, c, s)
	               : node_time(n, s);
}

/* Moving rows between microbatches is part of the nodes around it, where those were measured; reports are next to nothing. */
static bool counted_elsewhere(const Node *n)
{
	return n->op == OP_Accumulate || n->op == OP_Stack || n->op == OP_Report || n->op == OP_ReportHits;
}

/* A weight in 16 bits is made by the update, with the weight. */
static bool made_by_update(const Node *n, const Module *m, const PassCx *cx)
{
	const bool flushed = !m->schedule || !m->schedule->async, served = cx->train && cx->train->comm.by == COMM_PS;

	return cast_once(n) || (flushed && !served && cx->train && copies_weights(cx->train) && rounds_weight(n));
}

static const double nothing = 1e-12; /* seconds; 0 stands for not known */

bool pass_cost(Module *m, PassCx *cx)
{
	const Speed s = device_speed(cx->cluster, 0);

	if (!m->graph)
		return diag_error(
			cx->d, FILELOC(m->file), 410, "cost runs before split; this module has stages already");
	for (Node *n = m->graph->first; n; n = n->next)
		n->time = made_by_update(n, m, cx) ? nothing : time_of(m, n, cx->cluster, &s);
	if (cx->profile) {
		for (Node *n = m->graph->first; n; n = n->next)
			n->time = counted_elsewhere(n) ? nothing : n->time;
		take_measured(m, cx, &s);
		add_inputs(m, m->graph, cx);
	}
	return true;
}

/* For virtual compute on devices of several kinds. */
static void set_pace(Module *m, Stage *s, const Cluster *c)
{
	const Speed first = device_speed(c, 0);
	const Graph *g[] = { s->forward, s->backward, s->weight, s->update };
	bool other = false;

	s->pace = arena_alloc(m->arena, (size_t)s->replicas * sizeof *s->pace);
	for (int r = 0; r < s->replicas; r++) {
		const Speed on = device_speed(c, s->device[r]);
		double here[3] = { 0 }, planned[3] = { 0 };

		for (size_t k = 0; k < sizeof g / sizeof *g; k++)
			for (const Node *n = g[k] ? g[k]->first : NULL; n; n = n->next)
				if (n->time > 0 && !(optab[n->op]->flags & (OP_VIEW | OP_COMM))) {
					here[n->phase] += node_seconds(n, &first, &on);
					planned[n->phase] += n->time;
				}
		for (int k = 0; k < 3; k++) {
			s->pace[r][k] = planned[k] > 0 && here[k] > 0 ? here[k] / planned[k] : 1;
			other |= fabs(s->pace[r][k] - 1) > 1e-9;
		}
	}
	s->pace = other ? s->pace : NULL;
}

void cost_again(Module *m, PassCx *cx)
{
	const Speed s = device_speed(cx->cluster, 0);
	int known = 0, guessed = 0;
	double grown;

	for (int t = 0; t < m->nstage; t++) {
		Graph *g[3] = { m->stage[t]->forward, m->stage[t]->backward, m->stage[t]->update };
		for (int k = 0; k < 3; k++)
			for (Node *n = g[k]->first; n; n = n->next) {
				const ProfileNode *r = measured(m, cx, n, optab[n->op]->name, &grown);
				const bool timed = node_is_timed(n) && !made_by_update(n, m, cx) &&
				                   !(optab[n->op]->flags & OP_VIEW);
				if (!r || !same_size(m, cx)) /* of a loop of another size its parts were scaled */
					n->time = n->time > 0 ? n->time : node_time(n, &s);
				else
					n->time = r->typical;
				if ((cx->profile && counted_elsewhere(n)) || made_by_update(n, m, cx))
					n->time = nothing;
				known += timed && r;
				guessed += timed && !r;
			}
		if (cx->profile && same_size(m, cx))
			add_inputs(m, g[0], cx);
		if (cx->cluster)
			set_pace(m, m->stage[t], cx->cluster);
	}
	if (cx->measured)
		*cx->measured = known;
	if (cx->estimated)
		*cx->estimated = guessed;
}

/* Seconds on a device of speed `on` of a node whose Node.time is for one of speed `first`. */
double node_seconds(const Node *n, const Speed *first, const Speed *on)
{
	if (optab[n->op]->flags & (OP_VIEW | OP_COMM))
		return 0;
	const double here = node_time(n, on), there = node_time(n, first);
	return n->time > 0 && there > 0 ? n->time * (here / there) : here;
}

double graph_seconds(const Graph *g, const Speed *first, const Speed *on)
{
	double t = 0;

	for (const Node *n = g->first; n; n = n->next)
		t += node_seconds(n, first, on);
	return t;
}
