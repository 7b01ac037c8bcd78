/* What hybrid.c and servers.c ask of a trained parameter: its bytes, how many of its rows a step touches, whether a server
 * could hold it; and where servers may stand. */
#include <math.h>
#include <string.h>
#include "servers.h"
#include "ir/analysis.h"
#include "passes/graph/amp.h"

/* Gather along the rows, in the forward or computed again: reads rows of w and nothing else. */
static bool is_lookup(const Use *u)
{
	return u->node->op == OP_Gather && u->index == 0 && attr_int(u->node, "axis") == 0;
}

bool update_reads(const Use *u)
{
	return u->node->phase == PHASE_UPDATE && !(optab[u->node->op]->flags & (OP_UPDATE | OP_COMM));
}

/* Do only updates of w come of v? */
static bool serves_only(const Value *v, const Value *w)
{
	for (int i = 0; i < v->nuses; i++) {
		const Node *n = v->uses[i].node;
		if (optab[n->op]->flags & OP_UPDATE && n->in[0] != w)
			return false;
		for (int k = 0; k < n->nout; k++)
			if (!serves_only(n->out[k], w))
				return false;
	}
	return true;
}

/* Is v made element by element of w and its own gradient, up to the sums? Such operations opau has at w's server. */
static bool made_of(const Value *v, const Value *w)
{
	if (v->kind != VAL_NODE)
		return v == w || (v->kind == VAL_CONST && type_numel(&v->type) == 1);
	const Node *n = v->def;
	if (n->op == OP_Total || n->op == OP_ClipNorm || n->op == OP_LossScale)
		return true;
	if (!serves_only(v, w) || (n->op != OP_Accumulate && !(optab[n->op]->flags & OP_EW)))
		return false;
	for (int i = 0; i < n->nin && n->op != OP_Accumulate; i++)
		if (n->in[i] && !made_of(n->in[i], w))
			return false;
	return true;
}

/* Before servers are there: does an operation of a user behind the sums read w at the devices? They need all of it then. */
static bool read_behind(const Value *w, bool opau)
{
	bool moves = opau, read = false;

	for (int i = 0; i < w->nuses; i++) {
		const Node *n = w->uses[i].node;
		if (optab[n->op]->flags & OP_UPDATE && n->op != OP_SquareSum && !w->uses[i].index)
			moves &= made_of(n->in[gradient_operand(n)], w);
		else if (update_reads(&w->uses[i]))
			read = true;
		for (int k = 0; update_reads(&w->uses[i]) && k < n->nout; k++)
			moves &= serves_only(n->out[k], w);
	}
	return read && !moves;
}

static bool trained(const Value *v) { return v->param->kind == PARAM_WEIGHT && !v->param->frozen; }

static int holders(const Module *m, const Value *w)
{
	int n = 0;

	for (int t = 0; t < m->nstage; t++)
		for (int i = 0; i < m->stage[t]->nparam; i++)
			n += m->stage[t]->param[i] == w;
	return n;
}

/* Does v come from sums over microbatches by operations that can be written down once more? */
static bool repeatable(const Value *v)
{
	if (v->kind != VAL_NODE || v->def->op == OP_Accumulate)
		return true;
	if (v->def->op == OP_Fused || v->def->op == OP_Broadcast || v->def->op == OP_Stack)
		return false;
	for (int i = 0; i < v->def->nin; i++)
		if (v->def->in[i] && !repeatable(v->def->in[i]))
			return false;
	return true;
}

const char *travel_reason(const Value *w)
{
	int updates = 0;

	if (w->type.dtype != DT_f32)
		return "its elements are no f32";
	for (int i = 0; i < w->nuses; i++) {
		const Node *n = w->uses[i].node;
		if (!(optab[n->op]->flags & OP_UPDATE) || w->uses[i].index)
			continue;
		if (n->op == OP_SGDRows || !repeatable(n->in[gradient_operand(n)]))
			return "its gradient is put together where it is made";
		updates++;
	}
	return updates ? NULL : "nothing updates it";
}

/* Elements [from, to) of @w that this node reads, where it is a slice along the first axis. */
static bool cut_of(const Node *n, int64_t *from, int64_t *to)
{
	if (n->op != OP_Slice)
		return false;
	const Ints starts = attr_ints(n, "starts"), ends = attr_ints(n, "ends"), axes = attr_ints(n, "axes"),
		   steps = attr_ints(n, "steps");
	const Type *t = &n->in[0]->type;

	if (starts.n != 1 || (axes.n && axes.v[0] != 0 && axes.v[0] != -t->rank) || (steps.n && steps.v[0] != 1) ||
		t->dim[0] < 1)
		return false;
	const int64_t row = type_numel(t) / t->dim[0], s = starts.v[0], e = ends.v[0];
	*from = (s < 0 ? s + t->dim[0] : s) * row;
	*to = (e < 0 ? e + t->dim[0] : e < t->dim[0] ? e : t->dim[0]) * row;
	return *from >= 0 && *from < *to;
}

bool slices_of(const Value *w, int64_t *lo, int64_t *hi)
{
	int64_t from, to;

	*lo = type_numel(&w->type);
	*hi = 0;
	for (int i = 0; i < w->nuses; i++) {
		const Node *n = w->uses[i].node;
		if (n->phase == PHASE_UPDATE || n->op == OP_Pull)
			continue;
		if (!cut_of(n, &from, &to))
			return false;
		*lo = from < *lo ? from : *lo;
		*hi = to > *hi ? to : *hi;
	}
	return *lo < *hi;
}

/* Does all that reads v, but updates, read it rounded to this type? */
static bool read_as(const Value *v, DType low)
{
	for (int i = 0; i < v->nuses; i++) {
		const Use *u = &v->uses[i];
		if (u->node->phase == PHASE_UPDATE || u->node->op == OP_Pull)
			continue;
		if (!(is_lookup(u) ? read_as(u->node->out[0], low)
				   : u->node->op == OP_Cast && u->node->out[0]->type.dtype == low))
			return false;
	}
	return true;
}

/* With --amp values are 16-bit floats between devices and servers; the master copy, sums and the update stay f32. With
 * --reproducible, which gives the bits of one device, only where nothing is rounded that is not there; and nothing that is read
 * behind the sums, where it is f32. */
static void measure_wire(const Training *train, Travel *t, bool behind)
{
	const DType low = amp_dtype(train);
	const double half = train && train->comm.no_opsw ? 1 : 0.5;

	if (low != DT_f32 && !behind && (!train->loop.reproducible || read_as(t->w, low)))
		t->pull = dtype_name(low);
	if (low != DT_f32 && !train->loop.reproducible)
		t->push = dtype_name(low);
	t->down = t->pull ? half : 1;
	t->up = t->push ? half : 1;
}

void travel_measure(const Training *train, Travel *t)
{
	int64_t lo, hi;
	const bool behind = read_behind(t->w, !(train && train->comm.no_opau));

	t->rows = t->w->type.rank > 1 && !behind;
	for (int i = 0; i < t->w->nuses; i++) {
		const Use *u = &t->w->uses[i];
		if (u->node->phase == PHASE_UPDATE)
			continue;
		t->rows &= is_lookup(u);
		if (is_lookup(u) && u->node->phase == PHASE_FWD)
			t->lookups += type_numel(&u->node->in[1]->type);
	}
	t->rows &= t->lookups > 0;
	t->alpha = 1;
	if (!t->rows && !behind && !(train && train->comm.no_opsw) && slices_of(t->w, &lo, &hi))
		t->alpha = (double)(hi - lo) / (double)type_numel(&t->w->type);
	t->bytes = type_bytes(&t->w->type);
	measure_wire(train, t, behind);
}

void travel_step(Travel *t, int64_t grains)
{
	t->lookups *= grains > 0 ? grains : 1;
	t->alpha = t->rows ? rows_touched(t->w, (double)t->lookups) : t->alpha;
}

Travel *travel_list(Module *m, PassCx *cx, int *n)
{
	Travel *all = NULL;
	int cap = 0;

	*n = 0;
	for (int k = 0; k < m->nstage; k++)
		for (int i = 0; i < m->stage[k]->nparam; i++) {
			Travel t = { .w = m->stage[k]->param[i], .s = m->stage[k] };
			if (!trained(t.w) || t.s->server)
				continue;
			travel_measure(cx->train, &t);
			travel_step(&t, m->microbatches / t.s->replicas);
			t.many = holders(m, t.w) > 1;
			t.why = t.many ? "several stages use it" : travel_reason(t.w);
			PUSH(cx->scratch, all, *n, cap) = t;
		}
	return all;
}

double travel_ps(const Travel *t) { return (t->down + t->up) * t->alpha * (double)t->bytes; }

double travel_allreduce(const Travel *t)
{
	const double n = t->s->replicas;

	return 2 * (n - 1) / n * (double)t->bytes;
}

/* Replicas of the stage on the host that has most; how many hosts. */
static int crowd(const Stage *s, const Cluster *c, int *hosts)
{
	int most = 1;

	*hosts = 0;
	for (int r = 0; r < s->replicas; r++) {
		int n = 0;
		bool first = true;
		for (int k = 0; k < s->replicas; k++) {
			const bool near = k == r || cluster_same_host(c, s->device[k], s->device[r]);
			n += near;
			first &= !near || k >= r;
		}
		*hosts += first;
		most = n > most ? n : most;
	}
	return most;
}

void travel_hosts(const Travel *t, const Cluster *c, const Training *train, double *ps, double *allreduce)
{
	int hosts;
	const int near = crowd(t->s, c, &hosts);
	const bool joined = !(train && train->comm.no_local_agg);
	const double b = (double)t->bytes, away = (hosts - 1.0) / hosts;
	const double pulled = near * t->alpha, pushed = !joined   ? pulled
	                                                : t->rows ? rows_touched(t->w, (double)t->lookups * near)
	                                                          : t->alpha;

	*ps = 2 * away * (pulled * t->down + pushed * t->up) * b;
	*allreduce = 2 * travel_allreduce(t); /* sent and received */
	if (hosts == 1) {
		*ps = travel_ps(t);
		*allreduce = travel_allreduce(t);
	}
}

static bool in_plan(const Module *m, const Cluster *c, int host)
{
	for (int t = 0; t < m->nstage; t++)
		for (int r = 0; r < m->stage[t]->replicas; r++)
			if (m->stage[t]->device[r] < c->ndevice && c->device[m->stage[t]->device[r]].host == host)
				return true;
	return false;
}

/* Hosts of the plan that are servers too, then those of the cluster that are nothing else. */
int server_hosts(const Module *m, const Cluster *c, int *device)
{
	int n = 0;

	for (int t = 0; t < m->nstage; t++)
		for (int r = 0; r < m->stage[t]->replicas; r++) {
			const int d = m->stage[t]->device[r];
			bool known = false;
			for (int i = 0; i < n; i++)
				known |= !c || device[i] == d || cluster_same_host(c, device[i], d);
			if (known || (c && d < c->ndevice && !c->host[c->device[d].host].server))
				continue;
			device[n++] = d;
		}
	for (int d = 0; c && d < c->ndevice; d++) {
		const Host *h = &c->host[c->device[d].host];
		if (h->server && !h->worker && (d == 0 || c->device[d - 1].host != c->device[d].host) &&
			!in_plan(m, c, c->device[d].host))
			device[n++] = d;
	}
	return n;
}
