/* The first step of the distributed program beside that of one device, tensor by tensor in the order in which the step makes
 * them: what crosses stages and the gradients of microbatches as the one device makes them, then the sums of gradients from
 * the last layer to the first, their norm, the updated parameters. The first that differs is named, with what made it. Of an
 * asynchronous plan every step, beside those that one device plays one after another by the rule of the plan (Rule). */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "frontend/driver/check/verify_told.h"

enum { MOST_GRADIENTS = 1 << 30 }; /* bytes of the gradients of microbatches; beyond, their sums alone are told */

/* ---- what the programs tell ---- */

static void tell(Compile *c, Map *told, const Graph *g, OpKind op)
{
	for (const Node *n = g ? g->first : NULL; n; n = n->next)
		if (n->op == op && n->in[0]->kind == VAL_NODE) {
			map_put(told, n->in[0]->name, c);
			map_put(told, slack_name_in_f32(c->a, n->in[0]->name), c);
		}
}

void verify_tell(Compile *c, const Rule *r)
{
	Map *told = NEW(c->a, Map);
	const int64_t steps = r ? verify_steps(c, r) : 1;
	int64_t bytes = 0;

	map_init(told, c->a, true);
	for (int i = 0; i < c->m->nparam; i++)
		bytes += c->m->param[i]->param->kind == PARAM_WEIGHT ? type_bytes(&c->m->param[i]->type) : 0;
	for (int i = 0; i < c->m->nstage; i++) {
		const Stage *s = c->m->stage[i];
		tell(c, told, s->forward, OP_Send);
		tell(c, told, s->backward, OP_Send);
		if (bytes * c->m->microbatches * steps <= MOST_GRADIENTS)
			tell(c, told, s->update, OP_Accumulate);
	}
	c->o->t.target.told = told;
}

/* ---- what they told ---- */

static bool read_rank(Compile *c, Tells *to, const char *dir, int rank, int member)
{
	const char *path = arena_printf(c->a, member ? "%s/run/rank%d.%d" : "%s/run/rank%d", dir, rank, member);
	size_t size, at = 0;
	const char *text = file_read(path, &size);

	if (!text)
		return diag_error(c->d, NOLOC, 803, "%s is missing", path);
	while (at + sizeof(first_record) <= size) {
		Told t = { .rank = rank, .member = member };

		memcpy(&t.r, text + at, sizeof t.r);
		at += sizeof t.r;
		t.micro = t.r.mb < 0 ? t.r.step : t.r.step * to->per_step + t.r.mb;
		t.name = arena_strn(c->a, text + at, (size_t)t.r.name);
		t.data = text + at + t.r.name;
		at += (size_t)t.r.name + (size_t)(t.r.n * t.r.size);
		PUSH(c->a, to->v, to->n, to->cap) = t;
	}
	return at == size || diag_error(c->d, NOLOC, 803, "%s is cut short", path);
}

/* ---- two of them ---- */

typedef struct Wrong {
	int64_t first, n; /* the first element that differs; how many do */
	double far, ours, theirs;
} Wrong;

/* x of the distributed run lies within y of the one device. slack: what elements may differ by; negative: not a bit. */
static Wrong differ(const Told *x, const Told *y, const Stride *most, double slack)
{
	const int64_t from = x->r.at - y->r.at;
	Wrong w = { 0 };

	for (int64_t i = 0; i < x->r.n; i++) {
		const double a = told_element(x, i), b = told_element(y, from + i);
		const bool same = slack < 0 ? memcmp(&a, &b, sizeof a) == 0
		                            : a == b || fabs(a - b) <= fmax(slack, slack_stride(most, from + i)) ||
		                                      (isnan(a) && isnan(b));

		if (same)
			continue;
		if (!w.n++)
			w = (Wrong){ .first = x->r.at + i, .n = 1, .ours = a, .theirs = b };
		w.far = fmax(w.far, fabs(a - b));
	}
	return w;
}

/* ---- names ---- */

static const Stage *stage_of(const Module *m, int rank)
{
	const Stage *s = m->stage[0];

	for (int i = 0; i < m->nstage; i++)
		if (m->stage[i]->rank <= rank && rank < m->stage[i]->rank + m->stage[i]->replicas)
			s = m->stage[i];
	return s;
}

/* The value that a node of the stage makes, or gets. */
static const Value *value_in(const Stage *s, const char *name, bool received)
{
	Graph *g[4];
	const int n = stage_graphs(s, g);

	for (int k = 0; k < n; k++)
		for (const Node *x = g[k]->first; x; x = x->next)
			for (int o = 0; (x->op == OP_Recv) == received && o < x->nout; o++)
				if (x->out[o] && strcmp(x->out[o]->name, name) == 0)
					return x->out[o];
	return NULL;
}

static const Value *value_of(const Module *m, const char *name)
{
	const Value *v = NULL;

	for (int i = 0; i < m->nstage && !v; i++)
		v = value_in(m->stage[i], name, false);
	return v;
}

static const Value *param_of(const Module *m, const char *name)
{
	for (int i = 0; i < m->nparam; i++) {
		const char *onnx = m->param[i]->param->onnx_name;

		if (strcmp(onnx ? onnx : m->param[i]->name, name) == 0)
			return m->param[i];
	}
	return NULL;
}

static bool has_param(const Stage *s, const Value *v)
{
	for (int i = 0; i < s->nparam; i++)
		if (s->param[i] == v)
			return true;
	return false;
}

/* Which of the stages of its device it belongs to. */
static const Stage *home_of(const Step *s, const Told *t)
{
	const Module *m = s->c->m;
	const Value *param = t->r.kind >= FIRST_GRADIENT ? param_of(m, t->name) : NULL;
	const char *name = t->r.kind == FIRST_LOSS ? m->loss->name : t->name;

	for (int i = 0; i < m->nstage; i++) {
		const Stage *x = m->stage[i];

		if (x->rank <= t->rank && t->rank < x->rank + x->replicas &&
			(param ? has_param(x, param) : value_in(x, name, t->r.kind == FIRST_RECEIVED) != NULL))
			return x;
	}
	return stage_of(m, t->rank);
}

/* "node #2 '/m/Relu' Relu": what made the tensor; of a parameter, what made its gradient. */
static const char *origin(const Step *s, const Told *t)
{
	const Module *m = s->c->m;
	const Value *v = t->r.kind == FIRST_LOSS      ? m->loss
	                 : t->r.kind < FIRST_GRADIENT ? value_of(m, t->name)
	                                              : param_of(m, t->name);

	if (v && t->r.kind >= FIRST_GRADIENT) {
		const char *d = arena_printf(s->c->a, "d.%s", v->name);
		const Value *whole = value_of(m, d);

		v = whole ? whole : value_of(m, arena_printf(s->c->a, "%s.mine", d)); /* a part of it (passes/shard) */
	}
	const Loc *l = v && v->def ? &v->def->loc : NULL;
	if (!l || l->node < 0)
		return "";
	return arena_printf(
		s->c->a, "node #%d '%s'%s%s, ", l->node, l->name ? l->name : "", l->op ? " " : "", l->op ? l->op : "");
}

/* What added the gradients of a parameter. */
static const char *sum_of(const Step *s, const Told *t)
{
	const Value *v = param_of(s->c->m, t->name);
	const Stage *stage = stage_of(s->c->m, t->rank);

	if (stage->server)
		return "summed by the server on";
	if (v && v->param->sync == SYNC_ALLGATHERV)
		return "summed by SYNC (AllGatherv) on";
	return stage->replicas > 1 ? "summed by SYNC (AllReduce) on" : "added over the microbatches on";
}

static const char *action_of(const Step *s, const Told *t)
{
	switch (t->r.kind) {
	case FIRST_RECEIVED: return arena_printf(s->c->a, "received by %s%d on", t->r.action, t->r.mb);
	case FIRST_GRADIENT: return sum_of(s, t);
	case FIRST_NORM: return "joined before UPDATE on";
	case FIRST_UPDATED: return "written by UPDATE on";
	default: return arena_printf(s->c->a, "made by %s%d on", t->r.action, t->r.mb);
	}
}

static const char *called(const Step *s, const Told *t)
{
	Arena *a = s->c->a;

	switch (t->r.kind) {
	case FIRST_LOSS: return arena_printf(a, "the loss of microbatch %d", t->r.mb);
	case FIRST_GRADIENT: return arena_printf(a, "the gradient of '%s'", t->name);
	case FIRST_NORM: return "the norm of the gradient";
	case FIRST_UPDATED: return arena_printf(a, "the updated '%s'", t->name);
	default: return arena_printf(a, "'%s' of microbatch %d", t->name, t->r.mb);
	}
}

/* "step 3": of an asynchronous plan, whose stages may make one update of several steps, "update 1" of what that has. */
static const char *when(const Step *s, const Told *t)
{
	return arena_printf(s->c->a, "%s %lld", s->rule && t->r.mb < 0 ? "update" : "step", (long long)t->r.step);
}

/* Told by the action that made x, or by x: the version of its weights is another than that of the rule, which is in *want. */
static bool astray(const Step *s, const Told *v, int64_t *want)
{
	const Stage *stage = stage_of(s->c->m, v->rank);
	const bool backward = *v->name == 'B';

	*want = 0;
	if (v->r.kind != FIRST_VERSION || s->rule->servers || (backward && !stage->versions))
		return false;
	*want = verify_version(s->rule, stage->id, v->r.step, backward) - verify_began(s->rule, v->r.step);
	return told_element(v, 0) != (double)*want;
}

static const char *versions_of(const Step *s, const Told *x)
{
	for (int i = 0; s->rule && i < s->many.n; i++) {
		const Told *v = &s->many.v[i];
		int64_t want;

		if (v->rank == x->rank && v->micro == x->micro && !strcmp(v->name, x->r.action) && astray(s, v, &want))
			return arena_printf(s->c->a, ", which reads version %.0f of its weights, by %s version %lld",
				told_element(v, 0), s->rule->name, (long long)want);
	}
	return "";
}

static bool report(const Step *s, const Told *x, const Wrong *w)
{
	const Stage *stage = home_of(s, x);

	return diag_error(s->c->d, NOLOC, 805,
		"%s: %s differs first: element %lld is %.9g, on one device %.9g; %lld of %lld differ, by %.3g at most; %s%s "
		"device %d (%s %d)%s",
		when(s, x), called(s, x), (long long)w->first, w->ours, w->theirs, (long long)w->n, (long long)x->r.n,
		w->far, origin(s, x), action_of(s, x), first_task(s->c->m, x->rank) + x->member,
		stage->server ? "server" : "stage", stage->id, versions_of(s, x));
}

/* ---- in order ---- */

static bool same_tensor(const Told *x, const Told *y)
{
	const int xk = x->r.kind == FIRST_RECEIVED ? FIRST_VALUE : x->r.kind;

	return xk == (int)y->r.kind && x->micro == y->micro && x->r.size == y->r.size &&
	       strcmp(x->name, y->name) == 0 && x->r.at >= y->r.at && x->r.at + x->r.n <= y->r.at + y->r.n;
}

/* Nobody told of gradient y, which is an update of one device: was there a later one? */
static bool not_missing(const Step *s, const Told *y)
{
	for (int i = 0; s->rule && y->r.kind == FIRST_GRADIENT && i < s->many.n; i++) {
		const Told *x = &s->many.v[i];
		const Stage *stage = stage_of(s->c->m, x->rank);

		if (x->r.kind == FIRST_GRADIENT && x->micro > y->micro && strcmp(x->name, y->name) == 0)
			return diag_error(s->c->d, NOLOC, 805,
				"%s: %s is missing, and that of update %lld is there, %s device %d (%s %d)", when(s, y),
				called(s, y), (long long)x->micro, action_of(s, x),
				first_task(s->c->m, x->rank) + x->member, stage->server ? "server" : "stage",
				stage->id);
	}
	return true;
}

/* All copies of tensor y, those that made it before those that got it. */
static bool agrees(const Step *s, const Told *y)
{
	const double slack = slack_of(s, y);
	const Stride most = slack_strides(s, y);
	const Told *last = NULL;

	for (int received = 0; received < 2; received++)
		for (int i = 0; i < s->many.n; i++) {
			Told *x = &s->many.v[i];
			if (x->used || (x->r.kind == FIRST_RECEIVED) != received || !same_tensor(x, y))
				continue;
			if (y->r.kind == FIRST_LOSS && last && (x->rank != last->rank || x->member == last->member))
				continue; /* a microbatch may have several: one of each member */
			const Wrong w = differ(x, y, &most, slack);
			x->used = true;
			last = x;
			if (w.n)
				return report(s, x, &w);
		}
	return last || not_missing(s, y);
}

/* What one device told from its record `from` on and before `end`: of a step and its updates. */
static bool in_order(const Step *s, int from, int end)
{
	const Tells *one = &s->one;

	for (int i = from; i < end; i++)
		if (one->v[i].r.kind <= FIRST_LOSS && !agrees(s, &one->v[i]))
			return false;
	for (int i = end - 1; i >= from; i--)
		if (one->v[i].r.kind == FIRST_GRADIENT && !agrees(s, &one->v[i]))
			return false;
	for (first_kind k = FIRST_NORM; k <= FIRST_UPDATED; k++)
		for (int i = from; i < end; i++)
			if (one->v[i].r.kind == (int)k && !verify_skips(s->rule, s->c->m, one->v[i].name) &&
				!agrees(s, &one->v[i]))
				return false;
	return true;
}

static bool step_by_step(const Step *s)
{
	const Tells *one = &s->one;

	for (int from = 0, end; from < one->n; from = end) {
		for (end = from + 1; end < one->n; end++)
			if (one->v[end].r.mb >= 0 && one->v[end - 1].r.mb < 0)
				break;
		if (!in_order(s, from, end))
			return false;
	}
	return true;
}

/* Of an asynchronous plan: updates that one device has not, and actions that say of themselves that they read other weights. */
static bool nothing_else(const Step *s)
{
	for (int i = 0; s->rule && i < s->many.n; i++) {
		const Told *x = &s->many.v[i];
		const Stage *stage = home_of(s, x);
		int64_t want;

		if ((x->r.kind == FIRST_GRADIENT || x->r.kind == FIRST_UPDATED) && !x->used &&
			!verify_skips(s->rule, s->c->m, x->name))
			return diag_error(s->c->d, NOLOC, 805,
				"update %lld: %s is one more than on one device, %s device %d (%s %d)",
				(long long)x->r.step, called(s, x), action_of(s, x),
				first_task(s->c->m, x->rank) + x->member, stage->server ? "server" : "stage",
				stage->id);
		if (astray(s, x, &want))
			return diag_error(s->c->d, NOLOC, 805,
				"step %lld: %s%d on device %d (stage %d) reads version %.0f of its weights, by %s version %lld",
				(long long)x->r.step, x->name, x->r.mb, first_task(s->c->m, x->rank), stage->id,
				told_element(x, 0), s->rule->name, (long long)want);
	}
	return true;
}

bool verify_first_step(
	Compile *c, const Rule *r, const char *many, const char *one, const char *wide, bool exact, Slacks *later)
{
	Step s = { .c = c, .rule = r, .exact = exact };
	int ranks = 0;

	for (int i = 0; i < c->m->nstage; i++) {
		const int end = c->m->stage[i]->rank + c->m->stage[i]->replicas;
		ranks = end > ranks ? end : ranks;
	}
	s.many.per_step = c->m->microbatches;
	s.one.per_step = s.many.per_step / (r && r->servers ? r->replicas[0] : 1);
	for (int k = 0; k < ranks; k++)
		for (int i = 0; i < first_task(c->m, k + 1) - first_task(c->m, k); i++)
			if (!read_rank(c, &s.many, many, k, i))
				return false;
	if (!read_rank(c, &s.one, one, 0, 0))
		return false;
	s.wide.per_step = s.one.per_step;
	if (wide && !read_rank(c, &s.wide, wide, 0, 0))
		return false;
	slack_measure(&s);
	slack_later(&s, later);
	return step_by_step(&s) && nothing_else(&s);
}
