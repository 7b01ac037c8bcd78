/* The planning model of a module (plan_model.h): every segment is a layer, every place between two a state.
 * Seconds are Node.time, scaled to every kind of device by the cost model. Memory is what memplan will lay out,
 * estimated: values that a backward node reads are kept, the rest lives from its maker to its last reader. Reads the
 * module, leaves it as it was. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "plan_model.h"
#include "ir/analysis.h"
#include "passes/cost/cost.h"
#include "passes/schedule/schedule.h"

static bool same(Speed x, Speed y) { return memcmp(&x, &y, sizeof x) == 0; }

static Speed *find_speeds(PlanModel *p)
{
	const int n = p->c && p->c->ndevice > 0 ? p->c->ndevice : 1;
	Speed *speed = NEWN(p->a, Speed, n);

	p->nclass = 0;
	p->class_of = NEWN(p->a, int, n);
	for (int d = 0; d < n; d++) {
		const Speed s = device_speed(p->c, d);
		int k = 0;
		while (k < p->nclass && !same(speed[k], s))
			k++;
		speed[k] = s;
		p->class_of[d] = k;
		p->nclass = k == p->nclass ? k + 1 : p->nclass;
	}
	return speed;
}

static double **table(Arena *a, int classes, int n)
{
	double **t = NEWN(a, double *, classes);

	for (int c = 0; c < classes; c++)
		t[c] = NEWN(a, double, n);
	return t;
}

static void layer_times(PlanModel *p, const Graph *g)
{
	const Speed *speed = find_speeds(p);

	p->fwd = table(p->a, p->nclass, p->nlayer);
	p->bwd = table(p->a, p->nclass, p->nlayer);
	p->update = table(p->a, p->nclass, p->nlayer);
	for (const Node *n = g->first; n; n = n->next)
		for (int c = 0; c < p->nclass; c++)
			(n->phase == PHASE_FWD          ? p->fwd
				: n->phase == PHASE_BWD ? p->bwd
							: p->update)[c][n->stage] +=
				node_seconds(n, &speed[0], &speed[c]);
}

/* ---- tensors: what crosses from segment to segment ---- */

static bool read_backward(const Value *v)
{
	for (int i = 0; i < v->nuses; i++)
		if (v->uses[i].node->phase == PHASE_BWD)
			return true;
	return false;
}

/* sent: root value -> its tensor. */
static void find_tensors(PlanModel *p, const Graph *g, Arena *scratch, Map *sent)
{
	int cap = 0, *seen = NEWN(scratch, int, p->nlayer), *to = NEWN(scratch, int, p->nlayer), stamp = 0;

	for (const Node *n = g->first; n; n = n->next)
		for (int o = 0; o < n->nout && n->phase != PHASE_UPDATE; o++) {
			const Value *v = n->out[o];
			int k = 0;
			stamp++;
			for (int u = 0; v && u < v->nuses; u++) {
				const Node *x = v->uses[u].node;
				if (x->phase == PHASE_UPDATE || x->stage == n->stage || seen[x->stage] == stamp)
					continue;
				seen[x->stage] = stamp;
				to[k++] = x->stage;
			}
			if (k && n->phase == PHASE_FWD)
				map_put(sent, value_root(v), (void *)((intptr_t)p->ntensor + 1));
			if (k)
				PUSH(p->a, p->tensor, p->ntensor, cap) =
					(PlanTensor){ n->phase == PHASE_FWD ? PLAN_FORWARD : PLAN_BACKWARD, n->stage,
						arena_dup(p->a, to, sizeof *to * (size_t)k), k, (double)value_bytes(v),
						n->phase == PHASE_FWD && read_backward(v) };
		}
}

/* ---- memory ---- */

/* As memplan lays values out. */
static double room(const Value *v) { return (double)((value_bytes(v) + 63) / 64 * 64); }

enum { KEPT = 2 }; /* Value.mark */

typedef struct Kept {
	const Value **v;
	int n, cap;
} Kept;

static void keep(PlanModel *p, Kept *k, const Value *v, int layer)
{
	Value *r = value_root(v); /* the mark is ours while this runs */

	if (r->mark || r->kind == VAL_PARAM || r->kind == VAL_CONST)
		return;
	r->mark = KEPT;
	p->kept[layer] += room(r);
	if (r->kind == VAL_NODE)
		PUSH(p->a, k->v, k->n, k->cap) = r;
}

/* What backward nodes read is kept where it was made; an input of the graph where it is read. */
static void find_kept(PlanModel *p, const Graph *g, Kept *k)
{
	for (const Node *n = g->first; n; n = n->next)
		for (int i = 0; i < n->nin && n->phase == PHASE_BWD; i++) {
			const Value *v = n->in[i];
			if (v && (!v->def || v->def->phase == PHASE_FWD))
				keep(p, k, v,
					v->def ? value_root(v)->def ? value_root(v)->def->stage : v->def->stage
					       : n->stage);
		}
}

/* ---- computing again ---- */

/* Nodes that must run for a value, down to what is kept: at most MOST of them. */
enum { MOST_AGAIN = 32 };

static void nodes_again(const Value *v, const Node **node, int *n)
{
	for (int i = 0; i < *n; i++)
		if (node[i] == v->def)
			return;
	if (*n == MOST_AGAIN)
		return;
	node[(*n)++] = v->def;
	for (int i = 0; i < v->def->nin; i++) {
		const Value *x = v->def->in[i];
		if (x && x->kind == VAL_NODE && x->def->phase == PHASE_FWD && !value_root(x)->mark)
			nodes_again(x, node, n);
	}
}

static int fewer_seconds(const void *x, const void *y)
{
	const PlanAgain *a = x, *b = y;
	const double s = a->time[0] * (b->bytes + 1), t = b->time[0] * (a->bytes + 1);

	if (s != t)
		return (s > t) - (s < t);
	if (a->layer != b->layer)
		return (a->layer > b->layer) - (a->layer < b->layer);
	return a->tensor != b->tensor ? (a->tensor > b->tensor) - (a->tensor < b->tensor)
	                              : (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

/* What may be forgotten; marks say what is kept. */
static void find_again(PlanModel *p, const Kept *k, const Map *sent)
{
	const Speed *speed = find_speeds(p);

	p->again = NEWN(p->a, PlanAgain, k->n);
	for (int i = 0; i < k->n && p->recompute != PLAN_KEEP; i++) {
		const Value *v = k->v[i];
		const Node *node[MOST_AGAIN];
		int n = 0;
		PlanAgain *x = &p->again[p->nagain++];
		*x = (PlanAgain){ v->def->stage, (int)(intptr_t)map_get(sent, v) - 1, (double)value_bytes(v),
			NEWN(p->a, double, p->nclass) };
		nodes_again(v, node, &n);
		for (int c = 0; c < p->nclass; c++)
			for (int q = 0; q < n; q++)
				x->time[c] += node_seconds(node[q], &speed[0], &speed[c]);
	}
	qsort(p->again, (size_t)p->nagain, sizeof *p->again, fewer_seconds);
}

/* Of what is kept: it lives from here on in the forward; in the backward until its last reader, which `last` tells. */
static double kept_alive(const Node *n, double alive, const Map *last)
{
	for (int o = 0; o < n->nout && n->phase == PHASE_FWD; o++)
		alive += n->out[o] && n->out[o]->mark == KEPT ? room(n->out[o]) : 0;
	for (int i = 0; i < n->nin && n->phase == PHASE_BWD; i++) {
		const Value *v = n->in[i] ? value_root(n->in[i]) : NULL;
		if (v && v->mark == KEPT && v->def && v->def->stage == n->stage && map_get(last, v) == n)
			alive -= room(v);
	}
	return alive;
}

/* Bytes of an operand that a node's result takes the place of. */
static double overwritten(const Node *n, Phase phase)
{
	const Value *x = n->nin ? n->in[0] : NULL, *y = n->nout ? n->out[0] : NULL;

	return x && y && (optab[n->op]->flags & OP_INPLACE) && x->def && x->def->phase == phase && x->mark == -1 &&
	                       !y->mark && value_bytes(x) == value_bytes(y)
	               ? room(x)
	               : 0;
}

/* The nodes of a phase layer after layer, in the backward from the last on: of the layers in front of a cut nothing runs
 * behind it. In the graph's order inside a layer. */
static Node **by_layer(const PlanModel *p, const Graph *g, Phase phase, Arena *scratch, int *n)
{
	int *at = NEWN(scratch, int, p->nlayer + 1);

	for (const Node *x = g->first; x; x = x->next)
		if (x->phase == phase)
			at[(phase == PHASE_BWD ? p->nlayer - 1 - x->stage : x->stage) + 1]++;
	for (int i = 0; i < p->nlayer; i++)
		at[i + 1] += at[i];
	*n = at[p->nlayer];
	Node **node = NEWN(scratch, Node *, *n);
	for (Node *x = g->first; x; x = x->next)
		if (x->phase == phase)
			node[at[phase == PHASE_BWD ? p->nlayer - 1 - x->stage : x->stage]++] = x;
	return node;
}

/* The most bytes alive at once in each layer, of values that are neither kept nor sent, and of all that it makes; uses are
 * counted down. */
static void find_temporaries(PlanModel *p, const Graph *g, Phase phase, Arena *scratch)
{
	double now = 0, *alive = NEWN(scratch, double, p->nlayer);
	int nnode;
	Node **node = by_layer(p, g, phase, scratch, &nnode);
	Map last;

	map_init(&last, scratch, false);
	for (int k = 0; k < nnode && phase == PHASE_BWD; k++)
		for (int i = 0; i < node[k]->nin; i++)
			if (node[k]->in[i] && value_root(node[k]->in[i])->mark == KEPT)
				map_put(&last, value_root(node[k]->in[i]), node[k]);
	for (int i = 0; i < p->nlayer && phase == PHASE_BWD; i++)
		alive[i] = p->kept[i];

	for (int k = 0; k < nnode; k++) {
		const Node *n = node[k];
		const double spared = overwritten(n, phase);
		for (int o = 0; o < n->nout; o++) {
			Value *v = n->out[o];
			if (!v || v->mark || (optab[n->op]->flags & OP_VIEW))
				continue;
			for (int u = 0; u < v->nuses; u++)
				v->mark += v->uses[u].node->phase == phase;
			v->mark = -v->mark; /* below 0: so many readers to come */
			now += v->mark ? room(v) : 0;
		}
		double *here = &alive[n->stage];
		*here = phase == PHASE_FWD ? kept_alive(n, *here, &last) : *here;
		p->tmp[n->stage] = fmax(p->tmp[n->stage], now - spared);
		p->most[n->stage] = fmax(p->most[n->stage], now - spared + *here);
		*here = phase == PHASE_BWD ? kept_alive(n, *here, &last) : *here;
		for (int i = 0; i < n->nin; i++) {
			Value *v = n->in[i];
			if (v && v->def && v->def->phase == phase && v->mark < 0 && ++v->mark == 0) {
				now -= room(v);
				v->mark = 1;
			}
		}
	}
}

static void clear_marks(const Graph *g)
{
	for (int i = 0; i < g->nin; i++)
		g->in[i]->mark = 0;
	for (const Node *n = g->first; n; n = n->next)
		for (int o = 0; o < n->nout; o++)
			if (n->out[o])
				n->out[o]->mark = 0;
}

/* ---- weights ---- */

static void find_weights(PlanModel *p, const Module *m, Arena *scratch)
{
	int cap = 0, *layer = NEWN(scratch, int, p->nlayer);
	bool *seen = NEWN(scratch, bool, p->nlayer);
	double trained = 0, state = 0;

	for (int i = 0; i < m->nparam; i++) {
		const Value *v = m->param[i];
		bool again = false;
		int n = 0;
		if (v->param->kind == PARAM_STATE) {
			state += (double)value_bytes(v);
			continue;
		}
		for (int u = 0; u < v->nuses; u++) {
			const Node *k = v->uses[u].node;
			again |= k->phase == PHASE_BWD;
			if (k->phase != PHASE_UPDATE && !seen[k->stage]) {
				seen[k->stage] = true;
				layer[n++] = k->stage;
			}
		}
		for (int k = 0; k < n; k++)
			seen[layer[k]] = false;
		if (!n)
			continue;
		const bool learns = v->param->kind == PARAM_WEIGHT && !v->param->frozen;
		trained += learns ? (double)value_bytes(v) : 0;
		PUSH(p->a, p->weight, p->nweight, cap) =
			(PlanWeight){ arena_dup(p->a, layer, sizeof *layer * (size_t)n), n, (double)value_bytes(v),
				learns, again, false, v };
	}
	p->state = trained > 0 ? state / trained : 0;
}

static void find_rows(PlanModel *p, const Graph *g)
{
	int cap = 0;

	for (const Node *n = g->first; n; n = n->next)
		if (n->op == OP_Stack && n->nin)
			PUSH(p->a, p->row, p->nrow, cap) = (PlanRow){ n->stage, (double)value_bytes(n->in[0]) };
}

/* ---- states: a profile of the segments, and of the tensors as layers of their own that take no time ---- */

static void set_bit(uint64_t *row, int i) { row[i / 64] |= UINT64_C(1) << (i % 64); }

static Profile *profile_of(PlanModel *p, const Module *m)
{
	Profile *f = NEW(p->a, Profile);
	double *own = NEWN(p->a, double, p->nlayer);

	f->file = m->file;
	f->layer = NEWN(p->a, Layer, p->nlayer + p->ntensor);
	for (int i = 0; i < p->nlayer; i++)
		f->layer[i] = (Layer){ .id = p->name[i],
			.desc = p->name[i],
			.forward = p->fwd[0][i],
			.backward = p->bwd[0][i],
			.activation = p->kept[i],
			.stage = -1 };
	f->n = p->nlayer;
	for (int i = 0; i < p->nweight; i++)
		f->layer[p->weight[i].layer[0]].parameters += p->weight[i].bytes;
	for (int i = 0; i < p->ntensor; i++) {
		const PlanTensor *t = &p->tensor[i];
		if (t->kind == PLAN_BACKWARD)
			continue;
		own[t->from] += t->kept ? t->bytes : 0;
		f->layer[f->n++] =
			(Layer){ .id = p->name[t->from], .desc = "tensor", .activation = t->bytes, .stage = -1 };
	}
	for (int i = 0; i < p->nlayer; i++) /* a tensor that is kept counts once */
		f->layer[i].activation = fmax(0, f->layer[i].activation - own[i]);
	return f;
}

static void link_consumers(PlanModel *p, States *st, const Profile *f)
{
	int n = 0, at = 0;

	for (int i = 0; i < p->ntensor; i++)
		n += p->tensor[i].kind == PLAN_BACKWARD ? 0 : p->tensor[i].nto;
	st->first = NEWN(p->a, int, f->n + 1);
	st->to = NEWN(p->a, int, n);
	n = p->nlayer;
	for (int i = 0; i < p->ntensor; i++) {
		const PlanTensor *t = &p->tensor[i];
		if (t->kind == PLAN_BACKWARD)
			continue;
		st->first[n++] = at;
		for (int k = 0; k < t->nto; k++)
			st->to[at++] = t->to[k];
	}
	st->first[f->n] = at;
}

static void crossing(PlanModel *p, State *s, int k, const Profile *f)
{
	s->layer = NEWN(p->a, int, f->n - p->nlayer);
	for (int i = 0, l = p->nlayer; i < p->ntensor; i++) {
		const PlanTensor *t = &p->tensor[i];
		int last = 0;
		if (t->kind == PLAN_BACKWARD)
			continue;
		for (int x = 0; x < t->nto; x++)
			last = t->to[x] > last ? t->to[x] : last;
		if (t->from <= k && last > k) {
			s->layer[s->n++] = l;
			s->cut += t->bytes;
		}
		l++;
	}
}

static States *chain_states(PlanModel *p, const Module *m)
{
	const Profile *f = profile_of(p, m);
	States *st = NEW(p->a, States);

	*st = (States){
		.p = f, .n = p->nlayer, .words = (p->nlayer + 63) / 64, .layer_words = (f->n + 63) / 64, .total = true
	};
	st->s = NEWN(p->a, State, st->n);
	st->before = NEWN(p->a, uint64_t, (size_t)st->n *(size_t)st->words);
	st->under = NEWN(p->a, uint64_t, (size_t)st->n *(size_t)st->layer_words);
	link_consumers(p, st, f);
	for (int k = 0; k < st->n; k++) {
		State *s = &st->s[k];
		uint64_t *under = st->under + (size_t)k * (size_t)st->layer_words;
		for (int i = 0; i < k; i++)
			set_bit(st->before + (size_t)k * (size_t)st->words, i);
		for (int i = 0; i <= k; i++)
			set_bit(under, i);
		for (int i = 0, l = p->nlayer; i < p->ntensor; i++)
			if (p->tensor[i].kind != PLAN_BACKWARD && p->tensor[i].from <= k)
				set_bit(under, l++);
			else
				l += p->tensor[i].kind != PLAN_BACKWARD;
		for (int i = 0; i < f->n; i++) {
			const Layer *x = &f->layer[i];
			if (!(under[i / 64] >> (i % 64) & 1))
				continue;
			s->time += x->forward + x->backward;
			s->activation += x->activation;
			s->parameters += x->parameters;
		}
		crossing(p, s, k, f);
	}
	return st;
}

/* ---- sums by state ---- */

static void sum_states(PlanModel *p)
{
	const States *st = p->st;
	double *weight = NEWN(p->a, double, p->nlayer);

	for (int i = 0; i < p->nweight; i++)
		weight[p->weight[i].layer[0]] += p->weight[i].bytes;
	p->sum = table(p->a, p->nclass, st->n);
	p->sum_param = NEWN(p->a, double, st->n);
	p->sum_weight = NEWN(p->a, double, st->n);
	p->sum_kept = NEWN(p->a, double, st->n);
	p->tmp_at = NEWN(p->a, double, st->n);
	for (int k = 0; k < st->n; k++) {
		const uint64_t *under = st->under + (size_t)k * (size_t)st->layer_words;
		for (int i = 0; i < p->nlayer; i++) {
			if (!(under[i / 64] >> (i % 64) & 1))
				continue;
			for (int c = 0; c < p->nclass; c++)
				p->sum[c][k] += p->fwd[c][i] + p->bwd[c][i];
			p->sum_param[k] += p->param[i];
			p->sum_weight[k] += weight[i];
			p->sum_kept[k] += p->kept[i];
			if (!k || !(under[i / 64 - st->layer_words] >> (i % 64) & 1))
				p->tmp_at[k] = fmax(p->tmp_at[k], p->tmp[i]);
		}
	}
}

int *plan_places(Arena *a, const States *st, int most, int *n)
{
	int *best = NEWN(a, int, most), *at = NEWN(a, int, st->n);
	const double all = st->s[st->n - 1].time;

	for (int w = 0; w < most; w++)
		best[w] = -1;
	for (int i = 0; i < st->n - 1; i++) {
		const double share = all > 0 ? st->s[i].time / all : (double)i / st->n;
		const int w = share >= 1 ? most - 1 : (int)(share * most);
		if (st->n <= most)
			at[i] = 1;
		else if (best[w] < 0 || st->s[i].cut <= st->s[best[w]].cut)
			best[w] = i;
	}
	for (int w = 0; w < most - 1 && st->n > most; w++) /* the last window is the last state's */
		if (best[w] >= 0)
			at[best[w]] = 1;
	at[st->n - 1] = 1;
	*n = 0;
	for (int i = 0; i < st->n; i++)
		if (at[i])
			at[(*n)++] = i;
	return at;
}

static void find_places(PlanModel *p) { p->place = plan_places(p->a, p->st, p->st->total ? 512 : 160, &p->nplace); }

int plan_zero(const PlanModel *p, int stage) { return p->train ? stage_zero(&p->train->plan, stage) : p->zero; }

PlanModel *plan_model(Arena *a, Segments *g)
{
	PlanModel *p = NEW(a, PlanModel);
	const Training *t = g->cx->train;
	const Graph *graph = g->m->graph;
	Kept kept = { 0 };
	Map sent;

	*p = (PlanModel){ .a = a,
		.c = g->cx->cluster,
		.train = t,
		.nlayer = g->n,
		.memory_scale = g->cx->memory_scale > 0 ? g->cx->memory_scale : 1,
		.corrected = g->cx->corrected,
		.name = NEWN(a, const char *, g->n),
		.kept = NEWN(a, double, g->n),
		.tmp = NEWN(a, double, g->n),
		.most = NEWN(a, double, g->n),
		.param = NEWN(a, bool, g->n) };
	if (t) {
		p->most_stages = t->plan.no_pipeline ? 1 : t->plan.max_stages;
		p->no_replicas = t->plan.no_dp;
		p->equal_replicas = served_async(t);
	}
	p->schedule = p->played = t && t->plan.pipe_sgd > 1
	                                  ? (ScheduleSpec){ .kind = SCHEDULE_PIPE_SGD, .n = (int)t->plan.pipe_sgd }
	                          : t ? t->plan.schedule
	                              : (ScheduleSpec){ .kind = SCHEDULE_AUTO };
	p->memory_scale *= trial_corrected(p, p->schedule).memory;
	if (t) {
		p->global = t->loop.global > 0 ? t->loop.global / (g->m->batch > 0 ? g->m->batch : 1) : 0;
		p->per_replica = t->loop.microbatches;
	}
	if (t && !schedule_async(t))
		p->recompute = t->plan.recompute == RECOMPUTE_NONE    ? PLAN_KEEP
		               : t->plan.recompute == RECOMPUTE_STAGE ? PLAN_AGAIN
		                                                      : PLAN_AGAIN_AS_NEEDED;
	for (int s = 0; s < g->n; s++) {
		p->name[s] = g->seg[s].name;
		for (int i = g->seg[s].first; i < g->seg[s].end; i++)
			p->param[s] |= reads_weight(g->node[i]);
	}
	segments_spread(g);
	layer_times(p, graph);
	map_init(&sent, g->cx->scratch, false);
	find_tensors(p, graph, g->cx->scratch, &sent);
	find_kept(p, graph, &kept);
	find_again(p, &kept, &sent);
	find_temporaries(p, graph, PHASE_FWD, g->cx->scratch);
	find_temporaries(p, graph, PHASE_BWD, g->cx->scratch);
	clear_marks(graph);
	find_weights(p, g->m, g->cx->scratch);
	find_rows(p, graph);
	find_pins(p, g->m);
	find_grads(p, graph, t, g->cx->scratch);
	find_once(p, g->m, g->cx);
	segments_clear(g);
	sums_start(p, t);
	servers_start(p, t);
	p->st = chain_states(p, g->m);
	sum_states(p);
	find_places(p);
	return p;
}

/* ---- of a profile ---- */

static void profile_tensors(PlanModel *p, const States *st)
{
	int cap = 0;

	for (int u = 0; u < p->nlayer; u++)
		if (st->first[u + 1] > st->first[u])
			PUSH(p->a, p->tensor, p->ntensor, cap) = (PlanTensor){ PLAN_BOTH, u, st->to + st->first[u],
				st->first[u + 1] - st->first[u], st->p->layer[u].activation, true };
}

PlanModel *plan_model_of(Arena *a, const States *st, const Cluster *c)
{
	PlanModel *p = NEW(a, PlanModel);
	const int n = st->p->n;
	int cap = 0;

	*p = (PlanModel){ .a = a,
		.c = c,
		.nclass = 1,
		.class_of = NEWN(a, int, c->ndevice),
		.nlayer = n,
		.memory_scale = 1,
		.name = NEWN(a, const char *, n),
		.kept = NEWN(a, double, n),
		.tmp = NEWN(a, double, n),
		.most = NEWN(a, double, n),
		.param = NEWN(a, bool, n),
		.st = st };
	p->fwd = table(a, 1, n);
	p->bwd = table(a, 1, n);
	p->update = table(a, 1, n);
	for (int i = 0; i < n; i++) {
		const Layer *l = &st->p->layer[i];
		p->name[i] = l->id;
		p->fwd[0][i] = l->forward;
		p->bwd[0][i] = l->backward;
		p->kept[i] = p->most[i] = l->activation;
		p->param[i] = true;
		if (l->parameters <= 0)
			continue;
		int *layer = NEW(a, int);
		*layer = i;
		PUSH(a, p->weight, p->nweight, cap) = (PlanWeight){ layer, 1, l->parameters, true, true, false, NULL };
	}
	p->grad = NEWN(a, PlanGrad, n);
	for (int i = n - 1; i >= 0; i--)
		p->grad[p->ngrad++] =
			(PlanGrad){ i, &p->bwd[0][i], 64 * ceil(st->p->layer[i].parameters / 64), -1, false };
	sums_start(p, NULL);
	profile_tensors(p, st);
	sum_states(p);
	find_places(p);
	return p;
}
