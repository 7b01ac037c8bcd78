/* What devices and servers tell each other in a step, as runtime/pull.c and serve.c do it: heads, row numbers, values. Whole
 * parameters are exact; of rows it is what evenly drawn ids touch (travel.c). */
#include "simulate.h"

enum { HEAD = 40, ID = 4 };

static double sums_of(Arena *a, const Module *m, const Stage *s, int replica, bool reproducible)
{
	const Schedule *x = m->schedule;
	int *mine = NEWN(a, int, x->nmicro), most;

	if (!reproducible)
		return 1;
	const int n = schedule_mine(x, x->device[s->id][replica], s->id, mine);
	return schedule_subtrees(a, schedule_grains(x, s->id), mine, n, &most);
}

/* Of one Collect at server v: what a replica of its stage moves for it. The first part of a gradient counts the pull. */
static void add_part(SimServe *to, const Module *m, const Stage *s, const Node *collect, double sums)
{
	const Node *pull = NULL;
	int64_t lookups = 0;
	int pulls = 0;
	const int64_t grains = m->microbatches / s->replicas > 0 ? m->microbatches / s->replicas : 1;

	for (const Node *n = s->forward->first; n; n = n->next)
		if (n->op == OP_Pull && attr_int(n, "key") == attr_int(collect, "key")) {
			pull = n;
			lookups += n->nin > 1 ? type_numel(&n->in[1]->type) * grains : 0;
			pulls++;
		}
	const Type *t = &collect->out[0]->type;
	const bool whole = pull->nin == 1;
	const double rows = whole ? 1 : (double)t->dim[0], all = whole ? 1 : (double)pull->in[0]->type.dim[0];
	const double touched = whole ? 1 : rows * rows_touched((double)lookups, all);
	const double bytes = (double)type_bytes(t) / rows * touched;

	to->up += sums * bytes;
	to->ids += whole ? 0 : sums * ID * touched;
	to->heads += sums * HEAD;
	if (attr_int(collect, "part"))
		return;
	to->down += bytes;
	to->ids += whole ? 0 : ID * touched;
	to->heads += HEAD * (whole ? 1.0 : (double)(pulls * grains));
}

void sim_add_servers(Arena *a, SimModel *x, const Module *m, bool reproducible, int *capjoin)
{
	int cap = 0;

	for (int v = 0; v < m->nstage; v++) {
		const Stage *server = m->stage[v];
		int *rank = NEWN(a, int, m->schedule->ndevice), n = 0;
		double most = 0;
		if (!server->server)
			continue;
		x->nserver++;
		for (int t = 0; t < m->nstage && !m->stage[t]->server; t++)
			for (int r = 0; r < m->stage[t]->replicas; r++) {
				SimServe s = { .worker = m->schedule->device[t][r], .server = server->rank };
				for (const Node *c = server->update->first; c; c = c->next)
					if (c->op == OP_Collect && attr_int(c, "from") == t)
						add_part(&s, m, m->stage[t], c, sums_of(a, m, m->stage[t], r, reproducible));
				if (s.heads <= 0)
					continue;
				s.heads += HEAD;            /* the end */
				PUSH(a, x->serve, x->nserve, cap) = s;
				rank[n++] = s.worker;
				most = s.up + s.down + s.ids + s.heads > most ? s.up + s.down + s.ids + s.heads : most;
			}
		rank[n++] = server->rank;
		PUSH(a, x->join, x->njoin, *capjoin) = (SimJoin){ .kind = SIM_SERVE, .bytes = (int64_t)most, .n = n,
			.rank = rank, .root = n - 1 };
	}
}
