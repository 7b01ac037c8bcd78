/* PipeDream's server of a replicated stage: replicas own its parameters (passes/comm/owners.c). The table of gradients, their
 * pushes from the backward, sums at the owner, updates by the owner alone, and what it sends to the others. */
#include <inttypes.h>
#include "stage.h"

void write_owned_table(StageCx *x, Cw *w)
{
	const Node *n = owned_sums(x->s);

	if (!n)
		return;
	cw_blank(w);
	cw_comment(w, "gradients: of which parameter, which replica owns it, floats");
	cw_open(w, "static const pd_owned owned[] =");
	for (int i = 0; i < n->nin; i++)
		cw_line(w, "{ %s, %d, %" PRId64 " },", quoted(x->b->a, n->in[i]->name), (int)attr_ints(n, "owner").v[i],
			type_numel(&n->in[i]->type));
	cw_close(w, ";");
}

void open_owned(StageCx *x, Cw *w)
{
	if (owned_sums(x->s))
		cw_line(w, "pd_owned_open(%s, %s, owned, sizeof owned / sizeof *owned);", group_text(x),
			use(x, NAME_WHICH));
}

void begin_owned(StageCx *x, Cw *w)
{
	if (owned_sums(x->s))
		cw_line(w, "pd_owned_begin();");
}

void push_owned(StageCx *x, Cw *w, const Node *n)
{
	const Node *sums = owned_sums(x->s);

	for (int i = 0; sums && i < sums->nin; i++) {
		const Value *made = sums->in[i]->def->in[0];
		if (n && made->def != n)
			continue;
		cw_stmt(w, arena_printf(x->b->a, "%%%s", sums->in[i]->name), "pd_owned_push(%d, %s);", i,
			value_text(x, n ? made : sums->in[i]));
	}
}

void sum_owned(StageCx *x, Cw *w)
{
	const Node *sums = owned_sums(x->s);

	for (int i = 0; i < sums->nin; i++)
		cw_line(w, "pd_owned_sum(%d, %s);", i, value_text(x, sums->in[i]));
}

bool owned_update(StageCx *x, Cw *w, const Node *n)
{
	const int owner = updates(n) ? owner_of_update(x->s, n) : -1;

	if (owner >= 0)
		cw_open(w, "if (replica == %d)", owner);
	return owner >= 0;
}

void send_owned(StageCx *x, Cw *w)
{
	for (const Node *n = x->s->update->first; n; n = n->next) {
		const int owner = updates(n) && n->op != OP_SquareSum ? owner_of_update(x->s, n) : -1;
		if (owner >= 0)
			cw_line(w, "pd_broadcast(%s, %d, %s, %s);", group_text(x), owner, value_text(x, n->in[0]),
				bytes_text(x->b->a, n->in[0]));
	}
}
