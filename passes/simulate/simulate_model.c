/* What the simulator is given, from a planned module; and the bytes that move over each kind of link. */
#include <string.h>
#include "simulate.h"
#include "passes/cost/sumcost.h"
#include "ir/analysis.h"
#include "passes/cost/cost.h"

enum { ALIGN = 64 }; /* of messages with a tag; of the members of a stage's gradients, which are summed as one */

/* Of F, B or W; sums: seconds of what it sums for all of it. With gathers of weights such sums end within it (passes/comm/gather.c). */
static double action_seconds(
	const SimModel *x, const Stage *s, const Graph *g, const Speed *first, const Speed *on, double sums)
{
	double links = sums;
	const double t = !g           ? 0
	                 : x->ngather ? sim_gathered_seconds(x, s, g, first, on, &links)
	                              : graph_seconds(g, first, on);

	return t > links ? t : links;
}

static bool same_speed(Speed x, Speed y)
{
	return !(x.flops < y.flops || x.flops > y.flops || x.bandwidth < y.bandwidth || x.bandwidth > y.bandwidth ||
		 x.launch < y.launch || x.launch > y.launch || x.half < y.half || x.half > y.half);
}

static void stage_times(SimModel *x, const Module *m)
{
	const Speed first = device_speed(x->c, 0);
	const double micro = m->schedule->async ? m->schedule->per_step : m->schedule->nmicro;

	for (int t = 0; t < m->nstage; t++) {
		Speed was = { 0 };
		const Stage *s = m->stage[t];
		const double each = graph_seconds(s->forward, &first, &first) +
		                    graph_seconds(s->backward, &first, &first) +
		                    (s->weight ? graph_seconds(s->weight, &first, &first) : 0);
		x->alone += micro * each + graph_seconds(s->update, &first, &first);
		for (int k = 0; k < m->stage[t]->replicas; k++) {
			const int r = x->s->device[t][k];
			SimTimes *to = &x->time[r * m->nstage + t];
			const Speed on = device_speed(x->c, x->device[r]);
			if (k && same_speed(on, was)) {
				memcpy(to, &x->time[x->s->device[t][k - 1] * m->nstage + t], sizeof *to);
				continue;
			}
			was = on;
			const double sums = sim_each_seconds(x, s);
			(*to)[ACT_F] = action_seconds(x, s, s->forward, &first, &on, 0);
			(*to)[ACT_B] = action_seconds(x, s, s->backward, &first, &on, s->weight ? 0 : sums);
			(*to)[ACT_W] = action_seconds(x, s, s->weight, &first, &on, s->weight ? sums : 0);
			(*to)[ACT_UPDATE] = graph_seconds(m->stage[t]->update, &first, &on);
		}
	}
}

/* Of a tensor on its way; where steps are not told apart by a flush its tag stands behind it (pd_tag), and in front of that
 * nothing. */
static int64_t wire_bytes(const SimModel *x, const Value *v)
{
	const int64_t bytes = value_bytes(v);

	return x->tagged ? (bytes + ALIGN - 1) / ALIGN * ALIGN + SIM_TAG : bytes;
}

static void stage_messages(Arena *a, SimModel *x, const Stage *s, int *cap)
{
	for (int pass = 0; pass < 2; pass++)
		for (const Node *n = (pass ? s->backward : s->forward)->first; n; n = n->next)
			if (n->op == OP_Send)
				PUSH(a, x->msg, x->nmsg, *cap) =
					(SimMessage){ s->id, (int)attr_int(n, "to"), wire_bytes(x, n->in[0]), !pass };
}

/* ---- sums: those of replicas stage by stage, then what stages copy to each other ---- */

/* What goes to everyone at once travels as it is. */
static void pack(SimJoin *j, const Node *sum)
{
	const char *codec = attr_str(sum, "codec");

	if (!strcmp(codec, "none") || sim_small_sum(j))
		return;
	j->codec = codec;
	j->block = attr_int(sum, "block");
	j->floats = j->bytes / 4;
	j->bytes = sum_wire(codec, j->block, j->bytes);
}

static SimJoinKind join_kind(const char *by)
{
	static const char *const name[] = { [ROUNDS_DOUBLING] = "doubling",
		[ROUNDS_HALVING] = "halving",
		[ROUNDS_PAIRWISE] = "pairwise",
		[ROUNDS_HOSTS] = "hosts" };

	for (int i = 0; i < 4; i++)
		if (strcmp(by, name[i]) == 0)
			return (SimJoinKind)(SIM_ROUNDS + i);
	return SIM_RING;
}

static const rounds_hosts *hosts_of(Arena *a, const SimModel *x, const SimJoin *j)
{
	int *host = NEWN(a, int, j->n);

	for (int i = 0; i < j->n; i++)
		host[i] = x->c->device[x->device[j->rank[i]]].host;
	rounds_hosts *h = NEW(a, rounds_hosts);
	rounds_number(j->n, host, NEWN(a, int, ROUNDS_SPACE * j->n + 1), h);
	return h;
}

/* The share of the time of the graph that makes the gradients until this node is done. */
static double share_until(const SimModel *x, const Stage *s, const Node *last)
{
	const Speed on = device_speed(x->c, 0);
	double t = 0, all = 0;
	bool behind = false;

	for (const Node *n = (s->weight ? s->weight : s->backward)->first; n; n = n->next) {
		all += node_seconds(n, &on, &on);
		t = behind ? t : all;
		behind |= n == last;
	}
	return all > 0 ? t / all : 1;
}

/* How many sums each replica has of its own before they meet: those of the largest subtrees that it has done alone. */
static const int *subtrees(Arena *a, const Schedule *x, const Stage *s)
{
	int *n = NEWN(a, int, s->replicas), *mine = NEWN(a, int, x->nmicro), most;

	for (int r = 0; r < s->replicas; r++)
		n[r] = schedule_subtrees(
			a, schedule_grains(x, s->id), mine, schedule_mine(x, x->device[s->id][r], s->id, mine), &most);
	return n;
}

/* Sums of buckets, or all others. tree: they are those of --reproducible. */
static void stage_sums(Arena *a, SimModel *x, const Stage *s, bool buckets, bool tree, int *cap)
{
	SimJoin all = { .kind = SIM_RING,
		.n = s->replicas,
		.rank = x->s->device[s->id],
		.stage = s->id,
		.when = s->weight ? ACT_W : ACT_B };

	for (const Node *n = s->update->first; n; n = n->next) {
		if (n->op != OP_AllReduce || (attr_int(n, "bucket") >= 0) != buckets)
			continue;
		const bool rows = !strcmp(attr_str(n, "over"), "rows");
		if (attr_ints(n, "owner").n) {
			sim_add_owned(a, x, s, n, cap);
			continue;
		}
		if (attr_int(n, "parts")) {
			SimJoin *j = sim_add_parts(a, x, s, n, cap);
			j->when = all.when;
			j->bucket = buckets;
			j->each = attr_int(n, "each") ? x->s->nmicro / s->replicas : 0;
			j->ready = buckets ? share_until(x, s, bucket_node(s, n)) : 0;
			continue;
		}
		for (int i = 0; i < n->nin; i++) {
			const int64_t bytes = value_bytes(n->in[i]);
			if (!rows) {
				all.bytes += (bytes + ALIGN - 1) / ALIGN * ALIGN;
				continue;
			}
			PUSH(a, x->join, x->njoin, *cap) = all;
			x->join[x->njoin - 1].bytes = bytes;
		}
		if (!rows) {
			PUSH(a, x->join, x->njoin, *cap) = all;
			SimJoin *j = &x->join[x->njoin - 1];
			j->kind = join_kind(attr_str(n, "by"));
			j->always = !strcmp(attr_str(n, "by"), "ring");
			pack(j, n);
			j->subtrees = tree ? subtrees(a, x->s, s) : NULL;
			j->vendor = !strcmp(attr_str(n, "by"), "vendor");
			j->hosts = j->kind == SIM_HOSTS ? hosts_of(a, x, j) : NULL;
			j->bucket = attr_int(n, "bucket") >= 0;
			j->ready = j->bucket ? share_until(x, s, bucket_node(s, n)) : 0;
			all.bytes = 0;
		}
	}
}

/* Rows of tables, at most: no id twice in a microbatch. bytes: of a member to each other one. */
static void stage_rows(Arena *a, SimModel *x, const Stage *s, int *cap)
{
	const int grains = schedule_grains(x->s, s->id), own = (grains + s->replicas - 1) / s->replicas;

	for (const Node *n = s->update->first; n && s->replicas > 1; n = n->next)
		if (n->op == OP_AllGatherv)
			PUSH(a, x->join, x->njoin, *cap) = (SimJoin){ .kind = SIM_GATHER,
				.n = s->replicas,
				.rank = x->s->device[s->id],
				.bytes = (value_bytes(n->in[0]) + value_bytes(n->in[1])) / grains * own + 4 * grains };
}

static bool in_earlier_stage(const Module *m, const Stage *s, const Node *copy)
{
	for (int t = 0; t < s->id; t++)
		for (const Node *n = m->stage[t]->update->first; n; n = n->next)
			if (n->op == OP_Broadcast && attr_int(n, "number") == attr_int(copy, "number"))
				return true;
	return false;
}

/* A Broadcast is in the graphs of all stages that take part; it is listed by the first of them. */
static void stage_copies(Arena *a, SimModel *x, const Module *m, const Stage *s, int *cap)
{
	for (const Node *n = s->update->first; n; n = n->next) {
		if (n->op != OP_Broadcast)
			continue;
		const Ints ranks = attr_ints(n, "ranks");
		int *list = NEWN(a, int, ranks.n);
		for (int i = 0; i < ranks.n; i++)
			list[i] = (int)ranks.v[i];
		if (ranks.n > 1 && !in_earlier_stage(m, s, n))
			PUSH(a, x->join, x->njoin, *cap) = (SimJoin){ .kind = SIM_COPY,
				.bytes = value_bytes(n->out[0]),
				.n = ranks.n,
				.rank = list,
				.root = (int)attr_int(n, "root") };
	}
}

void sim_add_count(Arena *a, SimModel *x, int stage, int *cap)
{
	if (x->s->async && x->s->replicas[stage] > 1)
		PUSH(a, x->join, x->njoin, *cap) = (SimJoin){ .kind = SIM_RING,
			.n = x->s->replicas[stage],
			.rank = x->s->device[stage],
			.stage = stage,
			.bytes = SIM_COUNT };
}

/* Numbers whose squares are told, where something clips by their norm, and to which device: parameters, and blocks of those
 * that lie at several servers. */
static int64_t squares(const Module *m, int *at)
{
	int64_t blocks = 0;

	for (int t = 0; t < m->nstage; t++)
		for (const Node *n = m->stage[t]->update->first; n; n = n->next)
			if (n->op == OP_SquareSum)
				blocks += square_blocks(n);
	for (int t = 0; t < m->nstage; t++)
		for (const Node *n = m->stage[t]->update->first; n; n = n->next)
			if (n->op == OP_ClipNorm) {
				*at = m->stage[attr_int(n, "at")]->rank;
				return attr_int(n, "of") + blocks;
			}
	return 0;
}

SimModel *simulate_model(Arena *a, const Module *m, const Cluster *c, const Training *training)
{
	enum { SQUARE = 16, REPORT = 40 }; /* bytes: what a device reports of a microbatch; what it is told */
	SimModel *x = NEW(a, SimModel);
	int cap = 0, *device = NEWN(a, int, m->schedule->ndevice);

	const bool each = schedule_each(m), tree = training && training->loop.reproducible;

	*x = (SimModel){ .s = each ? sim_repeated(a, m) : m->schedule,
		.each = each,
		.tagged = schedule_tagged(m),
		.staleness = training ? training->comm.staleness : -1,
		.c = c,
		.device = device,
		.time = NEWN(a, SimTimes, m->schedule->ndevice * m->nstage),
		.fixed = NEWN(a, int64_t, m->nstage),
		.slot = NEWN(a, int64_t, m->nstage),
		.totals = m->schedule->async || each ? 0 : (m->microbatches + 2) * REPORT };
	for (int t = 0; t < m->nstage; t++) {
		for (int k = 0; k < m->stage[t]->replicas; k++)
			device[m->schedule->device[t][k]] = m->stage[t]->device[k];
		x->slot[t] = m->stage[t]->slot_bytes;
		x->fixed[t] = m->stage[t]->arena;
		for (int k = 0; k < m->nstage; k++)
			if (m->stage[k]->rank == m->stage[t]->rank)
				x->fixed[t] -= m->stage[k]->bytes[REGION_SLOT];
		stage_messages(a, x, m->stage[t], &cap);
	}
	cap = 0;
	for (int t = 0; t < m->nstage; t++)
		sim_add_gathers(a, x, m->stage[t], &cap);
	cap = 0;
	for (int t = m->nstage - 1; t >= 0; t--) /* the later a stage, the earlier its last backward */
		stage_sums(a, x, m->stage[t], true, tree, &cap);
	for (int t = 0; t < m->nstage; t++)
		stage_sums(a, x, m->stage[t], false, tree, &cap);
	for (int t = 0; t < m->nstage; t++)
		stage_rows(a, x, m->stage[t], &cap);
	for (int t = 0; t < m->nstage; t++)
		for (const Node *n = m->stage[t]->update->first; n; n = n->next)
			if (n->op == OP_AllGather)
				sim_add_parts(a, x, m->stage[t], n, &cap);
	for (int t = 0; t < m->nstage; t++)
		stage_copies(a, x, m, m->stage[t], &cap);
	for (int t = 0; t < m->nstage; t++)
		sim_add_count(a, x, t, &cap);
	sim_add_servers(a, x, m, training, &cap);
	stage_times(x, m);
	x->norm = SQUARE * squares(m, &x->norm_at);
	for (int i = 0; i < m->nparam; i++)
		if (m->param[i]->param->kind == PARAM_WEIGHT && !m->param[i]->param->frozen &&
			!m->param[i]->param->whole)
			x->weights += (value_bytes(m->param[i]) + ALIGN - 1) / ALIGN * ALIGN;
	return x;
}

/* ---- bytes ---- */

static int line_between(const SimModel *m, int from, int to)
{
	return cluster_link_line(m->c, m->device[from], m->device[to]);
}

/* rank NULL: all devices. */
static void ring_bytes(const SimModel *m, int64_t *to, const SimJoin *j, int64_t times)
{
	for (int r = 0; r < j->n; r++)
		for (int o = 1; o <= sim_ring_reach(j); o++) {
			const int k = (r + o) % j->n;

			to[line_between(m, j->rank ? j->rank[r] : r, j->rank ? j->rank[k] : k)] +=
				times * sim_ring_sent(j, r, k);
		}
}

static void rounds_bytes(const SimModel *m, int64_t *to, const SimJoin *j, int64_t times)
{
	bool going = true;

	for (int k = 0; going; k++)
		for (int i = 0; i < j->n; i++) {
			rounds_step x;

			going = rounds_step_of(sim_rounds(j->kind), j->n, j->hosts, i, k, (size_t)j->bytes / 4, &x);
			if (going && x.to >= 0)
				to[line_between(m, j->rank[i], j->rank[x.to])] += times * 4 * (int64_t)x.send_n;
		}
}

static void join_bytes(const SimModel *m, int64_t *to, const SimJoin *x, int64_t times)
{
	if (x->kind == SIM_RING)
		ring_bytes(m, to, x, times);
	if (x->kind >= SIM_ROUNDS)
		rounds_bytes(m, to, x, times);
	for (int i = 0; i < x->n * x->n && sim_tells(x); i++)
		if (sim_told(x, i / x->n, i % x->n))
			to[line_between(m, x->rank[i / x->n], x->rank[i % x->n])] +=
				times * sim_told(x, i / x->n, i % x->n);
}

/* What data parallelism over the same devices would sum, as often as it would: once a step, or once a round of minibatches. A plan
 * that is data parallelism sums what it sums. */
static void parallel_bytes(const SimModel *m, int64_t *to, const int64_t *joins, int steps, int lines)
{
	const int n = m->s->ndevice - m->nserver;
	SimJoin j = { .kind = SIM_RING, .n = n, .bytes = m->weights };

	if (m->s->nstage == 1 && !m->nserver) {
		memcpy(to, joins, sizeof *joins * (size_t)lines);
		return;
	}
	ring_bytes(m, to, &j, steps);
	j.bytes = m->s->async && n > 1 ? SIM_COUNT : 0;
	ring_bytes(m, to, &j, steps);
	for (int i = 0; i < lines && m->s->robin; i++)
		to[i] /= n;
}

void sim_count_bytes(Arena *a, Sim *out, const double *busy)
{
	const SimModel *m = out->model;
	const int lines = m->c->nlink + 2;
	SimLoad *load = NEWN(a, SimLoad, lines);
	int64_t *joins = NEWN(a, int64_t, lines), *parallel = NEWN(a, int64_t, lines);

	for (int i = 0; i < m->nmsg; i++)
		for (int mb = 0; mb < m->s->nmicro; mb++) {
			const SimMessage *x = &m->msg[i];
			const int from = m->s->device[x->from][m->s->replica_of[x->from][mb]];
			const int to = m->s->device[x->to][m->s->replica_of[x->to][mb]];
			if (from != to)
				load[line_between(m, from, to)].messages += x->bytes;
		}
	for (int j = 0; j < m->njoin; j++)
		join_bytes(m, joins, &m->join[j], sim_times(m, &m->join[j]));
	for (int j = 0; j < m->ngather; j++)
		join_bytes(m, joins, &m->gather[j], sim_times(m, &m->gather[j]));
	for (int i = 0; i < m->nserve; i++)
		joins[line_between(m, m->serve[i].worker, m->serve[i].server)] +=
			(m->each ? EACH_STEPS : 1) * (int64_t)(serve_bytes(&m->serve[i]) + 0.5);
	parallel_bytes(m, parallel, joins, out->steps, lines);
	out->load = load;
	for (int i = 0; i < lines; i++)
		if (load[i].messages || joins[i] || parallel[i])
			load[out->nload++] = (SimLoad){ i, load[i].messages, joins[i], parallel[i], busy[i] };
}
