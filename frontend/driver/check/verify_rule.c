/* Which weights the minibatches of an asynchronous pipeline meet, by the formulas of its paper, and the lines that make a program of one
 * device play that, one minibatch after another (runtime/state/replay.c). Has nothing of passes/schedule: what that puts in order is
 * compared with this.
 *
 * Version v of a stage's weights is what its first v updates made. Stage s of n has R_s replicas, which take minibatches in turn; R_s of
 * them, a round, make an update. When the forward of minibatch t begins, depth_s - 1 rounds are under way (PipeDream, section 3.3):
 *
 *     newest(s, t) = max(0, t / R_s - (depth_s - 1)),     depth_s = ceil((R_s + ... + R_n-1) / R_s)
 *
 *     stashing        forward and backward newest(s, t)
 *     vertical sync   newest(0, t) in every stage
 *     no stashing     backward t / R_s: all rounds before its own are done
 *     mp              depth 1; always-forward: depth N; always-backward: the pipeline is empty after every depth_0 R_0 minibatches
 *     2BW             step t: t - 1 (PipeDream-2BW, section 3.1)
 *     Pipe-SGD        step t: t - (K - 1), as it is updated with the gradient of step t - K before (section 3.1)
 *
 * The first W steps (--warmup-steps) are flushed one by one and leave nothing under way. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "frontend/driver/check/verify.h"

/* ---- the rule ---- */

/* Rounds between the forward and the backward of stage s. */
static int64_t depth_of(const Module *m, int s)
{
	int64_t later = 0;

	for (int t = s; t < m->nstage; t++)
		later += m->stage[t]->replicas;
	return (later + m->stage[s]->replicas - 1) / m->stage[s]->replicas;
}

static int64_t depth_by(const Compile *c, int s)
{
	const ScheduleSpec by = c->o->t.plan.schedule;

	switch (by.kind) {
	case SCHEDULE_MP: return 1;
	case SCHEDULE_ALWAYS_F: return by.n ? by.n : depth_of(c->m, 0);
	default: return depth_of(c->m, s);
	}
}

static bool rounds(const Rule *r)
{
	for (int s = 0; s < r->nstage; s++)
		if (r->each && r->replicas[s] > 1)
			return true;
	return false;
}

/* Is a table in pieces? They have versions of their own. */
static bool in_pieces(const Module *m)
{
	for (int i = 0; i < m->nparam; i++)
		if (m->param[i]->param->whole || m->param[i]->param->pieces)
			return true;
	return false;
}

/* What no formula covers; NULL: nothing. */
static const char *refuses(const Compile *c, const Rule *r)
{
	const bool pipeline = c->m->schedule->async,
		   one_update = schedule_row(c->o->t.plan.schedule)->flow & FLOW_ONE_UPDATE;

	if (target_cuda(&c->o->t))
		return pipeline && (!r->each || one_update) ? NULL : "has that of programs for CPUs alone";
	if (r->servers && in_pieces(c->m))
		return "wants tables in one piece each (--partitions 1)";
	if (r->servers && c->o->t.target.amp.kind != AMP_OFF)
		return "has no formula for what travels to servers in 16 bits (--amp)";
	if (c->o->t.comm.compress.codec != CODEC_NONE)
		return "has no bound for what packed sums (--compress) make of later steps";
	if (pipeline && c->o->t.plan.warmup_epochs)
		return "wants --warmup-steps in place of --warmup-epochs";
	if (c->o->t.plan.warmup_steps && rounds(r))
		return "has no formula for --warmup-steps where replicas take minibatches in turn";
	return NULL;
}

bool verify_rule(Compile *c, const Rule **rule)
{
	const Training *t = &c->o->t;
	Rule *r = NEW(c->a, Rule);

	*rule = NULL;
	if (!c->m->schedule || (!c->m->schedule->async && !served_async(t)))
		return true;
	r->servers = served_async(t);
	r->each = !r->servers && t->plan.pipe_sgd < 2 && schedule_row(t->plan.schedule)->flow & FLOW_EACH;
	r->nstage = c->m->nstage;
	r->replicas = NEWN(c->a, int64_t, r->nstage);
	r->depth = NEWN(c->a, int64_t, r->nstage);
	r->empties = NEWN(c->a, int64_t, r->nstage);
	for (int s = 0; s < r->nstage; s++) {
		r->replicas[s] = c->m->stage[s]->replicas;
		r->depth[s] = depth_by(c, s);
		if (t->plan.schedule.kind == SCHEDULE_ALWAYS_B)
			r->empties[s] = r->depth[0] * r->replicas[0] / r->replicas[s];
	}
	r->vertical = t->plan.vertical_sync;
	r->none = t->plan.stash == STASH_NONE;
	r->late = t->plan.pipe_sgd > 1 ? t->plan.pipe_sgd - 1 : 1;
	r->warm = t->plan.warmup_steps;
	r->per_step = c->m->microbatches;
	r->name = c->m->schedule->name;
	const char *why = refuses(c, r);
	if (!why && !target_cuda(t))
		*rule = r;
	return !why || diag_error(c->d, NOLOC, 520,
			       "%s: pdcc verify plays asynchronous updates one after another on one device, and %s",
			       r->servers ? "--sync async" : r->name, why);
}

int64_t verify_version(const Rule *r, int stage, int64_t step, bool backward)
{
	const int64_t before = step < r->warm ? step : r->warm;

	if (!r->each)
		return step - r->late > before ? step - r->late : before;
	const int s = r->vertical ? 0 : stage;
	const int64_t done = step / r->replicas[s], flown = done - before,
		      under_way = r->empties[s] ? flown % r->empties[s] : flown;

	if (backward && r->none)
		return done;
	return done - (under_way < r->depth[s] - 1 ? under_way : r->depth[s] - 1);
}

int64_t verify_began(const Rule *r, int64_t step) { return step < r->warm ? step : r->warm; }

bool verify_skips(const Rule *r, const Module *m, const char *name)
{
	for (int i = 0; r && rounds(r) && i < m->nparam; i++) {
		const Param *p = m->param[i]->param;

		if (strcmp(p->onnx_name ? p->onnx_name : m->param[i]->name, name) == 0)
			return p->kind != PARAM_WEIGHT;
	}
	return false;
}

int64_t verify_steps(const Compile *c, const Rule *r)
{
	int64_t n = 3;

	if (c->o->t.loop.steps)
		return c->o->t.loop.steps;
	for (int s = 0; r && r->each && s < r->nstage; s++)
		n = (r->depth[s] + 2) * r->replicas[s] > n ? (r->depth[s] + 2) * r->replicas[s] : n;
	return r && !r->each && !r->servers && r->late + 3 > n ? r->late + 3 : r ? n + r->warm : n;
}

/* ---- the lines ---- */

bool verify_trained(const Value *v) { return v->param->kind == PARAM_WEIGHT && !v->param->frozen; }

static int stage_with(const Module *m, const Value *v)
{
	for (int s = 0; s < m->nstage; s++)
		for (int i = 0; i < m->stage[s]->nparam; i++)
			if (m->stage[s]->param[i] == v)
				return s;
	return 0;
}

static bool due(const Rule *r, int s, int64_t step, int64_t steps)
{
	return !r->each || (step + 1) % r->replicas[s] == 0 || step + 1 == steps;
}

/* Stages that end a round of so many minibatches with this step, in a line that computes its gradient, or adds it again. */
static void put_line(FILE *f, const Rule *r, int64_t step, int64_t steps, int64_t round, bool again)
{
	const int64_t first = round ? step / round * round : step, n = round ? step - first + 1 : 0;

	fprintf(f, "%lld %d %lld %lld %lld %lld", (long long)step, again, (long long)step,
		(long long)(round ? step / round : 0), (long long)(round ? step / round : 0), (long long)n);
	for (int64_t j = 0; j < n; j++)
		fprintf(f, " %lld", (long long)(first + j));
	for (int b = 0; b < 2; b++)
		for (int s = 0; s < r->nstage; s++)
			fprintf(f, " %lld", (long long)verify_version(r, s, step, b));
	for (int s = 0; s < r->nstage; s++)
		fprintf(f, " %d", round && due(r, s, step, steps) && (!r->each || r->replicas[s] == round));
	fprintf(f, "\n");
}

/* Lines of a step: one for each size of a round that ends with it, or one that updates nothing. Gives how many; f NULL: counts. */
static int64_t put_step(FILE *f, const Rule *r, int64_t step, int64_t steps)
{
	int64_t n = 0;

	for (int s = 0; s < r->nstage; s++) {
		bool again = !due(r, s, step, steps);
		for (int t = 0; t < s; t++)
			again |= due(r, t, step, steps) && (!r->each || r->replicas[t] == r->replicas[s]);
		if (again)
			continue;
		if (f)
			put_line(f, r, step, steps, r->each ? r->replicas[s] : 1, n > 0);
		n++;
	}
	if (!n && f)
		put_line(f, r, step, steps, 0, false);
	return n ? n : 1;
}

bool verify_script(Compile *c, const Rule *r, const char *path, int64_t steps)
{
	FILE *f = fopen(path, "w");
	int64_t lines = 0;
	int n = 0;

	if (!f)
		return diag_error(c->d, NOLOC, 8, "%s: %s", path, strerror(errno));
	for (int64_t t = 0; t < steps; t++)
		lines += put_step(NULL, r, t, steps);
	for (int i = 0; i < c->m->nparam; i++)
		n += verify_trained(c->m->param[i]);
	fprintf(f, "%d %d %lld %lld 1\n", n, r->nstage, (long long)steps, (long long)lines);
	for (int i = 0; i < c->m->nparam; i++) {
		const Value *v = c->m->param[i];

		if (verify_trained(v))
			fprintf(f, "%d %s\n", stage_with(c->m, v), v->param->onnx_name ? v->param->onnx_name : v->name);
	}
	for (int64_t t = 0; t < steps; t++)
		put_step(f, r, t, steps);
	return !fclose(f) || diag_error(c->d, NOLOC, 8, "%s: %s", path, strerror(errno));
}
