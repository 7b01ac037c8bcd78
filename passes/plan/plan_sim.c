/* The step of a plan that is tried (plan_model.h), as the simulator plays it, from the planning model alone. */
#include <math.h>
#include "plan_trial.h"
#include "passes/comm/comm.h"
#include "passes/schedule/sched.h"

static void sim_messages(Arena *a, SimModel *x, const Flow *f, StageEdge **edge, int *nedge)
{
	int cap = 0, capedge = 0;

	for (int s = 0; s < f->n; s++)
		for (int t = 0; t < f->n; t++) {
			const int on = s * f->n + t, back = t * f->n + s;
			if (f->waits[0][on] || f->waits[1][back])
				PUSH(a, *edge, *nedge, capedge) =
					(StageEdge){ s, t, f->waits[0][on], f->waits[1][back] };
			if (f->waits[0][on])
				PUSH(a, x->msg, x->nmsg, cap) = (SimMessage){ s, t, (int64_t)f->fwd[on], true };
			if (f->waits[1][back])
				PUSH(a, x->msg, x->nmsg, cap) = (SimMessage){ t, s, (int64_t)f->bwd[back], false };
		}
}

/* Sums over replicas, in the order of simulate_model: those of buckets first, from the last stage on. */
static void sim_sums(
	Arena *a, const PlanModel *p, const Trial *t, const TrialStage *stages, SimModel *x, const int *stage, int *cap)
{
	const ActKind when = schedule_has(x->s, ACT_W) ? ACT_W : ACT_B;
	const bool early = sums_in_order(a, x->s, when);

	for (int i = 0; i < 2 * t->n; i++) {
		const int s = i < t->n ? t->n - 1 - i : i - t->n;
		int *device = NEWN(a, int, t->replicas[s]);
		if (trial_sums_within(&stages[s]))
			continue;
		for (int k = 0; k < t->replicas[s]; k++)
			device[k] = x->device[x->s->device[s][k]];
		const StageSums *sums = trial_sums(p, t, s, device, stage, early);
		for (int k = 0; k < sums->n && sums->buckets == (i < t->n); k++) {
			SimJoin *j = &PUSH(a, x->join, x->njoin, *cap);
			*j = sums->sum[k].join;
			j->rank = x->s->device[s];
			j->stage = s;
			j->when = when;
		}
	}
}

static void add_rank(int *list, int *n, int rank)
{
	for (int i = 0; i < *n; i++)
		if (list[i] == rank)
			return;
	list[(*n)++] = rank;
}

/* Gradients of a weight that several stages read are copied from the first replica of each to all replicas of all of them,
 * its own too, as comm's Broadcasts do. */
static void shared_weights(Arena *a, const PlanModel *p, const Trial *t, SimModel *x, const int *stage, int *cap)
{
	for (int i = 0; i < p->nweight; i++) {
		const PlanWeight *w = &p->weight[i];
		int *at = NEWN(a, int, w->n), n = 0;
		for (int k = 0; k < w->n && w->trained; k++) {
			int o = 0;
			while (o < n && at[o] != stage[w->layer[k]])
				o++;
			at[n] = stage[w->layer[k]];
			n += o == n;
		}
		for (int r = 0; n > 1 && r < n; r++) {
			SimJoin j = { .kind = SIM_COPY, .bytes = (int64_t)w->bytes };
			int *list = NEWN(a, int, t->ndevice);
			list[j.n++] = x->s->device[at[r]][0];
			for (int k = 0; k < n; k++)
				for (int q = 0; q < t->replicas[at[k]]; q++)
					add_rank(list, &j.n, x->s->device[at[k]][q]);
			j.rank = list;
			if (j.n > 1)
				PUSH(a, x->join, x->njoin, *cap) = j;
		}
	}
}

/* What schedules may ask: seconds of the stages, on the first of their devices. */
static const ScheduleTimes *times_of(Arena *a, const PlanModel *p, const Trial *t, const TrialStage *s)
{
	ScheduleTimes *x = schedule_times(a, p->c, t->n);

	for (int i = 0, r = 0; i < t->n; r += t->replicas[i++]) {
		const int c = p->class_of[t->device[r]];
		schedule_time_stage(x, i, s[i].fwd[c], s[i].bwd[c]);
		x->most[i] = schedule_row(p->played)->flight == FLIGHT_PLAYED ||
		                             schedule_row(p->played)->flight == FLIGHT_WARMUP
		                     ? s[i].inflight
		                     : 0;
		if (i + 1 < t->n)
			schedule_time_message(x, i, p->st->s[t->end[i]].cut, &t->device[r],
				&t->device[r + t->replicas[i]], t->replicas[i]);
	}
	return x;
}

SimModel *trial_sim(Arena *a, const PlanModel *p, const Trial *t)
{
	enum { REPORT = 40 }; /* bytes: what a device reports of a microbatch; what it is told */
	const int *stage = trial_stage_of(a, p, t);
	const Flow f = flow_of(a, p, t, stage);
	const TrialStage *s = flow_stages(a, p, t, stage, &f);
	SimModel *x = NEW(a, SimModel);
	StageEdge *edge = NULL;
	int nedge = 0, cap = 0;

	*x = (SimModel){ .c = p->c, .time = NEWN(a, SimTimes, t->ndevice * t->n), .totals = (t->micro + 2) * REPORT };
	sim_messages(a, x, &f, &edge, &nedge);
	Diag silent = { .out = stderr, .errors = 1, .scratch = a };
	x->s = schedule_make(
		a, p->played, t->n, t->replicas, (int)t->micro, p->blocks, edge, nedge, times_of(a, p, t, s), &silent);
	x->totals = schedule_is_async(p->played) ? 0 : x->totals;
	if (!x->s && schedule_is_async(p->played))
		return NULL;
	if (!x->s) /* none that is played here: its plan is chosen as if none were asked for */
		x->s = schedule_make(a, (ScheduleSpec){ .kind = SCHEDULE_PLAIN }, t->n, t->replicas, (int)t->micro,
			p->blocks, edge, nedge, NULL, &silent);
	x->longer = x->s->async;
	x->s = x->longer ? schedule_longer(a, x->s, STEADY_TIMES) : x->s;
	int *device = NEWN(a, int, x->s->ndevice);
	const bool split = schedule_has(x->s, ACT_W); /* about half of a backward is for the weights */
	x->device = device;
	for (int i = 0, r = 0; i < t->n; i++) {
		for (int k = 0; k < t->replicas[i]; k++, r++) {
			const int c = p->class_of[t->device[r]], rank = x->s->device[i][k];
			double *time = x->time[rank * t->n + i];
			device[rank] = t->device[r];
			time[ACT_F] = s[i].fwd[c];
			time[ACT_B] = s[i].bwd[c] / (split ? 2 : 1);
			time[ACT_W] = split ? s[i].bwd[c] / 2 : 0;
			time[ACT_UPDATE] = s[i].update[c];
		}
	}
	sim_sums(a, p, t, s, x, stage, &cap);
	for (int i = 0; i < p->nrow; i++) {
		const int at = stage[p->row[i].layer];
		if (t->replicas[at] > 1)
			PUSH(a, x->join, x->njoin, cap) = (SimJoin){ .kind = SIM_RING,
				.bytes = (int64_t)p->row[i].bytes * t->micro,
				.n = t->replicas[at],
				.rank = x->s->device[at] };
	}
	shared_weights(a, p, t, x, stage, &cap);
	for (int i = 0; i < t->n; i++)
		sim_add_count(a, x, i, &cap);
	trial_servers(a, p, t, x, stage, &cap);
	for (int i = 0; i < p->nweight; i++)
		x->weights += p->weight[i].trained ? (int64_t)p->weight[i].bytes : 0;
	return x;
}

/* Of a step; where several are shown, of the steady state, in which a device works as much as in any other step. */
static void terms(Trial *t, const Sim *sim)
{
	const Schedule *s = sim->model->s;
	const double steps = sim->steps;
	int slow = 0;
	double most = -1;

	for (int k = 0; k < s->ndevice; k++) {
		const double work = sim->spent[k][ACT_F] + sim->spent[k][ACT_B] + sim->spent[k][ACT_W];
		if (work > most * (1 + 1e-9)) {
			most = work;
			slow = k;
		}
	}
	t->work = most / steps;
	t->update = sim->spent[slow][ACT_UPDATE] / steps;
	t->sum = fmin(sim->spent[slow][ACT_SYNC] / steps, sim_rest(t->step, t->work + t->update));
	t->wait = sim_rest(t->step, t->work + t->sum + t->update);
	for (int i = t->n - 1; i >= 0; i--)
		for (int k = 0; k < t->replicas[i]; k++)
			t->slow_stage = s->device[i][k] == slow ? i : t->slow_stage;
}

/* What the schedule holds, where its row's formula is an estimate (schedule_depth.c). */
static void weigh_played(Arena *a, const PlanModel *p, Trial *t, const Schedule *s)
{
	TrialStage *x = trial_stages(a, p, t);
	bool same = true;

	for (int i = 0; i < t->n; i++) {
		same &= x[i].inflight == s->inflight[i];
		x[i].inflight = s->inflight[i];
	}
	if (!same)
		trial_weigh(p, t, x);
}

void trial_play(const PlanModel *p, Trial *t)
{
	Arena *a = arena_new();
	Diag d = { .out = stderr, .errors = 1, .scratch = a }; /* beyond the limit of 0: nothing is printed */
	Sim sim;

	const SimModel *x = t->refused ? NULL : trial_sim(a, p, t);
	t->step = x && simulate(a, x, &sim, &d) ? sim.each : INFINITY;
	t->score = t->step / (double)t->micro;
	if (isfinite(t->step))
		terms(t, &sim);
	if (isfinite(t->step) && x->s->kind == p->schedule.kind && !x->longer)
		weigh_played(a, p, t, x->s);
	arena_free(a);
}
