/* State in parts (passes/comm/zero.c, owners.c): tables of what a ReduceScatter or an AllGather moves, and the gather behind the updates. */
#include <inttypes.h>
#include "ir/analysis.h"
#include "stage.h"

/* Of which each replica has a part: all operands, or those without an owner (owners.c). */
static bool in_parts(const Node *n, int i)
{
	const Ints owner = n->op == OP_AllReduce ? attr_ints(n, "owner") : (Ints){ 0, NULL };

	return owner.n ? owner.v[i] < 0 : n->op == OP_AllGather || (n->op == OP_AllReduce && attr_int(n, "parts"));
}

static int count_parts(const Node *n)
{
	int k = 0;

	for (int i = 0; i < n->nin; i++)
		k += in_parts(n, i);
	return k;
}

bool moves_parts(const Node *n) { return count_parts(n) > 0; }

static const char *table(const StageCx *x, const Node *n)
{
	int i = 0;

	if (n->op == OP_AllGather)
		return "weight_parts";
	for (const Node *k = x->s->update->first; k != n; k = k->next)
		i += k->op == OP_AllReduce && moves_parts(k);
	return arena_printf(x->b->a, "gradient_parts%d", i);
}

const char *parts_args(const StageCx *x, const Node *n)
{
	return arena_printf(x->b->a, "%s, %d", table(x, n), count_parts(n));
}

/* Of a table: bytes from the beginning of its struct to v. */
static int64_t place(const StageCx *x, const Value *v)
{
	return v->kind == VAL_PARAM ? x->s->param_at[param_index(x->s, v)] - x->s->at[REGION_PARAMS] : v->offset;
}

void write_part_tables(StageCx *x, Cw *w)
{
	for (const Node *n = x->s->update->first; n; n = n->next) {
		if (!moves_parts(n))
			continue;
		cw_blank(w);
		cw_comment(w, "%s: where they lie, elements, how many of them a replica has%s",
			n->op == OP_AllGather ? "weights that are updated in parts"
					      : "gradients that are summed in parts",
			n->op == OP_AllReduce && attr_int(n, "each") ? ", where those lie in G" : "");
		cw_open(w, "static const pd_part %s[] =", table(x, n));
		for (int i = 0; i < n->nin; i++) {
			if (!in_parts(n, i))
				continue;
			const bool each = n->op == OP_AllReduce && attr_int(n, "each");
			const Value *v = n->in[i], *whole = each ? v->def->in[0] : v;
			const int64_t count = type_numel(&whole->type), size = dtype_bytes(v->type.dtype);
			cw_stmt(w, arena_printf(x->b->a, "%s%s", v->kind == VAL_PARAM ? "@" : "%", v->name),
				"{ %" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 " },",
				place(x, value_root(whole)) / size, count,
				owned_sums(x->s) ? part_of_sum(v) : part_of(count, x->s->replicas),
				each ? place(x, v) / size : 0);
		}
		cw_close(w, ";");
	}
}

void write_gather(StageCx *x, Cw *w, const Node *n)
{
	cw_line(w, "pd_gather_parts(%s, P, %s, sizeof(%s));", group_text(x), parts_args(x, n),
		dtype_c(n->in[0]->type.dtype));
}
