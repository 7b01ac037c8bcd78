/* Whose is a microbatch where a stage has replicas (DAPPLE section 5.2, Fig. 8)?
 *
 *     round-robin  one of them has the whole of it
 *     slice        each has a slice of every one: --micro-batch is what is sliced. It consists of grains, the size that
 *                  everything is compiled at: as many as let every stage have equal slices (the least common multiple of
 *                  the replica counts), else the fewest, at least one per replica, so that slices differ by a grain. A
 *                  device computes its slice grain by grain; neighbours exchange the grains that both have.
 *     auto         slice where whole microbatches leave replicas idle at the end of a step and the simulator finds
 *                  slices shorter by a hundredth; never where it would change what is computed (BatchNormalization,
 *                  which averages over grains) or what --reproducible compares. */
#include <string.h>
#include "ir/base/human.h"
#include "ir/text/profile.h"
#include "passes/common/plan.h"
#include "passes/simulate/simulate.h"
#include "global_batch.h"
#include "probe.h"
#include "passes/schedule/schedule.h"
#include "passes/train/batch_terms.h"

static int64_t gcd(int64_t x, int64_t y) { return y ? gcd(y, x % y) : x; }

/* Grains of a microbatch of so many samples; 0: there are fewer samples than replicas. */
static int64_t grains_for(const int *replicas, int n, int64_t micro)
{
	int64_t common = 1, most = 1;

	for (int t = 0; t < n; t++) {
		most = replicas[t] > most ? replicas[t] : most;
		common = common > micro ? common : common / gcd(common, replicas[t]) * replicas[t];
	}
	if (common <= micro && micro % common == 0)
		return common;
	for (int64_t g = most; g <= micro; g++)
		if (micro % g == 0)
			return g;
	return 0;
}

/* Replicas by stage and the global batch: as asked for, or those of the plan that whole microbatches get. */
static bool find_replicas(Compile *c, int **replicas, int *n)
{
	Training *t = &c->o->t;
	const char *names[64];
	int k = 0;

	if (!plan_parse(c->a, t->plan.replicas, replicas, n, c->d))
		return false;
	if (*n && t->loop.global)
		return true;
	PassCx cx = { .scratch = c->scratch, .d = c->d, .cluster = &c->cluster, .train = t, .plan = &c->plan };
	PassOpt po = { 0 };
	for (int i = 0; i < npasses && strcmp(pass_table[i].name, "place"); i++)
		names[k++] = pass_table[i].name;
	if (!run_passes(c->m, &cx, &po, names, k))
		return false;
	t->loop.global = batch_of_step(c);
	*n = c->plan.nstage;
	*replicas = NEWN(c->a, int, *n);
	for (int i = 0; i < *n; i++)
		(*replicas)[i] = c->plan.stage[i].replicas;
	t->plan.replicas = arena_str(c->a, plan_str(c->a, &c->plan));
	c->m = compile_import(c, c->m->batch);
	return c->m != NULL;
}

/* A BatchNormalization that takes statistics of the samples it sees; NULL: none. */
static const Node *takes_statistics(const Compile *c)
{
	for (int t = 0; t < c->m->nstage; t++)
		for (const Node *n = c->m->stage[t]->forward->first; n; n = n->next)
			if (n->op == OP_BatchNorm)
				return n;
	return NULL;
}

/* Operators that look at several samples see grains now. */
static void warn_of_statistics(const Compile *c)
{
	const Node *n = takes_statistics(c);

	if (n)
		diag_warn(c->d, n->loc, "batch-stats",
			"statistics are those of %lld samples, a grain of the sliced microbatch of %lld",
			(long long)c->m->batch, (long long)(c->m->batch * c->m->grains));
}

/* What is trained depends on a size that nobody asked for. */
static void warn_of_micro(const Compile *c)
{
	const Node *n = c->micro_open && !c->o->start_from && !c->o->t.loop.choose_micro &&
	                                c->m->batch < c->o->t.loop.global && c->m->batch != c->m->export_batch
	                        ? takes_statistics(c)
	                        : NULL;

	if (n)
		diag_warn(c->d, n->loc, "batch-stats",
			"statistics are those of %lld samples, a microbatch that the global batch of %lld was divided "
			"into; --micro-batch N says how many",
			(long long)c->m->batch, (long long)c->o->t.loop.global);
}

static bool sums_several(const ScheduleRow *r) { return !(r->flow & FLOW_EACH); }

static bool compile_sliced(Compile *c, const int *replicas, int n, const char *dump)
{
	const int64_t micro = c->m->batch, grains = grains_for(replicas, n, micro);

	if (one_per_step(&c->o->t))
		return diag_error(c->d, NOLOC, 520,
			"--replica-split slice: schedule %s updates after every microbatch, which one "
			"replica has whole; other schedules sum several (%s)",
			schedule_str(c->a, c->o->t.plan.schedule), schedule_list(c->a, sums_several));

	if (!grains)
		return diag_error(c->d, NOLOC, 405,
			"a microbatch of %lld samples cannot be sliced over the replicas of plan %s", (long long)micro,
			c->o->t.plan.replicas);
	c->plan = (Plan){ 0 };
	if (grains > 1) {
		if (!(c->m = compile_import(c, micro / grains)))
			return false;
		c->m->grains = grains;
	}
	if (!compile_passes(c, dump))
		return false;
	if (grains > 1)
		warn_of_statistics(c);
	return true;
}

/* Is there a stage whose replicas have different numbers of microbatches, and may grains be smaller? */
static bool worth_slicing(const Compile *c)
{
	bool tail = false;

	if (c->o->t.loop.reproducible || c->o->stop_after || !c->m->schedule || c->m->schedule->async ||
		c->m->batch < 2)
		return false;
	if (takes_statistics(c))
		return false;
	for (int t = 0; t < c->m->nstage; t++)
		tail |= c->m->microbatches % c->m->stage[t]->replicas != 0;
	return tail;
}

static bool choose(Compile *c, const char *dump)
{
	Diag mute = *c->d;
	Compile s = *c;
	Options o = *c->o;
	Sim whole, sliced;
	int *replicas = NEWN(c->a, int, c->m->nstage);

	for (int t = 0; t < c->m->nstage; t++)
		replicas[t] = c->m->stage[t]->replicas;
	mute.errors = mute.limit + 1; /* nothing is said any more */
	mute.quiet = true;
	s.d = &mute;
	s.explain = (Buf){ 0 };
	o.explain = o.time_passes = o.print_after_all = o.print_after_change = false;
	o.print_before = o.print_after = NULL;
	s.changes = NULL;
	o.t.plan.replicas = arena_str(c->a, plan_str(c->a, &c->plan));
	o.t.loop.global = batch_of_step(c);
	s.o = &o;
	if (!compile_sliced(&s, replicas, c->m->nstage, NULL) ||
		!simulate(c->a, simulate_model(c->a, c->m, &c->cluster, &c->o->t), &whole, &mute) ||
		!simulate(c->a, simulate_model(c->a, s.m, &c->cluster, &c->o->t), &sliced, &mute) ||
		sliced.step > 0.99 * whole.step)
		return true;
	if (c->o->explain)
		diag_note(c->d, NOLOC, "replicas get slices: the simulated step is %s, %s with whole microbatches",
			time_text(c->a, sliced.step), time_text(c->a, whole.step));
	c->o->t.plan.replicas = o.t.plan.replicas;
	c->o->t.loop.global = o.t.loop.global;
	buf_clear(&c->explain);
	return compile_sliced(c, replicas, c->m->nstage, dump);
}

static bool plan_and_split(Compile *c, const char *dump)
{
	const ReplicaSplit how = c->o->t.plan.replica_split;
	int *replicas, n;

	if (c->profile && (micro_is_open(c) || c->profile->micro != c->m->batch || how != SPLIT_ROUND_ROBIN))
		micro_sized(c);
	if (c->o->t.plan.choose_pipe_sgd && !c->o->start_from && !pipe_sgd_choose(c))
		return false;
	if (micro_is_open(c) && !micro_choose(c))
		return false;
	if (c->rebatched && loss_of_its_own(c->m, &c->o->t) && !c->o->t.loop.global && !find_replicas(c, &replicas, &n))
		return false; /* losses that add up have to know a step's samples */
	if (c->o->start_from || how == SPLIT_ROUND_ROBIN)
		return compile_fit(c, dump);
	if (how == SPLIT_SLICE && schedule_async(&c->o->t))
		return diag_error(c->d, NOLOC, 520,
			"--replica-split slice: schedule %s gives whole microbatches to replicas",
			c->o->t.plan.pipe_sgd > 1 ? schedule_name(SCHEDULE_PIPE_SGD)
						  : schedule_str(c->a, c->o->t.plan.schedule));
	if (how == SPLIT_SLICE)
		return find_replicas(c, &replicas, &n) && compile_sliced(c, replicas, n, dump);
	return compile_fit(c, dump) && (!worth_slicing(c) || choose(c, dump));
}

bool compile_plan(Compile *c, const char *dump)
{
	if (!batch_settle(c))
		return false;
	batch_look(c);
	if (!plan_and_split(c, dump))
		return batch_blame(c);
	pipe_sgd_said(c);
	if (c->m->grains <= 1)
		warn_of_micro(c);
	batch_warn(c);
	return true;
}
