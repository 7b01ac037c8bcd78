/* PipeDream's server of a replicated stage: which of its replicas owns what (passes/comm/owners.c). */
#include "build.h"

const Node *owned_sums(const Stage *s)
{
	for (const Node *n = s->update->first; n; n = n->next)
		if (n->op == OP_AllReduce && attr_ints(n, "owner").n)
			return n;
	return NULL;
}

/* Is v made of this sum? */
static bool made_of(const Value *v, const Value *sum)
{
	if (v == sum)
		return true;
	for (int i = 0; v->kind == VAL_NODE && v->def->op != OP_Accumulate && i < v->def->nin; i++)
		if (v->def->in[i] && made_of(v->def->in[i], sum))
			return true;
	return false;
}

/* The replica that does an update; -1: all do. */
int owner_of_update(const Stage *s, const Node *update)
{
	const Node *sums = owned_sums(s);

	for (int i = 0; sums && i < sums->nin; i++)
		for (int k = 1; k < update->nin; k++)
			if (update->in[k] && made_of(update->in[k], sums->in[i]))
				return (int)attr_ints(sums, "owner").v[i];
	return -1;
}

bool updates(const Node *n) { return (optab[n->op]->flags & OP_UPDATE) && n->in[0]->kind == VAL_PARAM; }

int owning_replica(const Stage *s, const Value *v)
{
	const Value *w = v->param->of ? v->param->of : v;

	for (const Node *n = s->update->first; n && owned_sums(s); n = n->next)
		if (updates(n) && n->in[0] == w && owner_of_update(s, n) > 0)
			return owner_of_update(s, n);
	return 0;
}
