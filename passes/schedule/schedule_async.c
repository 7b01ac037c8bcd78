/* Asynchronous pipelines: nothing is flushed, every stage goes on from step to step. Two families.
 *
 * PipeDream (section 3.3): a step is one minibatch, which is one microbatch here, and every stage updates after its
 * backward. A device of stage s has at most
 *     n_s = ceil( (R_s + R_s+1 + ...) / R_s )
 * minibatches between forward and backward: NOAM at the first stage, 1 at the last. Minibatch t belongs to replica
 * t mod R_s (1F1B-RR). A turn of a device is F(t), B(t - (n_s - 1) R_s), then the sum over the replicas' R_s
 * minibatches of that round, and the update. Plain model parallelism is n_s = 1 everywhere.
 *
 * The two policies that the section rejects, "always prioritizes forward work" and "always prioritizing backward work",
 * as orders that stand before the run as 1F1B does. The paper bounds neither; without a bound the first never updates.
 *     always-forward:N  a device begins no backward while one of the N minibatches that each input replica may have in
 *                       flight has a forward to come: n_s = N everywhere. N is NOAM where nothing is said.
 *     always-backward   the input stage admits NOAM minibatches for each of its replicas, and nothing more while one
 *                       of them owes its backward: 1F1B of a round, whose end leaves every device without work.
 *
 * PipeDream-2BW (Narayanan et al., section 3.1): a step has M microbatches and one update, of delay 1 in all stages.
 * A turn is the step's microbatches, each F(k) followed by B(k - (n_s - 1)), the first of which end the step before.
 *
 * What the first and the last turns leave out makes the start and the drain. The list of actions that is shown, proved
 * and simulated is the turns played as the program plays them. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include "placement.h"
#include "sched.h"
#include "schedule.h"

bool one_per_step(const Training *t) { return t && schedule_row(t->plan.schedule)->flow & FLOW_EACH; }

bool schedule_async(const Training *t) { return t && (t->plan.pipe_sgd > 1 || schedule_is_async(t->plan.schedule)); }

/* ---- what has no meaning ---- */

static bool refuse(const PassCx *cx, const char *why)
{
	return diag_error(cx->d, FILELOC(cx->train->file), 520, "%s", why);
}

static bool keeps_versions(const ScheduleRow *r) { return r->flow & FLOW_VERSIONS; }
static bool one_update_each(const ScheduleRow *r) { return r->flow & FLOW_ONE_UPDATE || !(r->flow & FLOW_ASYNC); }

static bool meaningful_flags(const PassCx *cx, ScheduleSpec spec)
{
	const Training *t = cx->train;
	const bool none = t->plan.stash == STASH_NONE;

	if ((none || t->plan.vertical_sync) && !keeps_versions(schedule_row(spec)))
		return refuse(cx, arena_printf(cx->scratch,
					  "%s is of --schedule %s: schedule %s keeps no versions that it could "
					  "choose from",
					  none ? "--stash none" : "--vertical-sync",
					  schedule_list(cx->scratch, keeps_versions), schedule_str(cx->scratch, spec)));
	if (none && t->plan.vertical_sync)
		return refuse(
			cx, "--vertical-sync reads older weights in every stage; with --stash none there are none");
	return true;
}

static int depth_of(const int *replicas, int nstage, int stage)
{
	int later = 0;

	for (int t = stage; t < nstage; t++)
		later += replicas[t];
	return (later + replicas[stage] - 1) / replicas[stage];
}

/* What a bound in minibatches of an input replica wants of the other stages' replicas. */
static const char *policy_refuses(Arena *a, ScheduleSpec spec, int nstage, const int *replicas)
{
	const char *name = schedule_str(a, spec);
	const int noam = depth_of(replicas, nstage, 0);

	for (int s = 0; s < nstage; s++) {
		if (spec.kind == SCHEDULE_ALWAYS_F && replicas[s] != replicas[0])
			return arena_printf(a,
				"schedule %s bounds the minibatches in flight by replica: stage 0 has %d, "
				"stage %d has %d; it needs as many replicas in every stage",
				name, replicas[0], s, replicas[s]);
		if (spec.kind == SCHEDULE_ALWAYS_B && noam * replicas[0] % replicas[s])
			return arena_printf(a,
				"schedule %s: a round is %d minibatches, %d for each replica of stage 0; "
				"they cannot be dealt evenly to the %d replicas of stage %d",
				name, noam * replicas[0], noam, replicas[s], s);
	}
	return NULL;
}

/* --pipe-sgd asks for older gradients, or may come to. */
static bool has_k(const Training *t) { return t->plan.pipe_sgd > 1 || t->plan.choose_pipe_sgd; }

static const char *k_of(Arena *a, const Training *t)
{
	return t->plan.choose_pipe_sgd ? "auto" : arena_printf(a, "%lld", (long long)t->plan.pipe_sgd);
}

const char *schedule_refuses(Arena *a, const Training *t, ScheduleSpec spec, int nstage, const int *replicas)
{
	for (int s = 1; s < nstage && t->plan.vertical_sync; s++)
		if (replicas[s] != replicas[0])
			return arena_printf(a,
				"--vertical-sync: stage 0 makes a version of %d minibatches, stage %d of "
				"%d; it needs as many replicas in every stage",
				replicas[0], s, replicas[s]);
	if (has_k(t) && nstage > 1)
		return arena_printf(a, "--pipe-sgd %s is of data parallelism: the plan must have one stage, not %d",
			k_of(a, t), nstage);
	for (int s = 0; s < nstage && spec.kind == SCHEDULE_MP; s++)
		if (replicas[s] > 1)
			return arena_printf(a,
				"schedule %s has one minibatch in flight: the %d replicas of stage %d would "
				"wait for one another",
				schedule_str(a, spec), replicas[s], s);
	return policy_refuses(a, spec, nstage, replicas);
}

static bool pipe_sgd_check(const PassCx *cx, ScheduleSpec spec)
{
	if (has_k(cx->train) && spec.kind != SCHEDULE_AUTO && spec.kind != SCHEDULE_PLAIN)
		return refuse(
			cx, arena_printf(cx->scratch,
				    "--pipe-sgd %s delays the gradients of whole steps, schedule %s those of stages: "
				    "together they have no formula",
				    k_of(cx->scratch, cx->train), schedule_str(cx->scratch, spec)));
	return true;
}

static int holders(const Module *m, const Value *v, int *last)
{
	int n = 0;

	for (int t = 0; t < m->nstage; t++)
		for (int i = 0; i < m->stage[t]->nparam; i++)
			if (m->stage[t]->param[i] == v) {
				n++;
				*last = t;
			}
	return n;
}

/* Where stages update on their own (FLOW_ONE_UPDATE is not set), a weight that two of them hold has no one value, and the norm
 * over all gradients is not one norm: a sum over stages would be of several steps. */
static bool across_stages(const Module *m, const PassCx *cx, ScheduleSpec spec)
{
	const char *name = schedule_str(cx->scratch, spec), *others = schedule_list(cx->scratch, one_update_each);
	int last = 0;

	for (int i = 0; i < m->nparam; i++)
		if (holders(m, m->param[i], &last) > 1 && !m->param[i]->param->frozen)
			return refuse(cx,
				arena_printf(cx->scratch,
					"schedule %s: parameter %s is trained in stage %d and in an earlier one, whose "
					"updates are of different steps; choose a plan that keeps it in one stage, or a schedule with one update for all "
					"stages (%s)",
					name, m->param[i]->name, last, others));
	for (int t = 0; t < m->nstage && m->nstage > 1; t++)
		for (const Node *n = m->stage[t]->update->first; n; n = n->next)
			if (n->op == OP_ClipNorm)
				return refuse(cx,
					arena_printf(cx->scratch,
						"schedule %s: the norm that %s is over the gradients of all stages, which "
						"never have those of one step at one time; choose a schedule with one update for all stages (%s)",
						name,
						cx->train->model.opt.clip_norm > 0 ? "clipping limits"
										   : "--gnorm tells",
						others));
	return true;
}

bool async_check(const Module *m, const PassCx *cx, ScheduleSpec spec)
{
	const char *name = schedule_str(cx->scratch, spec);
	int *replicas = NEWN(cx->scratch, int, m->nstage);

	for (int t = 0; t < m->nstage; t++)
		replicas[t] = m->stage[t]->replicas;
	if (!cx->train || !meaningful_flags(cx, spec))
		return !cx->train;
	if (!pipe_sgd_check(cx, spec))
		return false;
	const char *why = schedule_refuses(cx->scratch, cx->train, spec, m->nstage, replicas);
	if (why)
		return refuse(cx, why);
	if (!schedule_async(cx->train))
		return (!cx->train->plan.warmup_steps && !cx->train->plan.warmup_epochs) ||
		       refuse(cx,
			       arena_printf(cx->scratch,
				       "--warmup-steps and --warmup-epochs are of asynchronous schedules; schedule %s is flushed in "
				       "every step",
				       spec.kind ? name : schedule_name(SCHEDULE_PLAIN)));
	if (cx->train->target.amp.kind == AMP_FP16)
		return refuse(cx,
			arena_printf(cx->scratch,
				"schedule %s with --amp fp16: the scale of a step's loss is that of its update, "
				"and updates of other steps lie between; choose bf16, or a schedule that is flushed (%s)",
				name, schedule_name(SCHEDULE_PLAIN)));
	if (cx->train->target.amp.kind == AMP_FP8)
		return refuse(cx,
			arena_printf(cx->scratch,
				"schedule %s with --amp fp8: numbers of 8 bits have the scale of their step, and what a forward leaves is "
				"read behind updates of other steps; choose bf16, or a schedule that is flushed (%s)",
				name, schedule_name(SCHEDULE_PLAIN)));
	if (cx->train->plan.pipe_sgd < 2 && !one_update_each(schedule_row(spec)) && !across_stages(m, cx, spec))
		return false;
	return true;
}

/* ---- turns ---- */

static void turn(Sched *c, int rank, Turn t)
{
	DeviceSchedule *d = &c->s->dev[rank];

	PUSH(c->a, d->turn, d->nturn, d->capturn) = t;
	c->s->lag = t.lag > c->s->lag ? t.lag : c->s->lag;
}

/* k: of the device's microbatches, counted from the first of this turn's step; those of other turns lie before or
 * behind. `late`: steps by which the action as a whole is counted later. */
static Turn turn_of(const Sched *c, int rank, ActKind kind, int k, int every)
{
	const int n = c->ngrain[rank];
	const int back = k < 0 ? (-k + n - 1) / n : -(k / n), nth = k + back * n;

	return (Turn){ .kind = kind, .mb = c->grain[rank][nth], .nth = nth, .lag = back * every };
}

/* The backward of microbatch k, counted as in turn_of, and what follows it: where it is the last of its step, the update.
 * Where there are rounds, in the turns from..to of one. */
static void fill_backward(Sched *c, int rank, int k, int every, int from, int to)
{
	const int s = c->stage[rank];
	Turn b = turn_of(c, rank, ACT_B, k, every);

	b.from = from;
	b.to = to;
	turn(c, rank, b);
	b.kind = ACT_SEND_B;
	if (sched_edge(c, -1, s, false))
		turn(c, rank, b);
	if (b.nth != c->ngrain[rank] - 1)
		return;
	if (c->s->robin)
		b.lag += rank - c->s->device[s][0]; /* the round's first microbatch tells whether there is a round */
	b.kind = ACT_SYNC;
	turn(c, rank, b);
	b.kind = ACT_UPDATE;
	turn(c, rank, b);
}

/* One turn of a device: its microbatches of a step; another step's turn comes `every` steps later. */
static void fill_turn(Sched *c, int rank, int every)
{
	const int s = c->stage[rank], n = c->ngrain[rank], d = c->s->depth[s] - 1;
	const bool in = sched_edge(c, -1, s, true), out = sched_edge(c, s, -1, true),
		   back_in = sched_edge(c, s, -1, false);
	const int ahead = c->s->entries[s] - c->s->inflight[s], last = c->s->round ? c->s->round[s] - 1 : 0;

	for (int k = 0; k < n; k++) {
		Turn f[] = { turn_of(c, rank, ACT_RECV_F, k + ahead, every), turn_of(c, rank, ACT_F, k, every),
			turn_of(c, rank, ACT_SEND_F, k, every), turn_of(c, rank, ACT_RECV_B, k, every) };
		const bool has[] = { in, true, out, back_in };

		for (int i = 0; in && k == 0 && i < ahead; i++) {
			Turn t = turn_of(c, rank, ACT_RECV_F, i, every);
			t.once = true;
			t.to = last;
			turn(c, rank, t);
		}
		for (int i = 0; i < 4; i++) {
			f[i].to = last;
			if (has[i])
				turn(c, rank, f[i]);
		}
		fill_backward(c, rank, k - d, every, last ? d : 0, last);
	}
	for (int k = 1 - d; k <= 0 && c->s->round; k++) /* what is left of a round */
		fill_backward(c, rank, k, every, last, last);
}

/* ---- who does what ---- */

static int gcd(int a, int b) { return b ? gcd(b, a % b) : a; }

/* Enough to see the start, and the steady state until it repeats. */
int schedule_steps(ScheduleSpec spec, const int *replicas, int nstage)
{
	const ScheduleRow *row = schedule_row(spec);
	int period = 1, most = 0;

	if (!(row->flow & FLOW_ASYNC))
		return 1;
	if (!(row->flow & FLOW_EACH))
		return row->flow & FLOW_BESIDE ? spec.n + 2 : 4;
	for (int t = 0; t < nstage; t++) {
		const int depth = schedule_depth(spec, replicas, nstage, t, INT_MAX);
		period = period / gcd(period, replicas[t]) * replicas[t];
		most = depth * replicas[t] > most ? depth * replicas[t] : most;
		if (period > 240)
			period = 240;
	}
	if (spec.kind == SCHEDULE_ALWAYS_B)
		return 4 * depth_of(replicas, nstage, 0) * replicas[0];
	return most + (2 * period > most ? 2 * period : most);
}

static void versions(Schedule *s)
{
	for (int t = 0; t < s->nstage; t++)
		s->versions[t] = s->rule == VERSION_NEWEST     ? 1
		                 : s->rule == VERSION_PREVIOUS ? 2
		                 : s->rule == VERSION_VERTICAL ? s->depth[0]
		                                               : s->depth[t];
}

/* depth: of every stage; 0: by the formula above. */
static void begin(Sched *c, VersionRule rule, int depth)
{
	Schedule *s = c->s;

	s->async = true;
	s->rule = rule;
	s->per_step = s->nmicro;
	s->depth = NEWN(c->a, int, s->nstage);
	s->versions = NEWN(c->a, int, s->nstage);
	s->robin = rule != VERSION_PREVIOUS;
	for (int t = 0; t < s->nstage; t++) {
		s->depth[t] = depth ? depth : depth_of(s->replicas, s->nstage, t);
		s->inflight[t] = s->entries[t] = s->depth[t];
		if (depth != 1 && sched_edge(c, -1, t, true))
			s->entries[t] += c->ahead ? c->ahead[t] : RECEIVE_AHEAD;
	}
	versions(s);
}

/* Pipe-SGD (section 3.1): replicas of one stage, gradients summed in the background while the next steps compute. A turn
 * is a step on the newest weights, whose gradients are ready then, and the update with those of the step K - 1 before
 * (Algorithm 1): what is summed next waits for the links alone, not for that update. */
bool schedule_pipe_sgd(Sched *c, Diag *d)
{
	Schedule *s = c->s;
	const int k = c->spec.n;

	(void)d;
	begin(c, VERSION_STASH, 1);
	s->robin = false;
	s->late = k - 1;
	for (int r = 0; r < s->ndevice; r++) {
		for (int g = 0; g < c->ngrain[r]; g++) {
			turn(c, r, turn_of(c, r, ACT_F, g, 1));
			turn(c, r, turn_of(c, r, ACT_B, g, 1));
		}
		turn(c, r, (Turn){ .kind = ACT_SYNC, .mb = c->grain[r][0], .nth = c->ngrain[r] - 1 });
		turn(c, r, (Turn){ .kind = ACT_UPDATE, .mb = c->grain[r][0], .nth = c->ngrain[r] - 1, .lag = k - 1 });
	}
	schedule_flow(c->a, s, schedule_steps(c->spec, s->replicas, s->nstage));
	return true;
}

/* Minibatches in flight at every stage; 0: NOAM of each. */
static int bound_of(const Sched *c)
{
	switch (c->spec.kind) {
	case SCHEDULE_MP: return 1;
	case SCHEDULE_ALWAYS_F: return c->spec.n ? c->spec.n : depth_of(c->s->replicas, c->s->nstage, 0);
	default: return 0;
	}
}

/* A minibatch a step; each replica's turn has one. */
bool schedule_pipedream(Sched *c, Diag *d)
{
	Schedule *s = c->s;

	(void)d;
	begin(c, keeps_versions(schedule_row(c->spec)) ? c->rule : VERSION_STASH, bound_of(c));
	if (c->spec.kind == SCHEDULE_ALWAYS_B) {
		s->round = NEWN(c->a, int, s->nstage);
		for (int t = 0; t < s->nstage; t++)
			s->round[t] = s->depth[0] * s->replicas[0] / s->replicas[t];
	}
	for (int r = 0; r < s->ndevice; r++) {
		c->grain[r] = NEWN(c->a, int, 1);
		c->ngrain[r] = 1;
		fill_turn(c, r, s->replicas[c->stage[r]]);
	}
	schedule_flow(c->a, s, schedule_steps(c->spec, s->replicas, s->nstage));
	return true;
}

/* A device's microbatches of a step must fill its depth: else forwards would need what the update before has not made. */
bool schedule_2bw(Sched *c, Diag *d)
{
	begin(c, VERSION_PREVIOUS, 0);
	for (int t = 0; t < c->s->nstage; t++)
		if (c->s->per_step % c->s->replicas[t] || c->s->per_step / c->s->replicas[t] < c->s->depth[t])
			return diag_error(d, NOLOC, 520,
				"schedule %s: the %d microbatches of a step must be a multiple of the %d replicas of "
				"stage %d, and %d or more of each",
				c->s->name, c->s->per_step, c->s->replicas[t], t, c->s->depth[t]);
	for (int r = 0; r < c->s->ndevice; r++)
		fill_turn(c, r, 1);
	schedule_flow(c->a, c->s, schedule_steps(c->spec, c->s->replicas, c->s->nstage));
	return true;
}
