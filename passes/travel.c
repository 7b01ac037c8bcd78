/* What hybrid.c and servers.c ask of a trained parameter: its bytes, how many of its rows a step touches, whether a server
 * could hold it; and where servers may stand. */
#include <math.h>
#include <string.h>
#include "servers.h"

/* Gather along the rows, in the forward or computed again: reads rows of w and nothing else. */
static bool is_lookup(const Use *u)
{
	return u->node->op == OP_Gather && u->index == 0 && attr_int(u->node, "axis") == 0;
}

static bool trained(const Value *v)
{
	return v->param->kind == PARAM_WEIGHT && !v->param->frozen;
}

static int holders(const Module *m, const Value *w)
{
	int n = 0;

	for (int t = 0; t < m->nstage; t++)
		for (int i = 0; i < m->stage[t]->nparam; i++)
			n += m->stage[t]->param[i] == w;
	return n;
}

/* The operand of an update that is the gradient: SquareSum(@w, g), SGD(@w, g, n), Adam(@w, @m, @v, g, n). */
int gradient_operand(const Node *update)
{
	return update->op == OP_SquareSum ? 1 : update->nin - 2;
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

static const char *reason(const Module *m, const Travel *t)
{
	int updates = 0;

	if (t->w->type.dtype != DT_f32)
		return "its elements are no f32";
	if (holders(m, t->w) > 1)
		return "several stages use it";
	for (int i = 0; i < t->w->nuses; i++) {
		const Node *n = t->w->uses[i].node;
		if (n->phase != PHASE_UPDATE || t->w->uses[i].index)
			continue;
		if (n->op == OP_SGDRows || !repeatable(n->in[gradient_operand(n)]))
			return "its gradient is put together where it is made";
		updates++;
	}
	return updates ? NULL : "nothing updates it";
}

/* k ids drawn evenly from V rows hit V (1 - (1 - 1/V)^k) different ones. */
double rows_touched(double lookups, double rows)
{
	return rows > 1 ? -expm1(lookups * log1p(-1 / rows)) : 1;
}

static void measure(const Module *m, Travel *t)
{
	const int64_t grains = m->microbatches / t->s->replicas;
	const double rows = t->w->type.rank ? (double)t->w->type.dim[0] : 1;

	t->rows = t->w->type.rank > 1;
	for (int i = 0; i < t->w->nuses; i++) {
		const Use *u = &t->w->uses[i];
		if (u->node->phase == PHASE_UPDATE)
			continue;
		t->rows &= is_lookup(u);
		if (is_lookup(u) && u->node->phase == PHASE_FWD)
			t->lookups += type_numel(&u->node->in[1]->type) * (grains > 0 ? grains : 1);
	}
	t->rows &= t->lookups > 0;
	t->alpha = t->rows ? rows_touched((double)t->lookups, rows) : 1;
	t->bytes = type_bytes(&t->w->type);
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
			measure(m, &t);
			t.why = reason(m, &t);
			PUSH(cx->scratch, all, *n, cap) = t;
		}
	return all;
}

double travel_ps(const Travel *t)
{
	return 2 * t->alpha * (double)t->bytes;
}

double travel_allreduce(const Travel *t)
{
	const double n = t->s->replicas;

	return 2 * (n - 1) / n * (double)t->bytes;
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
		if (h->server && !h->worker && (d == 0 || c->device[d - 1].host != c->device[d].host) && !in_plan(m, c, c->device[d].host))
			device[n++] = d;
	}
	return n;
}
