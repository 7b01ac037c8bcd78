/* zero: --zero 1, optimizer state in parts (ZeRO; Rajbhandari 2020, stage 1), --zero 2, gradients too, --zero 3, weights too (gather.c). Where a stage has R replicas, each has a part of every
 * state: of n elements part_of(n, R), contiguous, from replica x part on. It updates that part of the weight, with the sum of that
 * part of the gradient, and all of them gather the weights behind the updates:
 *     AllReduce(%g.w2, %g.b2, ...) {over=replicas, parts=R}      a ReduceScatter (zero_scatter, called by comm for each sum)
 *     AdamW(@w2, @w2:m, @w2:v, %g.w2, %n) {part}                 states are f32[part]
 *     AllGather(@w2, @b2, ...) {parts=R}                         behind the last update
 * Messages are those of an AllReduce, which is these two. Sums of --reproducible and --f64 stay whole, and so do those in one bucket
 * with a gradient that another stage needs too (tied weights): everyone takes his part of them. State stays whole of weights
 * that stages of unlike replica counts share, and there is none of plain SGD.
 * With --zero 2 replicas keep no more of the gradients than the sums of their parts. A bucket is summed behind the node that makes its
 * last gradient in every backward, of each replica's n-th microbatch with those of the others; the gradient of a microbatch lies
 * in LEAF until the next bucket begins:
 *     %g.w2 = Accumulate(%d.w2) {part}                           f32[part]
 *     AllReduce(%g.w2, %g.b2, ...) {parts=R, bucket=0, each}
 * Stages whose replicas have unlike numbers of microbatches, or whose schedule would stand still if backwards waited for each other
 * (Schedule.together), keep whole gradients, as with --zero 1.
 * Reads Stage.replicas and the update graphs; writes Param.part, types of states. */
#include "passes/common/plan.h"
#include "passes/schedule/schedule.h"
#include "comm.h"
#include "ir/analysis.h"
#include "passes/cost/sumcost.h"

const char *zero_refused(const Training *t, bool async)
{
	if (async)
		return "an asynchronous schedule: updates go on while weights would be gathered; take a synchronous one";
	if (t->comm.by != COMM_UNSAID && t->comm.by != COMM_ALLREDUCE)
		return "servers of parameters: they hold the state, once for all; take --comm allreduce";
	if (t->comm.compress.codec)
		return "--compress: it packs what an AllReduce sends";
	if (t->comm.allreduce != ALLREDUCE_AUTO)
		return "--allreduce: its sums are ReduceScatters, which have one algorithm";
	if (t->data.eval.averages)
		return "--eval-averages: averages are in parts, which are not gathered for an evaluation; evaluate an export";
	return NULL;
}

/* As it was asked for of the first stage that divides something. */
static bool allowed(const Module *m, PassCx *cx)
{
	const PlanSettings *p = &cx->train->plan;
	const bool async = schedule_is_async(schedule_asked(m, cx)) || (m->schedule && m->schedule->async);
	const char *why = zero_refused(cx->train, async);
	int stage = 0;

	while (!stage_zero(p, stage))
		stage++;
	const GivenShard *own = stage_shard(p, stage);
	if (why && own)
		return diag_error(cx->d, TEXTLOC(p->given->file, own->line, own->col), 520,
			"stage %d: shard: %d does not go with %s", stage, own->zero, why);
	return !why || diag_error(cx->d, NOLOC, 520, "--zero %d does not go with %s", stage_zero(p, stage), why);
}

/* All stages that hold the state have as many replicas, which divide it. */
static bool alike(const Value *state, const Stage *s, const PlanSettings *p)
{
	for (int i = 0; i < state->nuses; i++) {
		const Stage *holder = state->uses[i].node->graph->stage;
		if (!holder || holder->server || holder->replicas != s->replicas || !stage_zero(p, holder->id))
			return false;
	}
	return true;
}

static bool has_parts(const Node *update)
{
	return optab[update->op]->flags & OP_UPDATE && op_attr(update->op, "part") && attr_int(update, "part") > 0;
}

void update_in_parts(Node *update, int64_t part)
{
	for (int i = 1; i < update->nin - 2; i++) {
		Value *state = update->in[i];
		state->type = type_make(state->type.dtype, 1, &part);
		state->param->part = part;
	}
	attr_set_int(update, "part", part);
}

static bool is_divisible(const Node *update)
{
	return optab[update->op]->flags & OP_UPDATE && op_attr(update->op, "part") && update->op != OP_SquareSum;
}

/* Of an update that has something to divide: a weight, its gradient and their count, and for --zero 1 a state. */
static int least_inputs(const Stage *s, PassCx *cx) { return stage_zero(&cx->train->plan, s->id) > 1 ? 3 : 4; }

/* Divides the states of one update; false: there are none (and nothing else to divide), or they stay whole. */
static bool divide(Node *n, const Stage *s, PassCx *cx)
{
	const PlanSettings *p = &cx->train->plan;

	if (!is_divisible(n) || n->nin < least_inputs(s, cx))
		return false;
	const int64_t part = part_of(type_numel(&n->in[0]->type), s->replicas);
	if (!part)
		return false;
	for (int i = 1; i < n->nin - 2; i++) {
		if (alike(n->in[i], s, p))
			continue;
		if (cx->explain)
			buf_printf(cx->explain,
				"stage %d: the state of %s stays whole: stages share it that have unlike numbers of "
				"replicas, or do not divide it\n",
				s->id, n->in[0]->name);
		return false;
	}
	update_in_parts(n, part);
	n->time /= s->replicas;
	return true;
}

/* --zero 3: those that no node needs whole but in forwards and backwards are in parts themselves. Gives how many. */
static int divide_weights(Value **w, int *n, const Stage *s, PassCx *cx)
{
	const int all = *n;

	*n = 0;
	for (int i = 0; i < all; i++) {
		if (gather_divides(w[i], s)) {
			w[i]->param->part = part_of(type_numel(&w[i]->type), s->replicas);
			continue;
		}
		if (cx->explain)
			buf_printf(cx->explain, "stage %d: %s stays whole: %s\n", s->id, w[i]->name,
				part_of(type_numel(&w[i]->type), s->replicas) == type_numel(&w[i]->type)
					? "it is too small for parts"
					: "another stage reads it, or it is needed beyond a forward or a backward");
		w[(*n)++] = w[i];
	}
	return all - *n;
}

/* --start-from gives a stage that was divided before: its forwards and backwards meet as they did. */
static bool is_divided(const Module *m, const Stage *s, PassCx *cx)
{
	for (const Node *n = s->update->first; n; n = n->next)
		if (has_parts(n))
			return !gathers_weights(s) || gather_meets(m, s, cx);
	return false;
}

/* Gives how many parameters are updated in parts. */
static int divide_stage(Module *m, Stage *s, PassCx *cx)
{
	Value **w = NULL;
	int nw = 0, cap = 0, divided;
	int64_t bytes = 0;

	if (is_divided(m, s, cx))
		return 1;
	for (Node *n = s->update->first; n; n = n->next) {
		if (!divide(n, s, cx))
			continue;
		PUSH(cx->scratch, w, nw, cap) = n->in[0];
		for (int i = 1; i < n->nin - 2; i++)
			bytes += value_bytes(n->in[0]) - value_bytes(n->in[i]);
	}
	if (!nw)
		return 0;
	if (cx->explain)
		buf_printf(cx->explain,
			"stage %d: state of %d parameters in %d parts: %lld bytes less on each device\n", s->id, nw,
			s->replicas, (long long)bytes);
	divided = nw;
	if (stage_zero(&cx->train->plan, s->id) > 2 && gather_meets(m, s, cx)) {
		m->schedule->gathers[s->id] = divide_weights(w, &nw, s, cx) > 0;
		if (m->schedule->gathers[s->id])
			gather_weights(m, s, cx);
	}
	Builder b = {
		.m = m, .g = s->update, .loc = FILELOC(m->file), .phase = PHASE_UPDATE, .stage = s->id, .d = cx->d
	};
	if (nw)
		attr_set_int(build(&b, OP_AllGather, NULL, nw, w, NULL), "parts", s->replicas);
	return divided;
}

/* Has a stage updates of which --zero could divide something, were they large enough? */
static bool could_divide(const Stage *s, PassCx *cx)
{
	const int least = least_inputs(s, cx);

	for (const Node *n = s->update->first; n; n = n->next)
		if (is_divisible(n) && n->nin >= least)
			return true;
	return false;
}

static void nothing_divided(const Module *m, PassCx *cx, int most)
{
	const PlanSettings *p = &cx->train->plan;
	bool own = false, replicas = false, state = false;

	for (int i = 0; i < m->nstage; i++) {
		const Stage *s = m->stage[i];
		const bool asked = stage_zero(p, i) && s->replicas > 1 && !s->server;

		own |= stage_shard(p, i) && stage_zero(p, i);
		replicas |= asked;
		state |= asked && could_divide(s, cx);
	}
	const char *why =
		!replicas ? own ? "no stage that has it has replicas" : "no stage has replicas"
		: !state  ? most > 1 ? "nothing that replicas have is trained" : "the optimizer has no state"
			  : "parameters are too small for parts, or are those of stages that do not divide them alike";
	if (own)
		diag_warn(cx->d, FILELOC(p->given->file), "zero", "shard divides nothing: %s", why);
	else
		diag_warn(cx->d, FILELOC(m->file), "zero", "--zero %d divides nothing: %s", most, why);
}

bool pass_zero(Module *m, PassCx *cx)
{
	const int most = cx->train ? most_zero(&cx->train->plan, m->nstage) : 0;
	int parts = 0;

	if (!most)
		return true;
	if (!allowed(m, cx))
		return false;
	for (int i = 0; i < m->nstage; i++)
		if (stage_zero(&cx->train->plan, i) && m->stage[i]->replicas > 1 && !m->stage[i]->server)
			parts += divide_stage(m, m->stage[i], cx);
	if (!parts)
		nothing_divided(m, cx, most);
	return true;
}

/* Every reader of the sum takes the replica's part of it, through sums of several uses too. */
bool zero_in_parts(const Value *sum)
{
	for (int i = 0; i < sum->nuses; i++) {
		const Node *u = sum->uses[i].node;
		if (u->op == OP_AllReduce || u->op == OP_SquareSum)
			continue;
		if (u->op == OP_Add ? !zero_in_parts(u->out[0]) : !has_parts(u) || u->in[gradient_operand(u)] != sum)
			return false;
	}
	return sum->nuses > 0;
}

static void square_parts(const Value *sum, int64_t *at)
{
	for (int i = 0; i < sum->nuses; i++) {
		Node *u = sum->uses[i].node;
		const int replicas = u->graph->stage ? u->graph->stage->replicas : 1;
		if (u->op == OP_Add)
			square_parts(u->out[0], at);
		if (u->op != OP_SquareSum || attr_int(u, "part"))
			continue;
		attr_set_int(u, "part", part_of(type_numel(&u->in[0]->type), replicas));
		attr_set_int(u, "at", *at);
		*at += replicas;
	}
}

/* Numbers of squares that are taken: one per trained parameter, and those of parts. */
static int64_t squares_taken(const Module *m)
{
	int64_t n = 0, parts = 0;

	for (int t = 0; t < m->nstage; t++)
		for (const Node *u = m->stage[t]->update->first; u; u = u->next) {
			if (u->op == OP_ClipNorm)
				n = attr_int(u, "of");
			if (u->op == OP_SquareSum)
				parts += square_blocks(u);
		}
	return n + parts;
}

void zero_scatter(Node *sum, const Module *m, const Stage *s, const Training *t)
{
	int64_t at = squares_taken(m);

	if (!t || !stage_zero(&t->plan, s->id) || t->loop.reproducible || t->target.f64)
		return;
	for (int i = 0; i < sum->nin; i++)
		if (!zero_in_parts(sum->in[i]))
			return;
	attr_set_int(sum, "parts", s->replicas);
	attr_set_str(sum, "by", "auto");
	for (int i = 0; i < sum->nin; i++)
		square_parts(sum->in[i], &at);
}

bool zero_each(const Module *m, const Stage *s, PassCx *cx)
{
	Schedule *x = m->schedule;

	if (!cx->train || stage_zero(&cx->train->plan, s->id) < 2 || cx->train->loop.reproducible ||
		cx->train->target.f64)
		return false;
	if (!x->together)
		x->together = NEWN(m->arena, bool, m->nstage);
	x->together[s->id] = true;
	x->together[s->id] = schedule_meets(m);
	if (!x->together[s->id])
		diag_note(cx->d, FILELOC(m->file),
			"stage %d: gradients stay whole until the last backward (--zero 1 there): %s", s->id,
			m->microbatches % s->replicas
				? "its replicas have unlike numbers of microbatches"
				: "this schedule stands still if backwards of replicas wait for each other");
	return x->together[s->id];
}

double zero_bucket(const Training *t, double all)
{
	enum { MOST = 16 << 20 };
	const SumRule rule = sum_rule(t);

	return rule.bucket > 0 ? rule.bucket : all / 8 < MOST ? all / 8 : MOST;
}

void zero_sum_parts(Node *sum, const Stage *s)
{
	attr_set_int(sum, "each", 1);
	for (int i = 0; i < sum->nin; i++) {
		Node *n = sum->in[i]->def;
		attr_set_int(n, "part", part_of(type_numel(&sum->in[i]->type), s->replicas));
		sum->in[i]->type = type_make(sum->in[i]->type.dtype, 1, &(int64_t){ attr_int(n, "part") });
	}
	for (Node *n = s->update->first; n; n = n->next) /* sums of several uses */
		if (n->op == OP_Add && n->in[0]->kind == VAL_NODE && n->in[1]->kind == VAL_NODE &&
			shape_eq(&n->in[0]->type, &n->in[1]->type) && !shape_eq(&n->in[0]->type, &n->out[0]->type))
			n->out[0]->type = n->in[0]->type;
}
