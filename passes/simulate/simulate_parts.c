/* State in parts (passes/comm/zero.c), simulated: a ReduceScatter of gradients, in which every replica sends every other one that one's
 * part, and the AllGather of weights, in which it sends its own. The gather is behind the update; here it follows the sums, before
 * it, which takes as long. And the AllGathers of weights in parts (passes/comm/gather.c), of which F, B and W take the time. */
#include "simulate_ports.h"
#include "ir/analysis.h"

SimJoin *sim_add_parts(Arena *a, SimModel *x, const Stage *s, const Node *n, int *cap)
{
	int64_t *part = NEWN(a, int64_t, s->replicas), *none = NEWN(a, int64_t, s->replicas);
	SimJoin j = { .kind = SIM_PARTS, .n = s->replicas, .rank = x->s->device[s->id], .stage = s->id };

	for (int i = 0; i < n->nin; i++) {
		const Value *whole = n->op == OP_AllReduce && attr_int(n, "each") ? n->in[i]->def->in[0] : n->in[i];
		const int64_t count = type_numel(&whole->type), size = dtype_bytes(n->in[i]->type.dtype);
		for (int r = 0; r < s->replicas; r++)
			part[r] += size * part_held(count, part_of(count, s->replicas), r);
		j.bytes += size * count;
	}
	j.push = n->op == OP_AllGather ? none : part;
	j.newest = n->op == OP_AllGather ? part : none;
	PUSH(a, x->join, x->njoin, *cap) = j;
	return &x->join[x->njoin - 1];
}

double sim_each_seconds(const SimModel *x, const Stage *s)
{
	double t = 0;

	for (int i = 0; i < x->njoin; i++)
		if (x->join[i].each && x->join[i].stage == s->id)
			t += ports_alone(x->c, s->device, x->join[i]);
	return t;
}

/* ---- weights in parts ---- */

static bool begins_bucket(const Node *n)
{
	return n->op == OP_GatherWeight &&
	       (!n->prev || n->prev->op != OP_GatherWeight || attr_int(n->prev, "bucket") != attr_int(n, "bucket"));
}

/* The AllGather of a bucket, n its first node. */
static SimJoin bucket_of(Arena *a, const SimModel *x, const Stage *s, const Node *n)
{
	int64_t *part = NEWN(a, int64_t, s->replicas);
	SimJoin j = { .kind = SIM_PARTS,
		.n = s->replicas,
		.rank = x->s->device[s->id],
		.stage = s->id,
		.push = NEWN(a, int64_t, s->replicas),
		.newest = part,
		.each = x->s->nmicro / s->replicas };
	const Node *first = n;

	do {
		const int64_t count = type_numel(&n->out[0]->type), size = dtype_bytes(n->out[0]->type.dtype);
		for (int r = 0; r < s->replicas; r++)
			part[r] += size * part_held(count, part_of(count, s->replicas), r);
		j.bytes += size * count;
		n = n->next;
	} while (n && n->op == OP_GatherWeight && attr_int(n, "bucket") == attr_int(first, "bucket"));
	return j;
}

void sim_add_gathers(Arena *a, SimModel *x, const Stage *s, int *cap)
{
	Graph *g[4];
	const int ngraph = stage_graphs(s, g);

	for (int k = 0; k < ngraph; k++)
		for (const Node *n = g[k]->first; n; n = n->next)
			if (begins_bucket(n))
				PUSH(a, x->gather, x->ngather, *cap) = bucket_of(a, x, s, n);
}

static bool reads_bucket(const Node *n, int64_t bucket)
{
	for (int i = 0; i < n->nin; i++) {
		const Value *v = n->in[i] ? value_root(n->in[i]) : NULL;
		if (v && v->kind == VAL_NODE && v->def->op == OP_GatherWeight && v->def->graph == n->graph &&
			attr_int(v->def, "bucket") == bucket)
			return true;
	}
	return false;
}

double sim_gathered_seconds(
	const SimModel *x, const Stage *s, const Graph *g, const Speed *first, const Speed *on, double *links)
{
	Arena *a = arena_new();
	double t = 0, gathered = 0;
	int64_t bucket = -1; /* under way, until then */

	for (const Node *n = g->first; n; n = n->next) {
		if (begins_bucket(n)) {
			t = t > gathered ? t : gathered;
			const double alone = ports_alone(x->c, s->device, bucket_of(a, x, s, n));
			gathered = t + alone;
			*links += alone;
			bucket = attr_int(n, "bucket");
		} else if (bucket >= 0 && reads_bucket(n, bucket)) {
			t = t > gathered ? t : gathered;
			bucket = -1;
		}
		t += node_seconds(n, first, on);
	}
	arena_free(a);
	return t;
}
