/* schedule: the order of actions on every device. Reads the stages' replicas and their Send nodes (which stages
 * exchange data); writes Module.schedule, Stage.inflight and
 * Stage.entries.
 *
 * Microbatch g of M belongs to replica g * R / M of a stage with R replicas; to g mod R where plan_in_turn says so, but not
 * for --reproducible, whose sums are trees over blocks. All devices do their microbatches in one global order (deal.c). Where
 * a microbatch is sliced over replicas (Module.grains), so it is with the grains of each, one microbatch after the other.
 * Each family file orders forwards and backwards within that; both are checked by schedule_verify. */
#include <string.h>
#include "passes/common/plan.h"
#include "csv.h"
#include "sched.h"
#include "passes/memory/memory.h"
#include "placement.h"
#include "schedule.h"

/* Edge s -> t: tensors forward; backward says that gradients come back from t to s. */
static StageEdge *edge_between(Sched *c, Arena *a, int from, int to, int *cap)
{
	for (int i = 0; i < c->nedge; i++)
		if (c->edge[i].from == from && c->edge[i].to == to)
			return &c->edge[i];
	PUSH(a, c->edge, c->nedge, *cap) = (StageEdge){ from, to, false, false };
	return &c->edge[c->nedge - 1];
}

static void find_edges(Sched *c, const Module *m)
{
	int cap = 0;

	for (int s = 0; s < m->nstage; s++) {
		for (const Node *n = m->stage[s]->forward->first; n; n = n->next)
			if (n->op == OP_Send)
				edge_between(c, c->a, s, (int)attr_int(n, "to"), &cap)->forward = true;
		for (const Node *n = m->stage[s]->backward->first; n; n = n->next)
			if (n->op == OP_Send)
				edge_between(c, c->a, (int)attr_int(n, "to"), s, &cap)->backward = true;
	}
}

/* ---- who does what ---- */

static void give_grains(Sched *c, const int *first_rank, int micro)
{
	Schedule *s = c->s;
	const bool listed = schedule_row(c->spec)->param == PARAM_FILE;
	const bool in_turn =
		listed ? csv_of(c->spec)->in_turn : !c->grains && !c->blocks && plan_in_turn(s->replicas, s->nstage);

	for (int t = 0; t < s->nstage; t++) {
		s->device[t] = NEWN(c->a, int, s->replicas[t]);
		s->replica_of[t] = NEWN(c->a, int, micro);
		for (int g = 0; g < micro; g++)
			s->replica_of[t][g] = plan_replica_of(g, s->replicas[t], micro, c->grains, in_turn);
	}
	const int *order = deal_order(c, micro, in_turn);
	for (int t = 0; t < s->nstage; t++) {
		bool first = true;
		for (int r = 0; r < s->replicas[t]; r++) {
			const int rank = s->device[t][r] = first_rank[t] + r;
			c->chunk[rank][c->nchunk[rank]++] = t;
			first = first && c->nchunk[rank] == 1;
			if (first)
				c->stage[rank] = t;
		}
		if (first) /* a later stage of the same devices has the grains of the first */
			deal_out(c, t, order, micro);
	}
}

static void start(Sched *c, int nstage, const int *replicas, int micro, const Placement *at)
{
	Arena *a = c->a;
	Schedule *s = c->s = NEW(a, Schedule);

	s->kind = c->spec.kind;
	s->name = schedule_row(c->spec)->param == PARAM_FILE ? schedule_name(s->kind) : schedule_str(a, c->spec);
	s->nstage = nstage;
	s->nmicro = micro;
	s->replicas = NEWN(a, int, nstage);
	s->device = NEWN(a, int *, nstage);
	s->replica_of = NEWN(a, int *, nstage);
	s->inflight = NEWN(a, int, nstage);
	s->entries = NEWN(a, int, nstage);
	for (int t = 0; t < nstage; t++)
		s->replicas[t] = replicas[t];
	s->ndevice = at->ndevice;
	s->dev = NEWN(a, DeviceSchedule, s->ndevice);
	c->stage = NEWN(a, int, s->ndevice);
	c->grain = NEWN(a, int *, s->ndevice);
	c->ngrain = NEWN(a, int, s->ndevice);
	c->nchunk = NEWN(a, int, s->ndevice);
	c->chunk = NEWN(a, int *, s->ndevice);
	for (int r = 0; r < s->ndevice; r++)
		c->chunk[r] = NEWN(a, int, nstage);
	give_grains(c, at->rank, micro);
}

/* Fills c->s. False after what the schedule has against these stages or microbatches. */
static bool make(Sched *c, int nstage, const int *replicas, int micro, Diag *d)
{
	static bool (*const fills[SCHEDULES])(Sched *, Diag *) = {
#define SCHEDULE( \
	kind, name, param, letter, meaning, example, chunks, place, backward, flow, flight, first, last, fill, ...) \
	[SCHEDULE_##kind] = fill,
#include "ir/schedules.def"
#undef SCHEDULE
	};
	Placement at;

	if (c->spec.kind == SCHEDULE_AUTO)
		c->spec.kind = SCHEDULE_PLAIN;
	if (c->late > 1)
		c->spec = (ScheduleSpec){ .kind = SCHEDULE_PIPE_SGD, .n = c->late };
	if (!plan_place(c->a, c->spec, nstage, replicas, &at, d))
		return false;
	start(c, nstage, replicas, micro, &at);
	return fills[c->spec.kind](c, d);
}

static Schedule *make_policy_a(Sched *c, int nstage, const int *replicas, int micro, Diag *d)
{
	if (c->spec.kind == SCHEDULE_DAPPLE && !c->spec.n)
		c->spec.n = 'A';
	return make(c, nstage, replicas, micro, d) ? c->s : NULL;
}

Schedule *schedule_make_by(Arena *a, ScheduleSpec spec, VersionRule rule, int nstage, const int *replicas, int micro,
	bool blocks, StageEdge *edge, int nedge, Diag *d)
{
	Sched c = { .a = a, .edge = edge, .nedge = nedge, .blocks = blocks, .rule = rule, .spec = spec };

	return make_policy_a(&c, nstage, replicas, micro, d);
}

Schedule *schedule_make(Arena *a, ScheduleSpec spec, int nstage, const int *replicas, int micro, bool blocks,
	StageEdge *edge, int nedge, const ScheduleTimes *times, Diag *d)
{
	Sched c = { .a = a,
		.edge = edge,
		.nedge = nedge,
		.blocks = blocks,
		.rule = VERSION_STASH,
		.spec = spec,
		.times = times,
		.most = times ? times->most : NULL };

	return make_policy_a(&c, nstage, replicas, micro, d);
}

/* For the module as it is. */
static bool make_for(Sched *c, Module *m, PassCx *cx)
{
	int *replicas = NEWN(cx->scratch, int, m->nstage);

	for (int t = 0; t < m->nstage; t++)
		replicas[t] = m->stage[t]->replicas;
	if (!make(c, m->nstage, replicas, (int)m->microbatches, cx->d))
		return false;
	m->schedule = c->s;
	for (int t = 0; t < m->nstage; t++) {
		m->stage[t]->inflight = c->s->inflight[t];
		m->stage[t]->entries = c->s->entries[t];
	}
	return true;
}

/* 'A' or 'B': the one that was asked for, here or by --warmup-policy; '*': the faster one. */
static char policy_asked(const Sched *c, const PassCx *cx)
{
	const WarmupPolicy policy = cx->train ? cx->train->plan.warmup_policy : WARMUP_AUTO;

	if (c->spec.n)
		return (char)c->spec.n;
	return policy == WARMUP_A ? 'A' : policy == WARMUP_B ? 'B' : '*';
}

static bool make_policy(Sched *c, Module *m, PassCx *cx, char policy)
{
	c->spec.n = policy;
	return make_for(c, m, cx);
}

/* Makes the schedule by one of DAPPLE's policies; what was weighed goes to --explain. */
static bool choose_policy(Sched *c, Module *m, PassCx *cx, bool limited)
{
	char policy = policy_asked(c, cx);
	double a = 0, b = 0;

	make_policy(c, m, cx, 'A');
	if (limited && !(c->most = dapple_memory(m, cx)))
		return false;
	if (policy == '*' && cx->cluster) {
		Sched ca = *c, cb = *c;
		make_policy(&ca, m, cx, 'A');
		make_policy(&cb, m, cx, 'B');
		if ((a = schedule_seconds(m, cx, ca.s)) < 0 || (b = schedule_seconds(m, cx, cb.s)) < 0)
			return false;
	}
	if (policy == '*')
		policy = b < 0.99 * a ? 'B' : 'A';
	make_policy(c, m, cx, policy);
	if (cx->explain && limited)
		dapple_explain(m, cx, c->s, c->most, a, b);
	return true;
}

/* An order that is played anew, with what memory holds. */
static bool make_fit(Sched *c, ScheduleTimes *times, Module *m, PassCx *cx)
{
	bool known = false;

	for (int t = 0; t < m->nstage && times && schedule_row(c->spec)->flight == FLIGHT_PLAYED; t++)
		known |= memory_of(m->stage[t], cx->cluster) > 0;
	if (!known)
		return true;
	if (!pass_library(m, cx))
		return false;
	if (!schedule_times_room(times, m, cx))
		return true;
	c->most = times->most;
	return make_for(c, m, cx);
}

/* Takes a receive from the stages of each device that has no memory for it. False: nothing had to be taken. */
static bool fewer_ahead(Module *m, PassCx *cx, int *ahead)
{
	bool fewer = false;

	for (int t = 0; t < m->nstage; t++) {
		const Stage *s = m->stage[t];
		const int64_t limit = memory_of(s, cx->cluster);
		bool more = false;

		for (int k = 0; k < m->nstage; k++)
			more |= m->stage[k]->rank == s->rank && m->stage[k]->entries > m->stage[k]->inflight;
		if (!more || !limit || memplan_device(m, cx, s) <= limit)
			continue;
		fewer = true;
		for (int k = 0; k < m->nstage; k++)
			if (m->stage[k]->rank == s->rank) {
				Stage *of = m->stage[k];
				ahead[k] = of->entries > of->inflight ? of->entries - of->inflight - 1 : 0;
				of->entries = of->inflight + ahead[k];
			}
	}
	return fewer;
}

/* Receives are posted ahead where memory is left. */
static bool make_room(Sched *c, Module *m, PassCx *cx, int *ahead)
{
	bool limited = false;

	for (int t = 0; t < m->nstage; t++)
		limited |= m->stage[t]->entries > m->stage[t]->inflight && memory_of(m->stage[t], cx->cluster) > 0;
	if (!limited)
		return true;
	if (!pass_library(m, cx))
		return false;
	while (fewer_ahead(m, cx, ahead))
		if (!make_for(c, m, cx))
			return false;
	return true;
}

VersionRule schedule_rule(const Training *t)
{
	if (t && t->plan.vertical_sync)
		return VERSION_VERTICAL;
	return t && t->plan.stash == STASH_NONE ? VERSION_NEWEST : VERSION_STASH;
}

bool schedule_module(Module *m, PassCx *cx, bool limited)
{
	ScheduleTimes *times = schedule_times_of(m->arena, m, cx);
	Sched c = { .a = m->arena,
		.spec = schedule_asked(m, cx),
		.grains = (int)m->grains,
		.blocks = cx->train && cx->train->loop.reproducible,
		.rule = schedule_rule(cx->train),
		.late = cx->train ? (int)cx->train->plan.pipe_sgd : 0,
		.times = times };
	int *ahead = NEWN(m->arena, int, m->nstage + 1);

	if (!m->nstage)
		return diag_error(cx->d, FILELOC(m->file), 410, "schedule needs stages; run split first");
	if (m->microbatches < 1)
		m->microbatches = 1;
	if (!async_check(m, cx, c.spec))
		return false;
	find_edges(&c, m);
	for (int t = 0; t < m->nstage; t++)
		ahead[t] = limited ? RECEIVE_AHEAD : 0;
	c.ahead = ahead;
	if (!(c.spec.kind == SCHEDULE_DAPPLE ? choose_policy(&c, m, cx, limited) : make_for(&c, m, cx)))
		return false;
	if (limited && !make_fit(&c, times, m, cx))
		return false;
	if (limited && !make_room(&c, m, cx, ahead))
		return false;
	if (c.s->async &&
		!m->stage[m->nstage - 1]->backward->first) /* who counts the labels tells the others so in a backward */
		return diag_error(cx->d, NOLOC, 501,
			"schedule %s: of the plan's %d stages the last computes nothing but the value of "
			"the loss and has no backward; use fewer stages (--plan)",
			c.s->name, m->nstage);
	for (int t = 0; t < m->nstage; t++)
		for (Node *n = m->stage[t]->update->first; n && c.s->robin; n = n->next)
			if (n->op == OP_Stack) /* rows of a round */
				optab[OP_Stack]->shape(n, cx->d);
	const Csv *listed = cx->train ? cx->train->plan.schedule.csv : NULL;
	if (limited && listed && listed->flow && !csv_flow_same(listed, c.s, cx->d))
		return false;
	return schedule_verify(c.s, c.edge, c.nedge, cx->d);
}

bool schedule_meets(const Module *m)
{
	Arena *a = arena_new();
	Diag silent = { .out = stderr, .errors = 1, .scratch = a };
	Schedule s = *m->schedule;
	Sched c = { .a = a, .s = &s };

	find_edges(&c, m);
	const bool ok = schedule_verify(&s, c.edge, c.nedge, &silent);
	arena_free(a);
	return ok;
}

bool pass_schedule(Module *m, PassCx *cx) { return schedule_module(m, cx, true); }
