/* Calls of kernels: of a node, of updates that one launch does, of the rounded copies of weights. */
#include <inttypes.h>
#include "stage.h"

static const char *microbatch_text(void *stage_cx) { return use(stage_cx, NAME_MB); }

/* The gradient that an update node takes, for --dump-grads. Rows add to what an update of the same parameter told before. */
static void write_gradient(StageCx *x, Cw *w, const Node *n)
{
	const int i = table_base(x->b, x->s->id, true) + param_index(x->s, n->in[0]);
	bool add = false;

	if (n->op != OP_SGDRows) {
		const Value *g = n->in[n->nin - 2];
		if (sums_each(x->s) && attr_int(n, "part") == type_numel(&g->type))
			cw_line(w, "pd_gradient_part(%s, %d, %s, %" PRId64 ");", group_text(x), i, value_text(x, g),
				type_numel(&g->type));
		else
			cw_line(w, "pd_gradient(%d, %s);", i, value_text(x, g));
		return;
	}
	for (const Node *k = n->prev; k; k = k->prev)
		add |= (optab[k->op]->flags & OP_UPDATE) && k->in[0] == n->in[0];
	const int64_t rows = type_numel(&n->in[1]->type), all = type_numel(&n->in[2]->type);
	cw_line(w, "pd_gradient_rows(%d, %s, %s, %" PRId64 ", %" PRId64 ", %d);", i, value_text(x, n->in[1]),
		value_text(x, n->in[2]), rows, rows ? all / rows : 0, add);
}

static Place place_here(StageCx *x) { return (Place){ x, value_text, object_text, scratch_text, microbatch_text }; }

/* Nodes that one call does: one, or rows of a table. */
static void write_kernel_nodes(StageCx *x, Cw *w, int n, const Node *const *node)
{
	const Place here = place_here(x);
	const NodeKernel *nk = kernel_of(&x->kernels, node[0]);
	const char **comment = NEWN(x->b->a, const char *, n);

	if (!nk) {
		x->failed = true;
		return;
	}
	if (nk->object)
		PUSH(x->b->a, x->object, x->nobject, x->capobject) = node[0];
	for (int i = 0; i < n; i++) {
		const Node *k = node[i];
		if ((optab[k->op]->flags & OP_UPDATE) && k->in[0]->param->kind == PARAM_WEIGHT && k->nin >= 3)
			write_gradient(x, w, k);
		comment[i] = comment_of(x, k);
	}
	write_call(&x->kernels, w, n, node, comment, &here);
	for (int i = 0; i < n; i++)
		write_updated(x, w, node[i]);
}

void write_kernel_node(StageCx *x, Cw *w, const Node *n) { write_kernel_nodes(x, w, 1, &n); }

/* Each of the nodes, in any order: by a call for those whose calls are the same. */
static void write_alike(StageCx *x, Cw *w, int n, const Node **node)
{
	const Place here = place_here(x);
	const Node **row = NEWN(x->b->a, const Node *, n);

	for (int i = 0; i < n; i++) {
		int rows = 0;
		for (int k = i; node[i] && k < n; k++)
			if (node[k] && (k == i || same_call(&x->kernels, node[i], node[k], &here))) {
				row[rows++] = node[k];
				node[k] = k > i ? NULL : node[k];
			}
		if (rows)
			write_kernel_nodes(x, w, rows, row);
	}
}

/* All that stand side by side and are rows of tables, or one: no two rows are of one parameter. */
const Node *write_updates(StageCx *x, Cw *w, const Node *n, const Node *end)
{
	const Place here = place_here(x);
	const Node **node = NULL, *last = n;
	int count = 0, cap = 0;

	for (const Node *k = n; k != end && update_alone(x, k); k = k->next) {
		const bool row = same_call(&x->kernels, k, k, &here);
		if (row || k == n)
			PUSH(x->b->a, node, count, cap) = last = k;
		if (!row)
			break;
	}
	write_alike(x, w, count, node);
	return last;
}

bool update_alone(const StageCx *x, const Node *n)
{
	return on_gpu(x) && !x->clocks && !x->b->t->loop.check_numerics && optab[n->op]->flags & OP_UPDATE &&
	       n->phase == PHASE_UPDATE && owner_of_update(x->s, n) < 0;
}

/* Does the update write the copy that is made here? */
static bool written_beside(StageCx *x, const Node *copy)
{
	for (int i = 0; i < copy->in[0]->nuses; i++) {
		const Node *n = copy->in[0]->uses[i].node;
		if (copy->op == OP_Cast && n->graph == x->s->update && updates(n) && n->in[0] == copy->in[0] &&
			writes_copy(&x->kernels, n))
			return true;
	}
	return false;
}

/* The nodes that make copies of weights; left: those that updates do not write. */
static int list_copies(StageCx *x, bool left, const Node ***list)
{
	int n = 0, cap = 0;

	*list = NULL;
	for (const Node *k = x->s->forward->first; k; k = k->next)
		if (cast_once(k) && !(left && written_beside(x, k)))
			PUSH(x->b->a, *list, n, cap) = k;
	return n;
}

/* Weights in 16 bits: made before the first forward of all, and by every update or behind it. */
void write_rounding(StageCx *x, Cw *w)
{
	const Node **copy;

	if (!rounds(x->s))
		return;
	cw_blank(w);
	cw_stmt(w, "the copies of weights are there", "static bool rounded;");
	cw_blank(w);
	cw_func(w, "static void round_weights(void)");
	const int n = list_copies(x, false, &copy);
	write_alike(x, w, n, copy);
	cw_line(w, "rounded = true;");
	cw_end(w);
}

void write_copies_left(StageCx *x, Cw *w)
{
	const Node **copy, **all;

	if (!rounds(x->s))
		return;
	const int n = list_copies(x, true, &copy);
	if (n == list_copies(x, false, &all))
		cw_line(w, "round_weights();");
	else
		write_alike(x, w, n, copy);
}
