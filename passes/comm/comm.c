/* comm: joins what the replicas of a stage have. Reads Stage.replicas; writes Param.sync and, in the update graph of
 * each stage with several replicas, behind the last Accumulate or Stack:
 *     AllReduce(%g.w2, %g.b2, ...) {over=replicas, bucket=0}     sums in place
 *     AllReduce(%stack, ...) {over=rows}               rows of other replicas are zero before: the sum joins them
 *     AllGatherv(%ids.w, %rows.w)                      rows of looked-up tables (sparse); --reproducible: also of one device,
 *                                                      where it adds them up in the order of the tree
 * --compress packs the messages of the first kind; rows stay exact. With error feedback the stage gets a parameter
 * %w2:residual per gradient %g.w2 of a packed sum, which every replica has for itself: one after another as the gradients.
 *
 * Buckets. Gradients are taken in the order in which the backward makes them; a bucket is closed once it has --bucket bytes
 * (auto: as the timing model of sumcost.h says that all sums end first, one where nothing is gained), and its sum begins
 * behind the node that makes its last gradient, in the device's last backward in front of a SYNC (bucket_node): of a step,
 * where nothing is flushed of each round of minibatches. So sums go on while the rest of the backward is computed. Without
 * bucket (-1) there is one sum, in SYNC: --reproducible, whose sums are trees; f64; what replicas own (owners.c).
 * What replicas of different stages share (tied weights) split has arranged already, as Broadcast; those follow. */
#include <stdlib.h>
#include <string.h>
#include "ir/base/human.h"
#include "passes/common/plan.h"
#include "servers.h"
#include "passes/cost/sumcost.h"
#include "comm.h"
#include "ir/analysis.h"
#include "passes/cost/cost.h"

typedef struct Ready {
	Value *sum;
	int at;
	SumReady r;
	struct Ready *next; /* of the same value */
} Ready;

static int by_place(const void *a, const void *b)
{
	const Ready *x = a, *y = b;

	return (x->at > y->at) - (x->at < y->at);
}

static void touched(const Map *of, const Value *v, int at, double seconds)
{
	for (Ready *x = v ? map_get(of, value_root(v)) : NULL; x; x = x->next) {
		x->at = at;
		x->r.ready = seconds;
	}
}

/* Where the graph that makes the gradients makes each, or reads it last, and after how many seconds; false: one is made
 * elsewhere. */
static bool find_ready(const Graph *g, Value *const *sum, int n, const Speed *on, Ready *r, Arena *a)
{
	Map of; /* root of a gradient -> its entry */
	int at = 0;
	double seconds = 0;
	bool all = true;

	map_init(&of, a, false);
	for (int i = 0; i < n; i++) {
		const Value *root = value_root(sum[i]->def->in[0]);
		r[i] = (Ready){ .sum = sum[i],
			.r = { 0, (double)((value_bytes(sum[i]) + 63) / 64 * 64) },
			.next = map_get(&of, root) };
		map_put(&of, root, &r[i]);
		all = all && root->def && root->def->graph == g;
	}
	for (const Node *k = g->first; k && all; k = k->next) {
		at++;
		seconds += node_seconds(k, on, on);
		for (int i = 0; i < k->nin; i++)
			touched(&of, k->in[i], at, seconds);
		for (int i = 0; i < k->nout; i++)
			touched(&of, k->out[i], at, seconds);
	}
	return all;
}

static Node *add_sum(Builder *b, Value **in, int n, const char *over, const Training *t)
{
	Node *sum = build(b, OP_AllReduce, NULL, n, in, NULL);

	attr_set_str(sum, "over", over);
	attr_set_int(sum, "bucket", -1);
	if (t && t->comm.compress.codec && !strcmp(over, "replicas")) {
		attr_set_str(sum, "codec", setting_word(SET_OF_Codec, (int)t->comm.compress.codec));
		attr_set_int(sum, "block", t->comm.compress.block);
		attr_set_int(sum, "feedback", t->comm.compress.feedback);
		attr_set_int(sum, "guard", t->comm.compress.if_faster);
	}
	return sum;
}

/* Packing that does not pay is left out: --compress auto:CODEC. */
static void unpack(Node *sum, const Stage *s, const SumModel *model, double bytes, PassCx *cx)
{
	const double wire = (double)sum_wire(attr_str(sum, "codec"), attr_int(sum, "block"), (int64_t)bytes);
	const double packed = sum_packed_seconds(model, bytes, wire);
	const double exact = sum_seconds(model, sum_asked(cx->train->comm.allreduce), bytes);

	if (cx->explain)
		buf_printf(cx->explain,
			"stage %d: an AllReduce of %.0f bytes over %d takes %s packed by %s, %s as it is\n", s->id,
			bytes, s->replicas, time_short(cx->scratch, packed),
			setting_word(SET_OF_Codec, (int)cx->train->comm.compress.codec),
			time_short(cx->scratch, exact));
	if (packed < exact)
		return;
	diag_note(cx->d, NOLOC,
		"stage %d: an AllReduce of %.0f bytes travels as it is (%s are predicted, %s packed by %s)", s->id,
		bytes, time_short(cx->scratch, exact), time_short(cx->scratch, packed),
		setting_word(SET_OF_Codec, (int)cx->train->comm.compress.codec));
	attr_set_str(sum, "codec", "none");
	attr_set_int(sum, "block", 0);
	attr_set_int(sum, "feedback", 0);
	attr_set_int(sum, "guard", 0);
}

/* The algorithm: as told, else what the timing model predicts for its bytes. The runtime's own choice (auto) is the ring for
 * all but the smallest sums. Compressed sums go by the ring, reproducible ones by the tree. */
static void choose(Node *sum, const Stage *s, const SumModel *model, PassCx *cx)
{
	const Training *t = cx->train;
	double bytes = 0;

	if (t && t->comm.allreduce != ALLREDUCE_AUTO)
		attr_set_str(sum, "by", setting_word(SET_OF_AllReduceBy, (int)t->comm.allreduce));
	for (int i = 0; i < sum->nin; i++)
		bytes += (double)((value_bytes(sum->in[i]) + 63) / 64 * 64);
	if (model && t && t->comm.compress.if_faster && strcmp(attr_str(sum, "codec"), "none"))
		unpack(sum, s, model, bytes, cx);
	if (!model || !t || t->comm.allreduce != ALLREDUCE_AUTO || strcmp(attr_str(sum, "codec"), "none") ||
		t->loop.reproducible || t->target.f64)
		return;
	const SumBy by = sum_best(model, bytes);
	if (by != (sum_is_small(model, bytes) ? SUM_EVERYONE : SUM_RING))
		attr_set_str(sum, "by", sum_name(by));
	if (cx->explain)
		buf_printf(cx->explain, "stage %d: an AllReduce of %.0f bytes over %d by %s: %s, by the ring %s\n",
			s->id, bytes, s->replicas, by == SUM_EVERYONE ? "everyone to everyone" : sum_name(by),
			time_short(cx->scratch, sum_seconds(model, by, bytes)),
			time_short(cx->scratch, sum_seconds(model, SUM_RING, bytes)));
}

/* Whether the stage's devices have others too. */
static bool has_company(const Schedule *c, int stage)
{
	for (int t = 0; t < c->nstage; t++)
		if (t != stage && c->device[t][0] == c->device[stage][0])
			return true;
	return false;
}

/* The least bytes of a bucket; 0: there is one only, and nothing that it could go on beside. */
static double bucket_limit(
	const Module *m, const Stage *s, const Ready *g, int n, const SumModel *model, const SumRule *rule, PassCx *cx)
{
	SumReady *r = NEWN(cx->scratch, SumReady, n);
	double all = 0;

	for (int i = 0; i < n; i++) {
		r[i] = g[i].r;
		all += r[i].bytes;
	}
	const double limit = sum_limit(model, rule, r, n, has_company(m->schedule, s->id));
	if (cx->explain && model && n > 1 && rule->bucket <= 0)
		buf_printf(cx->explain,
			"stage %d: gradients of %.0f bytes in %.0f buckets: the last AllReduce ends %s after the last backward "
			"began, with one bucket %s\n",
			s->id, all, limit > 0 ? all / limit : 1,
			time_short(cx->scratch, sum_end(model, rule->by, r, n, limit > 0 ? limit : all)),
			time_short(cx->scratch, sum_end(model, rule->by, r, n, all)));
	return limit;
}

bool sums_in_order(Arena *a, const Schedule *s, int kind)
{
	for (int r = 0; r < s->ndevice; r++) {
		const DeviceSchedule *d = &s->dev[r];
		bool *seen = NEWN(a, bool, s->nstage);
		int top = -1;

		for (int i = d->n - 1; i >= 0; i--) {
			const int stage = d->act[i].stage;
			if ((int)d->act[i].kind != kind || seen[stage])
				continue;
			if (stage < top)
				return false;
			seen[top = stage] = true;
		}
	}
	return true;
}

static double all_bytes(const Ready *g, int n)
{
	double all = 0;

	for (int i = 0; i < n; i++)
		all += g[i].r.bytes;
	return all;
}

/* Sums of gradients as buckets; false: they cannot begin before SYNC. */
static bool join_buckets(
	Builder *b, const Module *m, const Stage *s, Value **in, int n, const SumModel *model, PassCx *cx)
{
	const SumRule rule = sum_rule(cx->train);
	const Graph *g = s->weight ? s->weight : s->backward;
	Ready *r = NEWN(cx->scratch, Ready, n);
	Value **v = NEWN(cx->scratch, Value *, n);
	double bytes = 0;
	int held = 0, bucket = 0;

	if (!cx->train || !rule.early ||
		!sums_in_order(cx->scratch, m->schedule, schedule_has(m->schedule, ACT_W) ? ACT_W : ACT_B))
		return false;
	const Speed on = cx->cluster ? device_speed(cx->cluster, s->device[0]) : (Speed){ 0 };
	if (!find_ready(g, in, n, &on, r, cx->scratch))
		return false;
	qsort(r, (size_t)n, sizeof *r, by_place); /* places differ, or the node makes both */
	const bool each = zero_each(m, s, cx);
	const double limit =
		each ? zero_bucket(cx->train, all_bytes(r, n)) : bucket_limit(m, s, r, n, model, &rule, cx);
	if (limit <= 0)
		return false;
	for (int i = 0; i < n; i++) {
		const bool parts = each && zero_in_parts(r[i].sum);
		v[held++] = r[i].sum;
		bytes += r[i].r.bytes;
		if (bytes < limit && i < n - 1 && (!each || zero_in_parts(r[i + 1].sum) == parts))
			continue;
		Node *sum = add_sum(b, v, held, "replicas", cx->train);
		attr_set_int(sum, "bucket", bucket++);
		choose(sum, s, model, cx);
		zero_scatter(sum, m, s, cx->train);
		if (parts)
			zero_sum_parts(sum, s);
		held = 0;
		bytes = 0;
	}
	return true;
}

/* Rows of looked-up tables: each pair of Stacks that an SGDRows reads. */
static void join_rows(Module *m, Stage *s, PassCx *cx)
{
	for (Node *u = s->update->first; u; u = u->next) {
		if (u->op != OP_SGDRows || u->in[1]->def->op != OP_Stack)
			continue;
		Node *last = u->in[2]->def;
		while (last->next && (last->next->op == OP_Accumulate || last->next->op == OP_Stack ||
					     last->next->op == OP_AllReduce || last->next->op == OP_AllGatherv))
			last = last->next;
		Builder b = { .m = m,
			.g = s->update,
			.before = last->next,
			.loc = u->loc,
			.phase = PHASE_UPDATE,
			.stage = s->id,
			.d = cx->d };
		build(&b, OP_AllGatherv, NULL, 2, u->in + 1, NULL);
		u->in[0]->param->sync = SYNC_ALLGATHERV;
	}
}

static bool join(Module *m, Stage *s, OpKind what, const char *over, PassCx *cx)
{
	Graph *g = s->update;
	Value **in = NULL;
	Node *last = NULL, *before = g->first;
	int n = 0, cap = 0;

	for (Node *k = g->first; k; k = k->next) {
		if (k->op == what && !value_feeds(k->out[0], OP_Push) && !value_feeds(k->out[0], OP_SGDRows))
			PUSH(cx->scratch, in, n, cap) = k->out[0];
		if (k->op == OP_Accumulate || k->op == OP_Stack || k->op == OP_Push || k->op == OP_AllReduce ||
			k->op == OP_AllGatherv)
			last = k;
	}
	if (!n)
		return true;
	if (last)
		before = last->next;
	Builder b = { .m = m,
		.g = g,
		.before = before,
		.loc = FILELOC(m->file),
		.phase = PHASE_UPDATE,
		.stage = s->id,
		.d = cx->d };
	const SumModel model =
		cx->cluster ? sum_model(cx->scratch, cx->cluster, s->device, s->replicas) : (SumModel){ .n = 0 };
	const SumModel *known = cx->cluster ? &model : NULL;
	const bool owned = what == OP_Accumulate && stage_servers(m, cx->train);
	if (what == OP_Accumulate && !owned && join_buckets(&b, m, s, in, n, known, cx))
		return true;
	Node *sum = add_sum(&b, in, n, over, cx->train);
	if (what == OP_Accumulate) {
		choose(sum, s, known, cx);
		zero_scatter(sum, m, s, cx->train);
	}
	return !owned || choose_owners(sum, s, cx);
}

/* What packing takes away from each gradient is kept for the next step (error feedback). */
static void add_residuals(Module *m, Stage *s)
{
	for (const Node *n = s->update->first; n; n = n->next)
		for (int i = 0; i < n->nin && n->op == OP_AllReduce && attr_int(n, "feedback"); i++) {
			Value *v = module_param(m, residual_name(m->arena, n->in[i]), n->in[i]->type, PARAM_STATE);
			v->param->own = true;
			PUSH(m->arena, s->param, s->nparam, s->capparam) = v;
		}
}

bool pass_comm(Module *m, PassCx *cx)
{
	if (cx->train && cx->train->comm.compress.codec && cx->train->comm.allreduce != ALLREDUCE_AUTO &&
		cx->train->comm.allreduce != ALLREDUCE_RING)
		return diag_error(cx->d, NOLOC, 406, "--compress %s goes by the ring; --allreduce is %s",
			setting_word(SET_OF_Codec, (int)cx->train->comm.compress.codec),
			setting_word(SET_OF_AllReduceBy, (int)cx->train->comm.allreduce));
	if (cx->train && cx->train->comm.compress.codec && (cx->train->loop.reproducible || cx->train->target.f64))
		return diag_error(cx->d, NOLOC, 406, "--compress %s rounds gradients on their way; %s wants exact sums",
			setting_word(SET_OF_Codec, (int)cx->train->comm.compress.codec),
			cx->train->loop.reproducible ? "--reproducible" : "--f64");
	for (int i = 0; i < m->nstage; i++) {
		Stage *s = m->stage[i];
		for (const Node *n = s->update->first; n; n = n->next)
			if (n->op == OP_AllReduce || n->op == OP_AllGatherv)
				return diag_error(cx->d, n->loc, 410, "comm has run on this module");
		if (s->replicas > 1) {
			if (!join(m, s, OP_Accumulate, "replicas", cx))
				return false;
			join(m, s, OP_Stack, "rows", cx);
			add_residuals(m, s);
		}
		for (int k = 0; k < s->nparam && s->replicas > 1; k++)
			if (s->param[k]->param->kind == PARAM_WEIGHT && !s->param[k]->param->frozen &&
				s->param[k]->param->sync != SYNC_PS)
				s->param[k]->param->sync = SYNC_ALLREDUCE;
		if (s->replicas > 1 || (cx->train && cx->train->loop.reproducible))
			join_rows(m, s, cx);
	}
	return true;
}
