/* PipeDream's server of a replicated stage: which of its replicas owns what (passes/comm/owners.c). */
#include "build.h"
#include "ir/analysis.h"

const Node *owned_sums(const Stage *s)
{
	for (const Node *n = s->update->first; n; n = n->next)
		if (n->op == OP_AllReduce && attr_ints(n, "owner").n)
			return n;
	return NULL;
}

int owned_pieces(Arena *a, const Stage *s, OwnedPiece **list)
{
	const Node *sums = owned_sums(s);
	int n = 0, cap = 0;

	*list = NULL;
	for (int i = 0; sums && i < sums->nin; i++) {
		const Value *g = sums->in[i];
		const int64_t owner = attr_ints(sums, "owner").v[i], count = type_numel(&g->type);
		const int64_t part = owner < 0 ? part_of_sum(g) : count;
		for (int r = 0; r < (owner < 0 ? s->replicas : 1); r++)
			if (part_held(count, part, r))
				PUSH(a, *list, n, cap) = (OwnedPiece){ g, owner < 0 ? r : (int)owner, r * part,
					part_held(count, part, r) };
	}
	return n;
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

bool updates(const Node *n) { return (optab[n->op]->flags & OP_UPDATE) && n->in[0]->kind == VAL_PARAM; }

int64_t owned_part(const Stage *s, const Value *v)
{
	for (const Node *n = s->update->first; n && owned_sums(s); n = n->next)
		if (updates(n) && n->in[0] == v && op_attr(n->op, "part"))
			return attr_int(n, "part");
	return 0;
}

/* The replica that does an update; -1: all do, or each its part. */
int owner_of_update(const Stage *s, const Node *update)
{
	const Node *sums = owned_sums(s);

	for (int i = 0; sums && i < sums->nin; i++)
		for (int k = 1; k < update->nin; k++)
			if (update->in[k] && made_of(update->in[k], sums->in[i]))
				return (int)attr_ints(sums, "owner").v[i];
	return -1;
}

int owning_replica(const Stage *s, const Value *v)
{
	const Value *w = v->param->of ? v->param->of : v;

	for (const Node *n = s->update->first; n && owned_sums(s); n = n->next)
		if (updates(n) && n->in[0] == w && owner_of_update(s, n) > 0)
			return owner_of_update(s, n);
	return 0;
}
