/* State in parts (passes/comm/zero.c), simulated: a ReduceScatter of gradients, in which every replica sends every other one that one's
 * part, and the AllGather of weights, in which it sends its own. The gather is behind the update; here it follows the sums, before
 * it, which takes as long. */
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
