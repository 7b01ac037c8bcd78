/* The sums of gradients of a trial's replicas (plan_model.h), as comm.c will make them: a stage's gradients in the order in
 * which its backward makes them, cut into buckets, each by the algorithm that is predicted to be fastest (sumcost.h), or as
 * asked for. Groups of devices that links do not tell apart share a timing model, and a stage between two places over such a
 * group its sums: both are kept, since a search asks thousands of times for the same few. */
#include <string.h>
#include "plan_model.h"
#include "passes/comm/servers.h"
#include "passes/simulate/simulate_ports.h"
#include "ir/analysis.h"
#include "passes/cost/cost.h"
#include "passes/schedule/schedule.h"
#include "passes/split/split.h"

enum { LINE = 1 << 20 }; /* bytes at which what a sum takes is played */

/* least: by algorithm, seconds that a sum of no bytes takes at least, and per byte, as the simulator has it; 0: not known. */
typedef struct Group {
	SumModel model;
	int number;
	const int *device;
	double least[SUM_KINDS][2];
} Group;

struct SumCache {
	Arena *a;
	Map group;                   /* hosts of the members as text -> Group */
	Map stage;                   /* places, group, kind of device as text -> StageSums */
	bool alike;                  /* links between hosts are all one */
	int *number, *stamp, stamps; /* by host, of the group at hand */
	SumReady *ready;
};

void sums_start(PlanModel *p, const Training *t)
{
	struct SumCache *x = p->sums = NEW(p->a, struct SumCache);
	const int hosts = p->c && p->c->nhost > 0 ? p->c->nhost : 1;

	p->rule = sum_rule(t);
	p->blocks = t && t->loop.reproducible;
	*x = (struct SumCache){ .a = p->a,
		.alike = true,
		.number = NEWN(p->a, int, hosts),
		.stamp = NEWN(p->a, int, hosts),
		.ready = NEWN(p->a, SumReady, p->ngrad + 1) };
	map_init(&x->group, p->a, true);
	map_init(&x->stage, p->a, true);
	for (int i = 0; p->c && i < p->c->nlink; i++)
		x->alike &= p->c->link[i].scope != LINK_BETWEEN;
}

/* ---- gradients, in the order in which the backward makes them ---- */

/* The gradients that a node makes, as autodiff met them. left: how many of those that are added to it (add_uses.c) are to come. */
typedef struct Made {
	const Value *sum;
	int *left;
	struct Made *next;
} Made;

static PlanGrad *piece(PlanModel *p, int layer, int *cap)
{
	PlanGrad *g = p->ngrad ? &p->grad[p->ngrad - 1] : NULL;

	if (!g || g->layer != layer || g->bytes > 0) {
		g = &PUSH(p->a, p->grad, p->ngrad, *cap);
		*g = (PlanGrad){ layer, NEWN(p->a, double, p->nclass), 0, -1, false };
	}
	return g;
}

int plan_weight_of(const PlanModel *p, const Value *w)
{
	for (int i = 0; i < p->nweight && w; i++)
		if (p->weight[i].value == w)
			return i;
	return -1;
}

/* The sum that is to be one with others. */
static int *left_of(const Value *sum, const Training *t, Map *sums, Arena *scratch)
{
	const Node *n = sum->nuses == 1 ? sum->uses[0].node : NULL;

	if (!n || !parts_joined(n, t))
		return NULL;
	int *left = map_get(sums, n);
	if (!left) {
		left = NEW(scratch, int);
		map_put(sums, n, left);
	}
	++*left;
	return left;
}

void find_grads(PlanModel *p, const Graph *g, const Training *t, Arena *scratch)
{
	Speed *speed = NEWN(scratch, Speed, p->nclass);
	int cap = 0;
	Map made, sums;

	speed[0] = device_speed(p->c, 0);
	for (int d = 0; p->c && d < p->c->ndevice; d++)
		speed[p->class_of[d]] = device_speed(p->c, d);
	map_init(&made, scratch, false);
	map_init(&sums, scratch, false);
	for (const Node *n = g->first; n; n = n->next) {
		if (n->op != OP_Accumulate || !n->in[0]->def)
			continue;
		Made *x = NEW(scratch, Made), *last = map_get(&made, n->in[0]->def);
		*x = (Made){ n->out[0], left_of(n->out[0], t, &sums, scratch), NULL };
		while (last && last->next)
			last = last->next;
		if (last)
			last->next = x;
		else
			map_put(&made, n->in[0]->def, x);
	}
	for (const Node *n = g->first; n; n = n->next) {
		if (n->phase == PHASE_UPDATE)
			continue;
		for (int c = 0; c < p->nclass && n->phase == PHASE_BWD; c++)
			piece(p, n->stage, &cap)->time[c] += node_seconds(n, &speed[0], &speed[c]);
		for (const Made *x = map_get(&made, n); x; x = x->next) {
			PlanGrad *q = piece(p, n->stage, &cap);
			q->bytes = 64 * ((double)((value_bytes(x->sum) + 63) / 64));
			q->weight = plan_weight_of(p, gradient_of(x->sum));
			if (q->weight >= 0)
				p->weight[q->weight].added = sums_where_made(t) && added_where_made(x->sum->def);
			q->joined = x->left && --*x->left;
		}
	}
}

/* ---- groups of devices ---- */

/* Hosts in the order of the members, so many of each; where links are alike, numbered as they come. */
static Group *group_of(const PlanModel *p, const int *device, int n)
{
	struct SumCache *x = p->sums;
	Buf b = { 0 };
	int hosts = 0;

	x->stamps++;
	for (int i = 0, k; i < n; i = k) {
		const int h = p->c->device[device[i]].host;
		for (k = i + 1; k < n && p->c->device[device[k]].host == h; k++)
			;
		if (x->stamp[h] != x->stamps) {
			x->stamp[h] = x->stamps;
			x->number[h] = x->alike ? hosts++ : h;
		}
		buf_int(&b, x->number[h]);
		buf_putc(&b, '*');
		buf_int(&b, k - i);
		buf_putc(&b, ' ');
	}
	Group *g = map_get(&x->group, buf_str(&b));
	if (!g) {
		g = NEW(x->a, Group);
		*g = (Group){ sum_model(x->a, p->c, device, n), (int)x->group.n,
			arena_dup(x->a, device, sizeof *device * (size_t)n), { { 0 } } };
		map_put(&x->group, buf_str(&b), g);
	}
	buf_free(&b);
	return g;
}

static SimJoin join_of(const Group *g, SumBy by, double bytes)
{
	static const SimJoinKind kind[] = { [SUM_RING] = SIM_RING,
		[SUM_DOUBLING] = SIM_DOUBLING,
		[SUM_HALVING] = SIM_HALVING,
		[SUM_PAIRWISE] = SIM_PAIRWISE,
		[SUM_HOSTS] = SIM_HOSTS,
		[SUM_EVERYONE] = SIM_RING };

	return (SimJoin){ .kind = kind[by],
		.bytes = (int64_t)bytes,
		.n = g->model.n,
		.always = by == SUM_RING,
		.hosts = by == SUM_HOSTS ? &g->model.hosts : NULL };
}

/* Seconds that the simulator gives a sum that is alone, less what rounding of parts may make. */
static double least_of(const PlanModel *p, Group *g, SumBy by, double bytes)
{
	double *line = g->least[by];

	if (!(line[0] > 0 || line[1] > 0)) { /* without a latency the first is 0 */
		double t[2];
		for (int i = 0; i < 2; i++) {
			SimJoin j = join_of(g, by, LINE * (i + 1.0));
			j.kind = by == SUM_EVERYONE ? SIM_GATHER : j.kind; /* to all at once, whatever its size */
			t[i] = ports_alone(p->c, g->device, j);
		}
		line[1] = (t[1] - t[0]) / LINE;
		line[0] = t[0] - line[1] * LINE;
	}
	return 0.999 * (line[0] + line[1] * bytes);
}

/* ---- stages ---- */

/* What the backward of the stage makes when; seconds of all of it. */
static double ready_of(const PlanModel *p, const int *stage, int s, int class, const bool *served, SumReady *r, int *n)
{
	double t = 0;

	*n = 0;
	for (int i = 0; i < p->ngrad; i++) {
		const PlanGrad *g = &p->grad[i];
		if (stage[g->layer] != s)
			continue;
		t += g->time[class];
		if (g->joined && g->weight >= 0 && plan_stage_with(&p->weight[g->weight], stage) == s)
			continue;
		if (g->bytes > 0 && !(served && g->weight >= 0 && served[g->weight]))
			r[(*n)++] = (SumReady){ t, g->bytes };
	}
	return t;
}

static StageSums *make(
	const PlanModel *p, Group *g, const int *stage, int s, int class, const bool *served, bool early, bool beside)
{
	SumReady *r = p->sums->ready;
	StageSums *x = NEW(p->sums->a, StageSums);
	double bytes = 0;
	int n;

	const double time = ready_of(p, stage, s, class, served, r, &n);
	const double limit = early ? sum_limit(&g->model, &p->rule, r, n, beside) : 0;
	*x = (StageSums){ .buckets = limit > 0, .sum = NEWN(p->sums->a, StageSum, limit > 0 ? n : 1) };
	for (int i = 0; i < n; i++) {
		bytes += r[i].bytes;
		if (i < n - 1 && (limit <= 0 || bytes < limit))
			continue;
		double wire;
		const SumBy by = sum_choice(&g->model, &p->rule, bytes, &wire);
		StageSum *q = &x->sum[x->n++];
		*q = (StageSum){ join_of(g, by, wire), least_of(p, g, by, wire) };
		q->join.bucket = limit > 0;
		q->join.ready = limit > 0 ? time > 0 ? r[i].ready / time : 1 : 0;
		bytes = 0;
	}
	return x;
}

/* Whether a device has several stages. */
static bool has_company(const PlanModel *p, const Trial *t, int device)
{
	int stages = 0;

	if (schedule_row(p->played)->place == PLACED_OWN)
		return false;
	for (int r = 0; r < t->ndevice; r++)
		stages += t->device[r] == device;
	return stages > 1;
}

const StageSums *trial_sums(const PlanModel *p, const Trial *t, int s, const int *device, const int *stage, bool early)
{
	static const StageSums none;
	struct SumCache *x = p->sums;
	char key[100];

	if (t->replicas[s] < 2)
		return &none;
	Group *g = group_of(p, device, t->replicas[s]);
	early &= p->rule.early;
	const bool beside = has_company(p, t, device[0]);
	snprintf(key, sizeof key, "%d:%d %d %d %d %d %lld", s ? t->end[s - 1] : -1, t->end[s], g->number,
		p->class_of[device[0]], early, beside, p->servers ? (long long)t->micro : 0);
	StageSums *known = map_get(&x->stage, key);
	if (!known) {
		Arena *a = arena_new();
		known = make(
			p, g, stage, s, p->class_of[device[0]], trial_served(a, p, t, s, device, stage), early, beside);
		arena_free(a);
		map_put(&x->stage, key, known);
	}
	return known;
}
