/* PipeDream's server of a replicated stage: replicas own its parameters, or parts of them (passes/comm/owners.c). The table of
 * gradients, their pushes from the backward, sums at the owner, updates by the owner alone, and what it sends to the others. */
#include <inttypes.h>
#include "ir/analysis.h"
#include "stage.h"

void write_owned_table(StageCx *x, Cw *w)
{
	OwnedPiece *p;
	const int n = owned_pieces(x->b->a, x->s, &p);

	if (!n)
		return;
	cw_blank(w);
	cw_comment(w, "gradients, whole or cut: of which parameter, which replica owns it, floats");
	cw_open(w, "static const pd_owned owned[] =");
	for (int i = 0; i < n; i++)
		cw_line(w, "{ %s, %d, %" PRId64 " },", quoted(x->b->a, p[i].sum->name), p[i].owner, p[i].n);
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

/* Where a piece of v begins. */
static const char *piece_text(StageCx *x, const Value *v, const OwnedPiece *p)
{
	return p->at ? arena_printf(x->b->a, "%s + %" PRId64, value_text(x, v), p->at) : value_text(x, v);
}

void push_owned(StageCx *x, Cw *w, const Node *n)
{
	OwnedPiece *p;
	const int count = owned_pieces(x->b->a, x->s, &p);

	for (int i = 0; i < count; i++) {
		const Value *made = p[i].sum->def->in[0];
		if (n && made->def != n)
			continue;
		cw_stmt(w, arena_printf(x->b->a, "%%%s", p[i].sum->name), "pd_owned_push(%d, %s);", i,
			piece_text(x, n ? made : p[i].sum, &p[i]));
	}
}

void sum_owned(StageCx *x, Cw *w)
{
	const Node *sums = owned_sums(x->s);
	OwnedPiece *p;
	const int count = owned_pieces(x->b->a, x->s, &p);

	for (int i = 0; i < count; i++)
		cw_line(w, "pd_owned_sum(%d, %s);", i, piece_text(x, p[i].sum, &p[i]));
	if (moves_parts(sums))
		cw_line(w, "pd_gradients_whole(%s, G, %s);", group_text(x), parts_args(x, sums));
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
		if (!updates(n) || n->op == OP_SquareSum)
			continue;
		const int owner = owner_of_update(x->s, n);
		const int64_t part = owned_sums(x->s) && op_attr(n->op, "part") ? attr_int(n, "part") : 0;
		const int64_t count = type_numel(&n->in[0]->type);
		if (owner >= 0)
			cw_line(w, "pd_broadcast(%s, %d, %s, %s);", group_text(x), owner, value_text(x, n->in[0]),
				bytes_text(x->b->a, n->in[0]));
		for (int r = 0; part && part_held(count, part, r); r++)
			cw_line(w, "pd_broadcast(%s, %d, %s, %" PRId64 " * sizeof(float));", group_text(x), r,
				piece_text(x, n->in[0], &(OwnedPiece){ .at = r * part }), part_held(count, part, r));
	}
}
